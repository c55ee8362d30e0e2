-- Returns the counters of an identity. It changes nothing, and needs no member. The index names
-- durations; their counters may have expired.
-- KEYS: the bucket, the index, a counter without duration, a GCRA bucket without duration.
--#include clock.lua
--#include bounded.lua

local lines = {format(INSPECT_HEADER, clockUs, fenceUs > 0 and 1 or 0)}
local counterHead, gcraHead = KEYS[3]:sub(1, -2), KEYS[4]:sub(1, -2)
for _, name in ipairs(call('HKEYS', KEYS[2])) do
  local kind, digits = match(name, INDEX_PATTERN)
  local durationMs = tonumber(digits)
  if kind == KIND_WINDOWS then
    local window = floor(nowMs / durationMs)
    local deducted, usage, limit, flags, _ = 0, 0, 0, 0, nil
    local previousDeducted, previousUsage, previousLimit = 0, 0, 0
    local stored = call('HGET', counterHead .. digits .. ':' .. window, COUNTER_TOTALS)
    local previous = call('HGET', counterHead .. digits .. ':' .. (window - 1), COUNTER_TOTALS)
    if stored then deducted, usage, _, _, _, limit, flags = unpack(TOTALS, stored) end
    if previous then
      previousDeducted, previousUsage, _, _, _, previousLimit = unpack(TOTALS, previous)
    end
    -- A limit of 0: nothing was allowed, or nothing since a reset.
    if deducted ~= 0 or limit ~= 0 or flags >= TOTALS_AWAITED then
      lines[#lines + 1] = format(INSPECT_LINE, KIND_WINDOWS, digits, limit, window,
        bounded(usage), bounded(previousDeducted),
        bounded(deducted - usage + floor(flags / TOTALS_AWAITED)))
    elseif previousDeducted ~= 0 or previousLimit ~= 0 then
      lines[#lines + 1] = format(INSPECT_LINE, KIND_WINDOWS, digits, previousLimit, window - 1,
        bounded(previousUsage), 0, bounded(previousDeducted - previousUsage))
    end
  else
    local stored = call('GET', gcraHead .. digits)
    local newest, current, limit = 0, 0, 0
    -- An earlier version has stored the first four numbers.
    if stored then newest, current, limit = unpack('<ddd', stored) end
    if newest > nowMs then
      lines[#lines + 1] = format(INSPECT_LINE, KIND_GCRA, digits, limit, newest, current, current,
        0)
    end
  end
end
return lines
