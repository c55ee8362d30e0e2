-- Takes over the account of the process before, with the first message of this one.
local predecessor = ARGV[HEADER_ARGUMENTS + 1] .. format('.%d', inherits - 1)
-- A late message of that process is stale then.
local taken = pack(ACCOUNT, 0, 0, TAKEN_SEQUENCE, 0, 0, 0, 0, 0)
local account = ownSequence == 0 and call('HGET', key, predecessor)
if account and account ~= taken then
  call('HSET', key, predecessor, taken)
  local flagsBefore = ownFlags
  stored[2] = account
  ownDeducted, ownUsage, _, ownBase, ownRate, ownFlags = unpack(ACCOUNT, account)
  ownSequence = firstSequence
  if flagsBefore % (2 * ACCOUNT_MUST_REPORT) >= ACCOUNT_MUST_REPORT then
    if ownFlags % (2 * ACCOUNT_MUST_REPORT) >= ACCOUNT_MUST_REPORT then awaited = awaited - 1 end
    ownFlags = ownFlags % ACCOUNT_MUST_REPORT
      + (flagsBefore - flagsBefore % ACCOUNT_MUST_REPORT)
  else _, _, _, _, _, _, ownFirstRequestUs, ownLastRequestUs = unpack(ACCOUNT, account) end
end
account = previousOwnSequence == 0 and call('HGET', previousKey, predecessor)
if account and account ~= taken then
  call('HSET', previousKey, predecessor, taken)
  previous[2], hasInherited = account, true
  previousOwnDeducted, previousOwnUsage, _, previousOwnBase, previousOwnRate, previousOwnFlags =
    unpack(ACCOUNT, account)
  previousOwnSequence = firstSequence
end
