import { mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { Worker } from 'node:worker_threads';
import { afterAll, describe, expect, test } from 'vitest';
import {
  kernelThreadId,
  parseStat,
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
  expect(parseStat(STAT.runs)).toEqual({ state: 'R', cpuMs: 12_900 });
  expect(parseStat(STAT.sleeps)).toEqual({ state: 'S', cpuMs: 0 });
  expect(parseStat(STAT.named)).toEqual({ state: 't', cpuMs: 150 });
});

describe('the threads of a process', () => {
  const directory = temporaryDirectory();
  afterAll(() => removeDirectory(directory));
  const read = (name: string, lines: Record<string, string>) => {
    for (const [thread, line] of Object.entries(lines)) {
      mkdirSync(join(directory, name, thread), { recursive: true });
      writeFileSync(join(directory, name, thread, 'stat'), line);
    }
    return readProcessTimes(join(directory, name));
  };

  test('are those in procfs, without one that has ended', () => {
    mkdirSync(join(directory, 'linux/4712'), { recursive: true });
    const times = read('linux', { 4711: STAT.runs, 4713: STAT.sleeps });
    expect([...times.keys()]).toEqual([4_711, 4_713]);
  });

  test('are unknown where procfs is missing, empty or does not count CPU time', () => {
    expect(readProcessTimes(join(directory, 'none')).size).toBe(0);
    const uncounted = STAT.runs.replace(' 1234 56 ', ' 0 0 ');
    expect(read('uncounted', { 4711: uncounted, 4713: STAT.sleeps }).size).toBe(0);
    expect(read('other', { 4711: '', 4713: 'not a stat line' }).size).toBe(0);
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
  const times = () => readProcessTimes().get(words[0]);
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
  expect(readProcessTimes().get(kernelThreadId())?.state).toBe('R');
});
