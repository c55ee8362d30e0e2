/**
 * The Lua text that begins each script of a member: the clock of the bucket, its epoch, and its
 * members. The hash of a bucket, `weir:{tag}:m`, has these fields; numbers are packed as doubles:
 *
 *   a           clock and TIME when it was stored, µs; fence, epoch number, version of the list of
 *               members, number of machines, when they were counted; the last fence that a recovery
 *               removed without all reports; when keys were last found to be lost
 *   e           the run id of the server that wrote it: another one means memory may be lost
 *   s           how many keys the server had evicted
 *   m:<member>  last call; version of the list that first had it, and that it knows; whether it has
 *               joined; the epoch for which it presented its list, and for which it has reported
 *   f:<member>  when it was forgotten: it is not added again because another presents it
 *
 * The clock is TIME. Where TIME is behind the clock, it runs at 0.9 of its speed until level.
 *
 * After a loss of all memory, or of the last changes, a new epoch begins, and the fence is its
 * beginning: members report all counters. Until all have, a counter whose window began before the
 * fence is served only when each member that has not reported everything has reported this counter.
 * After a loss of keys, the same is done for each counter that is missing: see `exchange.ts`.
 *
 * With WEIR_RECOVERY=available only members that call are waited for, and for AWAIT_US at most.
 *
 * Each call creates the functions of its script again, which takes time. So the scripts of checks
 * define functions that they rarely need inside the branches that need them.
 */

import {
  ANCHOR_US,
  AWAIT_US,
  CLOCK_SLEW_RATE,
  CONTACT_US,
  FENCE_AHEAD_US,
  KEPT_US,
  LIVE_US,
  SCAN_US,
} from './protocol-constants.ts';

/** The base of a record whose window was over at its reset: all usage was before the reset. */
export const CLEARED = 2 ** 52;

/** ARGV of all scripts of a member: see `headerArguments` in `reply.ts`. */
export const HEADER_ARGUMENTS = 3;

export const CLOCK = `
local call, floor, max, min = redis.call, math.floor, math.max, math.min
local format, match, tonumber = string.format, string.match, tonumber
local pack, unpack = struct.pack, struct.unpack
local META, MEMBER = '<ddddddddd', '<dddddd'

local metaKey = KEYS[1]
local me, reportedEpoch, doubles = ARGV[1], ARGV[2], ARGV[3]
local acknowledged, seen, flags, firstMessage = unpack('<ddd', doubles)
local isCluster, isAvailable = flags % 2 >= 1, flags >= 2

local time = call('TIME')
local now = time[1] * 1000000 + time[2]
local bucket = call('HMGET', metaKey, 'a', 'e', 'm:' .. me)
local anchor, anchorTime, fence, epochNumber, version, machines, scannedAt = 0, 0, 0, 0, 0, 0, 0
local opened, lostAt = 0, 0
if bucket[1] then
  anchor, anchorTime, fence, epochNumber, version, machines, scannedAt, opened, lostAt =
    unpack(META, bucket[1])
end
local clock = anchor
if now >= anchorTime then clock = max(now, anchor + floor((now - anchorTime) * ${CLOCK_SLEW_RATE}))
-- TIME was set back. Since the clock was stored, calls were given a later one, by less than this.
else clock = anchor + ${ANCHOR_US} end
local isAnchorOld = clock - anchor >= ${ANCHOR_US} or now < anchorTime or clock < seen
local runId, evicted = bucket[2], false
if isAnchorOld or not runId then
  local info = call('INFO', 'server', 'stats')
  local at = info:find('run_id:', 1, true)
  runId = info:sub(at + 7, at + 46)
  evicted = match(info, 'evicted_keys:(%d+)')
end
clock = max(clock, seen)
local nowMs = floor(clock / 1000)
local isJoining = false
`;

/** What begins the answer of a call that has the status in `status`. Its end is rarely needed. */
export const HEADER = `format('%d %d %s.%d %d %d %d', status, clock, runId, epochNumber,
  fence > 0 and 1 or 0, version, machines) .. ((opened > 0 or clock > now)
  and format(' %d %d', opened, max(0, clock - now)) or '')`;

