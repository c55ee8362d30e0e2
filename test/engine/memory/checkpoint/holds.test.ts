import { readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, test, vi } from 'vitest';
import type { Check } from '../../../../src/core/check.ts';
import { COUNTERS_MIN, ENDED_HOLD_MS } from '../../../../src/core/constants.ts';
import { newDecision } from '../../../../src/core/decision.ts';
import type { Identity } from '../../../../src/core/hash.ts';
import { RULE } from '../../../../src/core/window-rules.ts';
import type { Lease } from '../../../../src/engine/hold-engine.ts';
import type { HoldId } from '../../../../src/engine/hold-id.ts';
import { RECORD, RECORD_BYTES } from '../../../../src/engine/holds/layout.ts';
import { Leases } from '../../../../src/engine/holds/leases.ts';
import { HoldInserter } from '../../../../src/engine/memory/checkpoint/hold-inserter.ts';
import { CheckpointLoader } from '../../../../src/engine/memory/checkpoint/loader.ts';
import {
  CheckpointBuffer,
  CheckpointWriter,
} from '../../../../src/engine/memory/checkpoint/writer.ts';
import { MemoryHolds } from '../../../../src/engine/memory/memory-holds.ts';
import { ReservationBatch } from '../../../../src/engine/memory/reservation-batch.ts';
import { ShardHolds } from '../../../../src/engine/memory/shard-holds.ts';
import { shardOf } from '../../../../src/engine/table/shard.ts';
import { Clock } from '../../../../src/shared-memory/clock.ts';
import { allocateControl, Control } from '../../../../src/shared-memory/control.ts';
import { checkOf } from '../../../support/engines.ts';
import { removeDirectory, temporaryDirectory } from '../../../support/server.ts';
import { TestTables } from '../../../support/test-tables.ts';

const KEY = [1, 2] as const;
const NOW = 1_700_000_000_000;
const MINUTE = 60_000;
const POLICIES = { whenFull: 'deny', onExpiry: 'release' } as const;

let directory: string;
beforeEach(() => {
  directory = temporaryDirectory();
});
afterEach(() => removeDirectory(directory));

/** Tables, and what acceptors do with them. */
class Run {
  readonly tables = new TestTables(COUNTERS_MIN);
  readonly shards = this.tables.tables.map((table, shard) => {
    return new ShardHolds(table, this.tables.holdTables[shard], POLICIES);
  });
  readonly reservations = new ReservationBatch(this.tables.batch, this.tables.holdTables, 'deny');
  readonly leases = this.tables.holdTables.map((holds) => new Leases(holds, 'deny'));
  readonly writers: CheckpointWriter[];

  constructor() {
    const buffer = new CheckpointBuffer();
    this.writers = this.tables.tables.map((table, shard) => {
      const holds = this.tables.holdTables[shard];
      return new CheckpointWriter(table, holds, 1, directory, KEY, buffer, {
        heartbeat() {},
        setWaitingForDisk() {},
      });
    });
  }

  /** A run that begins with the checkpoints of the one before. */
  static restored(now = NOW) {
    const run = new Run();
    const { tables, holdTables } = run.tables;
    const loader = new CheckpointLoader(directory, KEY, Number.POSITIVE_INFINITY);
    return Object.assign(run, { result: loader.restoreInto(tables, holdTables, now) });
  }

  /** @returns how many shards were written */
  write(now = NOW): number {
    const changed = this.writers.filter((writer) => writer.hasChanges());
    for (const writer of changed) {
      writer.begin(now);
      while (!writer.writePart(now));
    }
    return changed.length;
  }

  reserve(identifier: string, cost: number, terms: Partial<Check> = {}): HoldId {
    const check = checkOf(identifier, { limit: 100, durationMs: MINUTE, cost, ...terms });
    this.reservations.decide([check], NOW, 10_000);
    return this.reservations.id!;
  }

  acquire(identifier: string, limit: number): Lease {
    const { identity, namespace } = checkOf(identifier);
    const lease: Lease = { granted: false, id: undefined, inUse: 0, limit: 0, expiresAt: 0 };
    const request = { namespace, identity, limit, cost: 1, ttlMs: 10_000 };
    this.leases[shardOf(identity)].acquire(request, NOW, lease);
    return lease;
  }

