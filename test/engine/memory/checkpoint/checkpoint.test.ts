/** Counters that go to files and come back: whole, cut, damaged, into other tables. */

import { execFileSync } from 'node:child_process';
import {
  closeSync,
  existsSync,
  lstatSync,
  mkdirSync,
  openSync,
  readdirSync,
  readFileSync,
  readSync,
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
import { TABLE_HEADER } from '../../../../src/engine/memory/layout.ts';
import { removeDirectory, temporaryDirectory } from '../../../support/server.ts';
import { scaledCount } from '../../../support/test-scale.ts';
import { TestTables } from '../../../support/test-tables.ts';

const NOW = 1_700_000_000_000;
const MINUTE = 60_000;
const KEY = fingerprintOf(Buffer.from('0123456789abcdef'));
const FOR_EVER = Number.POSITIVE_INFINITY;

let directory: string;
beforeEach(() => {
  directory = temporaryDirectory();
});
afterEach(() => removeDirectory(directory));

class AllCheckpointWriters {
  readonly checkpointers: CheckpointWriter[];

  constructor({ tables }: TestTables, key = KEY) {
    const part = new CheckpointBuffer();
    this.checkpointers = tables.map((table) => {
      return new CheckpointWriter(table, 1, directory, key, part, {
        heartbeat() {},
        setWaitingForDisk() {},
      });
    });
  }

  /** Writes all shards that are behind. @returns how many were */
  writeBehind(now = NOW): number {
    const behind = this.checkpointers.filter((checkpointer) => checkpointer.hasChanges());
    for (const checkpointer of behind) {
      checkpointer.begin(now);
      while (!checkpointer.writePart(now));
    }
    return behind.length;
  }
}

const restore = (tables: TestTables, now = NOW, key = KEY, latest = FOR_EVER) => {
  return new CheckpointLoader(directory, key, latest).restoreInto(tables.tables, now);
};

const usageOf = (tables: TestTables, identifier: string, now = NOW, duration = MINUTE) => {
  return 10 - tables.decide(identifier, { cost: 0, now, duration }).remaining;
};

describe('counters', () => {
  test('come back with what was used, in both windows, and with their durations', () => {
    const tables = new TestTables(COUNTERS_MIN);
    const users = Array.from({ length: 900 }, (_, i) => ({ name: `user_${i}`, cost: 1 + (i % 9) }));
    for (const { name, cost } of users) tables.decide(name, { cost, now: NOW - MINUTE });
    for (const { name } of users) tables.decide(name);
    tables.decide('user_0', { cost: 7, duration: 5_000 });
    new AllCheckpointWriters(tables).writeBehind();
    const again = new TestTables(COUNTERS_MIN);
    expect(restore(again)).toEqual({ counters: 901, lostCounters: 0, damageMessages: [] });
    for (const { name } of users) {
      expect(usageOf(again, name)).toBe(1);
      // The window before lets the sliding one admit less, by its share.
      const options = { limit: 20, rule: RULE.sliding, cost: 0 };
      expect(again.decide(name, options)).toEqual(tables.decide(name, options));
    }
    expect(usageOf(again, 'user_0', NOW, 5_000)).toBe(7);
    expect(again.countLive(NOW)).toBe(901);
  });

  test('that are expired stay behind, when they are written and when they are read', () => {
    const tables = new TestTables(COUNTERS_MIN);
    for (let i = 0; i < 50; i++) tables.decide(`short_${i}`, { duration: 1_000 });
    for (let i = 0; i < 50; i++) tables.decide(`middle_${i}`, { duration: 10_000 });
    for (let i = 0; i < 50; i++) tables.decide(`long_${i}`);
    new AllCheckpointWriters(tables).writeBehind(NOW + 5_000);
    const sizes = readdirSync(directory).map((name) => statSync(join(directory, name)).size);
    expect(sizes.reduce((sum, size) => sum + size - 64, 0)).toBe(100 * 64);
    expect(restore(new TestTables(COUNTERS_MIN), NOW + 30_000).counters).toBe(50);
  });

  test('go into a table of another capacity, and from files of other shards', () => {
    const tables = new TestTables(COUNTERS_MIN);
    for (let i = 0; i < 1_000; i++) tables.decide(`user_${i}`, { cost: 3 });
    new AllCheckpointWriters(tables).writeBehind();
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
    expect(restore(larger)).toEqual({ counters: 1_000, lostCounters: 0, damageMessages: [] });
    for (let i = 0; i < 1_000; i++) expect(usageOf(larger, `user_${i}`)).toBe(3);
  });

  test('that find no room in a smaller table are counted, and all others are there', () => {
    const tables = new TestTables(8_192);
    for (let i = 0; i < 8_000; i++) tables.decide(`user_${i}`, { cost: 3 });
    new AllCheckpointWriters(tables).writeBehind();
    const smaller = new TestTables(COUNTERS_MIN);
    const { counters, lostCounters, damageMessages } = restore(smaller);
    expect(lostCounters).toBeGreaterThan(3_000);
    expect([damageMessages, smaller.countLive(NOW) + lostCounters]).toEqual([[], 8_000]);
    expect(counters).toBeGreaterThanOrEqual(smaller.countLive(NOW));
  });

  test('that were refused keep their places as before', () => {
    const refuse = (tables: TestTables) =>
      tables.decide('refused', { cost: 11 - usageOf(tables, 'refused') });
    const tables = new TestTables(COUNTERS_MIN);
    tables.decide('refused', { cost: 1 });
    expect(refuse(tables).allowed).toBe(false);
    new AllCheckpointWriters(tables).writeBehind();
    const again = new TestTables(COUNTERS_MIN);
    restore(again);
    // Others fill the table ten times over, each with more of its limit used.
    for (let i = 0; i < 10 * COUNTERS_MIN; i++) again.decide(`user_${i}`, { cost: 9 });
    expect(again.evicted).toBeGreaterThan(COUNTERS_MIN);
    expect(usageOf(again, 'refused')).toBe(1);
  });

  test('equal those of the table, whatever was decided, in any number of checkpoints', () => {
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
          if (writes) written.writeBehind(now);
        }
        written.writeBehind(now + 1);
        const again = new TestTables(COUNTERS_MIN);
        restore(again, now + 1);
        for (const { identifier, duration, limit } of steps) {
          const read = (from: TestTables) => from.inspect(identifier, duration, undefined, now + 1);
          const byRule = (from: TestTables) => read(from).toSorted((a, b) => a.rule - b.rule);
          expect(byRule(again)).toEqual(byRule(tables));
          for (const rule of [RULE.sliding, RULE.gcra]) {
            const look = { cost: 0, duration, limit, now: now + 1, rule };
            expect(again.decide(identifier, look)).toEqual(tables.decide(identifier, look));
          }
        }
      }),
      { numRuns: scaledCount(100) },
    );
  });
});

