-- Resets counters of an identity. Machines count on from where they are: the script stores the
-- usage of each as the base from which it counts, and keeps tokens in leases deducted.
-- KEYS: the bucket, the index, a counter without duration, a GCRA bucket without duration.
-- ARGV after the header: the kinds, 1 for all durations, the durations.
--#include clock.lua
--#include publish.lua
if fenceUs > 0 then return {format(RESET_ANSWER, 1, 0)} end

-- Returns whether the window had usage, or an allowed check.
local function resetWindow(key, identity, durationMs, window, isOver)
  local fields = call('HGETALL', key)
  local deducted, _, recallNumber, recalledUs, limit, flags = 0, nil, 0, 0, 0, 0
  local waiting = ''
  for i = 1, #fields, 2 do
    if fields[i] == COUNTER_WAITING then waiting = fields[i + 1] end
    if fields[i] == COUNTER_TOTALS then
      deducted, _, _, recallNumber, recalledUs, limit, flags = unpack(TOTALS, fields[i + 1])
    end
  end
  local hadUsage = deducted ~= 0 or limit ~= 0
  local usage, rateSum = 0, 0
  deducted = 0
  for i = 1, #fields, 2 do
    local member = fields[i]
    if #member > 1 then
      local ownDeducted, ownUsage, ownSequence, ownBase, ownRate, ownFlags, ownFirstRequestUs,
        ownLastRequestUs = unpack(ACCOUNT, fields[i + 1])
      local isWrittenOff = ownFlags % (2 * ACCOUNT_WRITTEN_OFF) == ACCOUNT_WRITTEN_OFF
      local mustReport = ownFlags % (2 * ACCOUNT_MUST_REPORT) >= ACCOUNT_MUST_REPORT
      ownFlags = (isWrittenOff and ACCOUNT_WRITTEN_OFF or 0)
        + (mustReport and ownFlags - ownFlags % ACCOUNT_MUST_REPORT or 0)
      -- What a window that is over was used for was used before the reset, reported or not.
      if isOver then ownDeducted, ownUsage, ownBase = 0, 0, CLEARED_BASE
      else ownDeducted, ownUsage, ownBase = ownDeducted - ownUsage, 0, ownBase + ownUsage end
      deducted, rateSum = deducted + ownDeducted, rateSum + ownRate
      if not mustReport then ownFirstRequestUs, ownLastRequestUs = 0, 0 end
      if isWrittenOff then usage = usage + ownDeducted end
      call('HSET', key, member, pack(ACCOUNT, ownDeducted, ownUsage, ownSequence, ownBase, ownRate,
        ownFlags, ownFirstRequestUs, ownLastRequestUs))
      publish(member, format(NOTICE_RESET, identity, durationMs, max(0, window)))
    end
  end
  if #fields > 0 then
    -- Members that must report still must.
    flags = flags - flags % TOTALS_ONLY_FOR_PREVIOUS
    call('HSET', key, COUNTER_TOTALS,
      pack(TOTALS, deducted, usage, rateSum, recallNumber, recalledUs, 0, flags))
    call('HDEL', key, COUNTER_WAITING, COUNTER_KNOWN_MAX, COUNTER_RESTORED)
  end
  for member in string.gmatch(waiting, '[^,]+') do
    publish(member, format(NOTICE_WAKE, identity, durationMs, max(0, window)))
  end
  return hadUsage
end

local isSelected = {}
for i = HEADER_ARGUMENTS + 3, #ARGV do isSelected[ARGV[i]] = true end
local kinds, selectsAll = ARGV[HEADER_ARGUMENTS + 1], ARGV[HEADER_ARGUMENTS + 2] == '1'
local identity = KEYS[2]:sub(-32)
local count = 0
for _, name in ipairs(call('HKEYS', KEYS[2])) do
  local kind, digits = match(name, INDEX_PATTERN)
  if kinds:find(kind, 1, true) and (selectsAll or isSelected[digits]) then
    if kind == KIND_WINDOWS then
      local durationMs = tonumber(digits)
      local currentWindow = floor(nowMs / durationMs)
      local hadUsage = false
      for window = currentWindow - 1, currentWindow do
        local key = KEYS[3]:sub(1, -2) .. digits .. ':' .. window
        local isOver = window < currentWindow
        hadUsage = resetWindow(key, identity, durationMs, window, isOver) or hadUsage
      end
      if hadUsage then count = count + 1 end
    else
      local key = KEYS[4]:sub(1, -2) .. digits
      local stored = call('GET', key)
      if stored then
        -- An earlier version has stored the first four numbers.
        if #stored < GCRA_BYTES then stored = stored .. pack('<dd', 0, 0) end
        local newest, _, _, _, keptUntil = unpack(GCRA, stored)
        keptUntil = max(keptUntil, newest + BUCKET_KEPT_MS)
        if newest > nowMs then count = count + 1 end
        -- A missing bucket would be restored by the members that know it.
        call('SET', key, pack(GCRA, nowMs, 0, 0, 0, keptUntil, 0), 'PXAT', keptUntil)
      end
      call('HDEL', KEYS[2], name)
    end
  end
end
-- Reservations return nothing to a counter that was reset after their tokens were deducted. Some of
-- these reservations may not be recorded yet.
local sumsKey = bucketKey:sub(1, -2) .. HOLD_SUMS_KEY .. identity
for kind in kinds:gmatch('%a') do
  if selectsAll then call('HSET', sumsKey, HOLD_VOIDED .. kind, format('%d', clockUs)) end
  for digits in pairs(isSelected) do
    call('HSET', sumsKey, HOLD_VOIDED .. kind .. ':' .. digits, format('%d', clockUs))
  end
end
local untilMs = format('%d', nowMs + UNRECORDED_MS)
-- A key that was just made does not expire, for which GT does nothing.
if call('PEXPIREAT', sumsKey, untilMs, 'NX') == 0 then
  call('PEXPIREAT', sumsKey, untilMs, 'GT')
end
return {format(RESET_ANSWER, 0, count)}
