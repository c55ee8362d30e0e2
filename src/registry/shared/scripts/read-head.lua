-- The head of the registry, the time, and whether records were lost.
local call = redis.call
local head = call('HMGET', KEYS[1], 'history', 'version', 'commit', 'hashKey', 'settle', 'logBytes',
  'n3', 'n4', 'n5', 'n6', 'n7')
local history, version = head[1], tonumber(head[2])
--#include read-time.lua
local settlingMs = math.max(0, (tonumber(head[5]) or 0) - nowMs)
local isDamaged = false
for i = FIRST_TABLE, LAST_TABLE do
  if call('HLEN', KEYS[i]) ~= tonumber(head[i + 4]) then isDamaged = true end
end
