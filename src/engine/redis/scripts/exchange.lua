-- Serves the messages of one member about counters with windows. It is the only place that decides
-- how many tokens of a window are left. KEYS[2...]: the counters, without their windows.
--
-- Tokens `deducted` are spent, or in leases. The known `usage` is certainly spent. What is between
-- them is in leases that may still be unused. `deducted` includes them, so no window is overfull.
-- The prefix `own` is for the account of this member, `previous` for the window before.
--
-- Each call creates the functions of its script again, which takes time. So functions that are
-- rarely needed are included in the branches that need them. For the same reason a flag is tested
-- by `flags % (2 * FLAG) >= FLAG`: Lua folds the product, and has no operators for bits.
--#include clock.lua
--#include enter.lua
--#include bounded.lua
--#include share.lua

-- Leases that were written off for the message, and members whose reports of it are awaited.
local writtenOff, awaited, isMissing
local answers = {''}
local position = firstMessage

for i = 2, #KEYS do
  local keyPrefix = KEYS[i]
  local durationMs, window, spent, previousSpent, sequence, firstSequence, kept, rate, lastLimit,
    messageFlags, others, previousKnown, report, inherits, checkCount, firstCheck =
    unpack(MESSAGE, numbers, position)
  position = firstCheck + CHECK_BYTES * checkCount
  local wantsLease = messageFlags % (2 * MESSAGE_WANTS_LEASE) >= MESSAGE_WANTS_LEASE
  local recalls = messageFlags % (2 * MESSAGE_RECALLS) >= MESSAGE_RECALLS
  local isStored = messageFlags % (2 * MESSAGE_IS_STORED) >= MESSAGE_IS_STORED
  local hasPrevious = messageFlags % (2 * MESSAGE_HAS_PREVIOUS) >= MESSAGE_HAS_PREVIOUS
  local isSliding = messageFlags % (2 * MESSAGE_IS_SLIDING) >= MESSAGE_IS_SLIDING
  local refund, refundWindow = 0, 0
  if messageFlags >= MESSAGE_HAS_REFUND then
    refund, refundWindow, position = unpack(REFUND, numbers, position)
  end

  local currentWindow = floor(nowMs / durationMs)
  local key = format('%s:%d', keyPrefix, currentWindow)
  local startUs, endMs = currentWindow * durationMs * 1000, (currentWindow + 1) * durationMs
  local readsPrevious = isSliding or hasPrevious or window == currentWindow - 1 or inherits > 0

  local stored = call('HMGET', key, COUNTER_TOTALS, me)
  local deducted, usage, rateSum, recallNumber, recalledUs, limit, flags = 0, 0, 0, 0, 0, 0, 0
  if stored[1] then
    deducted, usage, rateSum, recallNumber, recalledUs, limit, flags = unpack(TOTALS, stored[1])
  end
  local ownDeducted, ownUsage, ownSequence, ownBase, ownRate, ownFlags = 0, 0, 0, 0, 0, 0
  local ownFirstRequestUs, ownLastRequestUs = 0, 0
  if stored[2] then
    ownDeducted, ownUsage, ownSequence, ownBase, ownRate, ownFlags, ownFirstRequestUs,
      ownLastRequestUs = unpack(ACCOUNT, stored[2])
  end

  local previousKey, previous
  local previousDeducted, previousUsage, previousRateSum, previousRecallNumber = 0, 0, 0, 0
  local previousRecalledUs, previousLimit, previousFlags = 0, 0, 0
  local previousOwnDeducted, previousOwnUsage, previousOwnSequence = 0, 0, 0
  local previousOwnBase, previousOwnRate, previousOwnFlags = 0, 0, 0
  if readsPrevious then
    previousKey = format('%s:%d', keyPrefix, currentWindow - 1)
    previous = call('HMGET', previousKey, COUNTER_TOTALS, me)
    if previous[1] then
      previousDeducted, previousUsage, previousRateSum, previousRecallNumber, previousRecalledUs,
        previousLimit, previousFlags = unpack(TOTALS, previous[1])
    end
    if previous[2] then
      previousOwnDeducted, previousOwnUsage, previousOwnSequence, previousOwnBase,
        previousOwnRate, previousOwnFlags = unpack(ACCOUNT, previous[2])
    end
  end

  local mustRestore, wasWrittenOff, isOnlyForPrevious = false, false, true
  awaited, isMissing = 0, false
  if flags >= TOTALS_MUST_RESTORE then
    mustRestore = flags % (2 * TOTALS_MUST_RESTORE) >= TOTALS_MUST_RESTORE
    isMissing = flags % (2 * TOTALS_IS_MISSING) >= TOTALS_IS_MISSING
    wasWrittenOff = flags % (2 * TOTALS_WRITTEN_OFF) >= TOTALS_WRITTEN_OFF
    awaited = floor(flags / TOTALS_AWAITED)
    isOnlyForPrevious = awaited == 0
      or flags % (2 * TOTALS_ONLY_FOR_PREVIOUS) >= TOTALS_ONLY_FOR_PREVIOUS
    flags = flags % TOTALS_MUST_RESTORE
  end

  local status = MESSAGE_DONE
  if window > currentWindow then status = MESSAGE_RECOVERING
  elseif sequence <= ownSequence or sequence <= previousOwnSequence then status = MESSAGE_STALE
  elseif not CREATES and not stored[1] then status = MESSAGE_FULL end

  if status ~= MESSAGE_DONE then answers[i] = format(REFUSAL, sequence, status)
  else
    local oldAwaited, hasInherited, _ = awaited, false, nil
    if inherits > 0 then
      --#include inherit-account.lua
    end
    local isMissed = ownFlags % (2 * ACCOUNT_MISSED_REPORT) >= ACCOUNT_MISSED_REPORT
      or isStored and not stored[2] and window == currentWindow
    local isReport = ownFlags % (2 * ACCOUNT_MUST_REPORT) >= ACCOUNT_MUST_REPORT
      and report == ownFirstRequestUs
    if isReport then
      awaited, ownFlags = awaited - 1, ownFlags % ACCOUNT_MUST_REPORT
      ownFirstRequestUs, ownLastRequestUs = 0, 0
    end

    --#include find-loss.lua
    local isReporting = isReport or isMarked
      or fenceUs > 0 and reportedEpoch ~= format(EPOCH, runId, epochNumber)
    local oldDeducted, oldUsage = deducted, usage
    local oldPreviousDeducted, oldPreviousUsage = previousDeducted, previousUsage

    --#include settle-previous.lua

    -- Settles this window.
    if stored[2] and ownSequence < firstSequence then
      if ownFlags % (2 * ACCOUNT_WRITTEN_OFF) == 0 then
        usage = usage + (ownDeducted - ownUsage)
      end
      rateSum = rateSum - ownRate
      ownDeducted, ownUsage, ownBase, ownRate = 0, 0, 0, 0
      ownFlags = ownFlags % (2 * ACCOUNT_MUST_REPORT) >= ACCOUNT_MUST_REPORT
        and ownFlags - ownFlags % ACCOUNT_MUST_REPORT or 0
      if ownFlags == 0 then ownFirstRequestUs, ownLastRequestUs = 0, 0 end
    end
    local used, held = 0, 0
    if window == currentWindow then used, held = spent - ownBase, kept else ownBase = 0 end
    local isWrittenOff = ownFlags % (2 * ACCOUNT_WRITTEN_OFF) == ACCOUNT_WRITTEN_OFF
    deducted = deducted + (used - ownDeducted + held)
    usage = usage + (used - (isWrittenOff and ownDeducted or ownUsage))
    if isMissed and used > ownUsage then
      -- What was restored contains its usage.
      local restored = tonumber(call('HGET', key, COUNTER_RESTORED) or 0)
      local counted = min(restored, used - ownUsage)
      deducted, usage = deducted - counted, usage - counted
      if counted > 0 then
        call('HSET', key, COUNTER_RESTORED, format('%d', restored - counted))
      end
    end
    ownDeducted, ownUsage = used + held, used
    local mustReport = ownFlags % (2 * ACCOUNT_MUST_REPORT) >= ACCOUNT_MUST_REPORT
    if held == 0 and not mustReport then ownFirstRequestUs, ownLastRequestUs = 0, 0 end
    if isReporting and others > 0 and window == currentWindow
        and others + spent > max(0, usage) then
      --#include restore-usage.lua
      rememberUsage(key, others + spent)
      mustRestore = true
    end
    if mustRestore and awaited == 0 and isVerified and (isPreviousVerified or not isSliding) then
      --#include restore-usage.lua
      deducted, usage = restoreUsage(key, deducted, usage)
      mustRestore = false
    end
    rateSum = rateSum + rate - ownRate
    if lastLimit > 0 then limit = lastLimit end

    -- Refunds.
    local refunded, mustRecall = 0, recalls
    if refund > 0 and refundWindow == currentWindow then
      if refund > usage and (deducted - ownDeducted > usage - ownUsage or awaited > 0) then
        status, mustRecall = MESSAGE_RETRY_REFUND, true
      else
        refunded = max(0, min(refund, usage))
        deducted, usage = deducted - refunded, usage - refunded
        ownDeducted, ownUsage = ownDeducted - refunded, ownUsage - refunded
      end
    end

    -- Serves the checks. `carried` is what a sliding window takes over from the window before.
    local leftMs = endMs - nowMs
    local carried, carriedUsage = 0, 0
    if isSliding then
      carried = share(previousDeducted, leftMs, durationMs)
      carriedUsage = carried
      if previousUsage < previousDeducted then
        carriedUsage = share(previousUsage, leftMs, durationMs)
      end
    end
    -- Where machines share a sliding window that is used up, they leave a few tokens to each other:
    -- if all tokens of both windows are known to be spent or free, or were recalled lately.
    local mayShare = isSliding and wantsLease and carried > 0 and machineCount > 1 and awaited == 0
      and (deducted > ownDeducted or previousDeducted > previousOwnDeducted)
      and (deducted - ownDeducted - (usage - ownUsage) <= 0
        or clockUs - recalledUs < SHARED_RECALL_US)
      and (previousDeducted - previousOwnDeducted - (previousUsage - previousOwnUsage) <= 0
        or clockUs - previousRecalledUs < SHARED_RECALL_US)
    local verdicts, isServed, isCostly, smallestLimit = '', true, false, lastLimit
    local checkPosition = firstCheck
    for check = 1, checkCount do
      local cost, checkLimit, checkFlags, nextCheck = unpack(CHECK, numbers, checkPosition)
      local verdict = SERVED_ALLOWED
      checkPosition = nextCheck
      if check == 1 or checkLimit < smallestLimit then smallestLimit = checkLimit end
      if cost > 0 then
        local before, beforeUsage = 0, 0
        if checkFlags % (2 * CHECK_IS_SLIDING) >= CHECK_IS_SLIDING then
          before, beforeUsage = carried, carriedUsage
        end
        isCostly = true
        if awaited == 0 and cost <= checkLimit - deducted - before then
          deducted, ownDeducted, limit = deducted + cost, ownDeducted + cost, checkLimit
        else
          isServed = false
          local isProven = cost > checkLimit - (usage - ownUsage + ownDeducted) - beforeUsage
          local canWait = false
          if mayShare and checkFlags % (2 * CHECK_IS_SLIDING) >= CHECK_IS_SLIDING then
            local ofLimit = checkLimit
            --#include shared-window.lua
            canWait = isShared and cost <= pauseTokens
          end
          if not isProven and not canWait then
            verdict, mustRecall = SERVED_UNPROVEN, true
          else
            verdict = isProven and SERVED_DENIED or SERVED_SHARED
            if checkFlags >= CHECK_COUNTS_DENIED then
              deducted, ownDeducted = deducted + cost, ownDeducted + cost
            end
          end
        end
      end
      verdicts = verdicts .. verdict
    end

    -- Grants a lease.
    local lent, leftUs = 0, endMs * 1000 - clockUs
    if wantsLease and isServed and (isCostly or checkCount == 0)
        and smallestLimit >= LEASED_LIMIT_MIN and not mustRecall and awaited == 0
        and not isJoining and (recalledUs == 0 or clockUs - recalledUs >= QUIET_US)
        and leftUs > max(LEASE_LEFT_MIN_US,
          min(durationMs * 1000 * LEASE_LEFT_SHARE, LEASE_LEFT_MAX_US)) then
      local free = smallestLimit - deducted - carried
      local fair = 0
      if rateSum > 0 then fair = free * (rate / rateSum) end
      local spanMs = max(LEASE_SPAN_MIN_MS, min(durationMs * LEASE_SPAN_SHARE, LEASE_SPAN_MAX_MS))
      local demand = min(rate * (spanMs / 1000), fair)
      local least = free / (LEASE_FIRST_PARTS * machineCount)
      lent = floor(min(LEASE_LIMIT_SHARE * smallestLimit, max(demand, least)) - kept)
      if mayShare then
        local ofLimit = smallestLimit
        --#include shared-window.lua
        lent = max(lent, sharedLease - kept)
      end
      lent = max(0, min(lent, free))
      deducted, ownDeducted = deducted + lent, ownDeducted + lent
      -- A recall of the lease before is over, also if the member has kept some of its tokens.
      if lent > 0 then ownFirstRequestUs, ownLastRequestUs = 0, 0 end
    end

    -- Little is left of a shared window: the machine pauses before its next request.
    local pauseMs = 0
    if mayShare and not mustRecall then
      local ofLimit = smallestLimit
      --#include shared-window.lua
      if isShared and smallestLimit - deducted - carried < pauseTokens then
        local freePerS = smallestLimit * 1000 / durationMs
        local ownPerS = freePerS * max(rate / max(rateSum, freePerS), 1 / machineCount)
        pauseMs = math.ceil(min(PAUSE_MAX_MS, 1000 * pauseTokens / ownPerS))
      end
    end

    -- Wakes members that wait, then recalls leases for this one.
    local isWoken = false
    writtenOff = 0
    if flags % (2 * TOTALS_HAS_WAITING) == TOTALS_HAS_WAITING
        and (deducted < oldDeducted or usage < oldUsage
          or deducted - usage < oldDeducted - oldUsage
          or previousDeducted < oldPreviousDeducted or previousUsage < oldPreviousUsage
          or previousDeducted - previousUsage < oldPreviousDeducted - oldPreviousUsage
          or awaited < oldAwaited) then
      --#include wake-waiting.lua
      flags = flags - TOTALS_HAS_WAITING
      isWoken = true
    end
    local denies = ownFlags % (2 * ACCOUNT_DENIES) >= ACCOUNT_DENIES
    if flags >= TOTALS_HAS_DENYING and (usage < oldUsage or previousUsage < oldPreviousUsage) then
      --#include end-denials.lua
      flags = flags - (denies and 0 or TOTALS_HAS_DENYING)
      isWoken = true
    end
    if mustRecall or isMarked and awaited > 0 then
      --#include recall-leases.lua
      local isCorrection = checkCount == 0
      local writeOffUs = isCorrection and CORRECTION_WRITE_OFF_US or WRITE_OFF_US
      local isSent, isPreviousSent
      if deducted - ownDeducted > usage - ownUsage or awaited > 0 then
        usage, isSent = recallLeases(key, currentWindow, recallNumber + 1, usage, writeOffUs)
      end
      if readsPrevious
          and previousDeducted - previousOwnDeducted > previousUsage - previousOwnUsage then
        local usageBefore = previousUsage
        previousUsage, isPreviousSent = recallLeases(previousKey, currentWindow - 1,
          previousRecallNumber + 1, previousUsage, writeOffUs)
        if isPreviousSent then
          previousRecallNumber, previousRecalledUs = previousRecallNumber + 1, clockUs
        end
        if isPreviousSent or previousUsage ~= usageBefore then
          call('HSET', previousKey, COUNTER_TOTALS, pack(TOTALS, previousDeducted, previousUsage,
            previousRateSum, previousRecallNumber, previousRecalledUs, previousLimit,
            previousFlags))
          if isSliding then carriedUsage = share(previousUsage, leftMs, durationMs) end
        end
      end
      if isSent then recallNumber, recalledUs = recallNumber + 1, clockUs end
      if deducted - ownDeducted > usage - ownUsage or awaited > 0 or readsPrevious
          and previousDeducted - previousOwnDeducted > previousUsage - previousOwnUsage then
        local waiting = call('HGET', key, COUNTER_WAITING) or ''
        if not waiting:find(me .. ',', 1, true) then
          call('HSET', key, COUNTER_WAITING, waiting .. me .. ',')
        end
        flags = flags - flags % (2 * TOTALS_HAS_WAITING) + TOTALS_HAS_WAITING
      end
      -- Tokens that were written off may prove denials.
      if verdicts:find(SERVED_UNPROVEN, 1, true) then
        local again = ''
        for check = 1, checkCount do
          local cost, checkLimit, checkFlags =
            unpack(CHECK, numbers, firstCheck + CHECK_BYTES * (check - 1))
          local verdict = verdicts:sub(check, check)
          if verdict == SERVED_UNPROVEN then
            local before = checkFlags % (2 * CHECK_IS_SLIDING) >= CHECK_IS_SLIDING
              and carriedUsage or 0
            if cost > checkLimit - (usage - ownUsage + ownDeducted) - before then
              verdict = SERVED_DENIED
              if checkFlags >= CHECK_COUNTS_DENIED then
                deducted, ownDeducted = deducted + cost, ownDeducted + cost
              end
            end
          end
          again = again .. verdict
        end
        verdicts = again
      end
    end

    wasWrittenOff = wasWrittenOff or writtenOff > 0
    -- A machine that may deny later checks by the known usage gets a message when that falls.
    local canFall = usage > 0 or previousUsage > 0
    if canFall and not denies and checkCount > 0
        and (pauseMs > 0 or not (isServed and isCostly)) then
      denies = true
      if flags < TOTALS_HAS_DENYING then flags = flags + TOTALS_HAS_DENYING end
    end

    -- Stores the counter, unless there is nothing to store.
    local isRecorded = stored[2] or ownDeducted ~= 0 or ownUsage ~= 0 or mustRecall or isWoken
      or denies or isMarked or mustRestore or deducted ~= oldDeducted or usage ~= oldUsage
    if isRecorded then
      if mustRestore or isMissing or wasWrittenOff or awaited > 0 then
        flags = flags + (mustRestore and TOTALS_MUST_RESTORE or 0)
          + (isMissing and TOTALS_IS_MISSING or 0) + (wasWrittenOff and TOTALS_WRITTEN_OFF or 0)
          + (awaited > 0 and isOnlyForPrevious and TOTALS_ONLY_FOR_PREVIOUS or 0)
          + TOTALS_AWAITED * awaited
      end
      call('HSET', key,
        COUNTER_TOTALS,
        pack(TOTALS, deducted, usage, rateSum, recallNumber, recalledUs, limit, flags),
        me, pack(ACCOUNT, ownDeducted, ownUsage, sequence, ownBase, rate,
          (denies and ACCOUNT_DENIES or 0)
            + (mustReport and ownFlags - ownFlags % ACCOUNT_MUST_REPORT or 0),
          ownFirstRequestUs, ownLastRequestUs))
      if not stored[1] then
        if isPreviousNew or readsPrevious and previous[1] then
          call('HSET', key, COUNTER_HAD_PREVIOUS, '')
        end
        --#include begin-expiry.lua
        beginExpiry(key, currentWindow)
      end
    end
    local answerFlags = (isRecorded and ANSWER_IS_STORED or 0)
      + ((denies or not canFall) and ANSWER_MAY_DENY or 0) + ANSWER_PAUSE * pauseMs
    answers[i] = format(ANSWER, sequence, status, currentWindow, leftUs, answerFlags,
      bounded(usage - ownUsage - ownBase), bounded(deducted - ownDeducted - ownBase), lent,
      recallNumber, refunded, verdicts)
    isMissing = isMissing or startUs < openedUs
      or isSliding and startUs - durationMs * 1000 < openedUs
    if readsPrevious or wasWrittenOff or awaited > 0 or isMissing then
      local answerState = (awaited > 0 and ANSWER_IS_UNKNOWN or 0)
        + (isMissing and ANSWER_IS_MISSING or 0) + (wasWrittenOff and ANSWER_WRITTEN_OFF or 0)
      answers[i] = answers[i] .. ' ' .. format(ANSWER_END, bounded(previousDeducted),
        bounded(previousUsage), writtenOff, answerState, mustReport and ownFirstRequestUs or 0)
    end
  end
end
local status = CALL_DONE
--#include answer-header.lua
answers[1] = header
return answers