  remaining(identifier: string, now = NOW, rule: Check['rule'] = RULE.fixed): number {
    const check = checkOf(identifier, { limit: 100, durationMs: MINUTE, cost: 0, rule });
    const decision = newDecision();
    const tag = check.namespace.hashState[0];
    const table = this.tables.tables[shardOf(check.identity)];
    table.decide(check.identity, tag, now, check, true, decision);
    return decision.remaining;
  }
}

const holdFiles = () => readdirSync(directory).filter((name) => name.startsWith('holds-'));

test('a reservation of the last run is committed by its id, and returns the rest', () => {
  const run = new Run();
  const id = run.reserve('alice', 60);
  run.write();
  const next = Run.restored(NOW + 1_000);
  expect(next.result).toMatchObject({ counters: 1, holds: 1, lostHolds: 0, damageMessages: [] });
  expect(next.remaining('alice')).toBe(40);
  expect(next.shards[id.shard].settle(id, 25, NOW + 1_000)).toMatchObject({ released: 35 });
  expect(next.remaining('alice')).toBe(75);
});

test('the checks of a list are found by its one id after a restart', () => {
  const run = new Run();
  const checks = ['alice', 'bob', 'carol'].map((identifier) => {
    return checkOf(identifier, { limit: 100, durationMs: MINUTE, cost: 60 });
  });
  expect(run.reservations.decide(checks, NOW, 10_000)).toBe(true);
  const id = run.reservations.id!;
  run.write();
  const next = Run.restored(NOW + 1_000);
  expect(next.result).toMatchObject({ counters: 3, holds: 3, lostHolds: 0 });
  const control = new Control(allocateControl(1, 1));
  const { batch, tables, holdTables } = next.tables;
  const counters = { batch, tables, tableOf: (identity: Identity) => tables[shardOf(identity)] };
  const clock = new Clock(control);
  vi.spyOn(clock, 'nowMs').mockReturnValue(NOW + 1_000);
  const holds = new MemoryHolds(counters, holdTables, POLICIES, clock, control.acceptorStats(0));
  expect(holds.namespacesOf(id)).toHaveLength(3);
  expect(holds.commit(id, [10, 20, 70])).toEqual({ charged: 100, released: 90, isLate: false });
  expect(['alice', 'bob', 'carol'].map((name) => next.remaining(name))).toEqual([90, 80, 30]);
});

test('a commit is repeated after a restart, and changes nothing', () => {
  const run = new Run();
  const id = run.reserve('alice', 60);
  const commit = run.shards[id.shard].settle(id, 70, NOW);
  run.write();
  const next = Run.restored();
  expect(next.shards[id.shard].settle(id, 1, NOW)).toEqual(commit);
  expect(next.remaining('alice')).toBe(30);
});

test('a hold that expired while no process ran returns its tokens at once', () => {
  const run = new Run();
  const id = run.reserve('alice', 60, { durationMs: MINUTE });
  run.write();
  const next = Run.restored(NOW + 11_000);
  expect(next.shards[id.shard].expire(NOW + 11_000, 10)).toBe(1);
  expect(next.remaining('alice', NOW + 11_000)).toBe(100);
});

test('the leases of the last run are in use, and are released by their ids', () => {
  const run = new Run();
  const leases = [run.acquire('job', 3), run.acquire('job', 3)];
  run.write();
  const next = Run.restored();
  expect(next.acquire('job', 3)).toMatchObject({ granted: true, inUse: 3 });
  expect(next.acquire('job', 3)).toMatchObject({ granted: false, inUse: 3 });
  const id = leases[0].id!;
  expect(next.leases[id.shard].release(id, NOW)).toBe(1);
  expect(next.acquire('job', 3)).toMatchObject({ granted: true, inUse: 3 });
});

test('a lease alone makes its shard one with changes, and is written once', () => {
  const run = new Run();
  run.write();
  run.acquire('job', 3);
  expect([run.write(), run.write()]).toEqual([1, 0]);
  expect(holdFiles()).toHaveLength(1);
});

test('without holds there are no files of holds', () => {
  const run = new Run();
  run.tables.decide('alice');
  run.write();
  expect(holdFiles()).toEqual([]);
});

