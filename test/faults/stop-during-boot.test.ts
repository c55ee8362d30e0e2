/** Stops while threads are booting: Node can abort the process when such a thread is ended. */

import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, describe, expect, test } from 'vitest';
import { IS_LONG, newSeed, recordMeasurement, trialCount } from '../support/guarantees.ts';
import { seededRandom } from '../support/seeded-random.ts';
import {
  removeDirectory,
  type ServerProcess,
  spawnServer,
  startServer,
  temporaryDirectory,
  waitUntil,
} from '../support/server.ts';
import { expectCleanStop } from '../support/server-health.ts';

const FAULT = new URL('../support/boot-fault.preload.mjs', import.meta.url).pathname;
const TIMEOUT_MS = IS_LONG ? 7_200_000 : 120_000;
/** How many servers are stopped at the same time. */
const AT_ONCE = 2;
/** Threads by their ids, which Node gives in turn: the one acceptor is 1. */
const FIRST_SHARD_THREAD = 2;
const SECOND_SHARD_THREAD = 3;
/** In place of the first one that dies, when the thread that compiles overrides runs. */
const REPLACEMENT = 5;
/** A thread dies so long after it says so: a stop can begin before the thread is replaced. */
const DEATH_MS = 60;
/** A stop begins within so long. */
const SPREAD_MS = 140;
/** Half of all boots take as long as they do, and half so much longer: no stop comes too late. */
const LONGER_MS = 600;

/** How long something is waited for that a server should say. */
const SAID_MS = 10_000;

const ARGS = ['--counters', '1024', '--acceptors', '1', '--decide', 'worker', '--drain-ms', '0'];

/** What a server is started with. @param fault the variables of boot-fault.mjs */
function startWithBootFault(dataDir: string, workers: number, fault: Record<string, string>) {
  return {
    args: [...ARGS, '--workers', String(workers)],
    execArgv: ['--import', FAULT],
    env: { BOOT_FILE: faultFile(dataDir), DEATH_MS: String(DEATH_MS), ...fault },
  };
}

const faultFile = (dataDir: string) => join(dataDir, 'strike');

const started = new Set<{ server: ServerProcess; dataDir: string }>();
afterAll(async () => {
  for (const { server, dataDir } of started) {
    server.child.kill('SIGKILL');
    await server.exited;
    removeDirectory(dataDir);
  }
});

/**
 * Resolves at once when a server has said something on standard error so often, or has ended. On a
 * starved machine a thread may be replaced before it is told to die: then it never says so.
 */
function waitForOutput(server: ServerProcess, what: string, times = 1): Promise<void> {
  return new Promise((resolve) => {
    const look = () => {
      if (server.stderr().split(what).length > times) resolve();
    };
    server.child.stderr?.on('data', look);
    server.exited.then(() => resolve());
    setTimeout(resolve, SAID_MS);
    look();
  });
}

/** The threads that have said something, by their ids. */
function threadIdsIn(server: ServerProcess, what: string): number[] {
  const lines = server.stderr().matchAll(new RegExp(`^thread (\\d+) ${what}$`, 'gm'));
  return [...lines].map(([, id]) => Number(id)).sort((a, b) => a - b);
}

interface StopMoment {
  name: string;
  count: number;
  /** Starts a server and resolves when the moment begins. */
  begin: (dataDir: string, bootMs: number) => Promise<ServerProcess>;
}

const STOP_MOMENTS: StopMoment[] = [
  {
    name: 'a shard worker is started in place of a dead one',
    count: trialCount(12, 1_000),
    begin: async (dataDir, bootMs) => {
      const fault = { DYING: String(FIRST_SHARD_THREAD), BOOT_MS: String(bootMs) };
      const server = await startServer(dataDir, startWithBootFault(dataDir, 2, fault));
      await waitForOutput(server, 'has booted', 2);
      writeFileSync(faultFile(dataDir), '');
      await waitForOutput(server, 'dies');
      return server;
    },
  },
  {
    name: 'the first shard workers and the thread that compiles overrides are started',
    count: trialCount(4, 100),
    begin: async (dataDir, bootMs) => {
      const fault = { BOOT_MS: String(bootMs) };
      const server = await spawnServer(dataDir, startWithBootFault(dataDir, 2, fault));
      await waitForOutput(server, 'boots');
      return server;
    },
  },
];

