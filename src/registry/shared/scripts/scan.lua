-- ARGV: index of a table in KEYS, cursor, count. Returns the next cursor, rows and records.
local page = redis.call('HSCAN', KEYS[tonumber(ARGV[1])], ARGV[2], 'COUNT', ARGV[3])
local reply = page[2]
table.insert(reply, 1, page[1])
return reply
