-- Applies a group of changes if nobody has changed the registry since a version.
-- ARGV: history, version, id of the commit, text for the log, most bytes of the log, most entries
-- of the audit log, ms after a start of Redis in which nothing is committed; then for each change
-- the index of its table in KEYS, its row and its record, which is empty for a removal.
--#include read-head.lua
--#include read-uptime.lua
if not version then return {'empty'} end
local commit, changes = ARGV[3], ARGV[4]
local maxLogBytes, maxAuditEntries = tonumber(ARGV[5]), tonumber(ARGV[6])
if history ~= ARGV[1] then return {'other'} end
if head[2] ~= ARGV[2] then return {'conflict'} end
settlingMs = math.max(settlingMs, tonumber(ARGV[7]) - upMs)
if settlingMs > 0 then return {'settling', string.format('%.0f', settlingMs)} end
if isDamaged then return {'damaged'} end
local entries = call('XLEN', KEYS[2])
local logBytes = entries > 0 and tonumber(head[6]) or 0
local nextVersion = string.format('%.0f', version + 1)
call('XADD', KEYS[2], nextVersion .. '-0', 'commit', commit, 'changes', changes)
logBytes = logBytes + #changes
while logBytes > maxLogBytes and entries > 0 do
  local oldest = call('XRANGE', KEYS[2], '-', '+', 'COUNT', 1)[1]
  call('XDEL', KEYS[2], oldest[1])
  logBytes = logBytes - #oldest[2][4]
  entries = entries - 1
end
local counts = {}
for i = FIRST_TABLE, LAST_TABLE do counts[i] = tonumber(head[i + 4]) end
for i = 8, #ARGV, 3 do
  local index, row, record = tonumber(ARGV[i]), ARGV[i + 1], ARGV[i + 2]
  if record == '' then
    counts[index] = counts[index] - call('HDEL', KEYS[index], row)
  else
    counts[index] = counts[index] + call('HSET', KEYS[index], row, record)
    if index == AUDIT_TABLE then
      local oldest = string.format('%.0f', tonumber(row) - maxAuditEntries)
      counts[index] = counts[index] - call('HDEL', KEYS[index], oldest)
    end
  end
end
call('HSET', KEYS[1], 'version', nextVersion, 'commit', commit, 'logBytes', logBytes,
  'n3', counts[3], 'n4', counts[4], 'n5', counts[5], 'n6', counts[6], 'n7', counts[7])
return {'committed', nextVersion}
