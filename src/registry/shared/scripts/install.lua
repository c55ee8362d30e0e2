-- Replaces the registry by staged records, if it is lost, damaged, older than they are, or new and
-- still unused. KEYS[8] to [12]: the staged tables.
-- ARGV: those of `settle-time.lua`, history, version, last commit, hash key, number of records of
-- each table.
--#include read-head.lua
--#include settle-time.lua
local ownHistory, ownVersion = ARGV[3], tonumber(ARGV[4])
if version then
  local isOlder = history == ownHistory
    and (version < ownVersion or (version == ownVersion and isDamaged))
  local isUnused = version == 0 and settlingMs > 0
  if not isOlder and not isUnused then return {'refused'} end
end
for i = 8, 12 do
  if call('HLEN', KEYS[i]) ~= tonumber(ARGV[i - 1]) then return {'incomplete'} end
end
call('UNLINK', KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6], KEYS[7])
for i = 8, 12 do
  if tonumber(ARGV[i - 1]) > 0 then
    call('PERSIST', KEYS[i])
    call('RENAME', KEYS[i], KEYS[i - 5])
  end
end
call('HSET', KEYS[1], 'history', ownHistory, 'version', ARGV[4], 'commit', ARGV[5],
  'hashKey', ARGV[6], 'settle', settle, 'logBytes', 0,
  'n3', ARGV[7], 'n4', ARGV[8], 'n5', ARGV[9], 'n6', ARGV[10], 'n7', ARGV[11])
return {'installed'}
