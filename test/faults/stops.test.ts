/** Stops while threads are booting: Node can abort the process when such a thread is ended. */

import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, describe, expect, test } from 'vitest';
import { random } from '../support/random.ts';
import {
  type Running,
  removeDirectory,
  spawnServer,
  startServer,
  temporaryDirectory,
} from '../support/server.ts';
import { figure, newSeed, trials } from './promises.ts';

const FAULT = new URL('boot-fault.mjs', import.meta.url).pathname;
const TIMEOUT_MS = 7_200_000;
/** How many servers are stopped at the same time. */
const AT_ONCE = 2;
const WORKERS = 2;
/** The main thread is 0, the one acceptor is 1. */
const FIRST_SHARD_THREAD = 2;
/** A thread dies so long after it says so: a stop can begin before the thread is replaced. */
const DEATH_MS = 60;
/** A stop begins within so long, and a boot takes at most so much longer than it would. */
const SPREAD_MS = 140;

const started = new Set<Running>();
afterAll(() => {
  for (const { child } of started) child.kill('SIGKILL');
});

/** Resolves when a server has said something on standard error, or has ended. */
function said(server: Running, what: string, times = 1): Promise<void> {
  return new Promise((resolve) => {
    const look = () => server.stderr().split(what).length > times && resolve();
    server.child.stderr?.on('data', look);
    server.exited.then(() => resolve());
    look();
  });
}

interface Moment {
  name: string;
  count: number;
  /** Starts a server and resolves when the moment begins. */
  begin: (dataDir: string, env: Record<string, string>) => Promise<Running>;
}

const ARGS = ['--counters', '1024', '--acceptors', '1', '--workers', String(WORKERS)];
const options = (env: Record<string, string>) => ({
  args: [...ARGS, '--decide', 'worker', '--drain-ms', '0'],
  execArgv: ['--import', FAULT],
  env,
});

const MOMENTS: Moment[] = [
  {
    name: 'a shard worker is started in place of a dead one',
    count: trials(20, 1_000),
    begin: async (dataDir, env) => {
      const server = await startServer(dataDir, options(env));
      started.add(server);
      await said(server, 'has booted', WORKERS);
      writeFileSync(env.BOOT_FILE, '');
      await said(server, 'dies');
      return server;
    },
  },
  {
    name: 'the first shard workers and the thread that compiles overrides are started',
    count: trials(10, 200),
    begin: async (dataDir, env) => {
      const server = await spawnServer(dataDir, options(env));
      started.add(server);
      await said(server, 'boots');
      return server;
    },
  },
];

describe.each(MOMENTS)('a stop while $name', ({ name, count, begin }) => {
  test(
    `waits for them and exits with 0, ${count} times`,
    async () => {
      const seed = newSeed();
      const below = random(seed);
      let tookMs = 0;
      let left = count;
      const stopOne = async () => {
        const dataDir = temporaryDirectory();
        const stopMs = below(SPREAD_MS);
        const bootMs = below(SPREAD_MS);
        const server = await begin(dataDir, {
          BOOT_FIRST: String(FIRST_SHARD_THREAD),
          BOOT_FILE: join(dataDir, 'strike'),
          BOOT_MS: String(bootMs),
          DEATH_MS: String(DEATH_MS),
        });
        await new Promise((resolve) => setTimeout(resolve, stopMs));
        const since = performance.now();
        const stopped = await server.stop();
        tookMs = Math.max(tookMs, performance.now() - since);
        started.delete(server);
        removeDirectory(dataDir);
        const threads = (what: string) =>
          [...server.stderr().matchAll(new RegExp(`^thread (\\d+) ${what}$`, 'gm'))]
            .map(([, id]) => Number(id))
            .sort();
        const moment = `seed ${seed}, stop after ${stopMs} ms, boot ${bootMs} ms longer`;
        const context = `${moment}\n${server.stderr().slice(-4_000)}`;
        expect(stopped, context).toEqual({ code: 0, signal: null });
        expect(threads('has booted'), context).toEqual(threads('boots'));
      };
      const stopMany = async () => {
        while (left-- > 0) await stopOne();
      };
      await Promise.all(Array.from({ length: AT_ONCE }, stopMany));
      figure(
        'P3',
        `a stop while ${name}`,
        `${count} stops, seed ${seed}`,
        `all with code 0, after ${Math.round(tookMs)} ms at most`,
      );
    },
    TIMEOUT_MS,
  );
});
