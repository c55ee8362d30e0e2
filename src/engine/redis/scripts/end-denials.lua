-- Wakes the other machines that deny checks by the known usage, which has fallen.
--#include publish.lua
--#include counter-name.lua
local fields = call('HGETALL', key)
for k = 1, #fields, 2 do
  local member = fields[k]
  if #member > 1 and member ~= me then
    local otherDeducted, otherUsage, otherSequence, otherBase, otherRate, otherFlags,
      otherFirstRequestUs, otherLastRequestUs = unpack(ACCOUNT, fields[k + 1])
    if otherFlags % (2 * ACCOUNT_DENIES) >= ACCOUNT_DENIES then
      publish(member, format(NOTICE_WAKE, identity, durationMs, currentWindow))
      call('HSET', key, member, pack(ACCOUNT, otherDeducted, otherUsage, otherSequence, otherBase,
        otherRate, otherFlags - ACCOUNT_DENIES, otherFirstRequestUs, otherLastRequestUs))
    end
  end
end
