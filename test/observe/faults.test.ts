/** The faults that make a server degraded, and what is said about each. */

import { readFileSync } from 'node:fs';
import { describe, expect, test } from 'vitest';
import {
  FAULT_PAUSE_MS,
  PAST_FAULT_MIN_MS,
  PAST_FAULTS_MAX,
  PAST_FAULTS_MS,
  REPLACED_RECENTLY_MS,
} from '../../src/core/constants.ts';
import type { EngineStats } from '../../src/engine/engine.ts';
import {
  FAULT_REASONS,
  FAULTS,
  type FaultReason,
  type FaultSources,
  FaultWatch,
} from '../../src/observe/faults.ts';
import { anchorsOf } from '../support/markdown.ts';

const CAPACITY = 1_000;
/** A Unix time. */
const START = 1_795_000_000_000;
const HEALTHY: EngineStats = {
  queueDepths: [0, 0],
  workers: { configured: 2, running: 2, replaced: 0 },
};
const CLUSTER = {
  ...{ connections: [true, true], hasJoined: true, isRecovering: false, isExact: false },
  machines: 2,
};
const REPLICA = { version: 7, ageMs: 20, state: 'current', evicting: [] } as const;
const FILE_FAULT = { path: '/data/file', error: 'ENOSPC', effect: 'figures wait in memory' };

/** A watch of a server whose state can be changed. */
function watch() {
  const server = { stats: HEALTHY, live: 0, files: {}, rules: undefined as string | undefined };
  const time = { ms: 0 };
  const registry = { replica: REPLICA as ReturnType<NonNullable<FaultSources['replica']>> };
  const faults = new FaultWatch({
    engine: { stats: () => server.stats },
    replica: () => registry.replica,
    files: () => server.files,
    rulesFault: () => server.rules,
    liveCounters: () => server.live,
    capacity: CAPACITY,
    onEngineDown: 'deny',
    clock: { nowMs: () => START + time.ms, monotonicMs: () => time.ms },
  });
  const reasons = () => faults.current().map(({ reason }) => reason);
  const text = (of: FaultReason) => faults.current().find(({ reason }) => reason === of)?.text;
  return { server, registry, time, faults, reasons, text };
}

describe('a fault', () => {
  test('refers to a section of the documentation that exists', () => {
    for (const reason of FAULT_REASONS) {
      const [page, anchor] = FAULTS[reason].see.split('#');
      const text = readFileSync(`docs/${page}`, 'utf8');
      expect([reason, anchor, anchorsOf(text).has(anchor)]).toEqual([reason, anchor, true]);
    }
  });

  test('is found for each reason, and for none of a healthy server', () => {
    const { server, registry, reasons } = watch();
    expect(reasons()).toEqual([]);
    server.stats = {
      ...HEALTHY,
      workers: { configured: 2, running: 1, replaced: 1 },
      cluster: { ...CLUSTER, connections: [false, true], isRecovering: true },
    };
    server.live = CAPACITY;
    server.rules = 'line 3';
    const names = ['store', 'checkpoints', 'lease_horizon', 'analytics', 'events'];
    server.files = Object.fromEntries(names.map((name) => [name, FILE_FAULT]));
    registry.replica = { ...REPLICA, state: 'unreachable', evicting: ['a:1: allkeys-lru'] };
    const found = new Set(reasons());
    registry.replica = { ...REPLICA, state: 'diverged' };
    server.stats = { ...HEALTHY, cluster: { ...CLUSTER, hasJoined: false } };
    for (const reason of reasons()) found.add(reason);
    expect([...found].toSorted()).toEqual([...FAULT_REASONS].toSorted());
    server.stats = { ...HEALTHY, cluster: CLUSTER };
    server.live = 0;
    server.rules = undefined;
    server.files = {};
    registry.replica = REPLICA;
    expect(reasons()).toEqual(['workers_replaced']);
  });

  test('says what is wrong, since when, its effect, the remedy and the section', () => {
    const { server, time, faults, text } = watch();
    server.files = { analytics: FILE_FAULT };
    faults.tick();
    for (const [ms, age] of [
      [0, '0 s'],
      [59_999, '59 s'],
      [180_000, '3 min'],
      [7_200_000, '2 h'],
      [172_800_000, '2 d'],
    ] as const) {
      time.ms = ms;
      expect(text('analytics')).toBe(
        'disk: /data/file cannot be written (ENOSPC); figures wait in memory. ' +
          `It began ${age} ago. Checks continue. Free space on the disk, or make the file ` +
          'writable: weir tries again itself. See docs/operations.md#full-disk.',
      );
    }
  });

  test('that has ended and begins again has a new beginning', () => {
    const { server, time, faults, text } = watch();
    server.files = { store: FILE_FAULT };
    faults.tick();
    time.ms = 60_000;
    server.files = {};
    faults.tick();
    time.ms = 90_000;
    server.files = { store: FILE_FAULT };
    faults.tick();
    time.ms = 95_000;
    expect(text('store')).toContain('It began 5 s ago.');
  });

  describe('that has ended', () => {
    /** Begins and ends faults at times since the start. */
    function history(faults: readonly (readonly [reason: string, from: number, to: number])[]) {
      const { server, time, faults: watched } = watch();
      for (const [reason, from, to] of faults) {
        time.ms = from;
        server.files = { [reason]: FILE_FAULT };
        watched.tick();
        time.ms = to;
        server.files = {};
        watched.tick();
      }
      const past = () => watched.past().map(({ reason, start, end }) => [reason, start, end]);
      return { time, past, watched };
    }
    const at = (reason: string, from: number, to: number) => [reason, START + from, START + to];

    test('of more than a second is known with its cause and times, the last one first', () => {
      const { past, watched } = history([
        ['store', 1_000, 5_000],
        ['analytics', 6_000, 6_000 + PAST_FAULT_MIN_MS - 1],
        ['events', 2_000_000, 2_000_000 + PAST_FAULT_MIN_MS],
      ]);
      expect(past()).toEqual([
        at('events', 2_000_000, 2_000_000 + PAST_FAULT_MIN_MS),
        at('store', 1_000, 5_000),
      ]);
      expect(watched.past()[0].cause).toBe('events cannot be written');
    });

    test('and soon begins again is one fault, so that it does not push out others', () => {
      const flaps = Array.from({ length: 3 * PAST_FAULTS_MAX }, (_, i) => {
        return ['store', 100_000 + 4_000 * i, 102_000 + 4_000 * i] as const;
      });
      const last = flaps.at(-1)![2];
      const { past } = history([
        ['events', 1_000, 3_000],
        ...flaps,
        ['store', last + FAULT_PAUSE_MS, last + FAULT_PAUSE_MS + 2_000],
      ]);
      expect(past()).toEqual([
        at('store', last + FAULT_PAUSE_MS, last + FAULT_PAUSE_MS + 2_000),
        at('store', 100_000, last),
        at('events', 1_000, 3_000),
      ]);
    });

    test('is forgotten after a day, or when many others have ended since', () => {
      const many = Array.from({ length: PAST_FAULTS_MAX + 1 }, (_, i) => {
        return ['store', 2 * FAULT_PAUSE_MS * i, 2 * FAULT_PAUSE_MS * i + 2_000] as const;
      });
      const { time, past } = history(many);
      expect(past()).toHaveLength(PAST_FAULTS_MAX);
      expect(past().at(-1)).toEqual(at(...many[1]));
      time.ms = many.at(-1)![2] + PAST_FAULTS_MS;
      expect(past()).toEqual([at(...many.at(-1)!)]);
      time.ms++;
      expect(past()).toEqual([]);
    });
  });

  test('of a Redis that is down names the policy that decides', () => {
    const { server, text } = watch();
    server.stats = { ...HEALTHY, cluster: { ...CLUSTER, connections: [false, true] } };
    const cause =
      'Redis does not respond to 1 of 2 shard workers: WEIR_ON_ENGINE_DOWN=deny decides their checks.';
    expect(text('redis_down')).toMatch(new RegExp(`^${cause}`));
  });
});

