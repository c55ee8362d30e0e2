/**
 * More identifiers than counters under real memory limits, enforced by cgroups, with default
 * settings. The server runs on a copy of Node that the cgroup created. The pages of the executable
 * then count for the cgroup, as in a container. These are the sizes of the table in
 * docs/operations.md.
 *
 * Run it on a machine that does nothing else. Near the limit the kernel evicts the code of Node and
 * reads it again, so the server needs the disk and a core for itself.
 */

import { mkdirSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, test } from 'vitest';
import { COUNTERS_DEFAULT_MIN } from '../../src/core/constants.ts';
import { DashboardClient } from '../support/dashboard.ts';
import { recordMeasurement } from '../support/guarantees.ts';
import { LONGEST_WINDOW_MS, sendCheck } from '../support/http.ts';
import { createMemoryGroup, hasMemoryGroups } from '../support/programs/memory-cgroup.ts';
import {
  removeDirectory,
  type ServerProcess,
  startServer,
  temporaryDirectory,
  waitUntil,
} from '../support/server.ts';
import { sendDistinctChecks } from './distinct-checks.ts';

const IDENTIFIERS = 1_000_000;
const NONE = undefined;
/** Without `seconds`, checks are sent as fast as they are answered. */
type MemoryCase = [limitMiB: number | undefined, connections: number, seconds?: number];
const CASES: MemoryCase[] = [
  [128, 64],
  [128, 64, 60],
  [128, 400],
  [256, 64],
  [512, 64],
  [1_024, 64],
  [NONE, 64],
];
/** One thread of each kind, which is the default with one or two CPUs. */
const THREADS = ['--acceptors', '1', '--workers', '1'];

/**
 * With 128 MiB the kernel evicts the code of Node, and reads it again and again. With Node 22, on a
 * disk whose read-ahead is 8 MiB, an import of 5 000 overrides took more than 20 s.
 */
const DASHBOARDS_MIB = 160;

/** Copies Node into the cgroup, and replaces the shell by it. */
const COPY_AND_EXEC = 'cp "$1" "$0" && sync "$0" && shift && exec "$0" "$@"';

/** Waits for a record of the log. It may be written after the server's line on stdout. */
async function waitForRecord(server: ServerProcess, msg: string): Promise<Record<string, unknown>> {
  const find = () => {
    const lines = server.stderr().split('\n').slice(0, -1);
    return lines.find((text) => text.includes(`"msg":"${msg}"`));
  };
  await waitUntil(`the log contains ${msg}`, () => find() !== undefined);
  return JSON.parse(find()!);
}

interface LimitedServers {
  group: NonNullable<ReturnType<typeof createMemoryGroup>>;
  /** Starts a server in the group, again with the same data. */
  start: (args?: string[]) => Promise<ServerProcess>;
}

/** Runs a test with servers in a memory group, and ends them. */
async function withLimit(
  limitMiB: number | undefined,
  run: (servers: LimitedServers) => Promise<void>,
): Promise<void> {
  const group = createMemoryGroup(limitMiB)!;
  const directory = temporaryDirectory();
  const dataDir = join(directory, 'data');
  mkdirSync(dataDir);
  const copy = ['sh', '-c', COPY_AND_EXEC, join(directory, 'node')];
  const commandPrefix = [...group.commandPrefix, ...copy];
  const started: ServerProcess[] = [];
  const start = async (args: string[] = []) => {
    const server = await startServer(dataDir, { commandPrefix, args: [...THREADS, ...args] });
    started.push(server);
    return server;
  };
  try {
    await run({ group, start });
    expect(group.oomKills()).toBe(0);
  } finally {
    for (const { child, exited } of started) {
      child.kill('SIGKILL');
      await exited;
    }
    await group.remove();
    removeDirectory(directory);
  }
}