export const STORE_META = `call('HSET', metaKey,
    'a', pack(META, clock, now, fence, epochNumber, version, machines, scannedAt, opened, lostAt))`;

export const PUBLISH = `
local function publish(member, text)
  return call(isCluster and 'SPUBLISH' or 'PUBLISH', metaKey:sub(1, -2) .. 'r:' .. member, text)
end
`;

/** The epoch, as members name it. */
export const EPOCH = `format('%s.%d', runId, epochNumber)`;

export const MEMBERSHIP = `
${PUBLISH}
local epoch = ${EPOCH}
local function header(status)
  return ${HEADER}
end

local function storeMeta()
  ${STORE_META}
end

local function nextVersion()
  version = max(version + 1, nowMs)
end

-- Whether a recovery waits for a member that has last called then.
local function isAwaited(contact)
  local beganAt = epochNumber * 1000
  return not isAvailable or clock - contact <= ${LIVE_US}
    and (contact >= beganAt or clock < beganAt + ${AWAIT_US})
end

-- Begins a recovery: all members must report.
local hasBegun = false
local function newEpoch()
  hasBegun = true
  epochNumber = max(epochNumber + 1, nowMs)
  epoch = ${EPOCH}
  fence = clock + ${FENCE_AHEAD_US}
  for _, field in ipairs(call('HKEYS', metaKey)) do
    local member = match(field, '^m:(.+)$')
    if member then publish(member, 'epoch ' .. epoch) end
  end
end

-- The slow path of a call: stores the contact, joins members, counts machines, ends a recovery.
-- 'presented' are the members that this member knows; nil: it does not present them.
-- Returns the status of the call: 0 done, 1 joining, 2 needs members.
local function register(presented)
  if not bucket[1] then return 2 end
  local members, isChanged = {}, {}
  local everything = call('HGETALL', metaKey)
  local isForgotten = {}
  for i = 1, #everything, 2 do
    local kind, member = match(everything[i], '^([mf]):(.+)$')
    if kind == 'm' then members[member] = {unpack(MEMBER, everything[i + 1])} end
    if kind == 'f' then isForgotten[member] = tonumber(everything[i + 1]) end
  end

  local function storeMembers()
    for member in pairs(isChanged) do
      local record = members[member]
      call('HSET', metaKey, 'm:' .. member, pack(MEMBER, record[1], record[2], record[3], record[4],
        record[5], record[6]))
    end
  end

  if bucket[2] ~= runId then
    newEpoch()
    call('HSET', metaKey, 'e', runId)
    for member, record in pairs(members) do
      -- What it did last is older than what this server knows: nothing of it is lost.
      if anchor - record[1] > ${LIVE_US} then
        record[5], record[6] = epochNumber, epochNumber
        isChanged[member] = true
      end
    end
  end

  local isFromOtherEpoch = reportedEpoch ~= '' and reportedEpoch ~= epoch
  if presented and isFromOtherEpoch and fence == 0 and not members[me] then
    newEpoch()
  end
  -- It may have used windows that begin later by the clock of this server.
  if fence > 0 and isFromOtherEpoch then fence = max(fence, seen + ${FENCE_AHEAD_US}) end
  if presented and fence > 0 then
    local isNew = false
    for _, member in ipairs(presented) do
      local record = members[member]
      if member ~= me and not record and not isForgotten[member] then
        nextVersion()
        -- It has not called in this epoch.
        members[member] = {epochNumber * 1000 - 1, version, 0, 1, 0, 0}
        isChanged[member], isNew = true, true
      elseif member ~= me and record and record[4] == 0 and record[5] < epochNumber then
        -- It may have joined, and got tokens, after what this server remembers.
        record[4] = 1
        isChanged[member], isNew = true, true
      end
    end
    -- Counters that were verified did not wait for it.
    if isNew and not hasBegun then newEpoch() end
  end

  local mine = members[me]
  local status = 0
  if not mine then
    if isFromOtherEpoch and not presented then
      storeMembers()
      storeMeta()
      return 2
    end
    nextVersion()
    -- A member of an earlier epoch may hold tokens, and must report. A new one has none.
    if isFromOtherEpoch then mine = {clock, version, 0, 1, epochNumber, 0}
    else mine = {clock, version, 0, 0, epochNumber, epochNumber} end
    members[me] = mine
    if isForgotten[me] then call('HDEL', metaKey, 'f:' .. me) end
    isForgotten[me] = nil
  elseif isFromOtherEpoch and mine[6] < epochNumber then mine[4] = 1 end
  mine[1], mine[3] = clock, max(mine[3], acknowledged)
  if presented then mine[5] = epochNumber end
  if reportedEpoch == epoch then mine[5], mine[6] = epochNumber, epochNumber end
  if fence > 0 and mine[5] < epochNumber then status = 2 end
  isChanged[me] = true

  local isLive, isComplete, isMissing, isKnown = {}, true, false, true
  machines = 0
  for member, record in pairs(members) do
    local age = clock - record[1]
    if age > ${KEPT_US} then
      call('HDEL', metaKey, 'm:' .. member)
      isChanged[member] = nil
      nextVersion()
    else
      local machine = match(member, '^[^.]+')
      if age <= ${LIVE_US} then
        if not isLive[machine] then machines = machines + 1 end
        isLive[machine] = true
        if member ~= me and record[3] < mine[2] then isKnown = false end
      end
      -- It reports after it has presented. One that has not joined has tokens only if available.
      if (record[4] == 1 or isAvailable) and record[6] < epochNumber then
        if isAwaited(record[1]) then isComplete = false else isMissing = true end
      end
    end
  end
  for member, time in pairs(isForgotten) do
    if clock - time > ${KEPT_US} then call('HDEL', metaKey, 'f:' .. member) end
    if time >= fence - ${FENCE_AHEAD_US} then isMissing = true end
  end
  if isKnown then mine[4] = 1 end
  if status == 0 and mine[4] == 0 and not isAvailable then status = 1 end
  if fence > 0 and isComplete then
    if isMissing then opened = fence end
    fence = 0
    if mine[4] == 1 then status = 0 end
  end
  isJoining = mine[4] == 0

  storeMembers()
  scannedAt = clock
  storeMeta()
  return status
end
`;

