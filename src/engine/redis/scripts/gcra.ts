/**
 * The script of GCRA checks, refunds and reports, and its arguments and reply. A bucket is a string
 * of six doubles: `newest`, `current` and `limit`, as `windows/gcra.ts` has them; until
 * when the index knows it, until when it is kept, and until when it is held, ms. Every check is a
 * part of a call: there are no leases.
 *
 * A bucket exists until a second after the latest time at which a member may believe it to be full,
 * also if a refund or a reset has filled it before. So where a member knows one that is full later
 * than that, Redis has lost it, and takes it from the member. A bucket that was lost, as the index
 * or a member shows, is held for BUCKET_HOLD_MS: members that know it report it meanwhile. In a
 * recovery buckets are not served until all members have reported; unless it is exact, for
 * AWAIT_US at most.
 *
 * The numbers are those of the memory engine as long as products are at most 2^53, or the limit is
 * below 2^42. Beyond that they are rounded so that less is allowed, by a few tokens or ms.
 */

import { AMOUNT_MAX } from '../../../core/constants.ts';
import { defineScript } from '../../../redis/script.ts';
import { QUOTIENT } from './arithmetic.ts';
import { CLOCK, ENTER, HEADER, INDEX, PUBLISH } from './prelude.ts';
import {
  CALL_STATUS,
  type CallAnswer,
  type CallHeader,
  type GcraAnswer,
  type GcraMessage,
  type GcraReport,
  MESSAGE_STATUS,
} from './protocol.ts';
import {
  AWAIT_US,
  BUCKET_HOLD_MS,
  BUCKET_INDEX_SHARE,
  BUCKET_KEPT_MS,
  MESSAGES_PER_CALL,
} from './protocol-constants.ts';
import {
  decodeHeader,
  headerArguments,
  InvalidReply,
  Line,
  linesOf,
  type ScriptCall,
  type ScriptContext,
} from './reply.ts';

const KIND = { check: 0, checkCountingDenied: 1, refund: 2, report: 3 } as const;

