/** Checkpoints: writing, restoring into other tables, and truncated or damaged files. */

import { execFileSync } from 'node:child_process';
import {
  closeSync,
  existsSync,
  lstatSync,
  mkdirSync,
  openSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  statSync,
  symlinkSync,
  truncateSync,
  writeFileSync,
  writeSync,
} from 'node:fs';
import { join } from 'node:path';
import { crc32 } from 'node:zlib';
import fc from 'fast-check';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { COUNTERS_MIN } from '../../../../src/core/constants.ts';
import { RULE } from '../../../../src/core/window-rules.ts';
import { fingerprintOf } from '../../../../src/engine/memory/checkpoint/format.ts';
import { CheckpointLoader } from '../../../../src/engine/memory/checkpoint/loader.ts';
import {
  CheckpointBuffer,
  CheckpointWriter,
} from '../../../../src/engine/memory/checkpoint/writer.ts';
import { CHECKPOINT_AT } from '../../../../src/engine/memory/layout.ts';
import { trialCount } from '../../../support/guarantees.ts';
import { removeDirectory, temporaryDirectory } from '../../../support/server.ts';
import { TestTables } from '../../../support/test-tables.ts';

const NOW = 1_700_000_000_000;
const MINUTE = 60_000;
const KEY = fingerprintOf(Buffer.from('0123456789abcdef'));
const KEY_OF_OTHER = fingerprintOf(Buffer.from('fedcba9876543210'));
const NO_LATEST_TIME = Number.POSITIVE_INFINITY;

let directory: string;
let tables: TestTables;
/** Other tables, into which a checkpoint is restored. */
let restored: TestTables;
beforeEach(() => {
  directory = temporaryDirectory();
  tables = new TestTables(COUNTERS_MIN);
  restored = new TestTables(COUNTERS_MIN);
});
afterEach(() => removeDirectory(directory));

class AllCheckpointWriters {
  readonly checkpointers: CheckpointWriter[];

  constructor({ tables, holdTables }: TestTables, key = KEY) {
    const buffer = new CheckpointBuffer();
    this.checkpointers = tables.map((table, shard) => {
      return new CheckpointWriter(table, holdTables[shard], 1, directory, key, buffer, {
        heartbeat() {},
        setWaitingForDisk() {},
      });
    });
  }

  /** Writes all shards with changes. @returns the number of written shards */
  writeChanged(now = NOW): number {
    const changed = this.checkpointers.filter((checkpointer) => checkpointer.hasChanges());
    for (const checkpointer of changed) {
      checkpointer.begin(now);
      while (!checkpointer.writePart(now));
    }
    return changed.length;
  }
}

const restore = (tables: TestTables, now = NOW, key = KEY, latest = NO_LATEST_TIME) => {
  return new CheckpointLoader(directory, key, latest).restoreInto(
    tables.tables,
    tables.holdTables,
    now,
  );
};

const usageOf = (tables: TestTables, identifier: string, now = NOW, duration = MINUTE) => {
  return 10 - tables.decide(identifier, { cost: 0, now, duration }).remaining;
};

