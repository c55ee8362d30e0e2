-- Serves GCRA checks, refunds and reports. Every check is a part of a call: there are no leases.
-- KEYS[2...]: the buckets.
--
-- A bucket exists until BUCKET_KEPT_MS after the latest time at which a member may believe it to be
-- full, also if a refund or a reset has filled it before. So where a member knows one that is full
-- later than that, Redis has lost it, and takes it from the member. A bucket that was lost, as the
-- index or a member shows, is held for BUCKET_HOLD_MS: members that know it report it meanwhile. In
-- a recovery buckets are not served until all members have reported; unless it is exact, for
-- AWAIT_US at most.
--
-- The numbers are those of the memory engine as long as products are at most 2^53, or the limit is
-- below 2^42. Beyond that they are rounded so that less is allowed, by a few tokens or ms.
--#include clock.lua
--#include enter.lua
--#include quotient.lua
--#include publish.lua
--#include gcra-bucket.lua

-- Whether a bucket that is missing may not have expired. Then members are requested to report it.
local function isLost(key, durationMs, isKnown)
  local digits = format('%d', durationMs)
  local identity = key:sub(-33 - #digits, -2 - #digits)
  local index = bucketKey:sub(1, -2) .. INDEX_KEY .. identity
  local indexedMs = tonumber(call('HGET', index, INDEX_GCRA .. digits))
  local isRecent = lostUs > 0 and clockUs < lostUs + durationMs * 1000
  if not (isKnown or isRecent or indexedMs and nowMs < indexedMs - aheadOf(durationMs)) then
    return false
  end
  for _, field in ipairs(call('HKEYS', bucketKey)) do
    local member = match(field, BUCKET_MEMBER_PATTERN)
    if member then publish(member, format(NOTICE_BUCKET, identity, durationMs)) end
  end
  return true
end

local answers = {''}
local position = firstMessage
for i = 2, #KEYS do
  local key = KEYS[i]
  local durationMs, kind, limit, size, cost, knownNewest, knownCurrent, knownLimit
  durationMs, kind, limit, size, cost, knownNewest, knownCurrent, knownLimit, position =
    unpack(GCRA_MESSAGE, numbers, position)
  local stored = call('GET', key)
  local newest, current, lastLimit, indexedUntil, keptUntil, heldUntil = nowMs, 0, 0, 0, 0, 0
  local isRestored = false
  if stored then
    -- An earlier version has stored the first four numbers.
    if #stored < GCRA_BYTES then stored = stored .. pack('<dd', 0, 0) end
    newest, current, lastLimit, indexedUntil, keptUntil, heldUntil = unpack(GCRA, stored)
  elseif kind ~= GCRA_REPORT and CREATES and isLost(key, durationMs, knownNewest > nowMs) then
    heldUntil = nowMs + BUCKET_HOLD_MS
    store(key, durationMs, nowMs, 0, 0, 0, 0, heldUntil)
  end
  if newest <= nowMs then newest, current = nowMs, 0 end
  local missing = (newest - nowMs) * lastLimit - current
  if knownNewest > nowMs and knownNewest + BUCKET_KEPT_MS > keptUntil
      and (knownNewest - nowMs) * knownLimit - knownCurrent > missing then
    newest, current, lastLimit, isRestored = knownNewest, knownCurrent, knownLimit, true
  end
  local isFull = newest <= nowMs

  local fencedUntilUs = fenceUs + durationMs * 1000
  local isMissing = clockUs < openedUs + durationMs * 1000
  if isAvailable and fenceUs > 0 then
    isMissing = clockUs < fencedUntilUs
    fencedUntilUs = min(fencedUntilUs, epochNumber * 1000 + AWAIT_US)
  end
  if kind ~= GCRA_REPORT and fenceUs > 0 and clockUs < fencedUntilUs then
    answers[i] = format(GCRA_REFUSAL, MESSAGE_RECOVERING, math.ceil(fencedUntilUs / 1000))
  elseif kind ~= GCRA_REPORT and nowMs < heldUntil then
    answers[i] = format(GCRA_REFUSAL, MESSAGE_RECOVERING, heldUntil)
  elseif not CREATES and not stored then
    answers[i] = format('%d', MESSAGE_FULL)
  else
    local isAllowed, remaining, reset, refunded = false, 0, nowMs, 0
    if kind == GCRA_REPORT then
      -- `size` and `cost` are the newest and current that the member knows. The bucket that misses
      -- more tokens is kept.
      local known = (newest - nowMs) * lastLimit - current
      if (size - nowMs) * limit - cost > known then
        newest, current, lastLimit = size, cost, limit
        store(key, durationMs, newest, current, limit, indexedUntil, keptUntil, heldUntil)
      end
    elseif kind == GCRA_REFUND then
      local used = 0
      if not isFull then used = ceiling(newest - nowMs, lastLimit, current, durationMs) end
      refunded = min(cost, used)
      if cost < used then
        local ms, rest = floorOf(cost, durationMs, current, lastLimit)
        keptUntil = max(keptUntil, newest + BUCKET_KEPT_MS)
        newest, current = newest - ms, rest
        store(key, durationMs, newest, current, lastLimit, indexedUntil, keptUntil)
      elseif used > 0 then
        keptUntil = max(keptUntil, newest + BUCKET_KEPT_MS)
        newest, current = nowMs, 0
        store(key, durationMs, newest, current, lastLimit, indexedUntil, keptUntil)
      end
    else
      local used = 0
      if not isFull then used = ceiling(newest - nowMs, lastLimit, current, durationMs) end
      local left = size - used
      isAllowed = cost == 0 or cost <= left
      remaining = max(0, isAllowed and left - cost or left)
      -- When a denied cost would pass; a cost above the size never does.
      local function resetOfDenied()
        if cost > size then return newest end
        return newest - floorOf(size - cost, durationMs, current, lastLimit)
      end
      local taken = 0
      reset = newest
      if isAllowed then taken = cost
      else
        reset = resetOfDenied()
        -- The bucket stays empty for about a duration at most, whatever its client asks for.
        if kind == GCRA_COUNTED_CHECK and limit > 0 and reset - nowMs < durationMs then
          taken = min(cost, limit)
        end
      end
      if taken > 0 then
        if isFull then lastLimit = limit
        elseif limit ~= lastLimit and used <= limit then
          local ms, rest = ceiling(newest - nowMs, lastLimit, current, limit)
          newest, current, lastLimit = nowMs + ms, rest, limit
        end
        newest, current = take(newest, current, taken, durationMs, lastLimit)
        store(key, durationMs, newest, current, lastLimit, indexedUntil, keptUntil)
        if isAllowed then reset = newest else remaining, reset = 0, resetOfDenied() end
      elseif isRestored then
        store(key, durationMs, newest, current, lastLimit, indexedUntil, keptUntil)
      end
    end
    answers[i] = format(GCRA_ANSWER, MESSAGE_DONE, isAllowed and 1 or 0, remaining,
      min(reset, AMOUNT_MAX), nowMs, refunded, isMissing and 1 or 0, newest, current, lastLimit)
  end
end
local status = CALL_DONE
--#include answer-header.lua
answers[1] = header
return answers
