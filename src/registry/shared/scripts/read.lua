-- ARGV: history, version and last commit of the replica.
-- Returns status, history, version, commit, hash key, ms until it has settled; for the status `log`
-- followed by version, commit and text of the next entries.
--#include read-head.lua
if not version then return {'empty'} end
local ownHistory, ownVersion, ownCommit = ARGV[1], tonumber(ARGV[2]), ARGV[3]
local reply = {'same', history, head[2], head[3], head[4], string.format('%.0f', settlingMs)}
if history ~= ownHistory then
  reply[1] = 'other'
elseif version < ownVersion then
  reply[1] = 'behind'
elseif version == ownVersion then
  if head[3] ~= ownCommit then reply[1] = 'forked' elseif isDamaged then reply[1] = 'damaged' end
else
  local entries =
    call('XRANGE', KEYS[2], string.format('%.0f-0', ownVersion), '+', 'COUNT', LOG_PAGE)
  local first = 1
  if entries[1] and entries[1][1] == string.format('%.0f-0', ownVersion) then
    if entries[1][2][2] ~= ownCommit then
      reply[1] = 'forked'
      return reply
    end
    first = 2
  end
  if entries[first] and entries[first][1] == string.format('%.0f-0', ownVersion + 1) then
    reply[1] = 'log'
    for i = first, #entries do
      reply[#reply + 1] = string.match(entries[i][1], '^%d+')
      reply[#reply + 1] = entries[i][2][2]
      reply[#reply + 1] = entries[i][2][4]
    end
  else
    reply[1] = isDamaged and 'lost' or 'snapshot'
  end
end
return reply
