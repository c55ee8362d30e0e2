import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import fc from 'fast-check';
import { afterAll, describe, expect, test } from 'vitest';
import { loadSettings } from '../../src/config/load.ts';
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

const MIB = 2 ** 20;
const MACHINE = 16 * 1_024 * MIB;

const directory = temporaryDirectory();
afterAll(() => removeDirectory(directory));

const limit = (mib: number) => ({ bytes: mib * MIB, source: '/group/memory.max' });
const anyThreads = fc.record({
  acceptors: fc.integer({ min: 1, max: ACCEPTORS_MAX }),
  workers: fc.integer({ min: 1, max: WORKERS_MAX }),
});
const anyMiB = fc.oneof(fc.integer({ min: 1, max: 1_024 }), fc.integer({ min: 1, max: 65_536 }));
const options = { numRuns: 1_000 };

describe('the default number of counters', () => {
  test('is the largest number whose full use leaves a quarter of the limit free', () => {
    const property = fc.property(anyMiB, anyThreads, (mib, threads) => {
      const { counters, fullUseBytes, isNearLimit } = planMemory(undefined, threads, limit(mib));
      const share = 0.75 * mib * MIB;
      expect(counters).toBeLessThanOrEqual(COUNTERS_DEFAULT_MAX);
      expect(isNearLimit).toBe(fullUseBytes > share);
      if (isNearLimit) expect(counters).toBe(COUNTERS_DEFAULT_MIN);
      if (counters < COUNTERS_DEFAULT_MAX) {
        const value = counters + COUNTERS_DEFAULT_MIN;
        const larger = planMemory({ source: 'test', value }, threads, limit(MACHINE));
        expect(larger.fullUseBytes).toBeGreaterThan(share);
      }
    });
    fc.assert(property, options);
  });

  test('is smaller with Redis, whose slots and connections take more memory', () => {
    const redis = { WEIR_ENGINE: 'redis', WEIR_REDIS_URL: 'redis://a' };
    const counters = (env: Record<string, string>) => {
      return loadSettings([], { WEIR_ACCEPTORS: '1', WEIR_WORKERS: '1', ...env }, limit(256))!
        .counters;
    };
    expect(counters(redis)).toBeLessThan(counters({}) / 2);
    expect(() => loadSettings([], { ...redis, WEIR_COUNTERS: '1048576' }, limit(256))).toThrow(
      'WEIR_COUNTERS is 1048576, which takes 38',
    );
    const bytesOfWorker = (engine: 'memory' | 'redis') => {
      const [one, two] = [1, 2].map((workers) => {
        return planMemory(undefined, { acceptors: 1, workers }, limit(16_384), engine).fullUseBytes;
      });
      return two - one;
    };
    expect(bytesOfWorker('redis') - bytesOfWorker('memory')).toBe(16 * MIB);
  });

  test('depends on the configured number of threads', () => {
    const counters = (acceptors: number) => {
      const threads = ['--acceptors', String(acceptors), '--workers', '1'];
      return loadSettings(threads, {}, limit(192))?.counters;
    };
    expect(counters(1)).toBeGreaterThan(counters(2)!);
    expect(counters(8)).toBe(COUNTERS_DEFAULT_MIN);
  });
});

describe('the default numbers of threads', () => {
  const none = () => false;

  test('need at most half of the limit, unless there is only one thread of each kind', () => {
    const property = fc.property(anyMiB, anyThreads, (mib, initial) => {
      const threads = fitThreads(initial, none, limit(mib));
      expect(threads.acceptors).toBeLessThanOrEqual(initial.acceptors);
      expect(threads.workers).toBeLessThanOrEqual(initial.workers);
      const bytesOf = (counts: typeof threads) => {
        const smallest = { source: 'test', value: COUNTERS_MIN };
        return planMemory(smallest, counts, limit(MACHINE)).fullUseBytes;
      };
      // Without the smallest table.
      const tableBytes = 2 * MIB;
      const isMinimal = threads.acceptors === 1 && threads.workers === 1;
      if (!isMinimal) expect(bytesOf(threads) - tableBytes).toBeLessThanOrEqual((mib * MIB) / 2);
      if (bytesOf(initial) <= (mib * MIB) / 2) expect(threads).toEqual(initial);
    });
    fc.assert(property, options);
  });

  test('are not changed if they are configured', () => {
    const property = fc.property(anyMiB, anyThreads, (mib, initial) => {
      expect(fitThreads(initial, () => true, limit(mib))).toEqual(initial);
      const one = fitThreads(initial, (name) => name === 'acceptors', limit(mib));
      expect(one.acceptors).toBe(initial.acceptors);
    });
    fc.assert(property, options);
    const args = ['--acceptors', '8'];
    expect(loadSettings(args, {}, limit(128))).toMatchObject({ acceptors: 8, workers: 1 });
  });
});

describe('a configured number of counters', () => {
  test('is used if it fits and rejected if it does not', () => {
    const anyCounters = fc.integer({ min: COUNTERS_MIN, max: COUNTERS_MAX });
    const property = fc.property(anyMiB, anyThreads, anyCounters, (mib, threads, value) => {
      const configured = { source: 'WEIR_COUNTERS', value };
      const full = planMemory(configured, threads, limit(MACHINE)).fullUseBytes;
      const plan = () => planMemory(configured, threads, limit(mib));
      if (full > mib * MIB && value > COUNTERS_DEFAULT_MIN) expect(plan).toThrow('WEIR_COUNTERS');
      else expect(plan()).toMatchObject({ counters: value, isNearLimit: full > 0.75 * mib * MIB });
    });
    fc.assert(property, options);
  });

  test('is rejected with its source, the largest number that fits and the source of the limit', () => {
    const threads = { WEIR_ACCEPTORS: '1', WEIR_WORKERS: '1' };
    const path = join(directory, 'weir.json');
    writeFileSync(path, '{"counters": 1048576}');
    const fitting = loadSettings([], threads, limit(128))!.counters;
    const message = (source: string) => {
      return new RegExp(
        `^${source} is 1048576, which takes 129 MiB beside \\d+ MiB for the process, and the` +
          ` memory limit is 128 MiB \\(/group/memory.max\\): set at most ${fitting}, or raise` +
          ' the limit$',
      );
    };
    const load = (args: string[], env = {}) => {
      return () => loadSettings(args, { ...threads, ...env }, limit(128));
    };
    expect(load([], { WEIR_COUNTERS: '1048576' })).toThrow(message('WEIR_COUNTERS'));
    expect(load(['--counters', '1048576'])).toThrow(message('--counters'));
    expect(load(['--config', path])).toThrow(message(`"counters" in ${path}`));
  });
});
