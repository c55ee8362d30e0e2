-- The last call of a member that has returned its leases and reported its usage. From now on the
-- member counts as silent: nobody waits for it, to join or after a failover. Its record stays until
-- its usage no longer counts: a Redis that loses everything has nobody else to report it. In a
-- recovery, and if Redis may have lost what it has reported, nothing is done.
-- ARGV after the header: until when its usage counts, ms.
--#include clock.lua
local canLeave = bucket[3] and bucket[2] == runId and fenceUs == 0
  and reportedEpoch == format(EPOCH, runId, epochNumber)
if canLeave then
  local _, addedVersion, knownVersion, hasJoined, presentedIn, reportedIn =
    unpack(MEMBER, bucket[3])
  local keptUntilUs = tonumber(ARGV[HEADER_ARGUMENTS + 1]) * 1000
  local calledUs = min(clockUs - LIVE_US - 1, keptUntilUs - KEPT_US)
  call('HSET', bucketKey, BUCKET_MEMBER .. me,
    pack(MEMBER, calledUs, addedVersion, knownVersion, hasJoined, presentedIn, reportedIn))
  countedUs = 0
  --#include store-meta.lua
end
return {canLeave and '1' or '0'}
