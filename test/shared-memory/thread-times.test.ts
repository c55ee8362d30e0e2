import { mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { Worker } from 'node:worker_threads';
import { afterAll, describe, expect, test } from 'vitest';
import {
  kernelThreadId,
  parseTimes,
  readProcessTimes,
} from '../../src/shared-memory/thread-times.ts';
import { removeDirectory, temporaryDirectory, waitUntil } from '../support/server.ts';

/** Recorded on Linux 6.18. */
const STAT = {
  runs: '4711 (node) R 4700 4711 4700 34816 4711 4194304 9012 0 0 0 1234 56 0 0 20 0 11 0 7920461 1175355392 14892 18446744073709551615 4194304 30408061 140726154853296 0 0 0 0 16781312 134235642 0 0 0 17 1 0 0 0 0 0',
  sleeps:
    '4713 (libuv-worker) S 4700 4711 4700 34816 4711 4194368 2 0 0 0 0 0 0 0 20 0 11 0 7920463 1175355392 14892 18446744073709551615 4194304 30408061 140726154853296 0 0 0 0 16781312 134235642 0 0 0 -1 0 0 0 0 0 0',
  named:
    '4714 (a) R 1 (2) x) t 4700 4711 4700 34816 4711 4194368 2 0 0 0 7 8 0 0 20 0 11 0 7920463 1175355392 14892 18446744073709551615 4194304 30408061 140726154853296 0 0 0 0 16781312 134235642 0 0 0 -1 0 0 0 0 0 0',
};

test('the state and the CPU time of a thread are read, whatever its name', () => {
  expect(parseTimes(STAT.runs)).toEqual({ state: 'R', cpuMs: 12_900 });
  expect(parseTimes(STAT.sleeps)).toEqual({ state: 'S', cpuMs: 0 });
  expect(parseTimes(STAT.named)).toEqual({ state: 't', cpuMs: 150 });
});

test('the CPU time is read in ns, where the kernel counts it so', () => {
  expect(parseTimes(STAT.runs, '12904250000 86441 91\n').cpuMs).toBe(12_904.25);
  expect(parseTimes(STAT.sleeps, '250000 0 1\n').cpuMs).toBe(0.25);
  expect(parseTimes(STAT.runs, '0 0 0\n').cpuMs).toBe(12_900);
});

describe('the threads of a process', () => {
  const directory = temporaryDirectory();
  afterAll(() => removeDirectory(directory));
  const pathOf = (name: string) => join(directory, name);
  const write = (name: string, lines: Record<string, string>, file = 'stat') => {
    for (const [thread, line] of Object.entries(lines)) {
      mkdirSync(join(pathOf(name), thread), { recursive: true });
      writeFileSync(join(pathOf(name), thread, file), line);
    }
  };

  test('are those in procfs, without one that has ended', () => {
    mkdirSync(join(pathOf('linux'), '4712'), { recursive: true });
    write('linux', { 4711: STAT.runs, 4713: STAT.sleeps });
    write('linux', { 4713: '250000 0 1\n' }, 'schedstat');
    expect([...readProcessTimes(pathOf('linux'))!]).toEqual([
      [4_711, { state: 'R', cpuMs: 12_900 }],
      [4_713, { state: 'S', cpuMs: 0.25 }],
    ]);
  });

  test('are none where procfs is empty or does not count CPU time', () => {
    const uncounted = STAT.runs.replace(' 1234 56 ', ' 0 0 ');
    write('uncounted', { 4711: uncounted, 4713: STAT.sleeps });
    expect(readProcessTimes(pathOf('uncounted'))).toEqual(new Map());
    write('other', { 4711: '', 4713: 'not a stat line' });
    expect(readProcessTimes(pathOf('other'))).toEqual(new Map());
  });

  test('are unknown if a read fails, though not because a thread has ended', () => {
    expect(readProcessTimes(pathOf('none'))).toBeUndefined();
    write('failing', { 4711: STAT.runs });
    // Reading it fails with EISDIR.
    mkdirSync(join(pathOf('failing'), '4713/stat'), { recursive: true });
    expect(readProcessTimes(pathOf('failing'))).toBeUndefined();
  });
});

/** Tells its id in the kernel, uses CPU until the second word is set, and then sleeps. */
const THREAD = `
  const { readlinkSync } = require('node:fs');
  const words = new Int32Array(require('node:worker_threads').workerData);
  Atomics.store(words, 0, Number(readlinkSync('/proc/thread-self').split('/').at(-1)));
  while (Atomics.load(words, 1) === 0);
  Atomics.wait(words, 2, 0);
`;

test('a thread that loops uses CPU time in state R, and one that waits is in state S', async () => {
  const words = new Int32Array(new SharedArrayBuffer(12));
  const thread = new Worker(THREAD, { eval: true, workerData: words.buffer });
  const times = () => readProcessTimes()?.get(words[0]);
  try {
    await waitUntil('it uses CPU time', () => (times()?.cpuMs ?? 0) >= 50);
    expect(times()?.state).toBe('R');
    Atomics.store(words, 1, 1);
    await waitUntil('it sleeps', () => times()?.state === 'S');
    const { cpuMs } = times()!;
    expect([times(), words[0] === kernelThreadId()]).toEqual([{ state: 'S', cpuMs }, false]);
  } finally {
    await thread.terminate();
  }
  await waitUntil('it has ended', () => times() === undefined);
});

test('the own thread is among the threads of the process', () => {
  expect(readProcessTimes()?.get(kernelThreadId())?.state).toBe('R');
});
