/**
 * An application that sends a check to weir for each request. It responds with 200 if weir allows
 * the request, and with 502 if weir does not answer. After SIGTERM it still answers requests, and
 * ends when none has arrived for a while.
 * @param argv the port to listen on, the port of weir, the root key of weir
 */

import { Agent, createServer, request } from 'node:http';

const [, , port, weirPort, key] = process.argv;
const QUIET_MS = 200;
const check = JSON.stringify({ identifier: 'client', limit: 1e12, duration: 60_000 });
const agent = new Agent({ keepAlive: true });
let lastRequestAt = 0;

const server = createServer((incoming, response) => {
  lastRequestAt = performance.now();
  incoming.resume();
  const respond = (status) => response.writeHead(status, { 'Content-Length': 0 }).end();
  const outgoing = request({
    host: '127.0.0.1',
    port: Number(weirPort),
    method: 'POST',
    path: '/v1/ratelimits.limit',
    headers: { Authorization: `Bearer ${key}`, 'Content-Type': 'application/json' },
    agent,
  });
  outgoing.on('response', (answer) => {
    answer.resume();
    answer.on('end', () => respond(answer.statusCode));
    answer.on('error', () => respond(502));
  });
  outgoing.on('error', () => respond(502));
  outgoing.end(check);
});
server.listen(Number(port), '127.0.0.1');

process.on('SIGTERM', () => {
  setInterval(() => {
    if (performance.now() - lastRequestAt > QUIET_MS) process.exit(0);
  }, QUIET_MS / 10);
});