describe.each(STOP_MOMENTS)('a stop while $name', ({ name, count, begin }) => {
  test(
    `waits for them and exits with 0, ${count} times`,
    async () => {
      const seed = newSeed();
      const below = seededRandom(seed);
      const failures: string[] = [];
      let longestMs = 0;
      let left = count;
      const stopOne = async () => {
        const dataDir = temporaryDirectory();
        const stopMs = below(SPREAD_MS);
        const bootMs = (left % 2) * LONGER_MS;
        const server = await begin(dataDir, bootMs);
        const entry = { server, dataDir };
        started.add(entry);
        await new Promise((resolve) => setTimeout(resolve, stopMs));
        const since = performance.now();
        const stopped = await server.stop();
        longestMs = Math.max(longestMs, performance.now() - since);
        started.delete(entry);
        removeDirectory(dataDir);
        const booting = threadIdsIn(server, 'boots');
        const booted = threadIdsIn(server, 'has booted');
        if (stopped.code === 0 && booting.join() === booted.join()) return;
        const moment = `seed ${seed}, stop after ${stopMs} ms, boot ${bootMs} ms longer`;
        failures.push(`${moment}: ${JSON.stringify(stopped)}\n${server.stderr().slice(-4_000)}`);
      };
      const stopMany = async () => {
        while (left-- > 0) await stopOne();
      };
      await Promise.all(Array.from({ length: AT_ONCE }, stopMany));
      expect(failures).toEqual([]);
      const measured = `all exit with 0, after ${Math.round(longestMs)} ms at most`;
      recordMeasurement('P3', `a stop while ${name}`, `${count} stops, seed ${seed}`, measured);
    },
    TIMEOUT_MS,
  );
});

describe('a thread for a shard worker', () => {
  /** A server whose shard workers die when all threads run. */
  const startDying = async (workers: number, fault: Record<string, string>) => {
    const dataDir = temporaryDirectory();
    const server = await startServer(dataDir, startWithBootFault(dataDir, workers, fault));
    started.add({ server, dataDir });
    await waitForOutput(server, 'has booted', workers + 1);
    writeFileSync(faultFile(dataDir), '');
    return server;
  };

  test('that never ends to boot delays a stop by some seconds, and the log says so', async () => {
    const hanging = String(REPLACEMENT - 1);
    const fault = { DYING: String(FIRST_SHARD_THREAD), HANGING: hanging, BOOT_MS: '0' };
    const server = await startDying(1, fault);
    await waitForOutput(server, 'hangs');
    const since = performance.now();
    expect(await server.stop(), server.stderr()).toEqual({ code: 0, signal: null });
    expect(performance.now() - since).toBeLessThan(15_000);
    expect(server.stderr()).toContain(
      '"a thread for a shard worker was ended before it had booted"',
    );
    expect(server.stderr()).toContain('"stopped"');
  });

  test('that is booting is not ended because another one fails while it boots', async () => {
    const server = await startDying(2, {
      DYING: [FIRST_SHARD_THREAD, SECOND_SHARD_THREAD].join(),
      FAILING: String(REPLACEMENT),
      BOOT_MS: '600',
    });
    await waitForOutput(server, 'fails');
    await waitUntil('two others have booted', () => {
      return threadIdsIn(server, 'has booted').filter((id) => id > REPLACEMENT).length === 2;
    });
    await expectCleanStop(server);
    const others = threadIdsIn(server, 'boots').filter((id) => id !== REPLACEMENT);
    expect(threadIdsIn(server, 'has booted')).toEqual(others);
  });
});
