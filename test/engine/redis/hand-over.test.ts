import { readdirSync, readFileSync, statSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterEach, expect, test } from 'vitest';
import { SHARDS } from '../../../src/core/constants.ts';
import { RULE } from '../../../src/core/window-rules.ts';
import { takeHandOver, writeHandOver } from '../../../src/engine/redis/hand-over.ts';
import { NO_SLOT } from '../../../src/engine/table/layout.ts';
import { counterKey } from '../../../src/engine/windows/registry.ts';
import {
  brokenInvariants,
  OFFSET_MS,
  START_MS,
  TestLeases,
  testIdentity,
  WINDOW,
} from '../../support/lease-tables.ts';
import { removeDirectory, temporaryDirectory } from '../../support/server.ts';

const ID = testIdentity(1);
const OTHER = testIdentity(2);
const MEMBERS = { members: [['b.0'], ['b.0', 'c.0']] };
const PREDECESSOR = { processId: 'a'.repeat(16), workers: 1, epochs: ['e.1', 'e.2'], ...MEMBERS };
const NOW = START_MS + 10_000;

const directories: string[] = [];
afterEach(() => directories.splice(0).forEach(removeDirectory));

function newDirectory(): string {
  const directory = temporaryDirectory();
  directories.push(directory);
  return directory;
}

/** A machine that knows 30 tokens of others, and has used 12, which Redis may not know. */
function newMachine(): TestLeases {
  const leases = new TestLeases();
  const use = { others: 30, spent: 12, isStored: true, previousSpent: 3, previousKnownUsage: 20 };
  const slot = leases.work(ID, NOW, (state) => Object.assign(state, { ...use, lastLimit: 100 }));
  leases.table.setDirty(leases.table.lockFor(ID), slot, true);
  return leases;
}

const write = (directory: string, leases: TestLeases, worker = 0) => {
  return writeHandOver(directory, worker, PREDECESSOR, [leases.table, new TestLeases().table]);
};

function take(directory: string, leases: TestLeases, monotonicMs = NOW) {
  const tables = Array.from({ length: SHARDS }, () => leases.table);
  return takeHandOver(directory, tables, { unixMs: OFFSET_MS + monotonicMs, monotonicMs });
}

test('the next process knows the usage of all machines, and reports what Redis did not get', async () => {
  const directory = newDirectory();
  await write(directory, newMachine());
  expect(statSync(join(directory, 'usage-0')).mode & 0o777).toBe(0o600);
  const next = new TestLeases();
  expect(take(directory, next)).toEqual({ ...PREDECESSOR, isComplete: true });
  expect(next.read(ID)).toMatchObject({
    ...{ window: WINDOW, spent: 12, others: 30, isStored: true, isInherited: true, lease: 0 },
    ...{ lastLimit: 100, previousSpent: 3, previousUsage: 20, previousKnownUsage: 20 },
  });
  const dirty: number[] = [];
  next.table.forEachDirtySlot((slot) => dirty.push(slot));
  expect(dirty).toHaveLength(1);
  expect(brokenInvariants(next.table)).toEqual([]);
  expect(next.decideLocally(ID, NOW, { cost: 59 }).allowed).toBe(false);
  expect(next.decideLocally(ID, NOW, { cost: 58 }).allowed).toBe(true);
  // It is taken once.
  expect(readdirSync(directory)).toEqual([]);
  expect(take(directory, new TestLeases())).toBeUndefined();
});

test('usage that Redis knows is not reported', async () => {
  const directory = newDirectory();
  const leases = newMachine();
  leases.table.setDirty(leases.table.lockFor(ID), leases.table.find(ID, 60_000), false);
  await write(directory, leases);
  const next = new TestLeases();
  take(directory, next);
  expect(next.read(ID)).toMatchObject({ spent: 12, others: 30 });
  next.table.forEachDirtySlot(() => expect.unreachable());
});

test('the next process has the GCRA buckets', async () => {
  const directory = newDirectory();
  const leases = new TestLeases();
  leases.decideLocally(ID, NOW, { rule: RULE.gcra, cost: 50 });
  await write(directory, leases);
  const next = new TestLeases();
  take(directory, next);
  const gcra = counterKey(RULE.gcra, 60_000);
  const [before, after] = [leases.table, next.table].map((table) => {
    const slot = table.find(ID, gcra);
    return { ...table.readGcra(slot), unreported: table.readUnreported(slot) };
  });
  expect(after).toEqual(before);
  expect(after.unreported).toBe(50);
});

test('counters whose windows have ended are not inserted', async () => {
  const directory = newDirectory();
  await write(directory, newMachine());
  const next = new TestLeases();
  take(directory, next, START_MS + 121_000);
  expect(next.table.find(ID, 60_000)).toBe(NO_SLOT);
});

test('a process takes over the files of several workers, and no epoch on which they differ', async () => {
  const directory = newDirectory();
  await write(directory, newMachine());
  const leases = new TestLeases();
  leases.work(OTHER, NOW, (state) => Object.assign(state, { others: 7 }));
  const two = { ...PREDECESSOR, workers: 2 };
  await writeHandOver(directory, 0, two, [newMachine().table]);
  await writeHandOver(directory, 1, { ...two, epochs: ['e.1', 'e.3'] }, [leases.table]);
  const next = new TestLeases();
  expect(take(directory, next)).toEqual({ ...two, epochs: ['e.1', ''], isComplete: true });
  expect([next.read(ID)?.others, next.read(OTHER)?.others]).toEqual([30, 7]);
});

test('a process of which a file is missing has reported nothing', async () => {
  const directory = newDirectory();
  await writeHandOver(directory, 1, { ...PREDECESSOR, workers: 2 }, [newMachine().table]);
  const nothing = { epochs: ['', ''], isComplete: false };
  expect(take(directory, new TestLeases())).toMatchObject(nothing);
});

test('a file that is cut or changed anywhere is removed, and not used', async () => {
  const directory = newDirectory();
  const path = join(directory, 'usage-0');
  await write(directory, newMachine());
  const bytes = readFileSync(path);
  for (let at = 0; at < bytes.length; at += 3) {
    const changed = Buffer.from(bytes);
    changed[at] ^= 1;
    for (const damaged of [bytes.subarray(0, at), changed]) {
      writeFileSync(path, damaged);
      const next = new TestLeases();
      expect(take(directory, next)).toBeUndefined();
      expect(readdirSync(directory)).toEqual([]);
      expect(next.table.find(ID, 60_000)).toBe(NO_SLOT);
    }
  }
});
