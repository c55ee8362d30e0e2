-- A fixed window: adds ARGV[1] to KEYS[1]; the first use begins a window of ARGV[2] ms.
local used = redis.call('INCRBY', KEYS[1], ARGV[1])
if used == tonumber(ARGV[1]) then
  redis.call('PEXPIRE', KEYS[1], ARGV[2])
end
return { used, redis.call('PTTL', KEYS[1]) }
