-- Removes members that are dead. Recoveries wait for them no longer.
-- ARGV after the header: a member, or a machine.
--#include clock.lua
--#include membership.lua
local name = ARGV[HEADER_ARGUMENTS + 1]
local removed = 0
for _, field in ipairs(call('HKEYS', bucketKey)) do
  local member = match(field, BUCKET_MEMBER_PATTERN)
  if member and (member == name or match(member, MACHINE_PATTERN) == name) then
    call('HDEL', bucketKey, field)
    call('HSET', bucketKey, BUCKET_FORGOTTEN .. member, format('%d', clockUs))
    removed = removed + 1
  end
end
if removed > 0 then
  nextVersion()
  countedUs = 0
  storeMeta()
end
return {format('%d', removed)}
