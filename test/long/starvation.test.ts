/**
 * Servers that get almost no CPU: 20 of them start beside 40 programs that use all of it, five in
 * each control group with a limit of CPU time. WEIR_STARVATION_S sets the duration, 600 s by default.
 */

import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { expect, test } from 'vitest';
import { useDataDirectory } from '../support/data-directory.ts';
import { recordMeasurement } from '../support/guarantees.ts';
import { LONGEST_WINDOW_MS, readMetric, sendCheck } from '../support/http.ts';
import { startBusyLoops } from '../support/programs/busy-loops.ts';
import { createCpuGroup, hasCpuGroups } from '../support/programs/cpu-group.ts';
import { ROOT_KEY, type ServerProcess, spawnServer } from '../support/server.ts';

const SECONDS = Number(process.env.WEIR_STARVATION_S ?? 600);
/** How long all servers may take to start, to stop, and until an endless loop is found. */
const PATIENCE_MS = 900_000;
const LOOPS = 40;
/** Shares of a core. All servers of a share have it together. */
const SHARES = [0.05, 0.1, 0.25, 1];
/** Of each share: so many idle servers, and so many under load. */
const IDLE = 3;
const LOADED = 2;
const CLIENTS = 4;

const FAULT = new URL('../support/acceptor-fault.preload.mjs', import.meta.url).pathname;
const ARGS = ['--acceptors', '2', '--workers', '1', '--counters', '1024'];
const CHECK = { identifier: 'a', limit: 1e9, duration: LONGEST_WINDOW_MS };

const own = useDataDirectory([]);

interface StarvedServer extends ServerProcess {
  share: number;
  isLoaded: boolean;
  /** Makes an acceptor loop for ever when it exists. */
  faultFile: string;
}

const hasEnded = ({ child }: ServerProcess) => child.exitCode !== null || child.signalCode !== null;

function expectAlive(servers: readonly StarvedServer[]): void {
  for (const server of servers) {
    if (hasEnded(server)) throw new Error(`of ${server.share} of a core: ${server.stderr()}`);
  }
}

/** Waits as long as starved servers may need. */
async function waitPatiently(what: string, isDone: () => boolean): Promise<number> {
  const startMs = performance.now();
  while (!isDone()) {
    if (performance.now() - startMs > PATIENCE_MS) throw new Error(`timed out: ${what}`);
    await sleep(200);
  }
  return Math.round((performance.now() - startMs) / 1_000);
}

/** Sends checks until the end, whatever becomes of them. @returns the number of decisions */
async function sendChecks(server: ServerProcess, isOver: () => boolean): Promise<number> {
  let decisions = 0;
  while (!isOver()) {
    await sendCheck(server.port, CHECK).then(
      () => decisions++,
      () => sleep(100),
    );
  }
  return decisions;
}

test.skipIf(!hasCpuGroups)(
  `20 servers beside ${LOOPS} busy programs for ${SECONDS} s: none ends, no shard worker is replaced, and an endless loop is found`,
  { timeout: 1_000 * SECONDS + 4 * PATIENCE_MS },
  async () => {
    const groups = SHARES.map((share) => createCpuGroup(share)!);
    const endLoops = startBusyLoops(LOOPS);
    try {
      const starting = SHARES.flatMap((share, i) => {
        return Array.from({ length: IDLE + LOADED }, async (_, n): Promise<StarvedServer> => {
          const dataDir = join(own.dataDir, `${share}-${n}`);
          const faultFile = `${dataDir}.fault`;
          const server = await spawnServer(dataDir, {
            commandPrefix: groups[i].commandPrefix,
            args: ARGS,
            execArgv: ['--import', FAULT],
            env: { WEIR_ROOT_KEY: ROOT_KEY, FAULT: 'block', FAULT_FILE: faultFile },
          });
          return { ...own.adopt(server), share, isLoaded: n >= IDLE, faultFile };
        });
      });
      const servers = await Promise.all(starting);
      const startS = await waitPatiently('the servers start', () => {
        expectAlive(servers);
        return servers.every(({ stdout }) => stdout().includes('serves checks'));
      });

      let isOver = false;
      const clients = servers
        .filter(({ isLoaded }) => isLoaded)
        .flatMap((server) =>
          Array.from({ length: CLIENTS }, () => sendChecks(server, () => isOver)),
        );
      for (let second = 0; second < SECONDS; second++) {
        await sleep(1_000);
        expectAlive(servers);
      }
      isOver = true;
      const decisions = (await Promise.all(clients)).reduce((sum, count) => sum + count, 0);
      expectAlive(servers);
      for (const { adminUrl } of servers) {
        expect(await readMetric(adminUrl, 'weir_workers_replaced_total')).toBe(0);
      }

      // The first and the last server of each share: one was idle, one under load.
      const last = IDLE + LOADED - 1;
      const struck = servers.filter((_, n) => [0, last].includes(n % (IDLE + LOADED)));
      const others = servers.filter((server) => !struck.includes(server));
      for (const { child } of others) child.kill('SIGTERM');
      const stopS = await waitPatiently('servers stop', () => others.every(hasEnded));
      for (const { child, stderr } of others) expect(child.exitCode, stderr()).toBe(0);
      for (const { faultFile } of struck) writeFileSync(faultFile, '');
      const foundS = await waitPatiently('endless loops are found', () => struck.every(hasEnded));
      for (const { stderr } of struck) {
        expect(stderr()).toMatch(/^weir: acceptor 0 is unresponsive: .*$/m);
      }
      const trials = `${servers.length} servers, ${SECONDS} s, ${decisions} decisions`;
      const took = `started after ${startS} s, stopped after ${stopS} s, loops found after ${foundS} s`;
      recordMeasurement('P8', `${LOOPS} busy programs`, trials, `none ended; ${took}`);
    } finally {
      endLoops();
      for (const { child, exited } of own.started) {
        child.kill('SIGKILL');
        await exited;
      }
      for (const group of groups) await group.remove();
    }
  },
);
