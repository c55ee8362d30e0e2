-- Holds of a bucket: their records, which of them are live, and how they end. Redis runs a script
-- as a whole, so a record, the sums of its identity and its counter change together.
--#include quotient.lua
--#include gcra-bucket.lua

local head = bucketKey:sub(1, -2)
local endsKey, endedKey = head .. HOLD_ENDS_KEY, head .. ENDED_HOLDS_KEY
local expiredCount = 0

local function readHold(name)
  local stored = call('GET', head .. HOLD_KEY .. name)
  if not stored then return nil end
  local kind, state, limit, durationMs, rule, window, reservedUs, tokens, charged, released,
    expiresMs, namespace0, namespace1, flags = unpack(HOLD, stored)
  return {
    name = name, identity = stored:sub(HOLD_BYTES + 1, HOLD_BYTES + 32),
    others = stored:sub(HOLD_BYTES + 33), kind = kind, state = state, limit = limit,
    durationMs = durationMs, rule = rule, window = window, reservedUs = reservedUs,
    tokens = tokens, charged = charged, released = released, expiresMs = expiresMs,
    namespace0 = namespace0, namespace1 = namespace1, flags = flags,
  }
end

-- `untilMs` is when the record is forgotten.
local function storeHold(hold, untilMs)
  local stored = pack(HOLD, hold.kind, hold.state, hold.limit, hold.durationMs, hold.rule,
    hold.window, hold.reservedUs, hold.tokens, hold.charged, hold.released, hold.expiresMs,
    hold.namespace0, hold.namespace1, hold.flags)
  call('SET', head .. HOLD_KEY .. hold.name, stored .. hold.identity .. hold.others,
    'PXAT', format('%d', untilMs))
end

local function keepUntil(key, expiryMs)
  local digits = format('%d', expiryMs)
  -- A key that was just made does not expire, for which GT does nothing.
  if call('PEXPIREAT', key, digits, 'GT') == 0 then call('PEXPIREAT', key, digits, 'NX') end
end

-- The entry of a live hold in HOLD_ENDS_KEY. If the record is lost, the sums are corrected by it.
local function entryOf(hold)
  return format('%s %s %d %d', hold.name, hold.identity, hold.kind, hold.tokens)
end

local function sumOf(identity, kind)
  local sum = call('HGET', head .. HOLD_SUMS_KEY .. identity, format('%d', kind))
  return max(0, tonumber(sum or 0))
end

local function setSum(identity, kind, tokens)
  call('HSET', head .. HOLD_SUMS_KEY .. identity, format('%d', kind), format('%d', tokens))
end

-- An ended hold is known for a time.
local function storeEnded(hold)
  local untilMs = nowMs + ENDED_HOLD_MS
  storeHold(hold, untilMs)
  call('ZADD', endedKey, format('%d', nowMs), hold.name)
  keepUntil(endedKey, untilMs)
end

local function countOf(key) return call('ZCOUNT', key, '-inf', '+inf') end

-- Forgets records that have ended, the first ones before the others: those that are too old, and
-- those that are too many beside the live ones.
local function forgetEnded(capacity)
  local excess = min(countOf(endsKey) + countOf(endedKey) - capacity, ENDED_PER_CALL)
  local names
  if excess > 0 then names = call('ZRANGE', endedKey, 0, excess - 1)
  else
    names = call('ZRANGE', endedKey, '-inf', format('%d', nowMs - ENDED_HOLD_MS), 'BYSCORE',
      'LIMIT', 0, ENDED_PER_CALL)
  end
  for _, name in ipairs(names) do
    call('ZREM', endedKey, name)
    call('UNLINK', head .. HOLD_KEY .. name)
  end
end

-- Makes a hold live, or sets a new expiry. Its keys are kept beyond the expiry: a machine must find
-- them to end it, and all machines may be stopped.
local function keepLive(hold, isNew)
  local holdsKey = head .. IDENTITY_HOLDS_KEY .. hold.identity
  local sumsKey = head .. HOLD_SUMS_KEY .. hold.identity
  local expiresMs = format('%d', hold.expiresMs)
  call('ZADD', endsKey, expiresMs, entryOf(hold))
  call('ZADD', holdsKey, expiresMs, hold.name)
  if isNew then
    setSum(hold.identity, hold.kind, min(sumOf(hold.identity, hold.kind) + hold.tokens, AMOUNT_MAX))
  end
  local untilMs = hold.expiresMs + KEPT_HOLD_MS
  for _, key in ipairs({endsKey, holdsKey, sumsKey}) do keepUntil(key, untilMs) end
  storeHold(hold, untilMs)
end

local function removeLive(name, identity, kind, tokens, entry)
  local holdsKey = head .. IDENTITY_HOLDS_KEY .. identity
  call('ZREM', endsKey, entry)
  if call('ZREM', holdsKey, name) == 1 then
    setSum(identity, kind, max(0, sumOf(identity, kind) - tokens))
    -- Its resets are known as long as its ended holds.
    if call('ZCOUNT', holdsKey, '-inf', '+inf') == 0 then
      call('PEXPIREAT', head .. HOLD_SUMS_KEY .. identity, format('%d', nowMs + ENDED_HOLD_MS))
    end
  end
