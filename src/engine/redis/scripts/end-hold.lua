-- Finds, settles, renews, releases or drops a hold; ends holds of a bucket that have expired; lists
-- the holds of an identity, or ends its leases. The script frees memory or needs little, so Redis
-- runs it at `maxmemory`. A machine may repeat a call.
-- KEYS: the bucket, the key of no hold, the hold, or the live holds and the sums of the identity.
-- ARGV after the header: the hold, or the identity.
--#include clock.lua
--#include enter.lua
--#include hold-state.lua

local name = ARGV[HEADER_ARGUMENTS + 1]
local operation, cost, ttlMs, capacity = unpack(END_HOLD, numbers, firstMessage)

-- Applies the actual cost of a reservation, unless it has ended.
local function settle(hold)
  if hold.state == STATE_LIVE and hold.expiresMs <= nowMs then expire(hold) end
  if hold.state == STATE_ENDED then return end
  if hold.state == STATE_LIVE then finish(hold, STATE_ENDED)
  else hold.state, hold.flags = STATE_ENDED, hold.flags + FLAG_IS_LATE end
  hold.released = giveBack(hold, max(0, hold.charged - cost))
  hold.charged = hold.charged - hold.released + charge(hold, max(0, cost - hold.charged))
  storeEnded(hold)
end

-- Ends a hold that no client gets. A call that would record it may be on its way to Redis: then it
-- finds a record that has ended.
local function drop(hold)
  if not hold then
    storeEnded({
      name = name, identity = ('0'):rep(32), others = '', kind = tonumber(name:sub(1, 1)),
      state = STATE_ENDED, limit = 0, durationMs = 0, rule = 0, window = 0, reservedUs = 0,
      tokens = 0, charged = 0, released = 0, expiresMs = 0, namespace0 = 0, namespace1 = 0,
      flags = 0,
    })
  elseif hold.kind == KIND_RESERVATION then settle(hold)
  elseif hold.state == STATE_LIVE then
    finish(hold, STATE_ENDED)
    storeEnded(hold)
  end
end

-- Ends leases of an identity. Returns how many, and whether there may be more.
local function endLeases(identity)
  local ended, first, names = 0, 0, nil
  repeat
    names = call('ZRANGE', head .. IDENTITY_HOLDS_KEY .. identity, first,
      first + ENDED_PER_CALL - 1)
    for _, of in ipairs(names) do
      local hold = readHold(of)
      if hold and hold.kind == KIND_LEASE and isLive(hold) then
        finish(hold, STATE_ENDED)
        storeEnded(hold)
        ended = ended + 1
      else first = first + 1 end
    end
  until #names < ENDED_PER_CALL or ended >= ENDED_PER_CALL
  return ended, #names == ENDED_PER_CALL
end

-- Appends lines about the holds of an identity, the first to expire before the others.
local function list(identity, lines)
  local holdsKey = head .. IDENTITY_HOLDS_KEY .. identity
  local from = '(' .. format('%d', nowMs)
  local names = call('ZRANGE', holdsKey, from, '+inf', 'BYSCORE', 'LIMIT', 0,
    LISTED_HOLDS_MAX)
  lines[3] = format(HOLDS_HEADER, call('ZCOUNT', holdsKey, from, '+inf'),
    min(sumOf(identity, KIND_RESERVATION), AMOUNT_MAX),
    min(sumOf(identity, KIND_LEASE), AMOUNT_MAX))
  for _, of in ipairs(names) do
    local hold = readHold(of)
    if hold then
      lines[#lines + 1] = format(HOLDS_LINE, of, hold.kind, hold.tokens, hold.limit,
        hold.durationMs, hold.rule, hold.expiresMs)
    end
  end
end

local isOfIdentity = operation == END_LIST or operation == END_END_LEASES
local isMore = expireDue(isOfIdentity and name)
local lines = {'', ''}
if operation >= END_EXPIRE then
  if not isMore and operation == END_LIST then list(name, lines)
  elseif not isMore and operation == END_END_LEASES then
    local ended
    ended, isMore = endLeases(name)
    lines[3] = format(HOLDS_HEADER, ended, 0, 0)
  end
  lines[2] = answerOf(isMore and HOLD_AGAIN or HOLD_DONE)
else
  local hold = readHold(name)
  if operation == END_DROP then drop(hold) end
  -- A hold that was dropped before it was made has no expiry.
  if not hold or hold.expiresMs == 0 then
    lines[2] = answerOf(fenceUs > 0 and HOLD_RECOVERING or HOLD_UNKNOWN)
  else
    local isGranted = isLive(hold)
    if operation == END_SETTLE then settle(hold)
    elseif operation == END_RENEW and isGranted then
      hold.expiresMs = nowMs + ttlMs
      keepLive(hold, false)
    elseif operation == END_RELEASE and isGranted then
      finish(hold, STATE_ENDED)
      storeEnded(hold)
    end
    lines[2] = answerOf(HOLD_DONE, hold, isGranted)
  end
end
forgetEnded(capacity)
local status = CALL_DONE
--#include answer-header.lua
lines[1] = header
return lines
