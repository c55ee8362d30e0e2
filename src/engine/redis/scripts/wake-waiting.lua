-- Wakes the other members whose checks wait for tokens.
--#include publish.lua
--#include counter-name.lua
for member in string.gmatch(call('HGET', key, COUNTER_WAITING) or '', '[^,]+') do
  if member ~= me then
    publish(member, format(NOTICE_WAKE, identity, durationMs, currentWindow))
  end
end
call('HDEL', key, COUNTER_WAITING)
