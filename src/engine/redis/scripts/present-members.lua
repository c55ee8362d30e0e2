-- Is called when Redis answers that it needs members: opens an empty Redis, or joins a recovery.
-- ARGV after the header: how long an empty Redis waits for members that know others, ms; the
-- members that this one knows.
--#include clock.lua
--#include membership.lua
local presented = {}
for i = HEADER_ARGUMENTS + 2, #ARGV do presented[#presented + 1] = ARGV[i] end
local hasTokens = reportedEpoch ~= ''
if not bucket[1] then
  local upMs = match(call('INFO', 'server'), 'uptime_in_seconds:(%d+)') * 1000
  local graceMs = tonumber(ARGV[HEADER_ARGUMENTS + 1])
  if #presented == 0 and not hasTokens and upMs < graceMs then
    return {answerHeader(CALL_JOINING)}
  end
  epochNumber, membersVersion = nowMs, nowMs
  epoch = format(EPOCH, runId, epochNumber)
  if hasTokens or #presented > 0 then beginEpoch() end
  call('HSET', bucketKey, BUCKET_RUN_ID, runId)
  storeMeta()
  bucket[1], bucket[2] = true, runId
end
return {answerHeader(register(presented))}
