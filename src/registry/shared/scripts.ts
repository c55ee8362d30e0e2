/**
 * The Lua scripts of the registry in Redis. Each is atomic, and validates everything before its
 * first write: a script that Redis refuses (full, read-only, wrong types) has changed nothing.
 *
 * All begin with the same keys, see `client.ts`: KEYS[1] the head, [2] the log, [3] to [7] the
 * tables. The head is a hash: the history (an id that a new registry gets), the version, the id of
 * the last commit, the hash key, the number of records of each table (n3 to n7), the bytes of the
 * log, and `settle`, the time (Unix ms) until which nothing is committed. The log is a stream with
 * the id `<version>-0`. Versions are decimal strings in both directions.
 */

import { defineScript } from '../../redis/script.ts';

const READ_HEAD = `
local head = redis.call('HMGET', KEYS[1], 'history', 'version', 'commit', 'hashKey', 'settle',
  'logBytes', 'n3', 'n4', 'n5', 'n6', 'n7')
local history, version = head[1], tonumber(head[2])
local time = redis.call('TIME')
local now = tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
local settling = math.max(0, (tonumber(head[5]) or 0) - now)
local damaged = false
for i = 3, 7 do
  if redis.call('HLEN', KEYS[i]) ~= tonumber(head[i + 4]) then damaged = true end
end
`;

const UPTIME = `
local upMs = tonumber(string.match(redis.call('INFO', 'server'), 'uptime_in_seconds:(%d+)')) * 1000
`;

/** ARGV: ms in which connected machines notice, ms in which all connect after a start of Redis. */
const SETTLE = `${UPTIME}local settle = string.format('%.0f',
  now + math.max(tonumber(ARGV[1]), tonumber(ARGV[2]) - upMs))
`;

/**
 * ARGV: history, version and last commit of the replica.
 * @returns status, history, version, commit, hash key, ms until it has settled; for the status
 *   `log` followed by version, commit and text of the next entries
 */
export const READ = defineScript(
  'registry-read',
  `#!lua flags=no-writes
${READ_HEAD}
if not version then return {'empty'} end
local reply = {'same', history, head[2], head[3], head[4], string.format('%.0f', settling)}
local own = tonumber(ARGV[2])
if history ~= ARGV[1] then
  reply[1] = 'other'
elseif version < own then
  reply[1] = 'behind'
elseif version == own then
  if head[3] ~= ARGV[3] then reply[1] = 'forked' elseif damaged then reply[1] = 'damaged' end
else
  local entries = redis.call('XRANGE', KEYS[2], string.format('%.0f-0', own), '+', 'COUNT', 200)
  local first = 1
  if entries[1] and entries[1][1] == string.format('%.0f-0', own) then
    if entries[1][2][2] ~= ARGV[3] then
      reply[1] = 'forked'
      return reply
    end
    first = 2
  end
  if entries[first] and entries[first][1] == string.format('%.0f-0', own + 1) then
    reply[1] = 'log'
    for i = first, #entries do
      reply[#reply + 1] = string.match(entries[i][1], '^%d+')
      reply[#reply + 1] = entries[i][2][2]
      reply[#reply + 1] = entries[i][2][4]
    end
  else
    reply[1] = damaged and 'lost' or 'snapshot'
  end
end
return reply`,
  { readsOnly: true },
);

/** ARGV: index of a table in KEYS, cursor, count. @returns the next cursor, rows and records */
export const SCAN = defineScript(
  'registry-scan',
  `#!lua flags=no-writes
local page = redis.call('HSCAN', KEYS[tonumber(ARGV[1])], ARGV[2], 'COUNT', ARGV[3])
local reply = page[2]
table.insert(reply, 1, page[1])
return reply`,
  { readsOnly: true },
);

/**
 * Applies a group of changes if nobody has changed the registry since a version.
 * ARGV: history, version, id of the commit, text for the log, most bytes of the log, most entries
 *   of the audit log, ms after a start of Redis in which nothing is committed; then for each change
 *   the index of its table in KEYS, its row and its record, which is empty for a removal.
 */
export const COMMIT = defineScript(
  'registry-commit',
  `#!lua
${READ_HEAD}${UPTIME}if not version then return {'empty'} end
if history ~= ARGV[1] then return {'other'} end
if head[2] ~= ARGV[2] then return {'conflict'} end
settling = math.max(settling, tonumber(ARGV[7]) - upMs)
if settling > 0 then return {'settling', string.format('%.0f', settling)} end
if damaged then return {'damaged'} end
local entries = redis.call('XLEN', KEYS[2])
local bytes = entries > 0 and tonumber(head[6]) or 0
local next = string.format('%.0f', version + 1)
redis.call('XADD', KEYS[2], next .. '-0', 'commit', ARGV[3], 'changes', ARGV[4])
bytes = bytes + #ARGV[4]
while bytes > tonumber(ARGV[5]) and entries > 0 do
  local oldest = redis.call('XRANGE', KEYS[2], '-', '+', 'COUNT', 1)[1]
  redis.call('XDEL', KEYS[2], oldest[1])
  bytes = bytes - #oldest[2][4]
  entries = entries - 1
end
local counts = {}
for i = 3, 7 do counts[i] = tonumber(head[i + 4]) end
for i = 8, #ARGV, 3 do
  local index, row, record = tonumber(ARGV[i]), ARGV[i + 1], ARGV[i + 2]
  if record == '' then
    counts[index] = counts[index] - redis.call('HDEL', KEYS[index], row)
  else
    counts[index] = counts[index] + redis.call('HSET', KEYS[index], row, record)
    if index == 6 then
      local oldest = string.format('%.0f', tonumber(row) - tonumber(ARGV[6]))
      counts[index] = counts[index] - redis.call('HDEL', KEYS[index], oldest)
    end
  end
end
redis.call('HSET', KEYS[1], 'version', next, 'commit', ARGV[3], 'logBytes', bytes,
  'n3', counts[3], 'n4', counts[4], 'n5', counts[5], 'n6', counts[6], 'n7', counts[7])
return {'committed', next}`,
);

