import fc from 'fast-check';
import { expect, test } from 'vitest';
import { REQUEST_ID_MS } from '../../../src/core/constants.ts';
import { HOLD_KIND } from '../../../src/engine/hold-id.ts';
import type { RequestAnswer } from '../../../src/engine/request-engine.ts';
import { allocateRequests, LOCK, RequestMemory } from '../../../src/engine/requests/layout.ts';
import { RequestTable } from '../../../src/engine/requests/request-table.ts';

const START_MS = 1_795_000_000_000;
const NEVER_WAITS = () => expect.unreachable();

/** Two views of the same memory, as two acceptors have them. */
function tablesOf(capacity: number) {
  const buffer = allocateRequests(0, capacity);
  const { words } = new RequestMemory(buffer, 0);
  const tables = [1, 2].map((owner) => new RequestTable(buffer, 0, owner, NEVER_WAITS));
  return { tables, lock: () => words[LOCK] };
}

/** Sixteen keys of two buckets. Their other words differ. */
const keyOf = (number: number) => ({ h0: number, h1: number % 2, h2: -number, h3: 1 });
const parametersOf = (number: number) => ({ h0: 7, h1: number, h2: 0, h3: 1 });

const DENIED: RequestAnswer = {
  ...{ allowed: false, limit: 9, remaining: 0, reset: 5 },
  ...{ id: undefined, expiresAt: 0, inUse: 0 },
};
/** Each answer differs from all others. */
const allowed = (number: number): RequestAnswer => ({
  ...{ allowed: true, limit: 10 + number, remaining: 2 ** 53 - 1 - number, reset: START_MS },
  id:
    number % 3 === 0
      ? undefined
      : {
          kind: number % 3 === 1 ? HOLD_KIND.lease : HOLD_KIND.reservation,
          ...{
            shard: number % 16,
            record: 2 ** 24 - number,
            secret: [number, -number, 2 ** 31 - 1],
          },
        },
  ...{ expiresAt: START_MS + number + 0.5, inUse: 3 * number },
});

interface Stored {
  key: number;
  parameters: number;
  answeredAt: number;
  answer: RequestAnswer;
}

test('an answer is repeated for 60 s, unless so many newer ones came that it is forgotten', () => {
  const step = fc.record({
    acceptor: fc.nat(1),
    key: fc.nat(15),
    parameters: fc.nat(1),
    // A clock may be read before another thread takes the lock: then its time is too early.
    passedMs: fc.constantFrom(0, 0, 0, 1, -1, 20_000, 59_999, 60_000),
    isAllowed: fc.boolean(),
  });
  const property = fc.property(
    fc.constantFrom(1, 2, 3, 16, 40),
    fc.array(step, { maxLength: 200 }),
    (capacity, steps) => {
      const { tables, lock } = tablesOf(capacity);
      let stored: Stored[] = [];
      let nowMs = START_MS;
      let latestMs = 0;
      for (const [number, { acceptor, key, parameters, passedMs, isAllowed }] of steps.entries()) {
        nowMs += passedMs;
        latestMs = Math.max(nowMs, latestMs);
        const decided = isAllowed ? allowed(number) : DENIED;
        const request = { key: keyOf(key), parameters: parametersOf(parameters) };
        const answer = tables[acceptor].answer(request, nowMs, () => {
          expect(lock()).toBe(acceptor + 1);
          return decided;
        });
        expect(lock()).toBe(0);
        const found = stored.findLast((one) => one.key === key);
        if (found !== undefined && found.answeredAt + REQUEST_ID_MS > latestMs) {
          const isSame = found.parameters === parameters;
          expect(answer).toEqual(isSame ? { ...found.answer, isRepetition: true } : undefined);
          continue;
        }
        expect(answer).toEqual({ ...decided, isRepetition: false });
        if (!isAllowed) continue;
        stored.push({ key, parameters, answeredAt: latestMs, answer: decided });
        stored = stored.slice(-capacity);
      }
    },
  );
  fc.assert(property, { numRuns: 300 });
});

test('keys that differ in any word are different requests', () => {
  const { tables } = tablesOf(16);
  const key = keyOf(2);
  const answer = (changes: Partial<typeof key>, number: number) => {
    const request = { key: { ...key, ...changes }, parameters: parametersOf(0) };
    return tables[0].answer(request, START_MS, () => allowed(number));
  };
  const changes = [{}, { h0: 3 }, { h1: 1 }, { h1: 16 }, { h2: 3 }, { h3: 2 }];
  for (const [number, change] of changes.entries()) {
    expect(answer(change, number)).toEqual({ ...allowed(number), isRepetition: false });
  }
  for (const [number, change] of changes.entries()) {
    expect(answer(change, 99)).toEqual({ ...allowed(number), isRepetition: true });
  }
});

test('parameters that differ in any word are a conflict, and nothing is decided', () => {
  const { tables } = tablesOf(16);
  const parameters = parametersOf(0);
  const answer = (changes: Partial<typeof parameters>, decide: () => RequestAnswer) => {
    const request = { key: keyOf(0), parameters: { ...parameters, ...changes } };
    return tables[1].answer(request, START_MS, decide);
  };
  answer({}, () => allowed(0));
  for (const changes of [{ h0: 3 }, { h1: 1 }, { h2: 3 }, { h3: 2 }]) {
    expect(answer(changes, NEVER_WAITS as never)).toBeUndefined();
  }
});

test('a request that fails stores nothing, and frees the lock', () => {
  const { tables, lock } = tablesOf(16);
  const request = { key: keyOf(0), parameters: parametersOf(0) };
  const fail = () => {
    throw new Error('not decided');
  };
  expect(() => tables[0].answer(request, START_MS, fail)).toThrow('not decided');
  expect(lock()).toBe(0);
  expect(tables[1].answer(request, START_MS, () => allowed(1))?.isRepetition).toBe(false);
});
