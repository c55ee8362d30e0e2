-- Stores the answers to requests that clients may repeat. An acceptor claims a request before it
-- decides it.
-- KEYS: the request. ARGV: the operation, its parameters, the claim, the answer.
local call, format = redis.call, string.format
local key = KEYS[1]
local operation, parameters, claim, answer = tonumber(ARGV[1]), ARGV[2], ARGV[3], ARGV[4]
local claimed = 'c ' .. claim
local stored = call('GET', key)
if operation == REQUEST_CLAIM then
  if not stored or stored == claimed then
    call('SET', key, claimed, 'PX', CLAIM_MS)
    return {format(REQUEST_ANSWER, REQUEST_CLAIMED, '-')}
  end
  local ofAnswer, text = string.match(stored, '^a (%S+) (.+)$')
  if not ofAnswer then return {format(REQUEST_ANSWER, REQUEST_BUSY, '-')} end
  if ofAnswer ~= parameters then return {format(REQUEST_ANSWER, REQUEST_CONFLICT, '-')} end
  return {format(REQUEST_ANSWER, REQUEST_ANSWERED, text)}
end
-- The claim may have ended, and another acceptor may have claimed the request: its answer stays.
if not stored or stored == claimed then
  if operation == REQUEST_STORE then
    call('SET', key, 'a ' .. parameters .. ' ' .. answer, 'PX', REQUEST_ID_MS)
  else call('UNLINK', key) end
end
return {format(REQUEST_ANSWER, REQUEST_CLAIMED, '-')}
