-- Begins each script of a member: its arguments, the record of the bucket, and the clock.
-- KEYS[1] is the bucket, and ARGV has the header of the call: see `records.ts`.

local call, floor, max, min = redis.call, math.floor, math.max, math.min
local format, match, tonumber = string.format, string.match, tonumber
local pack, unpack = struct.pack, struct.unpack

local bucketKey = KEYS[1]
local me, reportedEpoch, numbers = ARGV[1], ARGV[2], ARGV[3]
local acknowledged, seenUs, callFlags, firstMessage = unpack(HEADER, numbers)
local isCluster = callFlags % (2 * CALL_IS_CLUSTER) >= CALL_IS_CLUSTER
local isAvailable = callFlags >= CALL_IS_AVAILABLE

local time = call('TIME')
local timeUs = time[1] * 1000000 + time[2]
local bucket = call('HMGET', bucketKey, BUCKET_META, BUCKET_RUN_ID, BUCKET_MEMBER .. me)
local anchorUs, anchorTimeUs, fenceUs, epochNumber, membersVersion, machineCount = 0, 0, 0, 0, 0, 0
local countedUs, openedUs, lostUs = 0, 0, 0
if bucket[1] then
  anchorUs, anchorTimeUs, fenceUs, epochNumber, membersVersion, machineCount, countedUs, openedUs,
    lostUs = unpack(META, bucket[1])
end
local clockUs
if timeUs >= anchorTimeUs then
  clockUs = max(timeUs, anchorUs + floor((timeUs - anchorTimeUs) * CLOCK_SLEW_RATE))
else
  -- TIME was set back. Since the clock was stored, calls were given a later one, by less than this.
  clockUs = anchorUs + ANCHOR_US
end
local isAnchorOld = clockUs - anchorUs >= ANCHOR_US or timeUs < anchorTimeUs or clockUs < seenUs
local runId, evictedKeys = bucket[2], false
if isAnchorOld or not runId then
  local info = call('INFO', 'server', 'stats')
  local at = info:find('run_id:', 1, true)
  runId = info:sub(at + 7, at + 46)
  evictedKeys = match(info, 'evicted_keys:(%d+)')
end
clockUs = max(clockUs, seenUs)
local nowMs = floor(clockUs / 1000)
local isJoining = false
