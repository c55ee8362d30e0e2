/**
 * The script `exchange` on a real server, beside its model that the explorer of schedules uses:
 * random messages get the same answers and leave the same state. The clock of the bucket is the one
 * in the header, so the test moves the time.
 */

import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { hexOf } from '../../../../src/engine/redis/scripts/keys.ts';
import {
  CALL_STATUS,
  type CounterAnswer,
  type CounterMessage,
  MESSAGE_STATUS,
  NO_WINDOW,
} from '../../../../src/engine/redis/scripts/protocol.ts';
import {
  counterAt,
  EXCHANGE_RULES,
  exchange,
  joinedRedis,
  keyOfMessage,
  leaseTokens,
  type RedisState,
} from '../../../model/lease-model.ts';
import { newSeed, trialCount } from '../../../support/guarantees.ts';
import { isRedisMissing } from '../../../support/programs/redis.ts';
import { IDENTITY, useMembers } from '../script-member.ts';

const DURATION_MS = 1_000;
const MEMBERS = 3;
/** Long and short enough for each time in the rules, ms. */
const STEPS_MS = [0, 0, 0, 1, 5, 11, 13, 300, DURATION_MS] as const;

const tokens = fc.nat({ max: 30 });
const check = fc.record({
  cost: tokens,
  limit: fc.constantFrom(0, 10, 40, 100, 400),
  isSliding: fc.boolean(),
  countsDenied: fc.boolean(),
});
const step = fc.record({
  member: fc.nat({ max: MEMBERS - 1 }),
  stepMs: fc.constantFrom(...STEPS_MS),
  /** The window that the message names, before the one of the clock; 9: none. */
  windowsBefore: fc.constantFrom(0, 0, 0, 0, 1, 2, 9, -1),
  /** How far the sequence number is above the last one; 0 and below: a repeated message. */
  sequenceStep: fc.constantFrom(1, 1, 1, 1, 2, 0, -1),
  isNewSlot: fc.constantFrom(false, false, false, true),
  spent: fc.integer({ min: -3, max: 60 }),
  previousSpent: tokens,
  hasPrevious: fc.boolean(),
  kept: fc.constantFrom(0, 0, 1, 7),
  rate: fc.constantFrom(0, 5, 1_000),
  lastLimit: fc.constantFrom(0, 40, 400),
  wantsLease: fc.boolean(),
  isSliding: fc.constantFrom(false, false, true),
  isReport: fc.constantFrom(false, false, false, true),
  recalls: fc.constantFrom(false, false, false, true),
  refund: fc.constantFrom(0, 0, 0, 3, 50),
  checks: fc.array(check, { maxLength: 3 }),
});

/** What is stored of a counter, as text: its numbers, then each member with its numbers. */
const READ = `
local lines = {}
local everything = redis.call('HGETALL', KEYS[1])
for i = 1, #everything, 2 do
  local field, value = everything[i], everything[i + 1]
  if field == 'w' then lines[#lines + 1] = 'w ' .. value
  else
    local numbers = field == 'a' and {struct.unpack('<ddddddd', value)}
      or {struct.unpack('<dddddddd', value)}
    local texts = {}
    for k = 1, #numbers - 1 do texts[k] = string.format('%.0f', numbers[k]) end
    lines[#lines + 1] = field .. ' ' .. table.concat(texts, ' ')
  end
end
return lines
`;

describe.skipIf(isRedisMissing)('the exchange script and its model', () => {
  const { members } = useMembers(MEMBERS);

  it('answer and store the same for random messages', { timeout: 300_000 }, async () => {
    const { keys } = members[0].context;
    let identities = 1_000;
    // Ahead of the server's, by whose time keys expire.
    let clockUs = (Date.now() + 3_600_000) * 1_000;
    const statuses = new Set<number>();
    const names = members.map(({ name }) => name);
    const run = fc.asyncProperty(fc.array(step, { minLength: 5, maxLength: 40 }), async (steps) => {
      const identity = { ...IDENTITY, h1: identities++ };
      const model = joinedRedis('r', clockUs, names);
      const sequences = members.map(() => 10);
      const firsts = members.map(() => 1);
      for (const { member: at, stepMs, windowsBefore, sequenceStep, isNewSlot, ...rest } of steps) {
        const member = members[at];
        const nowUs = clockUs + stepMs * 1_000;
        const window = Math.floor(nowUs / 1_000 / DURATION_MS);
        const sequence = sequences[at] + sequenceStep;
        sequences[at] = Math.max(sequences[at], sequence);
        if (isNewSlot) firsts[at] = sequence;
        const message: CounterMessage = {
          ...{ ...rest, identity, durationMs: DURATION_MS, sequence, firstSequence: firsts[at] },
          window: windowsBefore === 9 ? NO_WINDOW : window - windowsBefore,
          isStored: false,
          refundWindow: rest.refund > 0 ? window : NO_WINDOW,
        };
        member.header.clockUs = nowUs;
        const answer = await member.call([message]);
        clockUs = answer.clockUs;
        expect(answer.status).toBe(CALL_STATUS.done);
        const { machineCount } = answer;
        const header = { ...member.header, clockUs: 0, reportedEpoch: '' };
        const modelled = exchange(model, clockUs, header, [message], {
          ...EXCHANGE_RULES,
          lease: (demand) => leaseTokens({ ...demand, machines: machineCount }),
        });
        const [expected] = modelled.answer.counters;
        expect(comparable(answer.counters[0])).toEqual(comparable(expected));
        statuses.add(expected.status);
        const now = Math.floor(clockUs / 1_000 / DURATION_MS);
        for (const window of [now, now - 1]) {
          const key = `${keys.counter(identity, DURATION_MS)}:${window}`;
          const lines = (await member.command('EVAL', READ, '1', key)) as string[];
          const stored = linesOf(model, counterAt(keyOfMessage(message), window));
          expect(lines.sort(), hexOf(identity)).toEqual(stored);
        }
      }
    });
    await fc.assert(run, { seed: newSeed(), numRuns: trialCount(25, 200) });
    const { done, stale, recovering, retryRefund } = MESSAGE_STATUS;
    expect([...statuses].sort()).toEqual([done, stale, recovering, retryRefund]);
  });
});

/** Not all numbers of an answer are sent where they mean nothing. */
function comparable({ status, sequence, ...rest }: CounterAnswer): Partial<CounterAnswer> {
  const { done, retryRefund } = MESSAGE_STATUS;
  if (status !== done && status !== retryRefund) return { status, sequence };
  return { status, sequence, ...rest };
}

function linesOf(model: RedisState, at: string): string[] {
  const counter = model.counters[at];
  if (counter === undefined) return [];
  const { used, known, recall, recallUs, limit, waiters, hasDenials, members } = counter;
  const rates = Object.values(members).reduce((sum, { rate }) => sum + rate, 0);
  const lines = Object.entries(members).map(([name, record]) => {
    const { deducted, spent, sequence, base, rate, isWrittenOff, denies } = record;
    const marks = Number(isWrittenOff) + 2 * Number(denies);
    const numbers = [deducted, spent, sequence, base, rate, marks];
    return [name, ...numbers, record.firstRecallUs, record.lastRecallUs].join(' ');
  });
  const notices = Number(waiters.length > 0) + 2 * Number(hasDenials);
  lines.push(['a', used, known, rates, recall, recallUs, limit, notices].join(' '));
  if (waiters.length > 0) lines.push(`w ${waiters.join(',')},`);
  return lines.sort();
}
