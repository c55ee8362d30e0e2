/**
 * The script of token requests, returns, refunds and reports about counters with windows. It is the
 * only place that decides how many tokens of a window are left. A counter is a hash for one window:
 *
 *   a         u: tokens gone; r: known use; rate: sum of the members' rates; number and time of the
 *             last recall; limit of the last allowed check; notices: 1 if members wait for tokens,
 *             plus 2 if members deny checks by the known use
 *   <member>  d: tokens gone to it; s: the use that it reported; sequence; base: its `spent` at the
 *             last reset; rate; marks: 1 if it is written off, plus 2 if it denies checks by the
 *             known use, and is told when that falls; when it was first asked to return its lease
 *             and did not, and last
 *   w         members that wait, each followed by a comma
 *
 * u - r are tokens in leases that may still be unused. u includes them, so no window is overfull.
 */

import { defineScript } from '../../../redis/script.ts';
import { SHARE } from './arithmetic.ts';
import { CLEARED, CLOCK, ENTER, EPOCH, HEADER, INDEX, MEMBERSHIP, PUBLISH } from './prelude.ts';

/** Limits below this one get no lease. */
const LEASED_LIMIT_MIN = 20;
/** After a recall no lease of the counter is granted for this time, µs. */
const QUIET_US = 12_000;
/** A recall is repeated after this time, and its holder written off after the other, µs. */
const RECALL_AGAIN_US = 4_000;
const WRITE_OFF_US = 10_000;
/** A refund, reset or inspection can wait longer for its holder, and is then exact. */
const CORRECTION_WRITE_OFF_US = 250_000;

/** Cost, limit and flags of a check, as doubles. */
const CHECK_BYTES = 24;

const COUNTERS = `
local COUNTER, RECORD = '<ddddddd', '<dddddddd'
local writtenOff = 0
`;

/** Begins the life of a key that was just written, which ends with the next window. */
const EXPIRE = `
${INDEX}
local function expire(base, key, window, duration)
  local expiry, digits = format('%d', (window + 2) * duration), format('%d', duration)
  call('PEXPIREAT', key, expiry)
  addToIndex(base:sub(-33 - #digits, -2 - #digits), 'w:' .. digits, expiry)
end
`;

/** What follows the name of a message to members: the counter. */
const NOTICE = `
local digits = format('%d', duration)
local notice = base:sub(-33 - #digits, -2 - #digits) .. ' ' .. digits
`;

/** Tells all members in a list but this one that tokens may be left. */
const WAKE = `
${PUBLISH}${NOTICE}
for member in string.gmatch(call('HGET', key, 'w') or '', '[^,]+') do
  if member ~= me then publish(member, 'wake ' .. notice .. ' ' .. w) end
end
call('HDEL', key, 'w')
`;

/** Tells the members but this one that deny checks by the known use that it has fallen. */
const END_DENIALS = `
${PUBLISH}${NOTICE}
local everything = call('HGETALL', key)
for k = 1, #everything, 2 do
  local member = everything[k]
  if #member > 1 and member ~= me then
    local d, s, sequence, base, rate, marks, first, last = unpack(RECORD, everything[k + 1])
    if marks >= 2 then
      publish(member, 'wake ' .. notice .. ' ' .. w)
      call('HSET', key, member, pack(RECORD, d, s, sequence, base, rate, marks - 2, first, last))
    end
  end
end
`;

/**
 * Recalls the leases of other members. Returns the known use, which a write-off raises, and whether
 * a message was sent. A holder that nobody can reach, or that is silent, is written off.
 */
const RECALL = `
${PUBLISH}${NOTICE}
local function recall(key, window, number, r, writeOffUs)
  local isSent = false
  local everything = call('HGETALL', key)
  for k = 1, #everything, 2 do
    local member = everything[k]
    if #member > 1 and member ~= me then
      local d, s, sequence, base, rate, marks, first, last = unpack(RECORD, everything[k + 1])
      if d > s and marks % 2 == 0 then
        local isOverdue = first > 0 and clock - first >= writeOffUs
        if not isOverdue and clock - last >= ${RECALL_AGAIN_US} then
          local text = format('recall %s %d %d', notice, window, number)
          local receivers = publish(member, text)
          isOverdue = receivers == 0 and not isCluster
          isSent = true
          if first == 0 then first = clock end
          last = clock
        end
        if isOverdue then
          r = r + (d - s)
          marks = marks + 1
          writtenOff = writtenOff + 1
        end
        call('HSET', key, member, pack(RECORD, d, s, sequence, base, rate, marks, first, last))
      end
    end
  end
  return r, isSent
end
`;