describe('replaced shard workers', () => {
  test('are counted for 10 minutes, with the time of the last one', () => {
    const { server, time, faults, text } = watch();
    const replace = (replaced: number) => {
      server.stats = { ...HEALTHY, workers: { configured: 2, running: 2, replaced } };
      faults.tick();
    };
    replace(1);
    time.ms = 300_000;
    replace(3);
    time.ms = 320_000;
    expect(text('workers_replaced')).toMatch(
      /^shard workers replaced in the last 10 min: 3, the last one 20 s ago\. Checks continue\./,
    );
    time.ms = REPLACED_RECENTLY_MS;
    expect(text('workers_replaced')).toMatch(/ 10 min: 2, the last one 5 min ago\./);
    time.ms = 300_000 + REPLACED_RECENTLY_MS;
    expect(text('workers_replaced')).toBeUndefined();
  });
});

test('replaced shard workers of the past are known by the time of the last one', () => {
  const { server, time, faults } = watch();
  server.stats = { ...HEALTHY, workers: { configured: 2, running: 2, replaced: 1 } };
  faults.tick();
  time.ms = 20_000;
  server.stats = { ...HEALTHY, workers: { configured: 2, running: 2, replaced: 2 } };
  faults.tick();
  server.files = { store: FILE_FAULT };
  time.ms = 30_000;
  faults.tick();
  server.files = {};
  time.ms = 40_000;
  faults.tick();
  time.ms = 20_000 + REPLACED_RECENTLY_MS;
  faults.tick();
  const cause = 'shard workers failed and were replaced';
  const [last, replaced] = faults.past();
  expect([last.reason, last.end]).toEqual(['store', START + 40_000]);
  const times = { start: START, end: START + 20_000 };
  expect(replaced).toEqual({ reason: 'workers_replaced', cause, ...times });
});

describe('a table', () => {
  test('is nearly full from 90 % of its capacity on', () => {
    const { server, reasons, text } = watch();
    server.live = 899;
    expect(reasons()).toEqual([]);
    server.live = 900;
    expect(text('table_nearly_full')).toMatch(
      /^900 live counters, 90 % of the 1000 of WEIR_COUNTERS\. It began .* Limits are exact up to /,
    );
    // The table has twice as many slots, so nothing may have been evicted.
    server.live = 1_001;
    expect(text('table_nearly_full')).toMatch(
      /^1001 live counters, more than the 1000 of WEIR_COUNTERS\. .* live counters may be evicted\. /,
    );
  });
});
