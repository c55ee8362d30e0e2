-- Settles the window before: late usage there, and what is left of its lease. `isPreviousNew` says
-- whether the message has made its key.
local isPreviousNew = false
if readsPrevious then
  local wasAwaited = previousOwnFlags % (2 * ACCOUNT_MUST_REPORT) >= ACCOUNT_MUST_REPORT
  if previous[2] and previousOwnSequence < firstSequence then
    if previousOwnFlags % (2 * ACCOUNT_WRITTEN_OFF) == 0 then
      previousUsage = previousUsage + (previousOwnDeducted - previousOwnUsage)
    end
    previousRateSum, previousOwnDeducted, previousOwnUsage, previousOwnBase, previousOwnRate,
      previousOwnFlags = previousRateSum - previousOwnRate, 0, 0, 0, 0, 0
  end
  local used, held = 0, 0
  if window == currentWindow then used = previousSpent - previousOwnBase
  elseif window == currentWindow - 1 then used, held = spent - previousOwnBase, kept end
  if previousOwnBase >= CLEARED_BASE then used = 0 end
  local isWrittenOff = previousOwnFlags % (2 * ACCOUNT_WRITTEN_OFF) == ACCOUNT_WRITTEN_OFF
  previousDeducted = previousDeducted + (used - previousOwnDeducted + held)
  previousUsage = previousUsage
    + (used - (isWrittenOff and previousOwnDeducted or previousOwnUsage))
  if previousDeducted ~= oldPreviousDeducted or previousUsage ~= oldPreviousUsage
      or previousOwnSequence < firstSequence and previous[2]
      or used + held ~= previousOwnDeducted or used ~= previousOwnUsage or hasInherited then
    if wasAwaited and previousFlags >= TOTALS_AWAITED then
      previousFlags = previousFlags - TOTALS_AWAITED
      if previousFlags < TOTALS_AWAITED then
        previousFlags = previousFlags % TOTALS_ONLY_FOR_PREVIOUS
      end
    end
    call('HSET', previousKey,
      COUNTER_TOTALS, pack(TOTALS, previousDeducted, previousUsage, previousRateSum,
        previousRecallNumber, previousRecalledUs, previousLimit, previousFlags),
      me, pack(ACCOUNT, used + held, used, sequence, previousOwnBase, previousOwnRate,
        0, 0, 0))
    isPreviousNew = not previous[1]
  end
  previousOwnDeducted, previousOwnUsage = used + held, used
  local known = window == currentWindow and previousKnown
    or window == currentWindow - 1 and others + spent or 0
  local knowsMore = isReporting and known > max(0, previousUsage)
  if knowsMore or previousFlags % (2 * TOTALS_MUST_RESTORE) >= TOTALS_MUST_RESTORE then
    --#include restore-usage.lua
    if knowsMore then
      rememberUsage(previousKey, known)
      if previousFlags % (2 * TOTALS_MUST_RESTORE) < TOTALS_MUST_RESTORE then
        previousFlags = previousFlags + TOTALS_MUST_RESTORE
      end
    end
    if awaited == 0 and isPreviousVerified then
      previousDeducted, previousUsage =
        restoreUsage(previousKey, previousDeducted, previousUsage)
      previousFlags = previousFlags - TOTALS_MUST_RESTORE
    end
    call('HSET', previousKey, COUNTER_TOTALS, pack(TOTALS, previousDeducted, previousUsage,
      previousRateSum, previousRecallNumber, previousRecalledUs, previousLimit,
      previousFlags))
    isPreviousNew = not previous[1]
  end
  if isPreviousNew then
    --#include begin-expiry.lua
    beginExpiry(previousKey, currentWindow - 1, stored[1])
  end
end