end

local function hasFlag(hold, flag) return hold.flags % (2 * flag) >= flag end

-- Whether the counter was reset after the tokens were deducted, so that they have returned already.
local function isVoided(hold)
  if hasFlag(hold, FLAG_IS_VOIDED) then return true end
  local name = HOLD_VOIDED .. (hold.rule == RULE_GCRA and KIND_GCRA or KIND_WINDOWS)
  local sumsKey = head .. HOLD_SUMS_KEY .. hold.identity
  local resets = call('HMGET', sumsKey, name, format('%s:%d', name, hold.durationMs))
  for i = 1, 2 do
    if resets[i] and hold.reservedUs <= tonumber(resets[i]) then return true end
  end
  return false
end

-- Wakes the members that wait for tokens of a counter, or that deny checks by its known usage: the
-- usage has fallen. The member of this call is woken too: it has not read the counter.
local function wakeMembers(keyPrefix, durationMs, currentWindow)
  local me = ''
  local key = format('%s:%d', keyPrefix, currentWindow)
  local stored = call('HGET', key, COUNTER_TOTALS)
  if not stored then return end
  local deducted, usage, rateSum, recallNumber, recalledUs, limit, flags = unpack(TOTALS, stored)
  local flagsBefore = flags
  if flags % (2 * TOTALS_HAS_WAITING) == TOTALS_HAS_WAITING then
    --#include wake-waiting.lua
    flags = flags - TOTALS_HAS_WAITING
  end
  if flags % (2 * TOTALS_HAS_DENYING) >= TOTALS_HAS_DENYING then
    --#include end-denials.lua
    flags = flags - TOTALS_HAS_DENYING
  end
  if flags == flagsBefore then return end
  call('HSET', key, COUNTER_TOTALS, pack(TOTALS, deducted, usage, rateSum, recallNumber,
    recalledUs, limit, flags))
end

-- Recalls the leases that all machines have of a window that is used up.
local function recallAll(keyPrefix, durationMs, window, number)
  --#include publish.lua
  --#include counter-name.lua
  local fields = call('HGETALL', format('%s:%d', keyPrefix, window))
  for i = 1, #fields, 2 do
    if #fields[i] > 1 then
      local otherDeducted, otherUsage = unpack(ACCOUNT, fields[i + 1])
      if otherDeducted > otherUsage then
        publish(fields[i], format(NOTICE_RECALL, identity, durationMs, window, number))
      end
    end
  end
end

-- Adds tokens to a window, or returns some if the number is negative. Only the totals contain them,
-- no account of a machine: what machines report later does not change them. Returns how many tokens
-- were added.
local function addToWindow(hold, window, tokens)
  local durationMs = hold.durationMs
  local keyPrefix = format('%s%s:%d', head .. COUNTER_KEY, hold.identity, durationMs)
  local key = format('%s:%d', keyPrefix, window)
  local stored = call('HGET', key, COUNTER_TOTALS)
  local deducted, usage, rateSum, recallNumber, recalledUs, limit, flags = 0, 0, 0, 0, 0, 0, 0
  if stored then
    deducted, usage, rateSum, recallNumber, recalledUs, limit, flags = unpack(TOTALS, stored)
  end
  if tokens < 0 then tokens = max(tokens, -max(0, deducted))
  elseif limit == 0 then limit = hold.limit end
  if tokens == 0 or limit == 0 and tokens > 0 then return 0 end
  local mustRecall = tokens > 0 and deducted + tokens > limit and deducted > usage
  if mustRecall then recallNumber, recalledUs = recallNumber + 1, clockUs end
  call('HSET', key, COUNTER_TOTALS, pack(TOTALS, deducted + tokens, usage + tokens, rateSum,
    recallNumber, recalledUs, limit, flags))
  if not stored then
    --#include begin-expiry.lua
    beginExpiry(key, window)
  end
  if tokens < 0 then wakeMembers(keyPrefix, durationMs, floor(nowMs / durationMs))
  elseif mustRecall then recallAll(keyPrefix, durationMs, window, recallNumber) end
  return tokens
end

