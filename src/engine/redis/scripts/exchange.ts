/**
 * The script of token requests, returns, refunds and reports about counters with windows. It is the
 * only place that decides how many tokens of a window are left. A counter is a hash for one window:
 *
 *   a         u: tokens gone; r: known use; rate: sum of the members' rates; number and time of the
 *             last recall; limit of the last allowed check; notices: 1 if members wait for tokens,
 *             plus 2 if members deny checks by the known use, plus 4 if there is a `k`, plus 8 if
 *             usage may be missing, plus 16 if tokens were written off, plus 32 if reports are only
 *             for the sake of the window before, plus 64 for each member that must report
 *   <member>  d: tokens gone to it; s: the use that it reported; sequence; base: its `spent` at the
 *             last reset; rate; marks: 1 if it is written off, plus 2 if it denies checks by the
 *             known use, and is told when that falls, plus 4 if it must report, plus 8 if it did
 *             not in time, plus 16 if it must report only because the counter may have existed;
 *             when it was first asked to return its lease, or to report, and did not, and last
 *   w         members that wait, each followed by a comma
 *   v         the number of the epoch in which the counter was verified
 *   p         exists if the counter of the window before existed when this one was made
 *   k         the most use that a member knew of all, in reports to a Redis that had lost some
 *   x         use that was restored by it, of members that have not reported
 *
 * u - r are tokens in leases that may still be unused. u includes them, so no window is overfull.
 *
 * A counter is verified after a loss: its members must report, and until they have, no check is
 * allowed, and no denial proven by what is missing. It is done for a counter whose window began
 * before the fence of a recovery; for one that was deleted, as its member, or the index, shows; and
 * for one that is missing, in a window that began before another key was found to be lost. A report
 * is a message that names the time at which the member was asked, because an old copy of a message
 * may arrive late.
 */

import { defineScript } from '../../../redis/script.ts';
import { SHARE } from './arithmetic.ts';
import { CLEARED, CLOCK, ENTER, EPOCH, HEADER, INDEX, PUBLISH, STORE_META } from './prelude.ts';
import {
  ASK_AGAIN_US,
  AWAIT_US,
  CORRECTION_WRITE_OFF_US,
  LEASE_FIRST_PARTS,
  LEASE_LEFT_MAX_US,
  LEASE_LEFT_MIN_US,
  LEASE_LEFT_SHARE,
  LEASE_LIMIT_SHARE,
  LEASE_SPAN_MAX_MS,
  LEASE_SPAN_MIN_MS,
  LEASE_SPAN_SHARE,
  LEASED_LIMIT_MIN,
  LIVE_US,
  PAUSE_MAX_MS,
  PAUSE_TOKENS,
  PAUSE_TOKENS_SHARE,
  QUIET_US,
  RECALL_AGAIN_US,
  SHARED_RECALL_US,
  WRITE_OFF_US,
} from './protocol-constants.ts';

/** Cost, limit and flags of a check, as doubles. */
const CHECK_BYTES = 24;

const COUNTERS = `
local COUNTER, RECORD = '<ddddddd', '<dddddddd'
local writtenOff, unknown, isMissing = 0, 0, false
`;

/**
 * Begins the life of a key that was just written, which ends with the next window. The index names
 * the last window of a counter.
 */
const EXPIRE = `
${INDEX}
local function expire(base, key, window, duration, hasLater)
  local expiry, digits = format('%d', (window + 2) * duration), format('%d', duration)
  call('PEXPIREAT', key, expiry)
  if hasLater then return end
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
    if marks % 4 >= 2 then
      publish(member, 'wake ' .. notice .. ' ' .. w)
      call('HSET', key, member, pack(RECORD, d, s, sequence, base, rate, marks - 2, first, last))
    end
  end
end
`;