const BUCKETS = `
${PUBLISH}
local BUCKET = '<dddddd'

-- The index is ahead of the expiry by up to so much, so that it is rarely written.
local function aheadOf(duration) return math.ceil(duration * ${BUCKET_INDEX_SHARE}) end

local function store(key, duration, newest, current, limit, indexedUntil, keptUntil, heldUntil)
  local expiry = max(newest + ${BUCKET_KEPT_MS}, keptUntil)
  if expiry > indexedUntil then
    indexedUntil = expiry + aheadOf(duration)
    local digits = format('%d', duration)
    addToIndex(key:sub(-33 - #digits, -2 - #digits), 'g:' .. digits, indexedUntil)
  end
  call('SET', key, pack(BUCKET, newest, current, limit, indexedUntil, expiry, heldUntil or 0),
    'PXAT', expiry)
end

-- Whether a bucket that is missing may not have expired. Then its members are told to report it.
local function isLost(key, duration, isKnown)
  local digits = format('%d', duration)
  local identity = key:sub(-33 - #digits, -2 - #digits)
  local indexed = tonumber(call('HGET', metaKey:sub(1, -2) .. 'i:' .. identity, 'g:' .. digits))
  local isRecent = lostAt > 0 and clock < lostAt + duration * 1000
  if not (isKnown or isRecent or indexed and nowMs < indexed - aheadOf(duration)) then
    return false
  end
  for _, field in ipairs(call('HKEYS', metaKey)) do
    local member = match(field, '^m:(.+)$')
    if member then publish(member, 'bucket ' .. identity .. ' ' .. digits) end
  end
  return true
end

-- Takes tokens from a bucket that is full at newest - slack / limit.
local function take(newest, slack, tokens, duration, limit)
  local ms, rest = ceiling(tokens, duration, slack, limit)
  return min(newest + ms, AMOUNT_MAX), rest
end

local answers = {''}
local at = firstMessage
for i = 2, #KEYS do
  local key = KEYS[i]
  local duration, kind, limit, size, cost, knownNewest, knownCurrent, knownLimit
  duration, kind, limit, size, cost, knownNewest, knownCurrent, knownLimit, at =
    unpack('<dddddddd', doubles, at)
  local stored = call('GET', key)
  local newest, current, lastLimit, indexedUntil, keptUntil, heldUntil = nowMs, 0, 0, 0, 0, 0
  local isRestored = false
  if stored then
    -- An earlier version has stored four numbers.
    if #stored < 48 then stored = stored .. pack('<dd', 0, 0) end
    newest, current, lastLimit, indexedUntil, keptUntil, heldUntil = unpack(BUCKET, stored)
  elseif kind ~= ${KIND.report} and CREATES and isLost(key, duration, knownNewest > nowMs) then
    heldUntil = nowMs + ${BUCKET_HOLD_MS}
    store(key, duration, nowMs, 0, 0, 0, 0, heldUntil)
  end
  if newest <= nowMs then newest, current = nowMs, 0 end
  local missing = (newest - nowMs) * lastLimit - current
  if knownNewest > nowMs and knownNewest + ${BUCKET_KEPT_MS} > keptUntil
      and (knownNewest - nowMs) * knownLimit - knownCurrent > missing then
    newest, current, lastLimit, isRestored = knownNewest, knownCurrent, knownLimit, true
  end
  local isFull = newest <= nowMs

  local fencedUntil = fence + duration * 1000
  local isMissing = clock < opened + duration * 1000
  if isAvailable and fence > 0 then
    isMissing = clock < fencedUntil
    fencedUntil = min(fencedUntil, epochNumber * 1000 + ${AWAIT_US})
  end
  if kind ~= ${KIND.report} and fence > 0 and clock < fencedUntil then
    answers[i] = format('${MESSAGE_STATUS.recovering} %d', math.ceil(fencedUntil / 1000))
  elseif kind ~= ${KIND.report} and nowMs < heldUntil then
    answers[i] = format('${MESSAGE_STATUS.recovering} %d', heldUntil)
  elseif not CREATES and not stored then
    answers[i] = '${MESSAGE_STATUS.full}'
  else
    local isAllowed, remaining, reset, refunded = false, 0, nowMs, 0
    if kind == ${KIND.report} then
      -- 'size' and 'cost' are the newest and current that the member knows. The bucket that misses
      -- more tokens is kept.
      local known = (newest - nowMs) * lastLimit - current
      if (size - nowMs) * limit - cost > known then
        newest, current, lastLimit = size, cost, limit
        store(key, duration, newest, current, limit, indexedUntil, keptUntil, heldUntil)
      end
    elseif kind == ${KIND.refund} then
      local used = 0
      if not isFull then used = ceiling(newest - nowMs, lastLimit, current, duration) end
      refunded = min(cost, used)
      if cost < used then
        local ms, rest = floorOf(cost, duration, current, lastLimit)
        keptUntil = max(keptUntil, newest + ${BUCKET_KEPT_MS})
        newest, current = newest - ms, rest
        store(key, duration, newest, current, lastLimit, indexedUntil, keptUntil)
      elseif used > 0 then
        keptUntil = max(keptUntil, newest + ${BUCKET_KEPT_MS})
        newest, current = nowMs, 0
        store(key, duration, newest, current, lastLimit, indexedUntil, keptUntil)
      end
    else
      local missing = 0
      if not isFull then missing = ceiling(newest - nowMs, lastLimit, current, duration) end
      local left = size - missing
      isAllowed = cost == 0 or cost <= left
      remaining = max(0, isAllowed and left - cost or left)
      -- When a denied cost would pass; a cost above the size never does.
      local function resetOfDenied()
        if cost > size then return newest end
        return newest - floorOf(size - cost, duration, current, lastLimit)
      end
      local taken = 0
      reset = newest
      if isAllowed then taken = cost
      else
        reset = resetOfDenied()
        -- The bucket stays empty for about a duration at most, whatever its client asks for.
        if kind == ${KIND.checkCountingDenied} and limit > 0 and reset - nowMs < duration then
          taken = min(cost, limit)
        end
      end
      if taken > 0 then
        if isFull then lastLimit = limit
        elseif limit ~= lastLimit and missing <= limit then
          local ms, rest = ceiling(newest - nowMs, lastLimit, current, limit)
          newest, current, lastLimit = nowMs + ms, rest, limit
        end
        newest, current = take(newest, current, taken, duration, lastLimit)
        store(key, duration, newest, current, lastLimit, indexedUntil, keptUntil)
        if isAllowed then reset = newest else remaining, reset = 0, resetOfDenied() end
      elseif isRestored then
        store(key, duration, newest, current, lastLimit, indexedUntil, keptUntil)
      end
    end
    answers[i] = format('${MESSAGE_STATUS.done} %d %d %d %d %d %d %d %d %d', isAllowed and 1 or 0,
      remaining, min(reset, AMOUNT_MAX), nowMs, refunded, isMissing and 1 or 0, newest, current,
      lastLimit)
  end
end
local status = 0
answers[1] = ${HEADER}
return answers
`;