describe('counters', () => {
  test('that have expired are neither written nor restored', () => {
    for (let i = 0; i < 50; i++) tables.decide(`short_${i}`, { duration: 1_000 });
    for (let i = 0; i < 50; i++) tables.decide(`middle_${i}`, { duration: 10_000 });
    for (let i = 0; i < 50; i++) tables.decide(`long_${i}`);
    new AllCheckpointWriters(tables).writeChanged(NOW + 5_000);
    const sizes = readdirSync(directory).map((name) => statSync(join(directory, name)).size);
    expect(sizes.reduce((sum, size) => sum + size - 64, 0)).toBe(100 * 64);
    expect(restore(new TestTables(COUNTERS_MIN), NOW + 30_000).counters).toBe(50);
  });

  test('are restored into tables of another capacity, and from files of other shards', () => {
    for (let i = 0; i < 1_000; i++) tables.decide(`user_${i}`, { cost: 3 });
    new AllCheckpointWriters(tables).writeChanged();
    for (const name of readdirSync(directory)) {
      renameSync(
        join(directory, name),
        join(
          directory,
          name.replace(/-\d+/, (n) => `${n}7`),
        ),
      );
    }
    const larger = new TestTables(65_536);
    expect(restore(larger)).toEqual({
      counters: 1_000,
      lostCounters: 0,
      holds: 0,
      lostHolds: 0,
      damageMessages: [],
    });
    for (let i = 0; i < 1_000; i++) expect(usageOf(larger, `user_${i}`)).toBe(3);
  });

  test('without a slot in a smaller table are counted as lost, and all others are restored', () => {
    tables = new TestTables(8_192);
    for (let i = 0; i < 8_000; i++) tables.decide(`user_${i}`, { cost: 3 });
    new AllCheckpointWriters(tables).writeChanged();
    const smaller = new TestTables(COUNTERS_MIN);
    const { counters, lostCounters, damageMessages } = restore(smaller);
    expect(lostCounters).toBeGreaterThan(3_000);
    expect([damageMessages, smaller.countLive(NOW) + lostCounters]).toEqual([[], 8_000]);
    expect(counters).toBeGreaterThanOrEqual(smaller.countLive(NOW));
  });

  test('that denied a check are still protected from eviction after a restore', () => {
    tables.decide('denied', { cost: 1 });
    expect(tables.decide('denied', { cost: 10 }).allowed).toBe(false);
    new AllCheckpointWriters(tables).writeChanged();
    restore(restored);
    // Ten times the capacity of other counters, each with a higher usage.
    for (let i = 0; i < 10 * COUNTERS_MIN; i++) restored.decide(`user_${i}`, { cost: 9 });
    expect(restored.evicted).toBeGreaterThan(COUNTERS_MIN);
    expect(usageOf(restored, 'denied')).toBe(1);
  });

  test('equal those of the table after any decisions and any number of checkpoints', () => {
    const step = fc.record({
      identifier: fc.integer({ min: 0, max: 40 }).map((i) => `user_${i}`),
      cost: fc.integer({ min: 0, max: 4 }),
      duration: fc.constantFrom(1_000, 5_000, MINUTE),
      later: fc.integer({ min: 0, max: 700 }),
      rule: fc.constantFrom(RULE.fixed, RULE.sliding, RULE.gcra),
      limit: fc.constantFrom(3, 10, 7_000_000_000_000_003),
      writes: fc.boolean(),
    });
    fc.assert(
      fc.property(fc.array(step, { minLength: 1, maxLength: 60 }), (steps) => {
        for (const name of readdirSync(directory)) truncateSync(join(directory, name), 0);
        const tables = new TestTables(COUNTERS_MIN);
        const written = new AllCheckpointWriters(tables);
        let now = NOW;
        for (const { later, writes, identifier, ...check } of steps) {
          now += later;
          tables.decide(identifier, { ...check, now });
          if (writes) written.writeChanged(now);
        }
        written.writeChanged(now + 1);
        const restored = new TestTables(COUNTERS_MIN);
        restore(restored, now + 1);
        for (const { identifier, duration, limit } of steps) {
          const read = (from: TestTables) => from.inspect(identifier, duration, undefined, now + 1);
          const byRule = (from: TestTables) => read(from).toSorted((a, b) => a.rule - b.rule);
          expect(byRule(restored)).toEqual(byRule(tables));
          for (const rule of [RULE.sliding, RULE.gcra]) {
            const inspection = { cost: 0, duration, limit, now: now + 1, rule };
            expect(restored.decide(identifier, inspection)).toEqual(
              tables.decide(identifier, inspection),
            );
          }
        }
      }),
      { numRuns: trialCount(40, 100) },
    );
  });
});

describe('a shard', () => {
  test('is written again only after a decision in it', () => {
    const written = new AllCheckpointWriters(tables);
    // All shards are written once, because the state of the previous worker is unknown.
    expect([written.writeChanged(), written.writeChanged()]).toEqual([16, 0]);
    tables.decide('a');
    expect([written.writeChanged(), written.writeChanged()]).toEqual([1, 0]);
    // A decision with an old clock reading counts too.
    tables.decide('a', { now: NOW - MINUTE });
    expect([written.writeChanged(NOW + 1), written.writeChanged(NOW + 2)]).toEqual([1, 0]);
    restore(restored);
    expect(usageOf(restored, 'a')).toBe(2);
  });
});

