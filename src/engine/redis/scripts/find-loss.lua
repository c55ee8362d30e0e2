-- Finds out whether usage of the counter is lost, and then requests reports of it. `isVerified`
-- and `isPreviousVerified` say whether a recovery is over for it, `isMarked` whether this message
-- is the first to find the loss, and `awaited` how many members must report.
--
-- A counter is verified after a loss: its members must report, and until they have, no check is
-- allowed, and no denial proven by what is missing. It is done for a counter whose window began
-- before the fence of a recovery; for one that was deleted, as its member, or the index, shows; and
-- for one that is missing, in a window that began before another key was found to be lost. A report
-- is a message that names the time of the request, because an old copy of a message may be late.

-- What a member has had an answer of, and is missing, was deleted.
local isLost = window == currentWindow
  and (isStored and not stored[2] or others > 0 and not stored[1])
local isPreviousLost = window == currentWindow - 1
    and (isStored and not previous[2] or others > 0 and not previous[1])
  or window == currentWindow and isSliding and previousKnown > previousSpent
    and not previous[1]
if (isLost or isPreviousLost) and reportedEpoch ~= format(EPOCH, runId, epochNumber) then
  isLost, isPreviousLost = false, false
end
-- When the last window of the counter expires that has existed.
local isGuess, indexedMs = false, false
if not stored[1] or isLost then
  --#include counter-name.lua
  local index = bucketKey:sub(1, -2) .. INDEX_KEY .. identity
  indexedMs = call('HGET', index, INDEX_WINDOWS .. digits)
  isGuess = not stored[1] and startUs < lostUs
end
local wasIndexed = indexedMs and indexedMs == format('%d', (currentWindow + 2) * durationMs)
-- Of a lost key whose index is there, no others are known to be lost.
if (isLost or isPreviousLost) and not wasIndexed then
  lostUs = clockUs
  --#include store-meta.lua
end
if isSliding then
  -- The window before has ended while its members were to report, or was lost alone.
  if previousFlags >= TOTALS_AWAITED
      and previousFlags % (2 * TOTALS_ONLY_FOR_PREVIOUS) < TOTALS_ONLY_FOR_PREVIOUS then
    isPreviousLost, previousFlags = true, previousFlags % TOTALS_ONLY_FOR_PREVIOUS
    call('HSET', previousKey, COUNTER_TOTALS, pack(TOTALS, previousDeducted, previousUsage,
      previousRateSum, previousRecallNumber, previousRecalledUs, previousLimit,
      previousFlags))
  end
  if not previous[1] and (stored[1] and call('HGET', key, COUNTER_HAD_PREVIOUS)
      or indexedMs and indexedMs == format('%d', (currentWindow + 1) * durationMs)) then
    isPreviousLost = true
  end
end
isLost = isLost or wasIndexed
local isVerified, isPreviousVerified = true, true
if fenceUs > 0 and startUs - durationMs * 1000 < fenceUs then
  isPreviousVerified = call('HGET', key, COUNTER_VERIFIED) == format('%d', epochNumber)
  isVerified = isPreviousVerified or startUs >= fenceUs
end
local isMarked = false
local isUse = checkCount > 0 or wantsLease or recalls or refund > 0
local mustVerify = isLost or isGuess or isUse and not isVerified
if mustVerify or isPreviousLost or isUse and isSliding and not isPreviousVerified then
  isOnlyForPrevious = isOnlyForPrevious and not mustVerify
  --#include verify-counter.lua
end