/**
 * Recalls the leases of other members, and asks those for reports that must report. Returns the
 * known use, which a write-off raises, and whether a lease was recalled. A holder that nobody can
 * reach, or that is silent, is written off. A member that does not report is given up after
 * AWAIT_US, or, where a recovery is exact, when it is forgotten.
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
      local isChanged = true
      if marks % 8 >= 4 and window == w then
        if last > 0 and clock - first >= ${AWAIT_US} and (isAvailable or marks >= 16
            or not call('HGET', metaKey, 'm:' .. member)) then
          marks, first, last = marks % 4 + 8, 0, 0
          unknown, isMissing = unknown - 1, true
        elseif clock - last >= (clock - first < ${AWAIT_US} and ${RECALL_AGAIN_US}
            or ${ASK_AGAIN_US}) then
          if last == 0 then first = clock end
          publish(member, format('report %s %d %d', notice, window, first))
          last = clock
        else isChanged = false end
      elseif d > s and marks % 2 == 0 then
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
      else isChanged = false end
      if isChanged then
        call('HSET', key, member, pack(RECORD, d, s, sequence, base, rate, marks, first, last))
      end
    end
  end
  return r, isSent
end
`;

/**
 * Marks the members that must report before a counter is served: in a recovery those that have not
 * reported everything, and otherwise all. Where it is only possible that the counter existed, those
 * that are silent are not waited for, also if a recovery is exact.
 */
const VERIFY = `
local everything = call('HGETALL', metaKey)
local beganAt = epochNumber * 1000
for k = 1, #everything, 2 do
  local member = match(everything[k], '^m:(.+)$')
  if member then
    local contact, _, _, hasJoined, _, reported = unpack(MEMBER, everything[k + 1])
    local isBehind = reported < epochNumber and (hasJoined == 1 or isAvailable)
    if isLost or isLostBefore or isGuess or isBehind then
      local isPossible = isGuess and not isLost and not isLostBefore and not isBehind
      local isGone = (isAvailable or isPossible) and (clock - contact > ${LIVE_US}
        or isBehind and contact < beganAt and clock >= beganAt + ${AWAIT_US})
      local mark = isPossible and 20 or 4
      if isGone then isMissing = true
      elseif member == me then
        if marks % 8 < 4 then
          unknown, marks, firstRecall, lastRecall = unknown + 1, marks % 4 + mark, clock, 0
        end
      else
        local record = call('HGET', key, member)
        local d, s, sequence, base, rate, marks, first, last = 0, 0, 0, 0, 0, 0, 0, 0
        if record then d, s, sequence, base, rate, marks, first, last = unpack(RECORD, record) end
        if marks % 8 < 4 then
          unknown = unknown + 1
          call('HSET', key, member,
            pack(RECORD, d, s, sequence, base, rate, marks % 4 + mark, clock, 0))
        end
      end
    end
  end
end
if fence > 0 then call('HSET', key, 'v', format('%d', epochNumber)) end
if stored[1] then call('HDEL', key, 'p') end
isVerified, isMarked = true, true
`;

/** Remembers the most use that a member knows of all. */
const REMEMBER = `
local function remember(key, known)
  call('HSET', key, 'k', format('%d', max(known, tonumber(call('HGET', key, 'k') or 0))))
end
`;

/** Restores use that members know of others, which have not reported. */
const RESTORE = `
local function restore(key, u, r)
  local more = tonumber(call('HGET', key, 'k') or 0) - r
  call('HDEL', key, 'k')
  if more <= 0 then return u, r end
  call('HSET', key, 'x', format('%d', more + tonumber(call('HGET', key, 'x') or 0)))
  return u + more, r + more
end
`;

/** The sequence number of a record that another member has taken over: none is greater. */
const TAKEN = 2 ** 53;

