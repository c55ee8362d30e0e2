-- Makes an empty registry where there is none.
-- ARGV: those of `settle-time.lua`, history, hash key.
--#include read-head.lua
--#include settle-time.lua
if version then return {'exists'} end
call('UNLINK', KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6], KEYS[7])
call('HSET', KEYS[1], 'history', ARGV[3], 'version', '0', 'commit', '', 'hashKey', ARGV[4],
  'settle', settle, 'logBytes', 0, 'n3', 0, 'n4', 0, 'n5', 0, 'n6', 0, 'n7', 0)
return {'created'}
