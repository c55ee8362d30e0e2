-- Answers a call of a member that must not go on, and otherwise stores what is due. A member that
-- is not known to all others goes on only where a recovery need not be exact. It `isJoining` then:
-- Redis decides its checks, and lends it nothing.

-- Keys that the server has evicted since the last look may have been counters.
if evictedKeys and bucket[1] then
  local evictedBefore = call('HGET', bucketKey, BUCKET_EVICTED_KEYS)
  if evictedKeys ~= evictedBefore then
    if evictedBefore then lostUs = clockUs end
    call('HSET', bucketKey, BUCKET_EVICTED_KEYS, evictedKeys)
  end
end
local isRegistered = false
if bucket[3] and bucket[2] == runId and fenceUs == 0 and clockUs - countedUs < SCAN_US then
  local calledUs, _, knownVersion, hasJoined = unpack(MEMBER, bucket[3])
  isRegistered = hasJoined == 1 and knownVersion >= acknowledged and clockUs - calledUs < CONTACT_US
end
if not isRegistered then
  --#include membership.lua
  local status = register(nil)
  if status ~= CALL_DONE then return {answerHeader(status)} end
elseif isAnchorOld then
  --#include store-meta.lua
end
