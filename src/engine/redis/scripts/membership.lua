-- The list of members of a bucket, and its epochs.
--#include publish.lua
local epoch = format(EPOCH, runId, epochNumber)

local function answerHeader(status)
  --#include answer-header.lua
  return header
end

local function storeMeta()
  --#include store-meta.lua
end

local function nextVersion()
  membersVersion = max(membersVersion + 1, nowMs)
end

-- Whether a recovery waits for a member that has last called then.
local function isAwaited(calledUs)
  local beganUs = epochNumber * 1000
  return not isAvailable or clockUs - calledUs <= LIVE_US
    and (calledUs >= beganUs or clockUs < beganUs + AWAIT_US)
end

-- Begins a recovery: all members must report.
local hasBegun = false
local function beginEpoch()
  hasBegun = true
  epochNumber = max(epochNumber + 1, nowMs)
  epoch = format(EPOCH, runId, epochNumber)
  fenceUs = clockUs + FENCE_AHEAD_US
  for _, field in ipairs(call('HKEYS', bucketKey)) do
    local member = match(field, BUCKET_MEMBER_PATTERN)
    if member then publish(member, format(NOTICE_EPOCH, runId, epochNumber)) end
  end
end

-- The slow path of a call: stores the contact, joins members, counts machines, ends a recovery.
-- `presented` are the members that this member knows; nil: it does not present them.
-- Returns the status of the call.
local function register(presented)
  if not bucket[1] then return CALL_NEEDS_MEMBERS end
  local members, forgottenUs, isChanged = {}, {}, {}
  local fields = call('HGETALL', bucketKey)
  for i = 1, #fields, 2 do
    local member, forgotten = match(fields[i], BUCKET_MEMBER_PATTERN), nil
    if member then
      local calledUs, addedVersion, knownVersion, hasJoined, presentedIn, reportedIn =
        unpack(MEMBER, fields[i + 1])
      members[member] = {
        calledUs = calledUs, addedVersion = addedVersion, knownVersion = knownVersion,
        hasJoined = hasJoined, presentedIn = presentedIn, reportedIn = reportedIn,
      }
    else forgotten = match(fields[i], BUCKET_FORGOTTEN_PATTERN) end
    if forgotten then forgottenUs[forgotten] = tonumber(fields[i + 1]) end
  end

  local function storeMembers()
    for member in pairs(isChanged) do
      local record = members[member]
      call('HSET', bucketKey, BUCKET_MEMBER .. member, pack(MEMBER, record.calledUs,
        record.addedVersion, record.knownVersion, record.hasJoined, record.presentedIn,
        record.reportedIn))
    end
  end

  if bucket[2] ~= runId then
    beginEpoch()
    call('HSET', bucketKey, BUCKET_RUN_ID, runId)
    for member, record in pairs(members) do
      -- What it did last is older than what this server knows: nothing of it is lost.
      if anchorUs - record.calledUs > LIVE_US then
        record.presentedIn, record.reportedIn = epochNumber, epochNumber
        isChanged[member] = true
      end
    end
  end

  local isFromOtherEpoch = reportedEpoch ~= '' and reportedEpoch ~= epoch
  if presented and isFromOtherEpoch and fenceUs == 0 and not members[me] then
    beginEpoch()
  end
  -- It may have used windows that begin later by the clock of this server.
  if fenceUs > 0 and isFromOtherEpoch then fenceUs = max(fenceUs, seenUs + FENCE_AHEAD_US) end
  if presented and fenceUs > 0 then
    local isNew = false
    for _, member in ipairs(presented) do
      local record = members[member]
      if member ~= me and not record and not forgottenUs[member] then
        nextVersion()
        -- It has not called in this epoch.
        members[member] = {
          calledUs = epochNumber * 1000 - 1, addedVersion = membersVersion, knownVersion = 0,
          hasJoined = 1, presentedIn = 0, reportedIn = 0,
        }
        isChanged[member], isNew = true, true
      elseif member ~= me and record and record.hasJoined == 0
          and record.presentedIn < epochNumber then
        -- It may have joined, and got tokens, after what this server remembers.
        record.hasJoined = 1
        isChanged[member], isNew = true, true
      end
    end
    -- Counters that were verified did not wait for it.
    if isNew and not hasBegun then beginEpoch() end
  end

  local mine = members[me]
  local status = CALL_DONE
  if not mine then
    if isFromOtherEpoch and not presented then
      storeMembers()
      storeMeta()
      return CALL_NEEDS_MEMBERS
    end
    nextVersion()
    -- A member of an earlier epoch may hold tokens, and must report. A new one has none.
    mine = {
      calledUs = clockUs, addedVersion = membersVersion, knownVersion = 0, hasJoined = 0,
      presentedIn = epochNumber, reportedIn = epochNumber,
    }
    if isFromOtherEpoch then mine.hasJoined, mine.reportedIn = 1, 0 end
    members[me] = mine
    if forgottenUs[me] then call('HDEL', bucketKey, BUCKET_FORGOTTEN .. me) end
    forgottenUs[me] = nil
  elseif isFromOtherEpoch and mine.reportedIn < epochNumber then mine.hasJoined = 1 end
  mine.calledUs, mine.knownVersion = clockUs, max(mine.knownVersion, acknowledged)
  if presented then mine.presentedIn = epochNumber end
  if reportedEpoch == epoch then mine.presentedIn, mine.reportedIn = epochNumber, epochNumber end
  if fenceUs > 0 and mine.presentedIn < epochNumber then status = CALL_NEEDS_MEMBERS end
  isChanged[me] = true

  local isLive, isComplete, lacksReport, isKnown = {}, true, false, true
  machineCount = 0
  for member, record in pairs(members) do
    local silentUs = clockUs - record.calledUs
    if silentUs > KEPT_US then
      call('HDEL', bucketKey, BUCKET_MEMBER .. member)
      isChanged[member] = nil
      nextVersion()
    else
      local machine = match(member, MACHINE_PATTERN)
      if silentUs <= LIVE_US then
        if not isLive[machine] then machineCount = machineCount + 1 end
        isLive[machine] = true
        if member ~= me and record.knownVersion < mine.addedVersion then isKnown = false end
      end
      -- It reports after it has presented. One that has not joined has tokens only if available.
      if (record.hasJoined == 1 or isAvailable) and record.reportedIn < epochNumber then
        if isAwaited(record.calledUs) then isComplete = false else lacksReport = true end
      end
    end
  end
  for member, atUs in pairs(forgottenUs) do
    if clockUs - atUs > KEPT_US then call('HDEL', bucketKey, BUCKET_FORGOTTEN .. member) end
    if atUs >= fenceUs - FENCE_AHEAD_US then lacksReport = true end
  end
  if isKnown then mine.hasJoined = 1 end
  if status == CALL_DONE and mine.hasJoined == 0 and not isAvailable then status = CALL_JOINING end
  if fenceUs > 0 and isComplete then
    if lacksReport then openedUs = fenceUs end
    fenceUs = 0
    if mine.hasJoined == 1 then status = CALL_DONE end
  end
  isJoining = mine.hasJoined == 0

  storeMembers()
  countedUs = clockUs
  storeMeta()
  return status
end