describe.skipIf(!hasMemoryGroups)('a memory limit', { timeout: 240_000 }, () => {
  test.each(CASES)(
    `of %s MiB is kept with ${IDENTIFIERS} identifiers, on %i connections`,
    (limitMiB, connections, seconds) => {
      return withLimit(limitMiB, async ({ group, start }) => {
        const server = await start();
        const serving = await waitForRecord(server, 'serving');
        if (limitMiB !== undefined) expect(serving.memoryLimitMiB).toBe(limitMiB);
        const { counters, memoryAtFullUseMiB, memoryLimitMiB } = serving as Record<string, number>;
        expect(counters).toBeGreaterThan(COUNTERS_DEFAULT_MIN);
        expect(memoryAtFullUseMiB).toBeLessThanOrEqual(0.75 * memoryLimitMiB);
        const idleMiB = group.unreclaimableMiB();
        await sendDistinctChecks(server.port, { identifiers: IDENTIFIERS, connections, seconds });
        const fullMiB = group.unreclaimableMiB();
        expect(fullMiB).toBeLessThanOrEqual(memoryAtFullUseMiB + 16);
        const body = { identifier: 'one more', limit: 10, duration: LONGEST_WINDOW_MS };
        expect(await sendCheck(server.port, body)).toMatchObject({ success: true, remaining: 9 });
        expect(await server.stop()).toEqual({ code: 0, signal: null });
        const again = await start();
        const { counters: restored } = await waitForRecord(again, 'loaded');
        expect(restored).toBeGreaterThan(Math.min(counters, IDENTIFIERS) * 0.9);
        expect(await sendCheck(again.port, body)).toMatchObject({ success: true, remaining: 8 });
        expect(await again.stop()).toEqual({ code: 0, signal: null });
        const measured = `${idleMiB.toFixed(0)} MiB idle, ${fullMiB.toFixed(0)} MiB after`;
        const pace = seconds === undefined ? '' : ` in ${seconds} s`;
        const trials = `${IDENTIFIERS} identifiers${pace}, ${counters} counters`;
        recordMeasurement('P7', `a memory limit of ${limitMiB ?? 'no'} MiB`, trials, measured);
      });
    },
  );

  test(`of ${DASHBOARDS_MIB} MiB suffices for ten dashboards beside a full table`, () => {
    return withLimit(DASHBOARDS_MIB, async ({ group, start }) => {
      const server = await start();
      await sendDistinctChecks(server.port, { identifiers: 200_000, connections: 64 });
      const fullMiB = group.unreclaimableMiB();
      const overrides = Array.from({ length: 5_000 }, (_, i) => {
        return { namespaceName: 'n', identifier: `identifier-${i}`, limit: 5, duration: 60_000 };
      });
      const clients = await Promise.all(
        Array.from({ length: 10 }, () => DashboardClient.signIn(server.adminUrl)),
      );
      const streams = await Promise.all(clients.map((client) => client.openEvents()));
      const imported = await clients[0].call('ratelimits.importOverrides', { overrides });
      expect(imported.status).toBe(200);
      for (const client of clients) {
        expect((await client.call('ratelimits.exportOverrides')).status).toBe(200);
      }
      for (let i = 0; i < 3; i++) {
        await Promise.all(streams.map((stream) => stream.next('snapshot')));
      }
      const watchedMiB = group.unreclaimableMiB();
      expect(watchedMiB).toBeLessThan(DASHBOARDS_MIB);
      const measured = `${fullMiB.toFixed(0)} MiB before, ${watchedMiB.toFixed(0)} MiB after`;
      const fault = `a memory limit of ${DASHBOARDS_MIB} MiB`;
      recordMeasurement('P7', fault, 'ten dashboards', measured);
    });
  });

  test('makes a start with more counters than fit it fail', () => {
    return withLimit(128, async ({ group, start }) => {
      const started = start(['--counters', '1048576']);
      await expect(started).rejects.toThrow(/it ended: weir: --counters is 1048576, .*128 MiB/);
      await expect(started).rejects.toThrow(`(${group.limitFile}): set at most `);
    });
  });
});
