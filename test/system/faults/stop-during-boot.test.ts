/** A stop while threads boot. Node can abort the process when a booting thread is terminated. */

import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { afterAll, describe, expect, test } from 'vitest';
import { IS_LONG, newSeed, recordMeasurement, trialCount } from '../../support/guarantees.ts';
import { seededRandom } from '../../support/seeded-random.ts';
import {
  removeDirectory,
  type ServerProcess,
  spawnServer,
  startServer,
  temporaryDirectory,
  waitUntil,
} from '../../support/server.ts';
import { expectCleanStop } from './server-health.ts';

const FAULT_PRELOAD = new URL('./boot-fault.preload.mjs', import.meta.url).pathname;
const TIMEOUT_MS = IS_LONG ? 7_200_000 : 120_000;
/** Servers that are stopped at the same time. */
const CONCURRENCY = 2;
/** Thread ids, which Node assigns in sequence. The only acceptor has id 1. */
const FIRST_SHARD_THREAD = 2;
const SECOND_SHARD_THREAD = 3;
/** The first replacement of a shard worker, after the thread that compiles overrides. */
const REPLACEMENT = 5;
/** Time from a thread's report to its exit: a stop can begin before the thread is replaced. */
const DEATH_MS = 60;
/** A stop begins within this time. */
const SPREAD_MS = 140;
/** Delay of every second boot, so that its stop comes early enough. */
const BOOT_DELAY_MS = 600;

/** How long to wait for output. */
const OUTPUT_TIMEOUT_MS = 10_000;

const ARGS = ['--counters', '1024', '--acceptors', '1', '--decide', 'worker', '--drain-ms', '0'];

const faultFile = (dataDir: string) => join(dataDir, 'trigger');

/** Options of a server. @param fault variables of boot-fault.preload.mjs */
const bootFault = (dataDir: string, workers: number, fault: Record<string, string>) => ({
  args: [...ARGS, '--workers', String(workers)],
  execArgv: ['--import', FAULT_PRELOAD],
  env: { BOOT_FILE: faultFile(dataDir), DEATH_MS: String(DEATH_MS), ...fault },
});

const started = new Set<{ server: ServerProcess; dataDir: string }>();
afterAll(async () => {
  for (const { server, dataDir } of started) {
    server.child.kill('SIGKILL');
    await server.exited;
    removeDirectory(dataDir);
  }
});

/**
 * Resolves when a server has printed a text so often on standard error, or has ended. It gives up
 * after a while: on a very busy machine a thread may be replaced before its fault, and reports
 * none.
 */
function waitForOutput(server: ServerProcess, text: string, times = 1): Promise<void> {
  return new Promise((resolve) => {
    const search = () => {
      if (server.stderr().split(text).length > times) resolve();
    };
    server.child.stderr?.on('data', search);
    server.exited.then(() => resolve());
    setTimeout(resolve, OUTPUT_TIMEOUT_MS);
    search();
  });
}

/** The ids of threads that reported an event. */
function threadIdsIn(server: ServerProcess, event: string): number[] {
  const lines = server.stderr().matchAll(new RegExp(`^thread (\\d+) ${event}$`, 'gm'));
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
    name: 'a shard worker is started to replace a dead one',
    count: trialCount(4, 300),
    begin: async (dataDir, bootMs) => {
      const fault = { EXITING: String(FIRST_SHARD_THREAD), BOOT_MS: String(bootMs) };
      const server = await startServer(dataDir, bootFault(dataDir, 2, fault));
      await waitForOutput(server, 'has booted', 2);
      writeFileSync(faultFile(dataDir), '');
      await waitForOutput(server, 'exits');
      return server;
    },
  },
  {
    name: 'the first shard workers and the thread that compiles overrides are started',
    count: trialCount(2, 50),
    begin: async (dataDir, bootMs) => {
      const fault = { BOOT_MS: String(bootMs) };
      const server = await spawnServer(dataDir, bootFault(dataDir, 2, fault));
      await waitForOutput(server, 'boots');
      return server;
    },
  },
];

