/** `weir policies` on a running server. */

import { expect, test } from 'vitest';
import { useServer } from '../support/test-server.ts';
import { callWeir, jsonLines } from '../support/weir-command.ts';

const server = useServer({
  policies: {
    login: {
      ...{ gateway: ['nginx', 'envoy'], identify: ['ip', 'header:x-user'], shadow: true, cost: 2 },
      windows: [
        { limit: 100, duration: 60_000 },
        { limit: 1_000, duration: 3_600_000, algorithm: 'gcra', burst: 20 },
      ],
      ...{ skip: ['preflight', '/health'], missing: 'deny' },
    },
    plain: { limit: 5, duration: 86_400_000, algorithm: 'fixed' },
  },
});

test('weir policies list shows a line for each policy, or the policies as JSON', async () => {
  const { code, stdout, stderr } = await callWeir(server.url, ['policies', 'list']);
  expect([code, stderr]).toEqual([0, '']);
  const rows = stdout
    .trimEnd()
    .split('\n')
    .map((line) => line.split(/ {2,}/));
  expect(rows).toEqual([
    [
      ...['NAMESPACE', 'GATEWAY', 'IDENTIFY', 'WINDOWS', 'COST', 'MODE'],
      ...['MISSING', 'ON ERROR', 'SKIP'],
    ],
    [
      ...['login', 'nginx, envoy', 'ip + header:x-user'],
      '100 per 1m, 1000 per 1h gcra burst 20',
      ...['2', 'shadow', 'deny', 'allow', 'preflight, /health'],
    ],
    ['plain', 'nginx', 'ip', '5 per 1d fixed', '1', 'deny', 'share', 'allow', '-'],
  ]);
  expect(await jsonLines(server.url, ['policies', 'list'])).toMatchObject([
    { namespace: 'login', shadow: true, skip: ['preflight', '/health'] },
    { namespace: 'plain', windows: [{ limit: 5, algorithm: 'fixed' }] },
  ]);
});
