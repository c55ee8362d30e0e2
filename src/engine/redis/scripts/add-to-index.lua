-- The index is the hash by which `inspect` and `reset` find the counters of an identity.
local function addToIndex(identity, name, expiryMs)
  local index = bucketKey:sub(1, -2) .. INDEX_KEY .. identity
  local added = call('HSET', index, name, expiryMs)
  -- A key that was just made does not expire, for which GT does nothing.
  if added == 0 or call('PEXPIREAT', index, expiryMs, 'NX') == 0 then
    call('PEXPIREAT', index, expiryMs, 'GT')
  end
end
