/** Recent decisions, from the thread that writes them to the main thread. */

import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import { Worker } from 'node:worker_threads';
import { beforeEach, describe, expect, test } from 'vitest';
import {
  IDENTIFIER_MAX_CHARACTERS,
  RECENT_DECISIONS,
  RECENT_DENIALS,
  RECENT_DENIALS_MAX,
  RECENT_DENIALS_OF_NAMESPACE,
  RECENT_SAMPLES,
  RECENT_TEXT_BYTES,
} from '../../src/core/constants.ts';
import { Hasher, newIdentity } from '../../src/core/hash.ts';
import type { Namespace } from '../../src/core/namespace.ts';
import type { DecisionEvent } from '../../src/events/decision-event.ts';
import { allocateRecentMemory, RECENT_MEMORY_BYTES } from '../../src/recent-decisions/memory.ts';
import {
  type RecentDecision,
  RecentDecisions,
  type RecentFilter,
} from '../../src/recent-decisions/reader.ts';
import { RecentDecisionWriter } from '../../src/recent-decisions/writer.ts';
import { EVENT, TIME_MS } from '../support/decision-event.ts';
import { trialCount } from '../support/guarantees.ts';
import { TEST_HASH_KEY, testNamespace } from '../support/namespace.ts';
import { numberedIdentifier, type WritingTask } from './writing.thread.ts';

const THREAD = new URL('../../dist/threads/writing.thread.js', import.meta.url);
const hasher = new Hasher(TEST_HASH_KEY);
const STARTED_MS = TIME_MS - 1;

let nowMs: number;
let buffers: SharedArrayBuffer[];
let writers: RecentDecisionWriter[];
let reader: RecentDecisions;
beforeEach(() => {
  nowMs = TIME_MS;
  buffers = [0, 1].map(allocateRecentMemory);
  const clock = { nowMs: () => nowMs };
  writers = buffers.map((buffer, thread) => new RecentDecisionWriter(buffer, thread, clock));
  reader = new RecentDecisions(buffers, hasher, STARTED_MS);
});

const eventOf = (namespace: Namespace, identifier: string, terms: Partial<DecisionEvent> = {}) => {
  const identity = hasher.hash(namespace.hashState, identifier, newIdentity());
  return { ...EVENT, namespace, identifier, ...terms, identity };
};

/** Decides as a thread does: selects, and writes what is selected. */
function decide(
  namespace: Namespace,
  identifier: string,
  terms: Partial<DecisionEvent> = {},
  writer = writers[0],
): void {
  const event = eventOf(namespace, identifier, terms);
  const { limit = 0, durationMs = 0 } = event.window ?? {};
  const isSelected = event.isAllowed
    ? writer.selectsAllowed(namespace)
    : writer.selectsDenied(namespace, event.identity, limit, durationMs);
  if (isSelected) writer.write(event);
}

const all = () => [...reader.decisions({})];
const of = (key: string, identifier: string) => {
  return [...reader.decisions({ identity: reader.identityOf(key, identifier) })];
};
const identifiers = (records: Iterable<RecentDecision>) => {
  return [...records].map(({ identifier }) => identifier);
};

test('a record repeats the decision', () => {
  const namespace = testNamespace('login');
  const overrideId = 'rlor_1';
  decide(namespace, 'é "1"', { overrideId, policy: 'login', isShadow: true });
  decide(namespace, 'job', { window: undefined, lease: { limit: 5, inUse: 4 }, isAllowed: true });
  decide(namespace, '', { identifier: undefined, window: undefined, policy: 'login' });
  const base = { namespaceKey: 'login', count: 1, leftOut: 0, cost: 2, lease: undefined };
  const times = { timeMs: TIME_MS, untilMs: TIME_MS };
  const denied = { ...base, ...times, isAllowed: false, overrideId: undefined, isOfPolicy: true };
  const policy = { source: 'policy' };
  expect(all()).toEqual([
    { ...denied, ...policy, id: '0.3', identifier: undefined, window: undefined, isShadow: false },
    {
      ...{ ...base, ...times, id: '0.2', identifier: 'job', isAllowed: true, isShadow: false },
      ...{ window: undefined, lease: { limit: 5, inUse: 4 }, overrideId: undefined },
      ...{ isOfPolicy: false, source: 'request' },
    },
    {
      ...{ ...denied, id: '0.1', identifier: 'é "1"', window: EVENT.window, isShadow: true },
      ...{ overrideId, source: 'override' },
    },
  ]);
});

