/** The connections of the port of `/json`. */

import { once } from 'node:events';
import type { RequestListener, ServerResponse } from 'node:http';
import { connect, type Socket } from 'node:net';
import { afterEach, expect, test } from 'vitest';
import { JsonServer } from '../../src/rls/json-server.ts';
import { freePort, waitUntil } from '../support/server.ts';

const MOST = 2;
let connections = 0;
const sockets: Socket[] = [];
const servers: JsonServer[] = [];
afterEach(async () => {
  for (const socket of sockets.splice(0)) socket.destroy();
  for (const server of servers.splice(0)) server.close();
  await waitUntil('no connection is open', () => connections === 0);
});

async function start(handler: RequestListener): Promise<{ server: JsonServer; port: number }> {
  const server = new JsonServer({
    handler,
    onConnection: (change) => {
      if (change > 0 && connections === MOST) return false;
      connections += change;
      return true;
    },
    onError: () => {},
  });
  servers.push(server);
  const port = await freePort();
  await server.listen('127.0.0.1', port);
  return { server, port };
}

async function open(port: number): Promise<{ socket: Socket; received: () => string }> {
  const socket = connect(port, '127.0.0.1');
  sockets.push(socket);
  let text = '';
  socket.on('data', (data) => {
    text += data;
  });
  socket.on('error', () => {});
  await once(socket, 'connect');
  return { socket, received: () => text };
}

const REQUEST = 'GET / HTTP/1.1\r\nHost: a\r\n\r\n';

test('connections are counted, and one too many is closed', async () => {
  const { port } = await start((_req, res) => void res.end('one'));
  const clients = [await open(port), await open(port)];
  await waitUntil('both are counted', () => connections === MOST);
  const { socket } = await open(port);
  await once(socket, 'close');
  for (const client of clients) {
    client.socket.write(REQUEST);
    await waitUntil('it is answered', () => client.received().endsWith('one'));
  }
  clients[0].socket.destroy();
  await waitUntil('one is counted', () => connections === MOST - 1);
});

test('a drain closes a connection after its response, and one without a request at once', async () => {
  const responses: ServerResponse[] = [];
  const { server, port } = await start((req, res) => {
    req.resume();
    responses.push(res);
  });
  const [busy, silent] = [await open(port), await open(port)];
  busy.socket.write(REQUEST);
  await waitUntil('the request has come', () => responses.length === 1);
  await waitUntil('both are counted', () => connections === MOST);
  const silentEnd = once(silent.socket, 'close');
  server.drain();
  await silentEnd;
  await expect(open(port)).rejects.toThrow('ECONNREFUSED');
  const busyEnd = once(busy.socket, 'end');
  responses[0].end('late');
  await busyEnd;
  expect(busy.received()).toContain('late');
});