describe('a shard', () => {
  test('in which nothing was decided is not written again, and one that was is', () => {
    const tables = new TestTables(COUNTERS_MIN);
    const written = new AllCheckpointWriters(tables);
    // Once, since nobody knows what the worker before has finished.
    expect([written.writeBehind(), written.writeBehind()]).toEqual([16, 0]);
    tables.decide('a');
    expect([written.writeBehind(), written.writeBehind()]).toEqual([1, 0]);
    // By a thread that read the clock long ago, too.
    tables.decide('a', { now: NOW - MINUTE });
    expect([written.writeBehind(NOW + 1), written.writeBehind(NOW + 2)]).toEqual([1, 0]);
    const again = new TestTables(COUNTERS_MIN);
    restore(again);
    expect(usageOf(again, 'a')).toBe(2);
  });
});

describe('a checkpoint', () => {
  /** One shard with a checkpoint of one token, and one of two. */
  function writeTwo(identifier = 'a') {
    const tables = new TestTables(COUNTERS_MIN);
    const written = new AllCheckpointWriters(tables);
    for (let i = 1; i <= 2; i++) {
      tables.decide(identifier);
      for (let other = 0; other < 20; other++) tables.decide(`${identifier} ${other}`);
      written.writeBehind(NOW + i);
    }
    const names = readdirSync(directory);
    const shard = tables.tables.findIndex(({ words }) => words[TABLE_HEADER.checkpoint] === 2);
    expect(shard).toBeGreaterThanOrEqual(0);
    return { tables, written, names };
  }

  test('that was cut anywhere is left out with a warning, and the one before is taken', () => {
    const { tables } = writeTwo();
    tables.decide('a', { cost: 0 });
    const [shard] = tables.tables.flatMap(({ words }, i) =>
      words[TABLE_HEADER.checkpoint] > 0 ? [i] : [],
    );
    const last = join(directory, `counters-${shard}.0`);
    const bytes = readFileSync(last);
    const count = (checkpoint: Buffer) => {
      writeFileSync(last, checkpoint);
      const { counters, damageMessages } = restore(new TestTables(COUNTERS_MIN));
      return { counters, damage: damageMessages };
    };
    const whole = count(bytes);
    expect(whole.damage).toEqual([]);
    for (let length = 0; length < bytes.length; length += length < 64 ? 1 : 7) {
      const { counters, damage } = count(bytes.subarray(0, length));
      expect([length, damage.length]).toEqual([length, 1]);
      expect(damage[0]).toContain(last);
      expect(counters).toBe(whole.counters);
    }
  });

  test('of which any bit flips is left out with a warning, and the one before is taken', () => {
    const { tables } = writeTwo();
    const [shard] = tables.tables.flatMap(({ words }, i) =>
      words[TABLE_HEADER.checkpoint] > 0 ? [i] : [],
    );
    const last = join(directory, `counters-${shard}.0`);
    const bytes = readFileSync(last);
    // Every bit of the header, and some of all entries.
    for (let bit = 0; bit < bytes.length * 8; bit += bit < 512 ? 1 : 37) {
      const flipped = Buffer.from(bytes);
      flipped[bit >> 3] ^= 1 << (bit & 7);
      writeFileSync(last, flipped);
      const lastRun = new CheckpointLoader(directory, KEY, FOR_EVER);
      // Nor is weir's time taken from it.
      expect([bit, lastRun.latestStartedMs <= NOW + 2]).toEqual([bit, true]);
      const { counters, damageMessages } = lastRun.restoreInto(
        new TestTables(COUNTERS_MIN).tables,
        NOW,
      );
      expect([bit, damageMessages.length, existsSync(last)]).toEqual([bit, 1, false]);
      expect(counters).toBeGreaterThan(0);
    }
  });

  test('that is begun and not finished leaves the one before in force', () => {
    const { tables, written } = writeTwo();
    tables.decide('a', { now: NOW + 5 });
    for (const checkpointer of written.checkpointers) {
      checkpointer.begin(NOW + 6);
      checkpointer.abandon();
    }
    const again = new TestTables(COUNTERS_MIN);
    // Of the shards that had one checkpoint only, the second was never finished.
    for (const sentence of restore(again).damageMessages)
      expect(sentence).toContain('it is truncated');
    expect(usageOf(again, 'a')).toBe(2);
  });

  test('torn while it was written over an older one is no loss', () => {
    const { tables, names } = writeTwo();
    // The header of the older one, over entries of the next: as a worker leaves it that is killed.
    for (const name of names.filter((name) => name.endsWith('.1'))) {
      const file = openSync(join(directory, name), 'r+');
      writeSync(file, Buffer.alloc(64, 0x5a), 0, 64, 64);
      closeSync(file);
    }
    const again = new TestTables(COUNTERS_MIN);
    const { damageMessages } = restore(again);
    expect(damageMessages.length).toBeLessThan(names.length);
    expect(usageOf(again, 'a')).toBe(usageOf(tables, 'a'));
  });

  test('that is something else, and cannot be removed, is left out and said so; no start fails', () => {
    const { tables } = writeTwo();
    const shard = tables.tables.findIndex(({ words }) => words[TABLE_HEADER.checkpoint] === 2);
    const last = join(directory, `counters-${shard}.0`);
    rmSync(last);
    mkdirSync(last);
    writeFileSync(join(last, 'a file of somebody'), '');
    const again = new TestTables(COUNTERS_MIN);
    const sentences = restore(again).damageMessages.filter((sentence) => sentence.startsWith(last));
    expect(sentences.map((sentence) => sentence.slice(last.length))).toEqual([
      expect.stringContaining(' is skipped: '),
      expect.stringContaining(' cannot be removed: '),
    ]);
    expect(readdirSync(last)).toEqual(['a file of somebody']);
    expect(again.countLive(NOW)).toBeGreaterThan(0);
  });

  test.each(['a symbolic link', 'a FIFO'])(
    'in whose place is %s is neither followed nor waited for, and is replaced',
    (kind) => {
      const { tables, written } = writeTwo();
      const shard = tables.tables.findIndex(({ words }) => words[TABLE_HEADER.checkpoint] === 2);
      const last = join(directory, `counters-${shard}.0`);
      const aside = join(directory, 'aside');
      renameSync(last, aside);
      const bytes = readFileSync(aside);
      if (kind === 'a FIFO') execFileSync('mkfifo', [last]);
      else symlinkSync(aside, last);
      const again = new TestTables(COUNTERS_MIN);
      const { damageMessages } = restore(again);
      expect(damageMessages).toEqual([`${last} is skipped: it is ${kind}, not a regular file`]);
      expect(again.countLive(NOW)).toBeGreaterThan(0);
      expect([existsSync(last), readFileSync(aside).equals(bytes)]).toEqual([false, true]);
      for (let i = 0; i < 2; i++) {
        for (let other = 0; other < 200; other++) tables.decide(`other_${other}`);
        written.writeBehind(NOW + 3 + i);
      }
      expect(lstatSync(last).isFile()).toBe(true);
    },
  );

  test('is not written through a symbolic link, and its counters stay owed', () => {
    const tables = new TestTables(COUNTERS_MIN);
    const written = new AllCheckpointWriters(tables);
    written.writeBehind();
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

  test('of version 1, which had windows only, is restored', () => {
    const { tables } = writeTwo();
    for (const name of readdirSync(directory)) {
      const file = openSync(join(directory, name), 'r+');
      const header = Buffer.alloc(64);
      readSync(file, header, 0, 64, 0);
      header.writeInt32LE(1, 4);
      header.writeInt32LE(crc32(header.subarray(0, 60)) | 0, 60);
      writeSync(file, header, 0, 64, 0);
      closeSync(file);
    }
    const again = new TestTables(COUNTERS_MIN);
    expect(restore(again).damageMessages).toEqual([]);
    expect(usageOf(again, 'a')).toBe(usageOf(tables, 'a'));
    expect(again.countLive(NOW)).toBe(tables.countLive(NOW));
  });

  test('of another store, another version or a far future is left out, with a sentence', () => {
    writeTwo();
    const files = readdirSync(directory).length;
    expect(files).toBeGreaterThan(16);
    const other = fingerprintOf(Buffer.from('fedcba9876543210'));
    const of = (key = KEY, latest = FOR_EVER) => {
      const { counters, damageMessages } = restore(new TestTables(COUNTERS_MIN), NOW, key, latest);
      return {
        counters,
        sentences: [...new Set(damageMessages.map((text) => text.replace(/.*: /, '')))],
        n: damageMessages.length,
      };
    };
    expect(of(other)).toEqual({
      counters: 0,
      sentences: ['its counters belong to another store'],
      n: files,
    });
    // What is left out is removed, so that it is never taken for the newest again.
    expect(readdirSync(directory)).toEqual([]);
    writeTwo();
    expect(of(KEY, NOW - MINUTE)).toEqual({
      counters: 0,
      sentences: ["its time is far ahead of this machine's clock"],
      n: files,
    });
    writeTwo();
    for (const name of readdirSync(directory)) {
      const file = openSync(join(directory, name), 'r+');
      writeSync(file, Buffer.from([9]), 0, 1, 4);
      closeSync(file);
    }
    expect(of().sentences).toEqual(['it has version 9; accepted are 1 to 2']);
  });
});
