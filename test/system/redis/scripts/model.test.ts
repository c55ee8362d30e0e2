/**
 * The scripts `exchange` and `reset` on a real server, beside their model that the explorer of
 * schedules uses: random messages get the same answers, publish the same and leave the same state.
 * The clock of the bucket is the one in the header, so the test moves the time.
 */

import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import {
  CALL_STATUS,
  type CounterAnswer,
  type CounterMessage,
  MESSAGE_STATUS,
  NO_WINDOW,
} from '../../../../src/engine/redis/scripts/protocol.ts';
import { encodeReset, reset } from '../../../../src/engine/redis/scripts/reset.ts';
import {
  counterAt,
  exchange,
  joinedRedis,
  keyOfMessage,
  leaseTokens,
  type Publication,
  type RedisState,
  RULES,
  resetCounter,
} from '../../../model/lease-model.ts';
import { newSeed, trialCount } from '../../../support/guarantees.ts';
import { isRedisMissing } from '../../../support/programs/redis.ts';
import { waitUntil } from '../../../support/server.ts';
import { IDENTITY, useMembers } from '../script-member.ts';

const MEMBERS = 3;
const ALL = { durationsMs: undefined, windows: true, gcra: true };

const tokens = fc.nat({ max: 30 });
const check = fc.record({
  cost: tokens,
  limit: fc.constantFrom(0, 10, 19, 20, 40, 100, 400),
  isSliding: fc.boolean(),
  countsDenied: fc.boolean(),
});
const message = fc.record({
  counter: fc.nat({ max: 1 }),
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
  /** Whether the member says that Redis stores a record of it. */
  isStored: fc.constantFrom(...Array<boolean>(7).fill(false), true),
  others: fc.constantFrom(...Array<number>(7).fill(0), -4, 9, 60),
  previousKnown: fc.constantFrom(0, 0, 0, 20, 90),
  /** Whether it answers a request for a report, or an older one. */
  report: fc.constantFrom('asked', 'asked', 'none', 'old'),
  recalls: fc.constantFrom(false, false, false, true),
  refund: fc.constantFrom(0, 0, 0, 3, 50),
  isOtherRefund: fc.constantFrom(false, false, true),
  checks: fc.array(check, { maxLength: 3 }),
});
const step = fc.record({
  member: fc.nat({ max: MEMBERS - 1 }),
  /** Long and short enough for each time in the rules, ms; negative: before the next window. */
  stepMs: fc.constantFrom(0, 0, 0, 0, 1, 4, 6, 10, 12, 250, 1_000, 100_000, -5, -6),
  messages: fc.array(message, { minLength: 1, maxLength: 2 }),
  resets: fc.constantFrom(...Array<boolean>(9).fill(false), true),
  /** Whether Redis loses a counter, without its index, before. */
  loses: fc.constantFrom(...Array<boolean>(7).fill(false), true),
});

