-- A fixed window: counts ARGV[1] for KEYS[1], and begins a window of ARGV[2] ms where there is none.
local used = redis.call('INCRBY', KEYS[1], ARGV[1])
if used == tonumber(ARGV[1]) then
  redis.call('PEXPIRE', KEYS[1], ARGV[2])
end
return { used, redis.call('PTTL', KEYS[1]) }