/** Keys that the server has evicted since the last look may have been counters. */
const EVICTIONS = `
if evicted and bucket[1] then
  local before = call('HGET', metaKey, 's')
  if evicted ~= before then
    if before then lostAt = clock end
    call('HSET', metaKey, 's', evicted)
  end
end`;

/**
 * Answers a call of a member that must not go on, and otherwise stores what is due. A member that
 * is `isJoining` is not known to all others: Redis decides its checks, and grants it no leases.
 */
export const ENTER = `
${EVICTIONS}
local isRegistered = false
if bucket[3] and bucket[2] == runId and fence == 0 and clock - scannedAt < ${SCAN_US} then
  local contact, _, known, hasJoined = unpack(MEMBER, bucket[3])
  isRegistered = hasJoined == 1 and known >= acknowledged and clock - contact < ${CONTACT_US}
end
if not isRegistered then
  ${MEMBERSHIP}
  local status = register(nil)
  if status ~= 0 then return {header(status)} end
elseif isAnchorOld then
  ${STORE_META}
end
`;

/** The hash by which `inspect` and `reset` find the counters of an identity. */
export const INDEX = `
local function addToIndex(identity, name, expiry)
  local index = metaKey:sub(1, -2) .. 'i:' .. identity
  local added = call('HSET', index, name, expiry)
  -- A key that was just made does not expire, for which GT does nothing.
  if added == 0 or call('PEXPIREAT', index, expiry, 'NX') == 0 then
    call('PEXPIREAT', index, expiry, 'GT')
  end
end
`;
