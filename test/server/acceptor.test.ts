/** An acceptor in this process: its App on loopback, and a message channel as the main thread. */

import { once } from 'node:events';
import { connect } from 'node:net';
import { MessageChannel } from 'node:worker_threads';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { rootKeyRecord } from '../../src/auth/keys.ts';
import { COUNTERS_MIN, SHARDS, SLOTS_PER_COUNTER } from '../../src/core/constants.ts';
import { groupsPerShard } from '../../src/engine/memory/layout.ts';
import { allocateTable } from '../../src/engine/memory/table-memory.ts';
import { allocateChannel } from '../../src/engine/worker/queue.ts';
import { makeOverrideId } from '../../src/overrides/id.ts';
import { OverrideTables } from '../../src/overrides/tables.ts';
import { Acceptor } from '../../src/server/acceptor.ts';
import type { AcceptorData, ToAcceptor, ToMain } from '../../src/server/messages.ts';
import { ClockPublisher } from '../../src/shared-memory/clock.ts';
import { allocateControl, Control } from '../../src/shared-memory/control.ts';
import {
  errorIn,
  exchange,
  LONGEST_WINDOW_MS,
  requestBytes,
  sendCheck,
  sendRequest,
} from '../support/http.ts';
import { freePort, ROOT_KEY, waitUntil } from '../support/server.ts';

const HASH_KEY = Buffer.from('0123456789abcdef');
const LIMIT = 10;
const CONNECTIONS_MAX = 5;
const { port1: acceptorPort, port2: mainPort } = new MessageChannel();
const sent: ToMain[] = [];
const controlBuffer = allocateControl(1, 1);
const control = new Control(controlBuffer);
let port: number;
let acceptor: Acceptor;
let closedCount = 0;

const connectionCount = () => control.acceptorStats(0).connections;
const send = (message: ToAcceptor) => mainPort.postMessage(message);

/** The next message of a kind, which may have arrived already. */
async function receive<K extends ToMain['kind']>(kind: K): Promise<Extract<ToMain, { kind: K }>> {
  for (;;) {
    const index = sent.findIndex((message) => message.kind === kind);
    if (index >= 0) return sent.splice(index, 1)[0] as Extract<ToMain, { kind: K }>;
    await once(mainPort, 'message');
  }
}

const check = (identifier: string) => {
  return sendCheck(port, { identifier, limit: LIMIT, duration: LONGEST_WINDOW_MS });
};

beforeAll(async () => {
  port = await freePort();
  new ClockPublisher(control);
  mainPort.on('message', (message: ToMain) => sent.push(message));
  const groups = groupsPerShard(COUNTERS_MIN * SLOTS_PER_COUNTER, SHARDS);
  const data: AcceptorData = {
    index: 0,
    addresses: {
      host: '127.0.0.1',
      port,
      socket: undefined,
      gateway: { host: '127.0.0.1', port: undefined, socket: undefined },
    },
    tls: undefined,
    events: undefined,
    connectionsMax: CONNECTIONS_MAX,
    url: `http://127.0.0.1:${port}`,
    control: controlBuffer,
    engine: {
      engine: 'memory',
      decide: 'in-place',
      fullTablePolicy: 'deny',
      tables: Array.from({ length: SHARDS }, (_, shard) => allocateTable(shard, groups)),
      channels: [[allocateChannel(0, 0)]],
    },
    hashKey: HASH_KEY,
    isReportingErrors: false,
    activePublication: { keys: { added: [rootKeyRecord(ROOT_KEY, 'root', 0)], removed: [] } },
  };
  acceptor = new Acceptor(data, acceptorPort, () => closedCount++);
  acceptor.start();
  const { apps } = await receive('ready');
  send({ kind: 'listen', apps: [apps] });
  await receive('listening');
});
afterAll(() => {
  if (!acceptor.isClosed) acceptor.close();
  acceptorPort.close();
});

test('decides checks, and asks the main thread to register a new namespace', async () => {
  expect(await check('counted')).toMatchObject({ success: true, limit: LIMIT, remaining: 9 });
  expect(await check('counted')).toMatchObject({ success: true, remaining: 8 });
  expect(await receive('namespace')).toEqual({ kind: 'namespace', name: 'default' });
});

test('forwards an operation, and answers with the result of the main thread', async () => {
  const response = sendRequest(port, {
    method: 'GET',
    path: '/v1/ratelimits.listNamespaces?limit=1',
  });
  const { number, request } = await receive('operation');
  expect(request).toMatchObject({ operation: 'ratelimits.listNamespaces', input: 'limit=1' });
  send({ kind: 'result', number, result: { body: '{"namespaces":[]}' } });
  expect(await response).toMatchObject({ status: 200, body: '{"namespaces":[]}' });
});

test('applies a publication to the next check', async () => {
  const tables = new OverrideTables(HASH_KEY, new URL('file:///'), () => {});
  tables.apply(undefined, {
    id: makeOverrideId(),
    row: 1,
    namespace: 'default',
    isNamespacePattern: false,
    identifier: 'overridden',
    limit: 3,
    durationMs: LONGEST_WINDOW_MS,
    isAsync: false,
  });
  expect(await check('overridden')).toMatchObject({ limit: LIMIT });
  send({ kind: 'publication', version: 7, publication: tables.compileSync() });
  expect(await receive('activated')).toEqual({ kind: 'activated', version: 7 });
  expect(await check('overridden')).toMatchObject({ limit: 3, remaining: 1 });
});

test('reports that it cannot listen, with the address', async () => {
  acceptor.listen([]);
  expect(await receive('fatal')).toEqual({
    kind: 'fatal',
    reason: `cannot listen on 127.0.0.1:${port}`,
  });
});

test('rejects a connection over the limit before its first request', async () => {
  const open = Array.from({ length: CONNECTIONS_MAX }, () => connect(port, '127.0.0.1'));
  await Promise.all(open.map((socket) => once(socket, 'connect')));
  const [response] = await exchange(port, []);
  expect(response).toMatchObject({ status: 503 });
  expect(errorIn(response).message).toBe('the limit of open connections is reached');
  for (const socket of open) socket.destroy();
  await waitUntil('all connections are closed', () => connectionCount() === 0);
});

test('drains, serves open connections and ends with close', async () => {
  const socket = connect(port, '127.0.0.1');
  await once(socket, 'connect');
  send({ kind: 'drain' });
  await receive('draining');
  await expect(sendRequest(port, { method: 'GET', path: '/' })).rejects.toThrow('ECONNREFUSED');
  const body = { identifier: 'counted', limit: LIMIT, duration: LONGEST_WINDOW_MS };
  socket.write(requestBytes({ body: JSON.stringify(body) }));
  const chunks: Buffer[] = [];
  socket.on('data', (chunk: Buffer) => chunks.push(chunk));
  await once(socket, 'end');
  expect(String(Buffer.concat(chunks))).toMatch(/^HTTP\/1.1 200 OK\r\n.*"remaining":7/s);
  expect(acceptor.isClosed).toBe(false);
  send({ kind: 'close' });
  await waitUntil('the acceptor is closed', () => acceptor.isClosed);
  expect([closedCount, connectionCount()]).toEqual([1, 0]);
});
