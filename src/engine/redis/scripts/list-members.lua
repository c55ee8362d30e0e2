-- Lists the members, for members whose list is old, and for the command line.
--#include clock.lua
local lines = {format(LIST_HEADER, membersVersion, clockUs, fenceUs > 0 and 1 or 0)}
local fields = call('HGETALL', bucketKey)
for i = 1, #fields, 2 do
  local member = match(fields[i], BUCKET_MEMBER_PATTERN)
  if member then
    local calledUs, _, knownVersion, hasJoined, _, reportedIn = unpack(MEMBER, fields[i + 1])
    local isAwaited = fenceUs > 0 and hasJoined == 1 and reportedIn < epochNumber
    lines[#lines + 1] = format(LIST_LINE, member, max(0, floor((clockUs - calledUs) / 1000)),
      hasJoined, knownVersion, isAwaited and 1 or 0)
  end
end
return lines