test('the documentation has the size and the quotas', () => {
  const page = readFileSync(new URL('../../docs/analytics.md', import.meta.url), 'utf8');
  const records = RECENT_DECISIONS.toLocaleString('en').replace(',', ' ');
  const mib = (bytes: number) => `${Math.round(bytes / 2 ** 20)} MiB`;
  const sizes = `${mib(RECENT_TEXT_BYTES)} of texts, ${mib(RECENT_MEMORY_BYTES)} in all`;
  expect(page).toContain(`a ring of ${records} records and ${sizes}`);
  const all = `${RECENT_DENIALS}, and the first one of each namespace up to ${RECENT_DENIALS_MAX}`;
  expect(page).toContain(`| denials in one namespace | ${RECENT_DENIALS_OF_NAMESPACE} |\n`);
  expect(page).toContain(`| denials in all namespaces | ${all} |\n`);
  expect(page).toContain(`| allowed checks: the first one of a namespace | ${RECENT_SAMPLES} |\n`);
});

describe('quotas', () => {
  test('denials of an identifier in a period are one record, which counts them', () => {
    const namespace = testNamespace('login');
    decide(namespace, 'x');
    nowMs += 10;
    decide(namespace, 'x');
    decide(namespace, 'x', { window: { ...EVENT.window!, limit: 11 } });
    decide(namespace, 'x', { window: { ...EVENT.window!, durationMs: 1_000 } });
    expect(all().map(({ count }) => count)).toEqual([1, 1, 2]);
    expect(all()[2]).toMatchObject({ timeMs: TIME_MS, untilMs: TIME_MS + 10 });
    writers[0].beginPeriod();
    decide(namespace, 'x');
    expect(all()[0]).toMatchObject({ id: '0.4', count: 1, timeMs: TIME_MS + 10 });
  });

  test('a flood in one namespace hides no denial of another, and says what it left out', () => {
    const [flooded, other] = ['flooded', 'other'].map((name) => testNamespace(name));
    for (let i = 0; i < 1_000; i++) decide(flooded, `attacker_${i}`);
    decide(other, 'customer');
    const records = all();
    expect(records[0]).toMatchObject({ identifier: 'customer', leftOut: 0 });
    expect(records).toHaveLength(RECENT_DENIALS_OF_NAMESPACE + 1);
    const counted = records.slice(1).reduce((sum, it) => sum + it.count + it.leftOut, 0);
    expect(counted).toBe(1_000);
  });

  test('floods in all namespaces leave a record of each, up to a bound', () => {
    const count = RECENT_DENIALS_MAX + 10;
    const namespaces = Array.from({ length: count }, (_, i) => testNamespace(`n${i}`));
    for (let round = 0; round < 20; round++) {
      for (const namespace of namespaces) decide(namespace, `x${round}`);
    }
    expect(all()).toHaveLength(RECENT_DENIALS_MAX);
    expect(new Set(all().map(({ namespaceKey }) => namespaceKey)).size).toBe(RECENT_DENIALS_MAX);
    writers[0].beginPeriod();
    for (let i = 0; i < 8; i++) {
      for (const namespace of namespaces.slice(0, 8)) decide(namespace, `y${i}`);
    }
    expect(all()).toHaveLength(RECENT_DENIALS_MAX + RECENT_DENIALS);
  });

  test('namespaces that had no record in the last period come first', () => {
    const namespaces = Array.from({ length: RECENT_DENIALS_MAX }, (_, i) => testNamespace(`n${i}`));
    const victim = testNamespace('victim');
    for (const namespace of [...namespaces, victim, victim]) decide(namespace, 'x');
    expect(all()).toHaveLength(RECENT_DENIALS_MAX);
    writers[0].beginPeriod();
    for (const namespace of [...namespaces, victim]) decide(namespace, 'x');
    // With the denials that had no record.
    expect(all()[0]).toMatchObject({ namespaceKey: 'victim', leftOut: 2 });
  });

  test('long texts use more of the quotas, so that the records cover as much time', () => {
    const namespace = testNamespace('login');
    const long = 'x'.repeat(IDENTIFIER_MAX_CHARACTERS);
    for (let i = 0; i < 10; i++) decide(namespace, `${i}${long.slice(1)}`);
    expect(all().length).toBeLessThan(RECENT_DENIALS_OF_NAMESPACE);
    expect(all().at(-1)?.leftOut).toBe(0);
    expect(all()[0].leftOut).toBe(10 - all().length);
  });

  test('a namespace that is not registered has no records', () => {
    const transient = { ...testNamespace('gone'), isTransient: true };
    decide(transient, 'x');
    decide(transient, 'x', { isAllowed: true });
    expect(all()).toEqual([]);
  });

  test('of allowed checks the first of a namespace in a period is a sample', () => {
    const namespaces = Array.from({ length: 20 }, (_, i) => testNamespace(`n${i}`));
    const isAllowed = true;
    for (let i = 0; i < 3; i++) {
      for (const namespace of namespaces) decide(namespace, `x${i}`, { isAllowed });
    }
    expect(identifiers(all())).toEqual(Array.from({ length: RECENT_SAMPLES }, () => 'x0'));
    writers[0].beginPeriod();
    decide(namespaces[19], 'later', { isAllowed });
    expect(all()[0]).toMatchObject({ identifier: 'later', isAllowed });
  });
});