describe.each(STOP_MOMENTS)(
  'a stop while $name',
  { timeout: TIMEOUT_MS },
  ({ name, count, begin }) => {
    test(`waits for the threads and exits with 0, ${count} times`, async () => {
      const seed = newSeed();
      const below = seededRandom(seed);
      const failures: string[] = [];
      let [longestMs, remaining] = [0, count];
      const stopOne = async () => {
        const dataDir = temporaryDirectory();
        const stopMs = below(SPREAD_MS);
        const bootMs = (remaining % 2) * BOOT_DELAY_MS;
        const server = await begin(dataDir, bootMs);
        const entry = { server, dataDir };
        started.add(entry);
        await sleep(stopMs);
        const startedMs = performance.now();
        const stopped = await server.stop();
        longestMs = Math.max(longestMs, performance.now() - startedMs);
        started.delete(entry);
        removeDirectory(dataDir);
        const booting = threadIdsIn(server, 'boots');
        const booted = threadIdsIn(server, 'has booted');
        if (stopped.code === 0 && booting.join() === booted.join()) return;
        const moment = `seed ${seed}, stop after ${stopMs} ms, boot ${bootMs} ms longer`;
        failures.push(`${moment}: ${JSON.stringify(stopped)}\n${server.stderr().slice(-4_000)}`);
      };
      const stopMany = async () => {
        while (remaining-- > 0) await stopOne();
      };
      await Promise.all(Array.from({ length: CONCURRENCY }, stopMany));
      expect(failures).toEqual([]);
      const measured = `all exit with 0, after ${Math.round(longestMs)} ms at most`;
      recordMeasurement('P3', `a stop while ${name}`, `${count} stops, seed ${seed}`, measured);
    });
  },
);

// Most of their time is waiting.
describe.concurrent('a thread for a shard worker', () => {
  /** Starts a server whose shard workers exit when all threads have booted. */
  const startExiting = async (workers: number, fault: Record<string, string>) => {
    const dataDir = temporaryDirectory();
    const server = await startServer(dataDir, bootFault(dataDir, workers, fault));
    started.add({ server, dataDir });
    await waitForOutput(server, 'has booted', workers + 1);
    writeFileSync(faultFile(dataDir), '');
    return server;
  };

  test('that never finishes booting delays a stop by some seconds, and the log reports it', async () => {
    // Each replacement, of which the server tries several.
    const blocked = Array.from({ length: 10 }, (_, i) => REPLACEMENT - 1 + i).join();
    const fault = { EXITING: String(FIRST_SHARD_THREAD), BLOCKED: blocked, BOOT_MS: '0' };
    const server = await startExiting(1, fault);
    await waitForOutput(server, 'blocks');
    const startedMs = performance.now();
    expect(await server.stop(), server.stderr()).toEqual({ code: 0, signal: null });
    if (IS_LONG) expect(performance.now() - startedMs).toBeLessThan(20_000);
    expect(server.stderr()).toContain(
      '"a thread for a shard worker was ended before it had started"',
    );
    expect(server.stderr()).toContain('"stopped"');
  });

  test('that boots for seconds after a stop was requested still writes the counters', async () => {
    const fault = { EXITING: String(FIRST_SHARD_THREAD), BOOT_MS: '2500' };
    const server = await startExiting(1, fault);
    await waitForOutput(server, 'exits');
    expect(await server.stop(), server.stderr()).toEqual({ code: 0, signal: null });
    expect(threadIdsIn(server, 'has booted')).toContain(REPLACEMENT - 1);
    expect(server.stderr()).not.toContain('did not write their last checkpoint');
  });

  test('that is booting is not terminated when another one fails while it boots', async () => {
    const server = await startExiting(2, {
      EXITING: [FIRST_SHARD_THREAD, SECOND_SHARD_THREAD].join(),
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
