-- Changes GCRA buckets. It needs `quotient.lua`.
--#include add-to-index.lua

-- The index is ahead of the expiry by up to so much, so that it is rarely written.
local function aheadOf(durationMs) return math.ceil(durationMs * BUCKET_INDEX_SHARE) end

local function store(key, durationMs, newest, current, limit, indexedUntil, keptUntil, heldUntil)
  local expiryMs = max(newest + BUCKET_KEPT_MS, keptUntil)
  if expiryMs > indexedUntil then
    indexedUntil = expiryMs + aheadOf(durationMs)
    local digits = format('%d', durationMs)
    addToIndex(key:sub(-33 - #digits, -2 - #digits), INDEX_GCRA .. digits, indexedUntil)
  end
  call('SET', key, pack(GCRA, newest, current, limit, indexedUntil, expiryMs, heldUntil or 0),
    'PXAT', expiryMs)
end

-- Takes tokens from a bucket that is full at newest - slack / limit.
local function take(newest, slack, tokens, durationMs, limit)
  local ms, rest = ceiling(tokens, durationMs, slack, limit)
  return min(newest + ms, AMOUNT_MAX), rest
end