test('holds that ended long ago are not written', () => {
  const run = new Run();
  const id = run.reserve('alice', 60);
  run.shards[id.shard].settle(id, 60, NOW);
  run.write(NOW + ENDED_HOLD_MS);
  expect(Run.restored(NOW + ENDED_HOLD_MS).result.holds).toBe(0);
});

test('all holds of one identity are written, however many there are', () => {
  const run = new Run();
  while (run.acquire('job', 100).granted);
  run.write();
  const next = Run.restored();
  expect(next.result.lostHolds).toBe(0);
  expect(next.acquire('job', 1_000).inUse).toBe(run.acquire('job', 1_000).inUse);
});

test('holds are loaded only with the counters that they were written with', () => {
  const run = new Run();
  const id = run.reserve('alice', 60);
  run.write();
  // The next checkpoint ends after the holds: the counters of the first one are the last complete.
  run.shards[id.shard].settle(id, 10, NOW);
  const before = new Map(readdirSync(directory).map((name) => [name, read(name)]));
  run.write();
  for (const name of readdirSync(directory)) {
    if (!name.startsWith('counters-') || before.get(name)?.equals(read(name))) continue;
    rmSync(join(directory, name));
  }
  const next = Run.restored();
  expect(next.remaining('alice')).toBe(40);
  expect(next.shards[id.shard].settle(id, 10, NOW)).toMatchObject({ charged: 10, released: 50 });
});

test('the first reservation of a shard, made during a checkpoint, is saved with its tokens', () => {
  const run = new Run();
  const shard = shardOf(checkOf('alice').identity);
  const writer = run.writers[shard];
  writer.begin(NOW);
  run.reserve('alice', 60);
  while (!writer.writePart(NOW));
  const next = Run.restored();
  expect(next.result).toMatchObject({ counters: 1, holds: 1 });
  expect(next.shards[shard].expire(NOW + 11_000, 10)).toBe(1);
  expect(next.remaining('alice', NOW + 11_000)).toBe(100);
});

test.each([
  [true, 'later'],
  [false, 'earlier'],
])('of two holds in one record, the live one is loaded (%s: it is the %s one)', (isLater) => {
  const run = new Run();
  const ended = run.reserve('alice', 60);
  const { shard, record } = ended;
  run.shards[shard].settle(ended, 10, NOW);
  const other = Array.from({ length: 1_000 }, (_, n) => `other_${n}`).find((name) => {
    return shardOf(checkOf(name).identity) === shard;
  })!;
  const live = { ...run.reserve(other, 60), record };
  // As if the record had been used again while the checkpoint was written.
  const { memory } = run.tables.holdTables[shard];
  const words = [1, 2].map((number) => {
    const at = memory.record(number);
    const copy = memory.words.slice(at, at + RECORD_BYTES / 4);
    copy[RECORD.link] = record;
    return copy;
  });
  const entries = Int32Array.from(
    (isLater ? words : words.toReversed()).flatMap((one) => [...one]),
  );
  const next = new Run();
  const inserter = new HoldInserter(next.tables.holdTables, NOW);
  inserter.insertAll(shard, new Uint8Array(entries.buffer));
  inserter.finish();
  expect([inserter.holds, inserter.lostHolds]).toEqual([1, 0]);
  expect(next.shards[shard].settle(ended, 10, NOW)).toBeUndefined();
  expect(next.shards[shard].settle(live, 70, NOW)).toMatchObject({ isLate: false });
});

test('a damaged file of holds is skipped with a message, and its tokens stay counted', () => {
  const run = new Run();
  const id = run.reserve('alice', 60);
  run.write();
  const [name] = holdFiles();
  const bytes = read(name);
  bytes[100] ^= 1;
  writeFileSync(join(directory, name), bytes);
  const next = Run.restored();
  expect(next.result).toMatchObject({ counters: 1, holds: 0 });
  expect(next.result.damageMessages).toEqual([
    `${join(directory, name)} is skipped: it is incomplete`,
  ]);
  expect(next.remaining('alice')).toBe(40);
  expect(next.shards[id.shard].settle(id, 10, NOW)).toBeUndefined();
});

function read(name: string): Buffer {
  return readFileSync(join(directory, name));
}
