/** Acceptors that fail, end or stop to respond, and a SIGTERM while one does not respond. */

import { rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, test } from 'vitest';
import { useDataDirectory } from '../../support/data-directory.ts';
import { recordMeasurement, trialCount } from '../../support/guarantees.ts';
import { DECIDE_MODES, waitUntil } from '../../support/server.ts';

const FAULT = new URL('../../support/acceptor-fault.preload.mjs', import.meta.url).pathname;
const own = useDataDirectory([]);

describe.each(DECIDE_MODES)('decided %s, an acceptor', (mode) => {
  const SMALL = ['--counters', '1024', '--acceptors', '2', '--decide', mode];

  const startFaulty = async (fault: string, args: string[]) => {
    const file = join(own.dataDir, 'strike');
    const env = { FAULT: fault, FAULT_FILE: file };
    const server = await own.start({ args, execArgv: ['--import', FAULT], env });
    writeFileSync(file, '');
    await waitUntil('the fault is injected', () => server.stderr().includes('fault injected'));
    return server;
  };

  const DEATHS = trialCount(1, 10);
  test.each([
    ['throw', 'acceptor 0 failed: Error: injected fault'],
    ['reject', 'acceptor 0 failed: Error: injected fault'],
    ['exit', 'acceptor 0 ended by itself, with code 3'],
    ['block', 'acceptor 0 is unresponsive: no heartbeat for 1000 ms'],
  ])(
    'that fails or is unresponsive (%s) ends the process, with one sentence and no dump',
    async (fault, sentence) => {
      const tookMs: number[] = [];
      for (let death = 0; death < DEATHS; death++) {
        const server = await startFaulty(fault, SMALL);
        const startMs = performance.now();
        const { code, signal } = await server.exited;
        tookMs.push(Math.round(performance.now() - startMs));
        expect(code === 0).toBe(false);
        expect(signal).not.toBe('SIGABRT');
        const sentences = server.stderr().match(/^weir: .*$/gm);
        expect(sentences).toEqual([expect.stringContaining(sentence)]);
        expect(server.stderr()).not.toMatch(/native stack|FATAL|Aborted/i);
        rmSync(join(own.dataDir, 'strike'));
      }
      const ended = `the process ended after ${Math.max(...tookMs)} ms at most, never with 0`;
      recordMeasurement('P8', `acceptor: ${fault}, ${mode}`, `${DEATHS} deaths`, ended);
    },
    120_000,
  );

  test('that is unresponsive when SIGTERM comes ends the process, but not with 0', async () => {
    const server = await startFaulty('block', [...SMALL, '--drain-ms', '100']);
    const { code } = await server.stop();
    expect(code === 0).toBe(false);
    expect(server.stderr()).toMatch(/did not end|is unresponsive/);
  });
});
