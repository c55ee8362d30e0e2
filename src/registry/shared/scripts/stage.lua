-- Stages records for `install`, which must follow soon. KEYS[1]: a staged table.
-- ARGV: seconds until they are removed, then rows and records.
for i = 2, #ARGV, 2 do redis.call('HSET', KEYS[1], ARGV[i], ARGV[i + 1]) end
redis.call('EXPIRE', KEYS[1], ARGV[1])
return {'staged'}