/** What is stored of a counter, as text: its numbers, then each member with its numbers. */
const READ = `
local lines = {}
local everything = redis.call('HGETALL', KEYS[1])
for i = 1, #everything, 2 do
  local field, value = everything[i], everything[i + 1]
  if field == 'x' and value == '0' then
  elseif #field == 1 and field ~= 'a' then lines[#lines + 1] = field .. ' ' .. value
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

/** When keys were last found to be lost. */
const READ_LOST = `
return string.format('%.0f', select(9, struct.unpack('<ddddddddd', redis.call('HGET', KEYS[1], 'a'))))
`;

describe.skipIf(isRedisMissing)('the exchange script and its model', () => {
  const { members } = useMembers(MEMBERS);

  it('answer, publish and store the same for random messages', { timeout: 300_000 }, async () => {
    const { context } = members[0];
    let runs = 0;
    // Ahead of the server's, by whose time keys expire.
    let clockUs = (Date.now() + 3_600_000) * 1_000;
    const statuses = new Set<number>();
    const kinds = new Set<string>();
    const names = members.map(({ name }) => name);
    const readLostUs = async () => {
      const key = context.keys.members(0);
      return Number(await members[0].command('EVAL', READ_LOST, '1', key));
    };
    const run = async (
      steps: readonly (typeof step extends fc.Arbitrary<infer T> ? T : never)[],
    ) => {
      const durationMs = [1_000, 100_000][runs % 2];
      const identities = [0, 1].map((h2) => ({ ...IDENTITY, h1: 1_000 + runs, h2 }));
      runs++;
      const isAvailable = runs % 4 >= 2;
      clockUs += 1_000_000;
      const contactsUs: number[] = [];
      for (const { header, context, call } of members) {
        context.isAvailable = isAvailable;
        header.clockUs = clockUs;
        ({ clockUs } = await call([]));
        contactsUs.push(clockUs);
      }
      const model = joinedRedis('r', clockUs, names);
      for (const [at, name] of names.entries())
        model.meta!.members[name].contactUs = contactsUs[at];
      model.meta!.lostUs = await readLostUs();
      const reportedEpoch = `r.${model.meta!.epochNumber}`;
      const sequences = members.map(() => [10, 10]);
      const firsts = members.map(() => [1, 1]);
      const published: Publication[] = [];
      for (const member of members) member.received.splice(0);
      for (const { member: at, stepMs, messages: wanted, resets, loses } of steps) {
        const member = members[at];
        const leftMs = durationMs - ((clockUs / 1_000) % durationMs);
        const nowUs = clockUs + (stepMs < 0 ? Math.max(0, leftMs + stepMs) : stepMs) * 1_000;
        const window = Math.floor(nowUs / 1_000 / durationMs);
        if (loses) {
          const lost = { identity: identities[0], durationMs };
          // That of the window before, in every second run.
          const lostWindow = window - (steps.length % 2);
          delete model.counters[counterAt(keyOfMessage(lost), lostWindow)];
          const key = context.keys.counter(lost.identity, durationMs);
          await member.command('DEL', `${key}:${lostWindow}`);
        }
        const messages = wanted.map((one): CounterMessage => {
          const { counter, windowsBefore, sequenceStep, isNewSlot, isOtherRefund, ...rest } = one;
          const sequence = sequences[at][counter] + sequenceStep;
          sequences[at][counter] = Math.max(sequences[at][counter], sequence);
          if (isNewSlot) firsts[at][counter] = sequence;
          const refundWindow = window - Number(isOtherRefund);
          const identity = identities[counter];
          const at0 = counterAt(keyOfMessage({ identity, durationMs }), window);
          const record = model.counters[at0]?.members[member.name];
          const asked = record?.mustReport ? record.firstRecallUs : 0;
          return {
            ...{ ...rest, identity, durationMs, sequence },
            inherits: 0,
            report: { asked, none: 0, old: Math.max(0, asked - 1) }[one.report],
            firstSequence: firsts[at][counter],
            window: windowsBefore === 9 ? NO_WINDOW : window - windowsBefore,
            refundWindow: rest.refund > 0 ? refundWindow : NO_WINDOW,
          };
        });
        member.header.clockUs = nowUs;
        const answer = await member.call(messages);
        clockUs = answer.clockUs;
        expect(answer.status).toBe(CALL_STATUS.done);
        const { machineCount } = answer;
        const header = { ...member.header, clockUs: 0, reportedEpoch };
        const modelled = exchange(model, clockUs, header, messages, {
          ...{ ...RULES, isAvailable },
          lease: (demand) => leaseTokens({ ...demand, machines: machineCount }),
        });
        published.push(...modelled.published);
        const { counters } = modelled.answer;
        expect(answer.counters.map(comparable)).toEqual(counters.map(comparable));
        for (const { status } of counters) statuses.add(status);
        expect(await readLostUs()).toBe(model.meta!.lostUs);
        const now = Math.floor(clockUs / 1_000 / durationMs);
        // The clock goes on until the reset, which must be in the same window.
        const isReset = resets && (now + 1) * durationMs - clockUs / 1_000 > 20_000;
        for (const identity of identities) {
          const key = keyOfMessage({ identity, durationMs });
          if (isReset) {
            await member.run(reset, encodeReset(context, member.header, identity, ALL));
            published.push(...resetCounter(model, key, now - 1, true));
            published.push(...resetCounter(model, key, now));
          }
          for (const window of [now, now - 1]) {
            const name = `${context.keys.counter(identity, durationMs)}:${window}`;
            const lines = (await member.command('EVAL', READ, '1', name)) as string[];
            expect(lines.sort()).toEqual(linesOf(model, counterAt(key, window)));
          }
        }
      }
      for (const { to, kind } of published) kinds.add(`${kind} ${names.indexOf(to)}`);
      for (const { name, received } of members) {
        const expected = published.filter(({ to }) => to === name).map(textOf);
        await waitUntil('all messages arrive', () => received.length >= expected.length);
        const texts = received.map((one) => {
          if (one.kind === 'epoch' || one.kind === 'bucket') return one.kind;
          return textOf({ ...one, key: keyOfMessage(one) });
        });
        expect(texts).toEqual(expected);
      }
    };
    const property = fc.asyncProperty(fc.array(step, { minLength: 5, maxLength: 40 }), run);
    await fc.assert(property, { seed: newSeed(), numRuns: trialCount(40, 300) });
    const { done, stale, recovering, retryRefund } = MESSAGE_STATUS;
    expect([...statuses].sort()).toEqual([done, stale, recovering, retryRefund]);
    expect(kinds.size).toBe(4 * MEMBERS);
  });
});

const textOf = ({ kind, key }: Pick<Publication, 'kind' | 'key'>) => `${kind} ${key}`;

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
  const { reported, restored, isMissing, wasWrittenOff } = counter;
  const rates = Object.values(members).reduce((sum, { rate }) => sum + rate, 0);
  const lines = Object.entries(members).map(([name, record]) => {
    const { deducted, spent, sequence, base, rate, isWrittenOff, denies } = record;
    const { mustReport, isMissed, isGuess } = record;
    const asked = 4 * Number(mustReport) + 8 * Number(isMissed) + 16 * Number(isGuess);
    const marks = Number(isWrittenOff) + 2 * Number(denies) + asked;
    const numbers = [deducted, spent, sequence, base, rate, marks];
    return [name, ...numbers, record.firstRecallUs, record.lastRecallUs].join(' ');
  });
  const lost = 4 * Number(reported !== undefined) + 8 * Number(isMissing) + 64 * counter.unknown;
  const isOnlyBefore = counter.unknown > 0 && counter.isOnlyBefore;
  const notices =
    Number(waiters.length > 0) +
    2 * Number(hasDenials) +
    lost +
    16 * Number(wasWrittenOff) +
    32 * Number(isOnlyBefore);
  if (reported !== undefined) lines.push(`k ${reported}`);
  if (restored > 0) lines.push(`x ${restored}`);
  if (counter.hasPrevious) lines.push('p ');
  lines.push(['a', used, known, rates, recall, recallUs, limit, notices].join(' '));
  if (waiters.length > 0) lines.push(`w ${waiters.join(',')},`);
  return lines.sort();
}
