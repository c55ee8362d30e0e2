-- Lets one machine at a time make the first key. ARGV: machine, ms for which it may.
-- Returns `claimed`, `taken` by another machine, or `exists` where there is a key.
--#include read-head.lua
if not version or head[7] ~= '0' then return {'exists'} end
local machine, claimMs = ARGV[1], tonumber(ARGV[2])
local claim = call('HMGET', KEYS[1], 'claimedBy', 'claimedUntil')
if claim[1] and claim[1] ~= machine and tonumber(claim[2]) > nowMs then return {'taken'} end
call('HSET', KEYS[1], 'claimedBy', machine,
  'claimedUntil', string.format('%.0f', nowMs + claimMs))
return {'claimed'}
