-- Begins the life of a key that was just written, which ends with the next window. The index names
-- the last window of a counter.
--#include add-to-index.lua
local function beginExpiry(ofKey, ofWindow, hasLater)
  local expiryMs = format('%d', (ofWindow + 2) * durationMs)
  call('PEXPIREAT', ofKey, expiryMs)
  if hasLater then return end
  --#include counter-name.lua
  addToIndex(identity, INDEX_WINDOWS .. digits, expiryMs)
end
