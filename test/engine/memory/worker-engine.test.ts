/** A shard worker that dies, and has no successor. */

import { expect, test } from 'vitest';
import { useDataDirectory } from '../../support/data-directory.ts';
import {
  errorIn,
  LONGEST_WINDOW_MS,
  type ParsedResponse,
  readMetric,
  sendCheck,
  sendRequest,
} from '../../support/http.ts';
import { waitUntil } from '../../support/server.ts';
import { startWithoutWorkerRestart } from '../../support/worker-faults.ts';

const own = useDataDirectory([]);
const body = (identifier: string) => ({ identifier, limit: 100, duration: LONGEST_WINDOW_MS });

test('the check that a worker without a successor had begun gets a 503, all others a decision', async () => {
  const args = ['--counters', '1024', '--decide', 'worker'];
  const running = await startWithoutWorkerRestart(own.dataDir, args);
  own.started.push(running);
  // A check is withdrawn where the worker has not started yet.
  await waitUntil('the worker runs', async () => {
    return (await readMetric(running.adminUrl, 'weir_workers_running')) === 1;
  });
  const answers: ParsedResponse[] = [];
  const unanswered = () => answers.filter(({ status }) => status !== 200);
  // All of them are withdrawn where the worker is late.
  await waitUntil('the worker has begun a check', async () => {
    const sent = ['lost', 'a', 'b'].map((identifier) => {
      return sendRequest(running.port, { body: JSON.stringify(body(identifier)) });
    });
    answers.push(...(await Promise.all(sent)));
    return unanswered().length > 0;
  });
  const [lost, ...more] = unanswered();
  expect(more).toEqual([]);
  expect(lost.status).toBe(503);
  expect(lost.headers['retry-after']).toBe('1');
  expect(errorIn(lost).code).toBe('SERVICE_UNAVAILABLE');
  expect(errorIn(lost).message).toContain('the check may have been counted');
  for (let i = 0; i < 20; i++) {
    expect(await sendCheck(running.port, body('c'))).toMatchObject({ remaining: 99 - i });
  }
  const ready = await fetch(`${running.adminUrl}/readyz`);
  expect([ready.status, await ready.json()]).toMatchObject([
    200,
    { status: 'degraded', workers: { wanted: 1, running: 0 } },
  ]);
  expect(await running.stop()).toEqual({ code: 0, signal: null });
});