-- The same for a GCRA bucket. Tokens that have refilled since the reservation do not return a
-- second time. If the limit has changed since, the refill is that of the higher limit.
local function addToBucket(hold, tokens)
  local durationMs = hold.durationMs
  local key = format('%s%s:%d', head .. GCRA_KEY, hold.identity, durationMs)
  local stored = call('GET', key)
  local newest, current, lastLimit, indexedUntil, keptUntil, heldUntil = nowMs, 0, 0, 0, 0, 0
  if stored then
    -- An earlier version has stored the first four numbers.
    if #stored < GCRA_BYTES then stored = stored .. pack('<dd', 0, 0) end
    newest, current, lastLimit, indexedUntil, keptUntil, heldUntil = unpack(GCRA, stored)
  end
  if newest <= nowMs then newest, current = nowMs, 0 end
  if tokens > 0 then
    if lastLimit == 0 then lastLimit = hold.limit end
    if lastLimit == 0 then return 0 end
    newest, current = take(newest, current, tokens, durationMs, lastLimit)
    store(key, durationMs, newest, current, lastLimit, indexedUntil, keptUntil, heldUntil)
    return tokens
  end
  if newest <= nowMs then return 0 end
  local used = ceiling(newest - nowMs, lastLimit, current, durationMs)
  local elapsedMs = max(0, nowMs - hold.window)
  local refilled = floorOf(elapsedMs, max(lastLimit, hold.limit), 0, durationMs)
  local returned = max(0, min(-tokens - refilled, used))
  if returned == 0 then return 0 end
  keptUntil = max(keptUntil, newest + BUCKET_KEPT_MS)
  if returned < used then
    local ms, rest = floorOf(returned, durationMs, current, lastLimit)
    newest, current = newest - ms, rest
  else newest, current = nowMs, 0 end
  store(key, durationMs, newest, current, lastLimit, indexedUntil, keptUntil, heldUntil)
  return -returned
end

-- Returns tokens to the window from which they were deducted, or to the bucket. With a sliding
-- window that may be the window before, which is carried over. Returns their number.
local function giveBack(hold, tokens)
  if tokens == 0 or isVoided(hold) then return 0 end
  if hold.rule == RULE_GCRA then return -addToBucket(hold, -tokens) end
  local oldest = floor(nowMs / hold.durationMs) - (hold.rule == RULE_SLIDING and 1 or 0)
  if hold.window < oldest then return 0 end
  return -addToWindow(hold, hold.window, -tokens)
end

-- Counts tokens beyond those of a reservation, in the current window. Returns their number.
local function charge(hold, tokens)
  if tokens == 0 then return 0 end
  if hold.rule == RULE_GCRA then return addToBucket(hold, tokens) end
  return addToWindow(hold, floor(nowMs / hold.durationMs), tokens)
end

-- Ends a live hold, whose new state the caller stores.
local function finish(hold, state)
  removeLive(hold.name, hold.identity, hold.kind, hold.tokens, entryOf(hold))
  hold.state = state
end

local function expire(hold)
  finish(hold, STATE_EXPIRED)
  if hold.kind == KIND_RESERVATION and not hasFlag(hold, FLAG_CHARGES) then
    hold.charged = hold.charged - giveBack(hold, hold.charged)
  end
  storeEnded(hold)
end

-- Ends holds that have expired: the first ones of the bucket, and those of the identity of the
-- call, so that no client waits for holds of others. Returns whether there may be more of them.
local function expireDue(identity)
  local untilMs = format('%d', nowMs)
  local entries = call('ZRANGE', endsKey, '-inf', untilMs, 'BYSCORE', 'LIMIT', 0, ENDED_PER_CALL)
  for _, entry in ipairs(entries) do
    local name, ofIdentity, kind, tokens = match(entry, '^(%S+) (%S+) (%d+) (%d+)$')
    local hold = readHold(name)
    if hold and hold.state == STATE_LIVE then expire(hold)
    else removeLive(name, ofIdentity, tonumber(kind), tonumber(tokens), entry) end
  end
  expiredCount = #entries
  if #entries < ENDED_PER_CALL or not identity then return #entries == ENDED_PER_CALL end
  local names = call('ZRANGE', head .. IDENTITY_HOLDS_KEY .. identity, '-inf', untilMs, 'BYSCORE',
    'LIMIT', 0, ENDED_PER_CALL)
  for _, name in ipairs(names) do
    local hold = readHold(name)
    if hold and hold.state == STATE_LIVE then expire(hold) end
  end
  expiredCount = expiredCount + #names
  return #names == ENDED_PER_CALL
end

local function isLive(hold) return hold.state == STATE_LIVE and hold.expiresMs > nowMs end

-- `others` of the first hold of a list are the references of the rest.
local function answerOf(status, hold, isGranted)
  local first = call('ZRANGE', endsKey, 0, 0, 'WITHSCORES')
  local nextMs = tonumber(first[2] or 0)
  if not hold then
    return format(HOLD_ANSWER, status, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, '-', '-', expiredCount,
      nextMs)
  end
  local inUse = min(sumOf(hold.identity, KIND_LEASE), AMOUNT_MAX)
  return format(HOLD_ANSWER, status, isGranted and 1 or 0, inUse, hold.limit, hold.expiresMs,
    hold.charged, hold.released, hasFlag(hold, FLAG_IS_LATE) and 1 or 0, hold.namespace0,
    hold.namespace1, hold.durationMs, hold.rule, hold.identity,
    hold.others == '' and '-' or hold.others, expiredCount, nextMs)
end
