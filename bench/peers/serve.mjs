/** Plain node:http around a limiter. Its JSON responses are as long as weir's. */

import { createServer } from 'node:http';

/**
 * @typedef {{ identifier: string, cost: number }} Check
 * @typedef {{ success: boolean, remaining: number, reset: number }} Decision
 * @param {number} limit
 * @param {(check: Check) => Promise<Decision>} decide
 */
export function serve(limit, decide) {
  const server = createServer((request, response) => {
    /** @type {Buffer[]} */
    const chunks = [];
    request.on('data', (chunk) => chunks.push(chunk));
    request.on('end', async () => {
      const decision = await decide(JSON.parse(Buffer.concat(chunks).toString()));
      const text = JSON.stringify({ limit, ...decision });
      const length = Buffer.byteLength(text);
      response.writeHead(200, { 'Content-Type': 'application/json', 'Content-Length': length });
      response.end(text);
    });
  });
  server.keepAliveTimeout = 60_000;
  server.listen(0, '127.0.0.1', () => printPort(server));
}

/** @param {import('node:net').Server} server */
export function printPort(server) {
  const address = server.address();
  if (address === null || typeof address === 'string') throw new Error('no port');
  process.stdout.write(`port ${address.port}\n`);
}
