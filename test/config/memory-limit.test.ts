/** Memory limits, read from trees of files like those of real machines, and what is made of them. */

import { mkdirSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import fc from 'fast-check';
import { afterAll, describe, expect, test } from 'vitest';
import { loadSettings } from '../../src/config/load.ts';
import { memoryLimit } from '../../src/config/memory-limit.ts';
import { fitThreads, planMemory } from '../../src/config/memory-plan.ts';
import {
  ACCEPTORS_MAX,
  COUNTERS_DEFAULT_MAX,
  COUNTERS_DEFAULT_MIN,
  COUNTERS_MAX,
  COUNTERS_MIN,
  WORKERS_MAX,
} from '../../src/core/constants.ts';
import { removeDirectory, temporaryDirectory } from '../support/server.ts';
import { scaledCount } from '../support/test-scale.ts';

const MIB = 2 ** 20;
const MACHINE = 16 * 1_024 * MIB;
const OF_MACHINE = 'the memory of this machine';

const directory = temporaryDirectory();
afterAll(() => removeDirectory(directory));

let serial = 0;
/** @param files of `/sys/fs/cgroup`, by path. @returns the limit in MiB, and where it stands */
const limitOf = (cgroup: string, files: Record<string, string>): [number, string] => {
  const root = join(directory, String(serial++));
  const all = { 'proc/self/cgroup': cgroup };
  for (const [path, text] of Object.entries(files)) {
    Object.assign(all, { [`sys/fs/cgroup/${path}`]: text });
  }
  for (const [path, text] of Object.entries(all)) {
    mkdirSync(dirname(join(root, path)), { recursive: true });
    writeFileSync(join(root, path), text);
  }
  const { bytes, source } = memoryLimit(root, MACHINE);
  return [bytes / MIB, source.replace(join(root, 'sys/fs/cgroup/'), '')];
};

const UNLIMITED = '9223372036854771712\n';
const bytes = (mib: number) => `${mib * MIB}\n`;

describe('the memory limit', () => {
  const cases: [string, string, Record<string, string>, [number, string]][] = [
    ['v2, a container', '0::/\n', { 'memory.max': bytes(128) }, [128, 'memory.max']],
    [
      'v2, of a group around it, lower than its own',
      '0::/kubepods/pod1/c1\n',
      {
        'kubepods/memory.max': 'max\n',
        'kubepods/pod1/memory.max': bytes(256),
        'kubepods/pod1/c1/memory.max': bytes(512),
      },
      [256, 'kubepods/pod1/memory.max'],
    ],
    ['v2, no limit', '0::/a\n', { 'a/memory.max': 'max\n' }, [16_384, OF_MACHINE]],
    [
      'v1, a group',
      '12:cpu:/m\n4:memory:/a/b\n',
      { 'memory/a/b/memory.limit_in_bytes': bytes(64) },
      [64, 'memory/a/b/memory.limit_in_bytes'],
    ],
    [
      'v1, of a group around it',
      '4:memory:/a/b\n',
      {
        'memory/memory.limit_in_bytes': UNLIMITED,
        'memory/a/memory.limit_in_bytes': bytes(300),
        'memory/a/b/memory.limit_in_bytes': UNLIMITED,
      },
      [300, 'memory/a/memory.limit_in_bytes'],
    ],
    [
      "v1, whose path is the host's",
      '4:memory:/docker/01\n0::/docker/01\n',
      { 'memory/memory.limit_in_bytes': bytes(200) },
      [200, 'memory/memory.limit_in_bytes'],
    ],
    [
      'v1, no limit',
      '4:memory:/\n',
      { 'memory/memory.limit_in_bytes': UNLIMITED },
      [16_384, OF_MACHINE],
    ],
    [
      'v1, of another controller',
      '4:cpu:/a\n',
      { 'memory/a/memory.limit_in_bytes': bytes(64) },
      [16_384, OF_MACHINE],
    ],
    ['larger than the machine', '0::/\n', { 'memory.max': bytes(32_768) }, [16_384, OF_MACHINE]],
    ['none of both', '', {}, [16_384, OF_MACHINE]],
  ];
  test.each(cases)('%s', (_what, cgroup, files, limit) => {
    expect(limitOf(cgroup, files)).toEqual(limit);
  });

  test.each(['', '\n', 'max', '0', '-1', '1e9', '1 2', 'x'])('is not set by %j', (text) => {
    expect(limitOf('0::/a\n', { 'a/memory.max': text })).toEqual([16_384, OF_MACHINE]);
  });
});

const limit = (mib: number) => ({ bytes: mib * MIB, source: '/group/memory.max' });
const anyThreads = fc.record({
  acceptors: fc.integer({ min: 1, max: ACCEPTORS_MAX }),
  workers: fc.integer({ min: 1, max: WORKERS_MAX }),
});
const anyMiB = fc.oneof(fc.integer({ min: 1, max: 1_024 }), fc.integer({ min: 1, max: 65_536 }));
const options = { numRuns: scaledCount(1_000) };

describe('the default number of counters', () => {
  test('is the largest whose full use leaves a quarter of the limit free', () => {
    const property = fc.property(anyMiB, anyThreads, (mib, threads) => {
      const { counters, fullUseBytes, isNearLimit } = planMemory(undefined, threads, limit(mib));
      const share = 0.75 * mib * MIB;
      expect(counters).toBeLessThanOrEqual(COUNTERS_DEFAULT_MAX);
      expect(isNearLimit).toBe(fullUseBytes > share);
      if (isNearLimit) expect(counters).toBe(COUNTERS_DEFAULT_MIN);
      if (counters < COUNTERS_DEFAULT_MAX) {
        const value = counters + COUNTERS_DEFAULT_MIN;
        const given = { source: 'more', value };
        const more = planMemory(given, threads, limit(MACHINE));
        expect(more.fullUseBytes).toBeGreaterThan(share);
      }
    });
    fc.assert(property, options);
  });

  test('does not fall as the limit rises, nor rise with more threads', () => {
    const property = fc.property(anyMiB, anyMiB, anyThreads, (mib, more, threads) => {
      const { acceptors } = threads;
      const counters = (of: number, threads: { acceptors: number; workers: number }) => {
        return planMemory(undefined, threads, limit(of)).counters;
      };
      const chosen = counters(mib, threads);
      expect(counters(mib + more, threads)).toBeGreaterThanOrEqual(chosen);
      expect(counters(mib, { ...threads, acceptors: acceptors + 1 })).toBeLessThanOrEqual(chosen);
    });
    fc.assert(property, options);
  });

  test('goes by the threads that were set', () => {
    const counters = (acceptors: number) => {
      const threads = ['--acceptors', String(acceptors), '--workers', '1'];
      return loadSettings(threads, {}, limit(192))?.counters;
    };
    expect(counters(1)).toBeGreaterThan(counters(2)!);
    expect(counters(8)).toBe(COUNTERS_DEFAULT_MIN);
  });
});

describe('the threads of a start', () => {
  const none = () => false;

  test('take half of the limit at most, and there is one of each at least', () => {
    const property = fc.property(anyMiB, anyThreads, (mib, wanted) => {
      const threads = fitThreads(wanted, none, limit(mib));
      expect(threads.acceptors).toBeLessThanOrEqual(wanted.acceptors);
      expect(threads.workers).toBeLessThanOrEqual(wanted.workers);
      const bytesOf = (of: typeof threads) => {
        const given = { source: 'least', value: COUNTERS_MIN };
        return planMemory(given, of, limit(MACHINE)).fullUseBytes;
      };
      // The least table is no part of it.
      const tableBytes = 2 * MIB;
      const isLeast = threads.acceptors === 1 && threads.workers === 1;
      if (!isLeast) expect(bytesOf(threads) - tableBytes).toBeLessThanOrEqual((mib * MIB) / 2);
      if (bytesOf(wanted) <= (mib * MIB) / 2) expect(threads).toEqual(wanted);
    });
    fc.assert(property, options);
  });

  test('are as many as were set', () => {
    const property = fc.property(anyMiB, anyThreads, (mib, wanted) => {
      expect(fitThreads(wanted, () => true, limit(mib))).toEqual(wanted);
      const one = fitThreads(wanted, (name) => name === 'acceptors', limit(mib));
      expect(one.acceptors).toBe(wanted.acceptors);
    });
    fc.assert(property, options);
    const set = ['--acceptors', '8'];
    expect(loadSettings(set, {}, limit(128))).toMatchObject({ acceptors: 8, workers: 1 });
  });
});

describe('a number of counters that was set', () => {
  test('is taken where it fits, and refused where it cannot', () => {
    const anyCounters = fc.integer({ min: COUNTERS_MIN, max: COUNTERS_MAX });
    const property = fc.property(anyMiB, anyThreads, anyCounters, (mib, threads, value) => {
      const given = { source: 'WEIR_COUNTERS', value };
      const full = planMemory(given, threads, limit(MACHINE)).fullUseBytes;
      const plan = () => planMemory(given, threads, limit(mib));
      if (full > mib * MIB && value > COUNTERS_DEFAULT_MIN) expect(plan).toThrow('WEIR_COUNTERS');
      else expect(plan()).toMatchObject({ counters: value, isTight: full > 0.75 * mib * MIB });
    });
    fc.assert(property, options);
  });

  test('is refused with what was given, what fits, and where the limit stands', () => {
    const threads = { WEIR_ACCEPTORS: '1', WEIR_WORKERS: '1' };
    const path = join(directory, 'weir.json');
    writeFileSync(path, '{"counters": 1048576}');
    const fitting = loadSettings([], threads, limit(128))!.counters;
    const sentence = (source: string) => {
      return new RegExp(
        `^${source} is 1048576, which takes 129 MiB beside \\d+ MiB for the process, and the` +
          ` memory limit is 128 MiB \\(/group/memory.max\\): set at most ${fitting}, or raise` +
          ' the limit$',
      );
    };
    const load = (args: string[], env = {}) => {
      return () => loadSettings(args, { ...threads, ...env }, limit(128));
    };
    expect(load([], { WEIR_COUNTERS: '1048576' })).toThrow(sentence('WEIR_COUNTERS'));
    expect(load(['--counters', '1048576'])).toThrow(sentence('--counters'));
    expect(load(['--config', path])).toThrow(sentence(`"counters" in ${path}`));
  });
});
