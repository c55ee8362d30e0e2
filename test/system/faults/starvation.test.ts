/**
 * Threads that wait for a CPU, because other programs use it. They are late, but not unresponsive.
 * `test/long/starvation.test.ts` has more servers, and limits of the CPU time.
 */

import { execFileSync } from 'node:child_process';
import { readdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
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

/**
 * Sends checks, one after the other, until one has been without an answer for so long.
 * @returns its answer, for which threads without a CPU may need minutes
 */
async function checkWithoutAnswer({ port }: ServerProcess, forMs: number) {
  for (;;) {
    const answer = sendCheck(port, CHECK);
    const first = await Promise.race([answer, sleep(forMs, 'none')]);
    // In an object: otherwise the caller would wait for it.
    if (first === 'none') return { answer };
    expect(first).toMatchObject({ success: true });
  }
}

test.each(DECIDE_MODES)(
  'threads that have no CPU for far longer than a heartbeat may be late do not count as unresponsive (%s)',
  async (mode) => {
    const server = await own.start({ args: [...ARGS, '--decide', mode] });
    expect(await sendCheck(server.port, CHECK)).toMatchObject({ success: true });
    endLoops = startBusyLoops(2, ON_CPU);
    starveThreads(server);
    const startMs = performance.now();
    const { answer } = await checkWithoutAnswer(server, 3 * UNRESPONSIVE_MS);
    expectHealthy(server);
    endLoops();
    expect(await answer).toMatchObject({ success: true });
    expect(await readMetric(server.adminUrl, 'weir_workers_replaced_total')).toBe(0);
    const starvedMs = Math.round(performance.now() - startMs);
    recordMeasurement(
      'P8',
      `threads have no CPU, ${mode}`,
      '1 server',
      `alive after ${starvedMs} ms`,
    );
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
    expect(await sendCheck(server.port, CHECK)).toMatchObject({ success: true });
    writeFileSync(file, '');
    await waitUntil('the fault is injected', () => server.stderr().includes('fault injected'));
    expect((await server.exited).code).not.toBe(0);
    const sentences = server.stderr().match(/^weir: .*$/gm);
    expect(sentences).toEqual([expect.stringMatching(/^weir: acceptor 0 is unresponsive: /)]);
    expect(sentences![0]).toMatch(reason);
  });
});