describe('reading', () => {
  test('merges the threads, the newest first', () => {
    const namespace = testNamespace('login');
    for (let i = 0; i < 6; i++) {
      nowMs++;
      decide(namespace, `x${i}`, {}, writers[i % 2]);
    }
    expect(identifiers(all())).toEqual(['x5', 'x4', 'x3', 'x2', 'x1', 'x0']);
  });

  test('finds the records of an identifier in its namespace only', () => {
    const [first, second] = ['a', 'b'].map((name) => testNamespace(name));
    decide(first, 'x');
    decide(second, 'x');
    decide(first, 'y');
    expect(of('a', 'x')).toMatchObject([{ namespaceKey: 'a', identifier: 'x' }]);
    expect(of('a', 'z')).toEqual([]);
  });

  test('filters by what a record says', () => {
    const [first, second] = ['a', 'b'].map((name) => testNamespace(name));
    const found = (filter: RecentFilter) => identifiers(reader.decisions(filter));
    decide(first, 'x', { overrideId: 'rlor_1' });
    nowMs++;
    decide(first, 'y', { policy: 'a' });
    nowMs++;
    decide(second, 'x');
    decide(second, 'xx', { isAllowed: true });
    expect(found({ isNamespace: (key) => key === 'a' })).toEqual(['y', 'x']);
    expect(found({ identifier: 'x' })).toEqual(['x', 'x']);
    expect(found({ overrideId: 'rlor_1' })).toEqual(['x']);
    expect(found({ overrideId: 'rlor_2' })).toEqual([]);
    expect(found({ source: 'policy' })).toEqual(['y']);
    expect(found({ source: 'request' })).toEqual(['xx', 'x']);
    expect(found({ isAllowed: true })).toEqual(['xx']);
    expect(found({ startMs: TIME_MS + 1 })).toEqual(['xx', 'x', 'y']);
    expect(found({ endMs: TIME_MS + 1 })).toEqual(['x']);
  });

  test('covers the time since the start, and later since the oldest record', () => {
    const namespace = testNamespace('login');
    expect(reader.sinceMs).toBe(STARTED_MS);
    const count = RECENT_DECISIONS + 100;
    for (let i = 0; i < count; i++) {
      writers[0].beginPeriod();
      nowMs++;
      decide(namespace, `x${i}`);
      if (i === 10) expect(reader.sinceMs).toBe(STARTED_MS);
    }
    const records = all();
    expect(records).toHaveLength(RECENT_DECISIONS);
    expect(records.at(-1)).toMatchObject({ identifier: 'x100', timeMs: reader.sinceMs });
  });

  test('leaves out records whose texts were written over', () => {
    const namespace = testNamespace('n'.repeat(IDENTIFIER_MAX_CHARACTERS));
    const long = '\u{1f600}'.repeat(IDENTIFIER_MAX_CHARACTERS / 2);
    for (let i = 0; i < RECENT_DECISIONS; i++) {
      writers[0].beginPeriod();
      nowMs++;
      decide(namespace, `${i} ${long.slice(6)}`);
    }
    const records = all();
    expect(records.length).toBeGreaterThan(100);
    expect(records.length).toBeLessThan(RECENT_DECISIONS);
    expect(records.at(-1)?.timeMs).toBe(reader.sinceMs);
    for (const [back, { identifier, namespaceKey }] of records.entries()) {
      expect(identifier).toBe(`${RECENT_DECISIONS - 1 - back} ${long.slice(6)}`);
      expect(namespaceKey).toBe(namespace.key);
    }
  });

  test('a writer that goes on with a memory keeps its records', () => {
    const namespace = testNamespace('login');
    decide(namespace, 'x');
    const next = new RecentDecisionWriter(buffers[0], 0, { nowMs: () => nowMs });
    decide(namespace, 'y', {}, next);
    expect(identifiers(all())).toEqual(['y', 'x']);
  });

  test('rejects the memory of another thread, and one of another size', () => {
    const clock = { nowMs: () => nowMs };
    expect(() => new RecentDecisionWriter(buffers[0], 1, clock)).toThrow(
      'the recent decisions of thread 1: its thread is 0, not 1',
    );
    expect(() => new RecentDecisions([new SharedArrayBuffer(64)], hasher, 0)).toThrow(
      `the recent decisions of thread 0 have 64 bytes, not ${RECENT_MEMORY_BYTES}`,
    );
  });

  test('numbers wrap as int32', () => {
    const namespace = testNamespace('login');
    const words = new Int32Array(buffers[0]);
    words[1] = 2 ** 31 - 3;
    words[2] = -5;
    const next = new RecentDecisionWriter(buffers[0], 0, { nowMs: () => nowMs });
    for (let i = 0; i < 8; i++) decide(namespace, `x${i}`, {}, next);
    expect(identifiers(all())).toEqual(['x7', 'x6', 'x5', 'x4', 'x3', 'x2', 'x1', 'x0']);
    next.beginPeriod();
    words[1] = -3;
    const after = new RecentDecisionWriter(buffers[0], 0, { nowMs: () => nowMs });
    for (let i = 0; i < 4; i++) decide(namespace, `y${i}`, {}, after);
    expect(identifiers(all())).toEqual(['y3', 'y2', 'y1', 'y0']);
  });

  test('while the thread writes yields only whole records', async () => {
    const workerData: WritingTask = {
      buffer: buffers[1],
      records: trialCount(300_000, 20_000_000),
    };
    const ended = once(new Worker(THREAD, { workerData }), 'exit');
    let isRunning = true;
    void ended.then(() => {
      isRunning = false;
    });
    let records = 0;
    while (isRunning) {
      for (const { identifier, cost, window, namespaceKey, timeMs } of reader.decisions({})) {
        records++;
        const figures = [window?.limit, window?.durationMs, window?.reset, timeMs];
        const isWhole =
          identifier === numberedIdentifier(cost) &&
          namespaceKey === 'n' &&
          figures.every((figure) => figure === cost);
        if (!isWhole) throw new Error(`${namespaceKey}: ${identifier}, ${cost}, ${figures}`);
        if (records % 500 === 0) break;
      }
      await new Promise(setImmediate);
    }
    await ended;
    expect(records).toBeGreaterThan(1_000);
  }, 60_000);
});