/** Makes an empty registry where there is none. ARGV: those of SETTLE, history, hash key. */
export const CREATE = defineScript(
  'registry-create',
  `#!lua
${READ_HEAD}${SETTLE}if version then return {'exists'} end
redis.call('UNLINK', KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6], KEYS[7])
redis.call('HSET', KEYS[1], 'history', ARGV[3], 'version', '0', 'commit', '', 'hashKey', ARGV[4],
  'settle', settle, 'logBytes', 0,
  'n3', 0, 'n4', 0, 'n5', 0, 'n6', 0, 'n7', 0)
return {'created'}`,
);

/**
 * Stages records for `INSTALL`, which must follow soon. KEYS[1]: a staged table.
 * ARGV: seconds until they are removed, then rows and records.
 */
export const STAGE = defineScript(
  'registry-stage',
  `#!lua
for i = 2, #ARGV, 2 do redis.call('HSET', KEYS[1], ARGV[i], ARGV[i + 1]) end
redis.call('EXPIRE', KEYS[1], ARGV[1])
return {'staged'}`,
);

/**
 * Replaces the registry by staged records, if it is lost, damaged, older than they are, or new and
 * still unused. KEYS[8] to [12]: the staged tables.
 * ARGV: those of SETTLE, history, version, last commit, hash key, number of records of each table.
 */
export const INSTALL = defineScript(
  'registry-install',
  `#!lua
${READ_HEAD}${SETTLE}local own = tonumber(ARGV[4])
if version then
  local isOlder = history == ARGV[3] and (version < own or (version == own and damaged))
  local isUnused = version == 0 and settling > 0
  if not isOlder and not isUnused then return {'refused'} end
end
for i = 8, 12 do
  if redis.call('HLEN', KEYS[i]) ~= tonumber(ARGV[i - 1]) then return {'incomplete'} end
end
redis.call('UNLINK', KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6], KEYS[7])
for i = 8, 12 do
  if tonumber(ARGV[i - 1]) > 0 then
    redis.call('PERSIST', KEYS[i])
    redis.call('RENAME', KEYS[i], KEYS[i - 5])
  end
end
redis.call('HSET', KEYS[1], 'history', ARGV[3], 'version', ARGV[4], 'commit', ARGV[5],
  'hashKey', ARGV[6], 'settle', settle, 'logBytes', 0,
  'n3', ARGV[7], 'n4', ARGV[8], 'n5', ARGV[9], 'n6', ARGV[10], 'n7', ARGV[11])
return {'installed'}`,
);

/**
 * Lets one machine at a time make the first key. ARGV: machine, ms for which it may.
 * @returns `claimed`, `taken` by another machine, or `exists` where there is a key
 */
export const CLAIM_FIRST_KEY = defineScript(
  'registry-claim-first-key',
  `#!lua
${READ_HEAD}
if not version or head[7] ~= '0' then return {'exists'} end
local claim = redis.call('HMGET', KEYS[1], 'claimedBy', 'claimedUntil')
if claim[1] and claim[1] ~= ARGV[1] and tonumber(claim[2]) > now then return {'taken'} end
redis.call('HSET', KEYS[1], 'claimedBy', ARGV[1],
  'claimedUntil', string.format('%.0f', now + tonumber(ARGV[2])))
return {'claimed'}`,
);

/**
 * Reports what a machine has. KEYS[8]: the machines. ARGV: machine, its report, ms after which a
 * silent machine is removed. The time of the contact precedes the report.
 */
export const REPORT = defineScript(
  'registry-report',
  `#!lua
local time = redis.call('TIME')
local now = tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
redis.call('HSET', KEYS[8], ARGV[1], string.format('%.0f ', now) .. ARGV[2])
local reports = redis.call('HGETALL', KEYS[8])
for i = 1, #reports, 2 do
  local contact = tonumber(string.match(reports[i + 1], '^%d+') or '0')
  if now - contact > tonumber(ARGV[3]) then redis.call('HDEL', KEYS[8], reports[i]) end
end
return {'reported'}`,
);

/** @returns the time in Unix ms, then the machines and their reports. KEYS[8]: the machines. */
export const MACHINES = defineScript(
  'registry-machines',
  `#!lua flags=no-writes
local time = redis.call('TIME')
local reply = redis.call('HGETALL', KEYS[8])
table.insert(reply, 1, string.format('%.0f',
  tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)))
return reply`,
  { readsOnly: true },
);

/** Removes a machine from the list. KEYS[8]: the machines. ARGV: the machine. */
export const FORGET = defineScript(
  'registry-forget',
  `#!lua
return {redis.call('HDEL', KEYS[8], ARGV[1]) == 1 and 'forgotten' or 'unknown'}`,
);
