-- Marks the members that must report before a counter is served: in a recovery those that have not
-- reported everything, and otherwise all. Where it is only possible that the counter existed, those
-- that are silent are not waited for, also if a recovery is exact.
local fields = call('HGETALL', bucketKey)
local beganUs = epochNumber * 1000
for k = 1, #fields, 2 do
  local member = match(fields[k], BUCKET_MEMBER_PATTERN)
  if member then
    local calledUs, _, _, hasJoined, _, reportedIn = unpack(MEMBER, fields[k + 1])
    local isBehind = reportedIn < epochNumber and (hasJoined == 1 or isAvailable)
    if isLost or isPreviousLost or isGuess or isBehind then
      local isOnlyGuess = isGuess and not isLost and not isPreviousLost and not isBehind
      local isGone = (isAvailable or isOnlyGuess) and (clockUs - calledUs > LIVE_US
        or isBehind and calledUs < beganUs and clockUs >= beganUs + AWAIT_US)
      local mark = isOnlyGuess and ACCOUNT_MUST_REPORT + ACCOUNT_IS_GUESS or ACCOUNT_MUST_REPORT
      if isGone then isMissing = true
      elseif member == me then
        if ownFlags % (2 * ACCOUNT_MUST_REPORT) < ACCOUNT_MUST_REPORT then
          awaited, ownFlags = awaited + 1, ownFlags % ACCOUNT_MUST_REPORT + mark
          ownFirstRequestUs, ownLastRequestUs = clockUs, 0
        end
      else
        local account = call('HGET', key, member)
        local otherDeducted, otherUsage, otherSequence, otherBase, otherRate, otherFlags =
          0, 0, 0, 0, 0, 0
        if account then
          otherDeducted, otherUsage, otherSequence, otherBase, otherRate, otherFlags =
            unpack(ACCOUNT, account)
        end
        if otherFlags % (2 * ACCOUNT_MUST_REPORT) < ACCOUNT_MUST_REPORT then
          awaited = awaited + 1
          call('HSET', key, member, pack(ACCOUNT, otherDeducted, otherUsage, otherSequence,
            otherBase, otherRate, otherFlags % ACCOUNT_MUST_REPORT + mark, clockUs, 0))
        end
      end
    end
  end
end
if fenceUs > 0 then call('HSET', key, COUNTER_VERIFIED, format('%d', epochNumber)) end
if stored[1] then call('HDEL', key, COUNTER_HAD_PREVIOUS) end
isVerified, isMarked = true, true