/** Takes over the record of the member before, as of the first message of this one. */
const INHERIT = `
local before = ARGV[4] .. format('.%d', inherits - 1)
-- A late message of that member is stale then.
local taken = pack(RECORD, 0, 0, ${TAKEN}, 0, 0, 0, 0, 0)
local record = lastSequence == 0 and call('HGET', key, before)
if record and record ~= taken then
  call('HSET', key, before, taken)
  local ownMarks = marks
  stored[2] = record
  d, s, _, reset, lastRate, marks = unpack(RECORD, record)
  lastSequence = firstSequence
  if ownMarks % 8 >= 4 then
    if marks % 8 >= 4 then unknown = unknown - 1 end
    marks = marks % 4 + ownMarks - ownMarks % 4
  else _, _, _, _, _, _, firstRecall, lastRecall = unpack(RECORD, record) end
end
record = pSequence == 0 and call('HGET', previousKey, before)
if record and record ~= taken then
  call('HSET', previousKey, before, taken)
  previous[2], hasInherited = record, true
  pd, ps, _, pReset, pRate, pMarks = unpack(RECORD, record)
  pSequence = firstSequence
end
`;

/** When the last window of the counter expires that has existed. */
const READ_INDEX = `
      local digits = format('%d', duration)
      local index = metaKey:sub(1, -2) .. 'i:' .. base:sub(-33 - #digits, -2 - #digits)
      indexed = call('HGET', index, 'w:' .. digits)
`;

/** How many tokens fall free while each machine pauses once, on average. */
const pauseTokens = (limit: string) => `max(${PAUSE_TOKENS}, ${limit} * ${PAUSE_TOKENS_SHARE})`;

/** The largest lease in a window that is used up, and shared. */
const sharedLease = (limit: string) => {
  return `floor(min(${pauseTokens(limit)} + 1, ${LEASE_LIMIT_SHARE} * ${limit}))`;
};

/** Whether machines share a sliding window, and hold no more of it than such leases. */
function isShared(limit: string): string {
  const most = sharedLease(limit);
  return `(mayShare and ${limit} >= ${LEASED_LIMIT_MIN}
    and u - d - (r - s) + carried - carriedKnown <= (machines - 1) * ${most})`;
}

/** Whether all tokens of a window are known to be used or free, or were recalled lately. */
function isCurrent(unproven: string, recalledAt: string): string {
  return `(${unproven} <= 0 or clock - ${recalledAt} < ${SHARED_RECALL_US})`;
}

