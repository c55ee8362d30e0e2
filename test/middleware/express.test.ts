/** The middleware in a server of node:http. The files of test/system/gateways run it in Express. */

import { createServer } from 'node:http';
import { expect, test } from 'vitest';
import { rateLimit } from '../../src/middleware/express.ts';
import { listen } from '../support/http.ts';

test('a response that the application sends before the decision is left alone', async () => {
  // The application answers when it sees the check.
  let answer = () => {};
  const weir = createServer((_, response) => {
    answer();
    response.writeHead(429).end();
  });
  const port = await listen(weir);
  const limit = rateLimit({ url: `http://127.0.0.1:${port}`, namespace: 'login' });
  let calls = 0;
  let checked: Promise<void> | undefined;
  const application = createServer((request, response) => {
    answer = () => response.writeHead(503).end('too late');
    checked = limit(request, response, () => calls++);
  });
  const own = await listen(application);
  const response = await fetch(`http://127.0.0.1:${own}`);
  expect([response.status, await response.text()]).toEqual([503, 'too late']);
  await expect(checked).resolves.toBeUndefined();
  expect(calls).toBe(0);
  for (const server of [weir, application]) {
    server.closeAllConnections();
    server.close();
  }
});

test('a failure of `concurrency.identify` goes to `next`, and is not an unhandled rejection', async () => {
  const limit = rateLimit({
    ...{ url: 'http://127.0.0.1:1', key: 'k', namespace: 'login', checks: false },
    concurrency: { limit: 1, ttl: 1_000, identify: () => '' },
  });
  const errors: unknown[] = [];
  const application = createServer(async (request, response) => {
    await limit(request, response, (error) => {
      errors.push(error);
      response.end();
    });
  });
  const own = await listen(application);
  await fetch(`http://127.0.0.1:${own}`);
  expect(errors).toEqual([expect.any(TypeError)]);
  application.closeAllConnections();
  application.close();
});
