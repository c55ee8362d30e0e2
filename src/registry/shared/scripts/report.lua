-- Stores the report of a machine, after the time of this call. KEYS[8]: the machines.
-- ARGV: machine, its report, ms after which a silent machine is removed.
--#include read-time.lua
local machine, report, silentMs = ARGV[1], ARGV[2], tonumber(ARGV[3])
redis.call('HSET', KEYS[8], machine, string.format('%.0f ', nowMs) .. report)
local reports = redis.call('HGETALL', KEYS[8])
for i = 1, #reports, 2 do
  local calledMs = tonumber(string.match(reports[i + 1], '^%d+') or '0')
  if nowMs - calledMs > silentMs then redis.call('HDEL', KEYS[8], reports[i]) end
end
return {'reported'}
