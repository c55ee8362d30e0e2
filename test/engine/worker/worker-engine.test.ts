/** Checks that wait for a worker, and what may end them before it answers. */

import { connect } from 'node:net';
import { afterEach, beforeEach, expect, test } from 'vitest';
import {
  errorIn,
  LONGEST_WINDOW_MS,
  readMetric,
  requestBytes,
  sendCheck,
  sendRequest,
} from '../../support/http.ts';
import {
  removeDirectory,
  type ServerProcess,
  temporaryDirectory,
  waitUntil,
} from '../../support/server.ts';
import { startWithoutWorkerRestart, startWithWorkerFaults } from '../../support/worker-faults.ts';

const ARGS = ['--counters', '1024', '--decide', 'worker'];
const body = (identifier: string) => ({ identifier, limit: 1_000, duration: LONGEST_WINDOW_MS });

let dataDir: string;
let server: ServerProcess | undefined;
beforeEach(() => {
  dataDir = temporaryDirectory();
});
afterEach(async () => {
  server?.child.kill('SIGKILL');
  await server?.exited;
  removeDirectory(dataDir);
});

test('a check whose client goes away is counted, and its answer is dropped', async () => {
  const running = await startWithWorkerFaults(dataDir, [...ARGS, '--acceptors', '1'], 100, [
    'loop',
  ]);
  server = running;
  const bytes = requestBytes({ body: JSON.stringify(body('gone')) });
  const figure = (name: string) => readMetric(running.adminUrl, name);
  await waitUntil('some went away in time', async () => {
    await new Promise<void>((resolve) => {
      const socket = connect(running.port, '127.0.0.1', () => {
        socket.write(bytes);
        setTimeout(() => socket.resetAndDestroy(), 5);
      });
      socket.on('close', () => resolve());
    });
    return (await figure('weir_undelivered_responses_total')) >= 5;
  });
  const name = 'weir_tokens_total{namespace="default",outcome="allowed"}';
  const before = await figure(name);
  expect(before).toBeGreaterThanOrEqual(5);
  const { remaining } = await sendCheck(running.port, { ...body('gone'), cost: 0 });
  const [counted, repeated] = [
    await figure(name),
    await figure('weir_queue_entries_repeated_total'),
  ];
  expect(1_000 - remaining).toBeGreaterThanOrEqual(before);
  // And one that the worker has in hand just now.
  expect(1_000 - remaining).toBeLessThanOrEqual(counted + repeated + 1);
});

test('checks that a hung worker has not begun are taken back and answered in place', async () => {
  const running = await startWithWorkerFaults(dataDir, [...ARGS, '--acceptors', '1'], 100, [
    'loop',
  ]);
  server = running;
  const takenBack = () => readMetric(running.adminUrl, 'weir_queue_withdrawn_total');
  let sent = 0;
  await waitUntil('some were taken back', async () => {
    await Promise.all(
      Array.from({ length: 5 }, async () => {
        expect((await sendCheck(running.port, body('late'))).remaining).toBeLessThan(1_000);
        sent++;
      }),
    );
    return (await takenBack()) >= 5;
  });
  const { remaining } = await sendCheck(running.port, { ...body('late'), cost: 0 });
  const repeated = await readMetric(running.adminUrl, 'weir_queue_entries_repeated_total');
  const used = 1_000 - remaining;
  expect(used).toBeGreaterThanOrEqual(sent);
  expect(used).toBeLessThanOrEqual(sent + repeated + 1);
});

test('a check in the hand of a worker that has no successor gets a 503, and others an answer', async () => {
  const running = await startWithoutWorkerRestart(dataDir, ARGS);
  server = running;
  // What waits for a worker that is not there yet is taken back.
  await waitUntil('the worker runs', async () => {
    return (await readMetric(running.adminUrl, 'weir_workers_running')) === 1;
  });
  const [lost, ...others] = await Promise.all(
    ['lost', 'a', 'b'].map((identifier) => {
      return sendRequest(running.port, { body: JSON.stringify(body(identifier)) });
    }),
  );
  const unanswered = [lost, ...others].filter(({ status }) => status === 503);
  expect(unanswered.length).toBe(1);
  expect(unanswered[0].headers['retry-after']).toBe('1');
  expect(errorIn(unanswered[0]).code).toBe('SERVICE_UNAVAILABLE');
  expect(errorIn(unanswered[0]).message).toContain('the check may have been counted');
  for (let i = 0; i < 20; i++) {
    expect(await sendCheck(running.port, body('c'))).toMatchObject({ remaining: 999 - i });
  }
  const ready = await fetch(`${running.adminUrl}/readyz`);
  expect([ready.status, await ready.json()]).toMatchObject([
    200,
    { status: 'degraded', workers: { wanted: 1, running: 0 } },
  ]);
  expect(await running.stop()).toEqual({ code: 0, signal: null });
});
