-- Remembers the most usage that a machine knows of all.
local function rememberUsage(ofKey, knownUsage)
  local before = tonumber(call('HGET', ofKey, COUNTER_KNOWN_MAX) or 0)
  call('HSET', ofKey, COUNTER_KNOWN_MAX, format('%d', max(knownUsage, before)))
end

-- Restores usage that machines know of others, which have not reported.
local function restoreUsage(ofKey, ofDeducted, ofUsage)
  local more = tonumber(call('HGET', ofKey, COUNTER_KNOWN_MAX) or 0) - ofUsage
  call('HDEL', ofKey, COUNTER_KNOWN_MAX)
  if more <= 0 then return ofDeducted, ofUsage end
  local before = tonumber(call('HGET', ofKey, COUNTER_RESTORED) or 0)
  call('HSET', ofKey, COUNTER_RESTORED, format('%d', more + before))
  return ofDeducted + more, ofUsage + more
end
