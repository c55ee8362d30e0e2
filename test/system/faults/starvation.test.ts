/**
 * Threads that wait for a CPU, because other programs use it. They are late, but not unresponsive.
 * `test/long/starvation.test.ts` has more servers, and limits of the CPU time.
 */

import { execFileSync } from 'node:child_process';
import { readdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterEach, describe, expect, test, vi } from 'vitest';
import { useDataDirectory } from '../../support/data-directory.ts';
import { recordMeasurement } from '../../support/guarantees.ts';
import { LONGEST_WINDOW_MS, readMetric, sendCheck } from '../../support/http.ts';
import { anyCpu, startBusyLoops } from '../../support/programs/busy-loops.ts';
import { DECIDE_MODES, type ServerProcess, waitUntil } from '../../support/server.ts';
import { expectCleanStop, expectHealthy } from './server-health.ts';

vi.setConfig({ testTimeout: 180_000 });

const FAULT = new URL('../../support/acceptor-fault.preload.mjs', import.meta.url).pathname;
const CHECK = { identifier: 'a', limit: 1_000_000, duration: LONGEST_WINDOW_MS };
/** The shortest that can be set. */
const UNRESPONSIVE_MS = 1_000;
const ARGS = [
  ...['--acceptors', '1', '--workers', '1', '--counters', '1024'],
  ...['--unresponsive-ms', String(UNRESPONSIVE_MS)],
];
const CPU = anyCpu();
const ON_CPU = ['taskset', '-c', CPU];

const own = useDataDirectory(ARGS);

let endLoops = () => {};
afterEach(() => endLoops());

/** Gives all threads but the main thread a CPU only if no other program wants it. */
function starveThreads({ child }: ServerProcess): void {
  for (const thread of readdirSync(`/proc/${child.pid}/task`)) {
    if (thread === String(child.pid)) continue;
    execFileSync('taskset', ['-p', '-c', CPU, thread]);
    execFileSync('chrt', ['--idle', '--pid', '0', thread]);
  }
}

/** Sends checks, one after the other. @returns the time of the slowest, when `isEnough` */
async function slowestCheckMs(
  { port }: ServerProcess,
  isEnough: (slowestMs: number) => boolean,
): Promise<number> {
  let slowestMs = 0;
  while (!isEnough(slowestMs)) {
    const startMs = performance.now();
    expect(await sendCheck(port, CHECK)).toMatchObject({ success: true });
    slowestMs = Math.max(slowestMs, performance.now() - startMs);
  }
  return slowestMs;
}

test.each(DECIDE_MODES)(
  'threads that have no CPU for far longer than a heartbeat may be late do not count as unresponsive (%s)',
  async (mode) => {
    const server = await own.start({ args: [...ARGS, '--decide', mode] });
    await slowestCheckMs(server, () => true);
    endLoops = startBusyLoops(2, ON_CPU);
    starveThreads(server);
    const slowestMs = await slowestCheckMs(server, (ms) => ms > 3 * UNRESPONSIVE_MS);
    expectHealthy(server);
    expect(await readMetric(server.adminUrl, 'weir_workers_replaced_total')).toBe(0);
    endLoops();
    const measured = `alive; the slowest check took ${Math.round(slowestMs)} ms`;
    recordMeasurement('P8', `threads have no CPU, ${mode}`, '1 server', measured);
    await expectCleanStop(server);
  },
);

describe('on a CPU that is used by 3 other programs, an acceptor that is unresponsive', () => {
  test.each([
    ['block', / ms, in which it used \d{4,} ms of CPU time,/],
    ['wait', / asleep for \d{4,} ms; \d{4} ms of it count; its state is S$/],
  ])('(%s) ends the process', async (fault, reason) => {
    const file = join(own.dataDir, 'strike');
    const server = await own.start({
      commandPrefix: ON_CPU,
      execArgv: ['--import', FAULT],
      env: { FAULT: fault, FAULT_FILE: file },
    });
    endLoops = startBusyLoops(3, ON_CPU);
    await slowestCheckMs(server, () => true);
    writeFileSync(file, '');
    await waitUntil('the fault is injected', () => server.stderr().includes('fault injected'));
    expect((await server.exited).code).not.toBe(0);
    const sentences = server.stderr().match(/^weir: .*$/gm);
    expect(sentences).toEqual([expect.stringMatching(/^weir: acceptor 0 is unresponsive: /)]);
    expect(sentences![0]).toMatch(reason);
  });
});