const MESSAGES = `
local answers = {''}
local at = firstMessage

for i = 2, #KEYS do
  local base = KEYS[i]
  local duration, window, spent, previousSpent, sequence, firstSequence, kept, rate, lastLimit,
    flags, checks, firstCheck = unpack('<ddddddddddd', doubles, at)
  at = firstCheck + ${CHECK_BYTES} * checks
  local wantsLease, isReport = flags % 2 >= 1, flags % 4 >= 2
  local recalls, isStored = flags % 8 >= 4, flags % 16 >= 8
  local hasPrevious, isSliding = flags % 32 >= 16, flags % 64 >= 32
  local refund, refundWindow = 0, 0
  if flags >= 64 then refund, refundWindow, at = unpack('<dd', doubles, at) end

  local w = floor(nowMs / duration)
  local key = format('%s:%d', base, w)
  local startUs, endMs = w * duration * 1000, (w + 1) * duration
  local readsPrevious = isSliding or hasPrevious or window == w - 1

  local stored = call('HMGET', key, 'a', me)
  local u, r, rates, number, recalledAt, limit, notices = 0, 0, 0, 0, 0, 0, 0
  if stored[1] then
    u, r, rates, number, recalledAt, limit, notices = unpack(COUNTER, stored[1])
  end
  local d, s, lastSequence, reset, lastRate, marks, firstRecall, lastRecall = 0, 0, 0, 0, 0, 0, 0, 0
  if stored[2] then
    d, s, lastSequence, reset, lastRate, marks, firstRecall, lastRecall = unpack(RECORD, stored[2])
  end

  local previousKey, previous
  local pu, pr, pRates, pNumber, pRecalledAt, pLimit, pNotices = 0, 0, 0, 0, 0, 0, 0
  local pd, ps, pSequence, pReset, pRate, pMarks = 0, 0, 0, 0, 0, 0
  if readsPrevious then
    previousKey = format('%s:%d', base, w - 1)
    previous = call('HMGET', previousKey, 'a', me)
    if previous[1] then
      pu, pr, pRates, pNumber, pRecalledAt, pLimit, pNotices = unpack(COUNTER, previous[1])
    end
    if previous[2] then pd, ps, pSequence, pReset, pRate, pMarks = unpack(RECORD, previous[2]) end
  end

  -- What Redis must know and does not was deleted.
  if isStored and not isReport and window >= w - 1 and window <= w
      and not (window == w and stored or previous)[2] and reportedEpoch == ${EPOCH} then
    ${MEMBERSHIP}
    newEpoch()
    storeMeta()
  end
  local status = 0
  if window > w then status = 2
  elseif not isReport and fence > 0 and
      (startUs < fence or readsPrevious and isSliding and startUs - duration * 1000 < fence) then
    status = 2
  elseif sequence <= lastSequence or sequence <= pSequence then status = 1
  elseif not CREATES and not stored[1] then status = 4 end

  if status ~= 0 then answers[i] = format('%d %d', sequence, status)
  else
    local uBefore, rBefore, puBefore, prBefore = u, r, pu, pr

    -- Settles the window before: late usage there, and what is left of its lease.
    if readsPrevious then
      if previous[2] and pSequence < firstSequence then
        if pMarks % 2 == 0 then pr = pr + (pd - ps) end
        pRates, pd, ps, pReset, pRate, pMarks = pRates - pRate, 0, 0, 0, 0, 0
      end
      local used, held = 0, 0
      if window == w then used = previousSpent - pReset
      elseif window == w - 1 then used, held = spent - pReset, kept end
      if pReset >= ${CLEARED} then used = 0 end
      pu = pu + (used - pd + held)
      pr = pr + (used - (pMarks % 2 == 1 and pd or ps))
      if pu ~= puBefore or pr ~= prBefore or pSequence < firstSequence and previous[2]
          or used + held ~= pd or used ~= ps then
        call('HSET', previousKey,
          'a', pack(COUNTER, pu, pr, pRates, pNumber, pRecalledAt, pLimit, pNotices),
          me, pack(RECORD, used + held, used, sequence, pReset, pRate, 0, 0, 0))
        if not previous[1] then
          ${EXPIRE}
          expire(base, previousKey, w - 1, duration)
        end
      end
      pd, ps = used + held, used
    end

    -- Settles this window.
    if stored[2] and lastSequence < firstSequence then
      if marks % 2 == 0 then r = r + (d - s) end
      rates = rates - lastRate
      d, s, reset, lastRate, marks, firstRecall, lastRecall = 0, 0, 0, 0, 0, 0, 0
    end
    local used, held = 0, 0
    if window == w then used, held = spent - reset, kept else reset = 0 end
    u = u + (used - d + held)
    r = r + (used - (marks % 2 == 1 and d or s))
    d, s = used + held, used
    if held == 0 then firstRecall, lastRecall = 0, 0 end
    rates = rates + rate - lastRate
    if lastLimit > 0 then limit = lastLimit end

    -- Refunds.
    local refunded, mustRecall = 0, recalls
    if refund > 0 and refundWindow == w then
      if refund > r and u - d > r - s then status, mustRecall = 3, true
      else
        refunded = max(0, min(refund, r))
        d, s, u, r = d - refunded, s - refunded, u - refunded, r - refunded
      end
    end

    -- Serves the checks. 'own' are the tokens of this member that are used for certain.
    local leftMs = endMs - nowMs
    local carried, carriedKnown = 0, 0
    if isSliding then
      carried = share(pu, leftMs, duration)
      carriedKnown = carried
      if pr < pu then carriedKnown = share(pr, leftMs, duration) end
    end
    local verdicts, isServed, isCostly, smallest = '', true, false, lastLimit
    local position = firstCheck
    for check = 1, checks do
      local cost, checkLimit, checkFlags, nextCheck = unpack('<ddd', doubles, position)
      local verdict = '1'
      position = nextCheck
      if check == 1 or checkLimit < smallest then smallest = checkLimit end
      if cost > 0 then
        local before, beforeKnown = 0, 0
        if checkFlags % 2 >= 1 then before, beforeKnown = carried, carriedKnown end
        isCostly = true
        if cost <= checkLimit - u - before then
          u, d, limit = u + cost, d + cost, checkLimit
        else
          isServed = false
          if cost <= checkLimit - (r - s + d) - beforeKnown then
            verdict, mustRecall = '2', true
          else
            verdict = '0'
            if checkFlags >= 2 then u, d = u + cost, d + cost end
          end
        end
      end
      verdicts = verdicts .. verdict
    end

    -- Grants a lease.
    local lent, leftUs = 0, endMs * 1000 - clock
    if wantsLease and isServed and (isCostly or checks == 0) and smallest >= ${LEASED_LIMIT_MIN}
        and not mustRecall and (recalledAt == 0 or clock - recalledAt >= ${QUIET_US})
        and leftUs > max(5000, min(duration, 50000)) then
      local rest = smallest - u - carried
      local fair = 0
      if rates > 0 then fair = rest * (rate / rates) end
      local demand = min(rate * max(0.1, min(duration / 4000, 15)), fair)
      lent = floor(min(0.05 * smallest, max(demand, rest / (4 * machines))) - kept)
      lent = max(0, min(lent, rest))
      u, d = u + lent, d + lent
    end

    -- Wakes members that wait, then recalls leases for this one.
    local isWoken = false
    writtenOff = 0
    if notices % 2 == 1 and (u < uBefore or r < rBefore or u - r < uBefore - rBefore
        or pu < puBefore or pr < prBefore or pu - pr < puBefore - prBefore) then
      ${WAKE}
      notices = notices - 1
      isWoken = true
    end
    local denies = marks >= 2
    if notices >= 2 and (r < rBefore or pr < prBefore) then
      ${END_DENIALS}
      notices = notices - (denies and 0 or 2)
      isWoken = true
    end
    if mustRecall then
      ${RECALL}
      local isCorrection = checks == 0
      local writeOffUs = isCorrection and ${CORRECTION_WRITE_OFF_US} or ${WRITE_OFF_US}
      local isSent, isSentBefore
      if u - d > r - s then
        r, isSent = recall(key, w, number + 1, r, writeOffUs)
      end
      if readsPrevious and pu - pd > pr - ps then
        local known = pr
        pr, isSentBefore = recall(previousKey, w - 1, pNumber + 1, pr, writeOffUs)
        if isSentBefore then pNumber, pRecalledAt = pNumber + 1, clock end
        if isSentBefore or pr ~= known then
          call('HSET', previousKey,
            'a', pack(COUNTER, pu, pr, pRates, pNumber, pRecalledAt, pLimit, pNotices))
          if isSliding then carriedKnown = share(pr, leftMs, duration) end
        end
      end
      if isSent then number, recalledAt = number + 1, clock end
      if u - d > r - s or readsPrevious and pu - pd > pr - ps then
        local waiters = call('HGET', key, 'w') or ''
        if not waiters:find(me .. ',', 1, true) then
          call('HSET', key, 'w', waiters .. me .. ',')
        end
        notices = notices - notices % 2 + 1
      end
      -- Tokens that were written off may prove denials.
      if verdicts:find('2', 1, true) then
        local again = ''
        for check = 1, checks do
          local cost, checkLimit, checkFlags =
            unpack('<ddd', doubles, firstCheck + ${CHECK_BYTES} * (check - 1))
          local verdict = verdicts:sub(check, check)
          if verdict == '2' then
            local before = checkFlags % 2 >= 1 and carriedKnown or 0
            if cost > checkLimit - (r - s + d) - before then
              verdict = '0'
              if checkFlags >= 2 then u, d = u + cost, d + cost end
            end
          end
          again = again .. verdict
        end
        verdicts = again
      end
    end

    -- A member that may deny later checks by the known use is told when that falls.
    local canFall = r > 0 or pr > 0
    if canFall and not denies and checks > 0 and not (isServed and isCostly) then
      denies = true
      if notices < 2 then notices = notices + 2 end
    end

    -- Stores the counter, unless there is nothing to store.
    local isRecorded = stored[2] or d ~= 0 or s ~= 0 or mustRecall or isWoken or denies
    if isRecorded then
      call('HSET', key, 'a', pack(COUNTER, u, r, rates, number, recalledAt, limit, notices),
        me, pack(RECORD, d, s, sequence, reset, rate, denies and 2 or 0, firstRecall, lastRecall))
      if not stored[1] then
        ${EXPIRE}
        expire(base, key, w, duration)
      end
    end
    local answerFlags = (isRecorded and 1 or 0) + ((denies or not canFall) and 2 or 0)
    answers[i] = format('%d %d %d %d %d %d %d %d %d %d s%s', sequence, status, w, leftUs,
      answerFlags, bounded(r - s - reset), bounded(u - d - reset), lent, number, refunded, verdicts)
    if readsPrevious or writtenOff > 0 then
      answers[i] = answers[i] .. format(' %d %d %d', bounded(pu), bounded(pr), writtenOff)
    end
  end
end
local status = 0
answers[1] = ${HEADER}
return answers
`;

/** Redis refuses the one at maxmemory; the other then serves the counters that exist. */
export const exchange = defineScript('exchange', textOf('#!lua', true));
export const exchangeAtMaxmemory = defineScript(
  'exchangeAtMaxmemory',
  textOf('#!lua flags=allow-oom', false),
);

function textOf(shebang: string, creates: boolean): string {
  const constants = `\nlocal CREATES = ${creates}\n`;
  const parts = [CLOCK, ENTER, SHARE, COUNTERS, MESSAGES];
  return shebang + constants + parts.join('');
}
