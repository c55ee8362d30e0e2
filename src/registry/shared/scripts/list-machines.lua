-- Returns the time in Unix ms, then the machines and their reports. KEYS[8]: the machines.
--#include read-time.lua
local reply = redis.call('HGETALL', KEYS[8])
table.insert(reply, 1, string.format('%.0f', nowMs))
return reply
