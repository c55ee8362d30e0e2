/** The faults that make a server degraded, and what is said about each. */

import { readFileSync } from 'node:fs';
import { describe, expect, test } from 'vitest';
import { REPLACED_RECENTLY_MS } from '../../src/core/constants.ts';
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
    monotonicMs: () => time.ms,
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