/** Redis refuses the one at maxmemory; the other then serves the buckets that exist. */
export const gcra = defineScript('gcra', textOf('#!lua', true));
export const gcraAtMaxmemory = defineScript(
  'gcraAtMaxmemory',
  textOf('#!lua flags=allow-oom', false),
);

function textOf(shebang: string, creates: boolean): string {
  const constants = `\nlocal CREATES = ${creates}\n`;
  return shebang + constants + [CLOCK, ENTER, QUOTIENT, INDEX, BUCKETS].join('');
}

/** @param messages of one bucket, at most MESSAGES_PER_CALL */
export function encodeGcra(
  context: ScriptContext,
  bucket: number,
  header: CallHeader,
  messages: readonly (GcraMessage | GcraReport)[],
): ScriptCall {
  if (messages.length > MESSAGES_PER_CALL) throw new Error(`${messages.length} messages in a call`);
  const keys = [context.keys.members(bucket)];
  const numbers: number[] = [];
  for (const message of messages) {
    const { identity, durationMs } = message;
    if (context.keys.bucketOf(identity) !== bucket) throw new Error('a message of another bucket');
    keys.push(context.keys.gcra(identity, durationMs));
    numbers.push(durationMs, ...fieldsOf(message));
  }
  return { keys, args: headerArguments(header, context, numbers) };
}

/** Kind, limit, size of the bucket, cost, and the bucket as the member knows it. */
function fieldsOf(message: GcraMessage | GcraReport): number[] {
  if (isReport(message)) {
    return [KIND.report, message.limit, message.newest, message.current, 0, 0, 0];
  }
  const { limit, burst, cost, countsDenied, known } = message;
  const bucket = known === undefined ? [0, 0, 0] : [known.newest, known.current, known.limit];
  if (cost < 0) return [KIND.refund, 0, 0, -cost, ...bucket];
  const kind = countsDenied ? KIND.checkCountingDenied : KIND.check;
  return [kind, limit, Math.min(burst, limit), cost, ...bucket];
}

function isReport(message: GcraMessage | GcraReport): message is GcraReport {
  return 'newest' in message;
}

export interface GcraCallAnswer extends Omit<CallAnswer, 'counters'> {
  counters: GcraAnswer[];
}

/** @param messages of the call */
export function decodeGcra(
  messages: readonly (GcraMessage | GcraReport)[],
  reply: unknown,
): GcraCallAnswer {
  const lines = linesOf(reply, gcra.name);
  if (lines.length === 0) throw new InvalidReply(gcra.name, reply);
  const header = decodeHeader(gcra.name, lines[0]);
  const count = header.status === CALL_STATUS.done ? messages.length : 0;
  if (lines.length !== count + 1) throw new InvalidReply(gcra.name, reply);
  const counters = messages
    .slice(0, count)
    .map((message, i) => decodeAnswer(message, lines[i + 1]));
  return { ...header, counters };
}

function decodeAnswer(message: GcraMessage | GcraReport, line: string): GcraAnswer {
  const fields = new Line(gcra.name, line);
  const status = fields.integer(MESSAGE_STATUS.done, MESSAGE_STATUS.full);
  const answer = { ...NOTHING_DONE, status };
  if (status === MESSAGE_STATUS.done) {
    answer.isAllowed = fields.boolean();
    answer.remaining = fields.integer(0);
    answer.reset = fields.integer(0, AMOUNT_MAX);
    answer.window = fields.integer(1);
    answer.refunded = fields.integer(0, isReport(message) ? 0 : Math.max(0, -message.cost));
    answer.isMissing = fields.boolean();
    answer.state = {
      newest: fields.integer(0),
      current: fields.integer(0),
      limit: fields.integer(0),
    };
  } else if (status === MESSAGE_STATUS.recovering) {
    answer.reset = fields.integer(0, AMOUNT_MAX);
  } else if (status !== MESSAGE_STATUS.full) {
    throw new InvalidReply(gcra.name, line);
  }
  fields.end();
  return answer;
}

const NOTHING_DONE: GcraAnswer = {
  status: MESSAGE_STATUS.done,
  isAllowed: false,
  remaining: 0,
  reset: 0,
  window: 0,
  refunded: 0,
  isMissing: false,
  state: { newest: 0, current: 0, limit: 0 },
};
