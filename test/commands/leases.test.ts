/** `weir acquire`, `weir renew` and `weir release` on a running server. */

import { createServer } from 'node:http';
import { expect, test } from 'vitest';
import { NO_LEASE_ID } from '../../src/api/texts/examples.ts';
import { EXIT } from '../../src/core/exit.ts';
import { listen } from '../support/http.ts';
import { commandServer, ISO_TIME } from '../support/weir-command.ts';

const { weir, lines } = commandServer();

const acquire = (identifier: string) => ['acquire', identifier, '--limit', '3', '--ttl', '1h'];
const END = `ends at ${ISO_TIME} \\(in \\d+ s\\)`;

test('a lease is one line with its id and its end, and a denial one without', async () => {
  const granted = await weir([...acquire('tenant_1'), '--cost', '2']);
  expect([granted.code, granted.stderr]).toEqual([EXIT.OK, '']);
  const lease = `lease rlls_[\\w-]{22}, ${END}`;
  expect(granted.stdout).toMatch(new RegExp(`^granted: in use 2, limit 3, ${lease}\n$`));
  const denied = await weir([...acquire('tenant_1'), '--cost', '2']);
  expect(denied).toEqual({ code: EXIT.DENIED, stdout: 'denied: in use 2, limit 3\n', stderr: '' });
});

test('a renewal shows the new end, and fails for a lease that has ended or is unknown', async () => {
  const [{ leaseId }] = await lines(acquire('tenant_2'));
  const renewed = await weir(['renew', `${leaseId}`, '--ttl', '24h']);
  expect([renewed.code, renewed.stderr]).toEqual([EXIT.OK, '']);
  expect(renewed.stdout).toMatch(new RegExp(`^renewed: in use 1, limit 3, ${END}\n$`));
  const released = await weir(['release', `${leaseId}`]);
  expect(released).toEqual({ code: EXIT.OK, stdout: 'Released 1 token.\n', stderr: '' });
  expect((await weir(['release', `${leaseId}`])).stdout).toBe('The lease had ended before.\n');
  for (const id of [`${leaseId}`, NO_LEASE_ID]) {
    const stdout = 'The lease has ended, or is unknown.\n';
    const ended = await weir(['renew', id, '--ttl', '30s']);
    expect(ended).toEqual({ code: EXIT.DENIED, stdout, stderr: '' });
  }
});

test('the release of an unknown lease is an error of the server', async () => {
  const { code, stdout, stderr } = await weir(['release', NO_LEASE_ID]);
  const message = expect.stringMatching(/^weir: NOT_FOUND: there is no lease .*\n$/);
  expect([code, stdout, stderr]).toEqual([EXIT.SERVER_ERROR, '', message]);
});

test('a lease without a record has no id, and says why', async () => {
  const fields = { success: true, leaseId: null, inUse: 0, limit: 3, expiresAt: null };
  const full = createServer((_request, response) => response.end(JSON.stringify(fields)));
  const WEIR_URL = `http://127.0.0.1:${await listen(full)}`;
  const stdout = 'granted: in use 0, limit 3, no lease: there is no room for a record\n';
  expect(await weir(acquire('tenant_3'), { WEIR_URL })).toEqual({ code: 0, stdout, stderr: '' });
  full.close();
});
