/** Requests that take much more memory than their bytes, where weir does not prevent it. */

import { once } from 'node:events';
import { connect } from 'node:net';
import { expect, test } from 'vitest';
import { IMPORT_MAX_BYTES } from '../../../src/core/constants.ts';
import { useDataDirectory } from '../../support/data-directory.ts';
import {
  errorIn,
  LONGEST_WINDOW_MS,
  type ParsedResponse,
  readMetric,
  requestBytes,
  sendCheck,
  sendRequest,
} from '../../support/http.ts';
import { callOperation } from '../../support/operations.ts';
import { DECIDE_MODES } from '../../support/server.ts';
import { addKey, addRecords, withStore } from '../../support/store.ts';

const SMALL = ['--counters', '1024', '--acceptors', '1'];
const own = useDataDirectory(SMALL);

test('operations of any key, however many and large, block neither the memory nor the main thread', async () => {
  const key = withStore(own.dataDir, (store) => {
    addRecords(store, 'namespaces', [{ id: 'rlns_1', name: 'one', createdMs: 1 }]);
    return addKey(store, { permissions: ['ratelimit.rlns_1.limit'] });
  });
  const server = await own.start();
  const rss = () => readMetric(server.adminUrl, 'process_resident_memory_bytes');
  const before = await rss();
  // As many values as possible for their bytes.
  const items = '{},'.repeat((IMPORT_MAX_BYTES - 100) / 3);
  const body = `{"overrides":[${items}{}]}`;
  const headers = { Authorization: `Bearer ${key}` };
  const path = '/v1/ratelimits.importOverrides';
  const ROUNDS = 3;
  let isOver = false;
  const flood = async () => {
    const responses: ParsedResponse[] = [];
    for (let round = 0; round < ROUNDS; round++) {
      const send = () => sendRequest(server.port, { path, headers, body });
      responses.push(...(await Promise.all(Array.from({ length: 60 }, send))));
    }
    return responses;
  };
  const flooded = flood().finally(() => {
    isOver = true;
  });
  let most = 0;
  let looks = 0;
  while (!isOver) {
    expect((await fetch(`${server.adminUrl}/livez`)).status).toBe(200);
    most = Math.max(most, await rss());
    looks++;
  }
  const responses = await flooded;
  // The accepted operations were read, and are invalid.
  expect(new Set(responses.map(({ status }) => status))).toEqual(new Set([400, 503]));
  for (const response of responses.filter(({ status }) => status === 503)) {
    expect(response.headers['retry-after']).toBe('1');
    expect(errorIn(response).message).toContain('too many operations are queued');
  }
  expect(looks).toBeGreaterThan(ROUNDS);
  expect(most - before).toBeLessThan(800 * 2 ** 20);
  const override = { namespaceName: 'one', identifier: 'abc', limit: 5, duration: 1_000 };
  expect((await callOperation(server.port, 'ratelimits.setOverride', override)).status).toBe(200);
});

test.each(DECIDE_MODES)(
  'decided %s, bodies in chunks of one byte take no more memory than their length',
  async (mode) => {
    const args = ['--counters', '1024', '--acceptors', '2', '--decide', mode];
    const server = await own.start({ args });
    const rss = () => readMetric(server.adminUrl, 'process_resident_memory_bytes');
    const head = requestBytes({
      headers: { 'Content-Length': '', 'Transfer-Encoding': 'chunked' },
    });
    const packets = Buffer.from('1\r\n{\r\n'.repeat(65_000));
    const before = await rss();
    const sockets = Array.from({ length: 20 }, () => connect(server.port, '127.0.0.1'));
    for (const socket of sockets) {
      socket.on('error', () => {});
      socket.write(Buffer.concat([head, packets]));
    }
    // Each acceptor responds to a check only after it has read the bodies before.
    await Promise.all(sockets.map((socket) => once(socket, 'drain').catch(() => {})));
    const check = { identifier: 'beside', limit: 1_000, duration: LONGEST_WINDOW_MS };
    for (let i = 0; i < 20; i++) await sendCheck(server.port, check);
    expect((await rss()) - before).toBeLessThan(100 * 2 ** 20);
    for (const socket of sockets) socket.destroy();
  },
);
