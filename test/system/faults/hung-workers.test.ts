/** Checks that wait for the decision of a shard worker that is often hung in an endless loop. */

import { expect, test } from 'vitest';
import { useDataDirectory } from '../../support/data-directory.ts';
import {
  errorIn,
  LONGEST_WINDOW_MS,
  readMetric,
  requestBytes,
  sendRequest,
} from '../../support/http.ts';
import { callOperationOk } from '../../support/operations.ts';
import { type ServerProcess, waitUntil } from '../../support/server.ts';
import { workerFaults } from '../../support/worker-faults.ts';
import { openConnections } from './http-connections.ts';

const ARGS = ['--counters', '1024', '--decide', 'worker', '--acceptors', '1', '--workers', '1'];
/** More than a test sends before it gives up: no check is denied. */
const LIMIT = 10_000;
const body = (identifier: string) => ({ identifier, limit: LIMIT, duration: LONGEST_WINDOW_MS });

/** Repeats a check without a cost which the worker had begun when it died: it may get a 503. */
async function readRemaining({ port }: ServerProcess, identifier: string): Promise<number> {
  for (;;) {
    const remaining = await sendOne(port, { ...body(identifier), cost: 0 });
    if (remaining !== undefined) return remaining;
  }
}

/** @returns undefined where the check was begun, and not finished before its deadline */
async function sendOne(port: number, fields: object): Promise<number | undefined> {
  const answer = await sendRequest(port, { body: JSON.stringify(fields) });
  if (answer.status === 200) return JSON.parse(answer.body).remaining;
  expect(errorIn(answer).message).toContain('the check may have been counted');
  return undefined;
}

const own = useDataDirectory(ARGS);
const start = () => own.start(workerFaults(100, ['loop']));

test('a check whose client disconnects is counted, and its response is dropped', async () => {
  const server = await start();
  const metric = (name: string) => readMetric(server.adminUrl, name);
  const disconnect = async () => {
    const [{ socket, closed }] = openConnections(server.port, 1);
    socket.write(requestBytes({ body: JSON.stringify(body('gone')) }), () => {
      setTimeout(() => socket.resetAndDestroy(), 5);
    });
    await closed;
  };
  await waitUntil('the worker runs', async () => (await metric('weir_workers_running')) === 1);
  // Creates the namespace: metrics lack the checks of a namespace that is not registered yet.
  await callOperationOk(server.port, 'ratelimits.setOverride', {
    ...body('another'),
    namespaceName: 'default',
  });
  // Several at a time: a hung worker gets no more checks once one of them was withdrawn.
  await waitUntil('some clients have disconnected before their responses', async () => {
    await Promise.all(Array.from({ length: 5 }, disconnect));
    return (await metric('weir_undelivered_responses_total')) >= 5;
  });
  const name = 'weir_tokens_total{namespace="default",outcome="allowed"}';
  const before = await metric(name);
  expect(before).toBeGreaterThanOrEqual(5);
  const remaining = await readRemaining(server, 'gone');
  const [counted, repeated] = [
    await metric(name),
    await metric('weir_queue_entries_repeated_total'),
  ];
  expect(LIMIT - remaining).toBeGreaterThanOrEqual(before);
  // And one that the worker is deciding.
  expect(LIMIT - remaining).toBeLessThanOrEqual(counted + repeated + 1);
});

test('checks that a hung worker has not begun are withdrawn and decided in place', async () => {
  const server = await start();
  const withdrawn = () => readMetric(server.adminUrl, 'weir_queue_withdrawn_total');
  let sent = 0;
  let unfinished = 0;
  await waitUntil('some were withdrawn', async () => {
    await Promise.all(
      Array.from({ length: 5 }, async () => {
        const remaining = await sendOne(server.port, body('late'));
        if (remaining === undefined) unfinished++;
        else {
          expect(remaining).toBeLessThan(LIMIT);
          sent++;
        }
      }),
    );
    return (await withdrawn()) >= 5;
  });
  const remaining = await readRemaining(server, 'late');
  const repeated = await readMetric(server.adminUrl, 'weir_queue_entries_repeated_total');
  const used = LIMIT - remaining;
  expect(used).toBeGreaterThanOrEqual(sent);
  expect(used).toBeLessThanOrEqual(sent + unfinished + repeated + 1);
});