const MESSAGES = `
local answers = {''}
local at = firstMessage

for i = 2, #KEYS do
  local base = KEYS[i]
  local duration, window, spent, previousSpent, sequence, firstSequence, kept, rate, lastLimit,
    flags, others, previousKnown, report, inherits, checks, firstCheck =
    unpack('<ddddddddddddddd', doubles, at)
  at = firstCheck + ${CHECK_BYTES} * checks
  local wantsLease, recalls, isStored = flags % 2 >= 1, flags % 4 >= 2, flags % 8 >= 4
  local hasPrevious, isSliding = flags % 16 >= 8, flags % 32 >= 16
  local refund, refundWindow = 0, 0
  if flags >= 32 then refund, refundWindow, at = unpack('<dd', doubles, at) end

  local w = floor(nowMs / duration)
  local key = format('%s:%d', base, w)
  local startUs, endMs = w * duration * 1000, (w + 1) * duration
  local readsPrevious = isSliding or hasPrevious or window == w - 1 or inherits > 0

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

  local restores, wasWrittenOff, isOnlyBefore = false, false, true
  unknown, isMissing = 0, false
  if notices >= 4 then
    restores, isMissing, unknown = notices % 8 >= 4, notices % 16 >= 8, floor(notices / 64)
    wasWrittenOff, isOnlyBefore = notices % 32 >= 16, unknown == 0 or notices % 64 >= 32
    notices = notices % 4
  end

  local status = 0
  if window > w then status = 2
  elseif sequence <= lastSequence or sequence <= pSequence then status = 1
  elseif not CREATES and not stored[1] then status = 4 end

  if status ~= 0 then answers[i] = format('%d %d', sequence, status)
  else
    local unknownBefore, hasInherited, _ = unknown, false, nil
    if inherits > 0 then
      ${INHERIT}
    end
    local isMissed = marks % 16 >= 8 or isStored and not stored[2] and window == w
    local isReport = marks % 8 >= 4 and report == firstRecall
    if isReport then unknown, marks, firstRecall, lastRecall = unknown - 1, marks % 4, 0, 0 end

    -- What a member has had an answer of, and is missing, was deleted.
    local isLost = window == w and (isStored and not stored[2] or others > 0 and not stored[1])
    local isLostBefore = window == w - 1
        and (isStored and not previous[2] or others > 0 and not previous[1])
      or window == w and isSliding and previousKnown > previousSpent and not previous[1]
    if (isLost or isLostBefore) and reportedEpoch ~= ${EPOCH} then
      isLost, isLostBefore = false, false
    end
    local isGuess, indexed = false, false
    if not stored[1] or isLost then
      ${READ_INDEX}
      isGuess = not stored[1] and startUs < lostAt
    end
    local wasIndexed = indexed and indexed == format('%d', (w + 2) * duration)
    -- Of a lost key whose index is there, no others are known to be lost.
    if (isLost or isLostBefore) and not wasIndexed then
      lostAt = clock
      ${STORE_META}
    end
    if isSliding then
      -- The window before has ended while its members were to report, or was lost alone.
      if pNotices >= 64 and pNotices % 64 < 32 then
        isLostBefore, pNotices = true, pNotices % 32
        call('HSET', previousKey,
          'a', pack(COUNTER, pu, pr, pRates, pNumber, pRecalledAt, pLimit, pNotices))
      end
      if not previous[1] and (stored[1] and call('HGET', key, 'p')
          or indexed and indexed == format('%d', (w + 1) * duration)) then
        isLostBefore = true
      end
    end
    isLost = isLost or wasIndexed
    local isVerified, isBeforeVerified = true, true
    if fence > 0 and startUs - duration * 1000 < fence then
      isBeforeVerified = call('HGET', key, 'v') == format('%d', epochNumber)
      isVerified = isBeforeVerified or startUs >= fence
    end
    local isMarked = false
    local isUse = checks > 0 or wantsLease or recalls or refund > 0
    local isOwn = isLost or isGuess or isUse and not isVerified
    if isOwn or isLostBefore or isUse and isSliding and not isBeforeVerified then
      isOnlyBefore = isOnlyBefore and not isOwn
      ${VERIFY}
    end
    local isTelling = isReport or isMarked or fence > 0 and reportedEpoch ~= ${EPOCH}
    local uBefore, rBefore, puBefore, prBefore = u, r, pu, pr

    -- Settles the window before: late usage there, and what is left of its lease.
    local isPreviousNew = false
    if readsPrevious then
      local wasAsked = pMarks % 8 >= 4
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
          or used + held ~= pd or used ~= ps or hasInherited then
        if wasAsked and pNotices >= 64 then
          pNotices = pNotices - 64
          if pNotices < 64 then pNotices = pNotices % 32 end
        end
        call('HSET', previousKey,
          'a', pack(COUNTER, pu, pr, pRates, pNumber, pRecalledAt, pLimit, pNotices),
          me, pack(RECORD, used + held, used, sequence, pReset, pRate, 0, 0, 0))
        isPreviousNew = not previous[1]
      end
      pd, ps = used + held, used
      local known = window == w and previousKnown or window == w - 1 and others + spent or 0
      local isTold = isTelling and known > max(0, pr)
      if isTold or pNotices % 8 >= 4 then
        ${REMEMBER}${RESTORE}
        if isTold then
          remember(previousKey, known)
          if pNotices % 8 < 4 then pNotices = pNotices + 4 end
        end
        if unknown == 0 and isBeforeVerified then
          pu, pr = restore(previousKey, pu, pr)
          pNotices = pNotices - 4
        end
        call('HSET', previousKey,
          'a', pack(COUNTER, pu, pr, pRates, pNumber, pRecalledAt, pLimit, pNotices))
        isPreviousNew = not previous[1]
      end
      if isPreviousNew then
        ${EXPIRE}
        expire(base, previousKey, w - 1, duration, stored[1])
      end
    end

    -- Settles this window.
    if stored[2] and lastSequence < firstSequence then
      if marks % 2 == 0 then r = r + (d - s) end
      rates = rates - lastRate
      d, s, reset, lastRate = 0, 0, 0, 0
      marks = marks % 8 >= 4 and marks - marks % 4 or 0
      if marks == 0 then firstRecall, lastRecall = 0, 0 end
    end
    local used, held = 0, 0
    if window == w then used, held = spent - reset, kept else reset = 0 end
    u = u + (used - d + held)
    r = r + (used - (marks % 2 == 1 and d or s))
    if isMissed and used > s then
      -- What was restored contains its usage.
      local restored = tonumber(call('HGET', key, 'x') or 0)
      local told = min(restored, used - s)
      u, r = u - told, r - told
      if told > 0 then call('HSET', key, 'x', format('%d', restored - told)) end
    end
    d, s = used + held, used
    local mustReport = marks % 8 >= 4
    if held == 0 and not mustReport then firstRecall, lastRecall = 0, 0 end
    if isTelling and others > 0 and window == w and others + spent > max(0, r) then
      ${REMEMBER}
      remember(key, others + spent)
      restores = true
    end
    if restores and unknown == 0 and isVerified and (isBeforeVerified or not isSliding) then
      ${RESTORE}
      u, r = restore(key, u, r)
      restores = false
    end
    rates = rates + rate - lastRate
    if lastLimit > 0 then limit = lastLimit end

    -- Refunds.
    local refunded, mustRecall = 0, recalls
    if refund > 0 and refundWindow == w then
      if refund > r and (u - d > r - s or unknown > 0) then status, mustRecall = 3, true
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
    -- Where machines share a sliding window that is used up, they leave a few tokens to each other.
    local mayShare = isSliding and wantsLease and carried > 0 and machines > 1 and unknown == 0
      and (u > d or pu > pd) and ${isCurrent('u - d - (r - s)', 'recalledAt')}
      and ${isCurrent('pu - pd - (pr - ps)', 'pRecalledAt')}
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
        if unknown == 0 and cost <= checkLimit - u - before then
          u, d, limit = u + cost, d + cost, checkLimit
        else
          isServed = false
          local isProven = cost > checkLimit - (r - s + d) - beforeKnown
          local isSmall = checkFlags % 2 >= 1 and cost <= ${pauseTokens('checkLimit')}
          if not isProven and not (isSmall and ${isShared('checkLimit')}) then
            verdict, mustRecall = '2', true
          else
            verdict = isProven and '0' or '3'
            if checkFlags >= 2 then u, d = u + cost, d + cost end
          end
        end
      end
      verdicts = verdicts .. verdict
    end

    -- Grants a lease.
    local lent, leftUs = 0, endMs * 1000 - clock
    if wantsLease and isServed and (isCostly or checks == 0) and smallest >= ${LEASED_LIMIT_MIN}
        and not mustRecall and unknown == 0 and not isJoining
        and (recalledAt == 0 or clock - recalledAt >= ${QUIET_US})
        and leftUs > max(${LEASE_LEFT_MIN_US},
          min(duration * 1000 * ${LEASE_LEFT_SHARE}, ${LEASE_LEFT_MAX_US})) then
      local rest = smallest - u - carried
      local fair = 0
      if rates > 0 then fair = rest * (rate / rates) end
      local spanMs = max(${LEASE_SPAN_MIN_MS},
        min(duration * ${LEASE_SPAN_SHARE}, ${LEASE_SPAN_MAX_MS}))
      local demand = min(rate * (spanMs / 1000), fair)
      local least = rest / (${LEASE_FIRST_PARTS} * machines)
      lent = floor(min(${LEASE_LIMIT_SHARE} * smallest, max(demand, least)) - kept)
      if mayShare then lent = max(lent, ${sharedLease('smallest')} - kept) end
      lent = max(0, min(lent, rest))
      u, d = u + lent, d + lent
    end

    -- Little is left of a shared window: the member pauses before it asks again.
    local pauseMs = 0
    if mayShare and not mustRecall and smallest - u - carried < ${pauseTokens('smallest')}
        and ${isShared('smallest')} then
      local free = smallest * 1000 / duration
      local perSecond = free * max(rate / max(rates, free), 1 / machines)
      local ms = 1000 * ${pauseTokens('smallest')} / perSecond
      pauseMs = math.ceil(min(${PAUSE_MAX_MS}, ms))
    end

    -- Wakes members that wait, then recalls leases for this one.
    local isWoken = false
    writtenOff = 0
    if notices % 2 == 1 and (u < uBefore or r < rBefore or u - r < uBefore - rBefore
        or pu < puBefore or pr < prBefore or pu - pr < puBefore - prBefore
        or unknown < unknownBefore) then
      ${WAKE}
      notices = notices - 1
      isWoken = true
    end
    local denies = marks % 4 >= 2
    if notices >= 2 and (r < rBefore or pr < prBefore) then
      ${END_DENIALS}
      notices = notices - (denies and 0 or 2)
      isWoken = true
    end
    if mustRecall or isMarked and unknown > 0 then
      ${RECALL}
      local isCorrection = checks == 0
      local writeOffUs = isCorrection and ${CORRECTION_WRITE_OFF_US} or ${WRITE_OFF_US}
      local isSent, isSentBefore
      if u - d > r - s or unknown > 0 then
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
      if u - d > r - s or unknown > 0 or readsPrevious and pu - pd > pr - ps then
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

    wasWrittenOff = wasWrittenOff or writtenOff > 0
    -- A member that may deny later checks by the known use is told when that falls.
    local canFall = r > 0 or pr > 0
    if canFall and not denies and checks > 0 and (pauseMs > 0 or not (isServed and isCostly)) then
      denies = true
      if notices < 2 then notices = notices + 2 end
    end

    -- Stores the counter, unless there is nothing to store.
    local isRecorded = stored[2] or d ~= 0 or s ~= 0 or mustRecall or isWoken or denies or isMarked
      or restores or u ~= uBefore or r ~= rBefore
    if isRecorded then
      if restores or isMissing or wasWrittenOff or unknown > 0 then
        notices = notices + (restores and 4 or 0) + (isMissing and 8 or 0)
          + (wasWrittenOff and 16 or 0) + (unknown > 0 and isOnlyBefore and 32 or 0) + 64 * unknown
      end
      call('HSET', key, 'a', pack(COUNTER, u, r, rates, number, recalledAt, limit, notices),
        me, pack(RECORD, d, s, sequence, reset, rate,
          (denies and 2 or 0) + (mustReport and marks - marks % 4 or 0), firstRecall, lastRecall))
      if not stored[1] then
        if isPreviousNew or readsPrevious and previous[1] then call('HSET', key, 'p', '') end
        ${EXPIRE}
        expire(base, key, w, duration)
      end
    end
    local answerFlags = (isRecorded and 1 or 0) + ((denies or not canFall) and 2 or 0) + 4 * pauseMs
    answers[i] = format('%d %d %d %d %d %d %d %d %d %d s%s', sequence, status, w, leftUs,
      answerFlags, bounded(r - s - reset), bounded(u - d - reset), lent, number, refunded, verdicts)
    isMissing = isMissing or startUs < opened or isSliding and startUs - duration * 1000 < opened
    if readsPrevious or wasWrittenOff or unknown > 0 or isMissing then
      local state = (unknown > 0 and 1 or 0) + (isMissing and 2 or 0) + (wasWrittenOff and 4 or 0)
      answers[i] = answers[i] .. format(' %d %d %d %d %d', bounded(pu), bounded(pr), writtenOff,
        state, mustReport and firstRecall or 0)
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
