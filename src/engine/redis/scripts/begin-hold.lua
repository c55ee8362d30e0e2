-- Records a reservation, whose tokens were deducted before, or grants a lease. It also records what
-- machines report to a Redis that has lost its memory. A machine may repeat a call: a hold that is
-- recorded already stays as it is, and the answer is the same.
-- KEYS: the bucket, the hold, the live holds and the sums of its identity, the key of no hold.
-- ARGV after the header: the hold, its identity, the references of the other holds of its list.
--#include clock.lua
--#include enter.lua
--#include hold-state.lua

local name, identity = ARGV[HEADER_ARGUMENTS + 1], ARGV[HEADER_ARGUMENTS + 2]
local others = ARGV[HEADER_ARGUMENTS + 3]
local operation, kind, limit, durationMs, rule, window, reservedUs, tokens, ttlMs, expiresMs,
  namespace0, namespace1, flags, capacity = unpack(BEGIN_HOLD, numbers, firstMessage)

local isMore = expireDue(identity)
local hold = readHold(name)
local status, isGranted = HOLD_DONE, true
if hold then
  isGranted = isLive(hold)
  -- The machine that reports the lease may have renewed it later than one that reported it before.
  if operation == BEGIN_REPORT and isGranted and expiresMs > hold.expiresMs then
    hold.expiresMs = expiresMs
    keepLive(hold, false)
  end
else
  hold = {
    name = name, identity = identity, others = others, kind = kind, state = STATE_LIVE,
    limit = limit, durationMs = durationMs, rule = rule,
    window = window, reservedUs = reservedUs, tokens = tokens, charged = tokens, released = 0,
    expiresMs = nowMs + ttlMs, namespace0 = namespace0, namespace1 = namespace1, flags = flags,
  }
  if operation == BEGIN_REPORT then
    hold.expiresMs = expiresMs
    isGranted = expiresMs > nowMs
  elseif operation == BEGIN_ACQUIRE then
    if isMore then status = HOLD_AGAIN
    elseif fenceUs > 0 then status = HOLD_RECOVERING end
    isGranted = status == HOLD_DONE and tokens <= limit - sumOf(identity, KIND_LEASE)
  end
  local hasRoom = CREATES and (operation == BEGIN_REPORT or countOf(endsKey) < capacity)
  if isGranted and not hasRoom then status, isGranted = HOLD_FULL, false end
  if isGranted then keepLive(hold, true) else hold.expiresMs = 0 end
end
forgetEnded(capacity)
local message = answerOf(status, hold, isGranted)
status = CALL_DONE
--#include answer-header.lua
return {header, message}
