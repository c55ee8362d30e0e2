-- How many tokens fall free while each machine pauses once, on average; the largest lease in such a
-- window; and whether the other machines hold no more of it than such leases.
local pauseTokens = max(PAUSE_TOKENS, ofLimit * PAUSE_TOKENS_SHARE)
local sharedLease = floor(min(pauseTokens + 1, LEASE_LIMIT_SHARE * ofLimit))
local isShared = ofLimit >= LEASED_LIMIT_MIN
  and deducted - ownDeducted - (usage - ownUsage) + carried - carriedUsage
    <= (machineCount - 1) * sharedLease