describe('a checkpoint', () => {
  test('of few counters in each of many groups is written in short parts', () => {
    tables = new TestTables(524_288);
    for (let i = 0; i < 40_000; i++) tables.decide(`user_${i}`);
    const [writer] = new AllCheckpointWriters(tables).checkpointers;
    writer.begin(NOW);
    let parts = 1;
    while (!writer.writePart(NOW)) parts++;
    // 256 groups, and a part of one size more where some are empty.
    expect(parts).toBeGreaterThanOrEqual(2);
    expect(parts).toBeLessThanOrEqual(3);
  });

  /** Writes two checkpoints: in one shard, the first has one token and the second has two. */
  function writeTwo(identifier = 'a') {
    const written = new AllCheckpointWriters(tables);
    for (let i = 1; i <= 2; i++) {
      tables.decide(identifier);
      for (let other = 0; other < 20; other++) tables.decide(`${identifier} ${other}`);
      written.writeChanged(NOW + i);
    }
    const names = readdirSync(directory);
    const shard = tables.tables.findIndex(({ words }) => words[CHECKPOINT_AT] === 2);
    expect(shard).toBeGreaterThanOrEqual(0);
    const last = join(directory, `counters-${shard}.0`);
    return { written, names, last };
  }

  /** Cut at every length of the header, and flipped in every third bit of it; a sample of the rest. */
  function* damagedCopies(bytes: Buffer): Generator<[string, Buffer]> {
    for (let length = 0; length < bytes.length; length += length < 64 ? 1 : 7) {
      yield [`${length} bytes`, bytes.subarray(0, length)];
    }
    for (let bit = 0; bit < bytes.length * 8; bit += bit < 512 ? 3 : 211) {
      const flipped = Buffer.from(bytes);
      flipped[bit >> 3] ^= 1 << (bit & 7);
      yield [`bit ${bit}`, flipped];
    }
  }

  test('that is cut anywhere or has a flipped bit is skipped, and the previous one is restored', () => {
    const { last } = writeTwo();
    const bytes = readFileSync(last);
    const whole = restore(new TestTables(COUNTERS_MIN));
    expect(whole.damageMessages).toEqual([]);
    for (const [damage, copy] of damagedCopies(bytes)) {
      writeFileSync(last, copy);
      const lastRun = new CheckpointLoader(directory, KEY, NO_LATEST_TIME);
      // Its time is not used either.
      expect([damage, lastRun.latestStartedMs <= NOW + 2]).toEqual([damage, true]);
      const into = new TestTables(COUNTERS_MIN);
      const { counters, damageMessages } = lastRun.restoreInto(into.tables, into.holdTables, NOW);
      expect([damage, counters, existsSync(last)]).toEqual([damage, whole.counters, false]);
      expect([damage, damageMessages]).toEqual([damage, [expect.stringContaining(last)]]);
    }
  });

  test('that is not finished leaves the previous one active', () => {
    const { written } = writeTwo();
    tables.decide('a', { now: NOW + 5 });
    for (const checkpointer of written.checkpointers) {
      checkpointer.begin(NOW + 6);
      checkpointer.abandon();
    }
    // In shards with one checkpoint, the second file is unfinished.
    for (const message of restore(restored).damageMessages)
      expect(message).toContain('it is truncated');
    expect(usageOf(restored, 'a')).toBe(2);
  });

  test('torn while it replaces an older one loses no counters', () => {
    const { names } = writeTwo();
    // The header of the old checkpoint with entries of the new one, as after a killed worker.
    for (const name of names.filter((name) => name.endsWith('.1'))) {
      const file = openSync(join(directory, name), 'r+');
      writeSync(file, Buffer.alloc(64, 0x5a), 0, 64, 64);
      closeSync(file);
    }
    const { damageMessages } = restore(restored);
    expect(damageMessages.length).toBeLessThan(names.length);
    expect(usageOf(restored, 'a')).toBe(usageOf(tables, 'a'));
  });

  test('path with a directory that cannot be removed is reported and skipped, and the start succeeds', () => {
    const { last } = writeTwo();
    rmSync(last);
    mkdirSync(last);
    writeFileSync(join(last, 'an unrelated file'), '');
    const messages = restore(restored).damageMessages.filter((message) => message.startsWith(last));
    expect(messages.map((message) => message.slice(last.length))).toEqual([
      expect.stringContaining(' is skipped: '),
      expect.stringContaining(' cannot be removed: '),
    ]);
    expect(readdirSync(last)).toEqual(['an unrelated file']);
    expect(restored.countLive(NOW)).toBeGreaterThan(0);
  });

  test.each(['a symbolic link', 'a FIFO'])(
    'path with %s is skipped without following it or blocking, and is replaced',
    (kind) => {
      const { written, last } = writeTwo();
      const aside = join(directory, 'aside');
      renameSync(last, aside);
      const bytes = readFileSync(aside);
      if (kind === 'a FIFO') execFileSync('mkfifo', [last]);
      else symlinkSync(aside, last);
      const { damageMessages } = restore(restored);
      expect(damageMessages).toEqual([`${last} is skipped: it is ${kind}, not a regular file`]);
      expect(restored.countLive(NOW)).toBeGreaterThan(0);
      expect([existsSync(last), readFileSync(aside).equals(bytes)]).toEqual([false, true]);
      for (let i = 0; i < 2; i++) {
        for (let other = 0; other < 200; other++) tables.decide(`other_${other}`);
        written.writeChanged(NOW + 3 + i);
      }
      expect(lstatSync(last).isFile()).toBe(true);
    },
  );

  test('is not written through a symbolic link, and its shard still has changes', () => {
    const written = new AllCheckpointWriters(tables);
    written.writeChanged();
    tables.decide('a');
    const [checkpointer] = written.checkpointers.filter((one) => one.hasChanges());
    const target = join(directory, 'target');
    writeFileSync(target, 'precious');
    const names = readdirSync(directory).filter((name) => name.startsWith('counters-'));
    expect(names.every((name) => name.endsWith('.1'))).toBe(true);
    for (const name of names) symlinkSync(target, join(directory, name.replace('.1', '.0')));
    expect(() => checkpointer.begin(NOW)).toThrow(expect.objectContaining({ code: 'ELOOP' }));
    expect([checkpointer.hasChanges(), readFileSync(target, 'utf8')]).toEqual([true, 'precious']);
  });

  /** Gives all checkpoints another version, with a valid checksum. */
  function setVersion(version: number): void {
    for (const name of readdirSync(directory)) {
      const bytes = readFileSync(join(directory, name));
      bytes.writeInt32LE(version, 4);
      bytes.writeInt32LE(crc32(bytes.subarray(0, 60)) | 0, 60);
      writeFileSync(join(directory, name), bytes);
    }
  }

  test('of version 1, which has window counters only, is restored', () => {
    writeTwo();
    setVersion(1);
    expect(restore(restored).damageMessages).toEqual([]);
    expect(usageOf(restored, 'a')).toBe(usageOf(tables, 'a'));
    expect(restored.countLive(NOW)).toBe(tables.countLive(NOW));
  });

  test.each([
    ['another store', KEY_OF_OTHER, NO_LATEST_TIME, 2, 'its entries belong to another store'],
    ['a far future', KEY, NOW - MINUTE, 2, "its time is far ahead of this machine's clock"],
    ['a later version', KEY, NO_LATEST_TIME, 9, 'it has version 9; accepted are 1 to 2'],
  ])('of %s is skipped with a message, and removed', (_, key, latest, version, reason) => {
    const { names } = writeTwo();
    expect(names.length).toBeGreaterThan(16);
    setVersion(version);
    const { counters, damageMessages } = restore(new TestTables(COUNTERS_MIN), NOW, key, latest);
    expect(counters).toBe(0);
    const reasons = damageMessages.map((text) => text.replace(/.*: /, ''));
    expect(reasons).toEqual(names.map(() => reason));
    // So that a later start does not read them again.
    expect(readdirSync(directory)).toEqual([]);
  });
});
