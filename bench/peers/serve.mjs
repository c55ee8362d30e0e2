/** Plain node:http around a limiter: reads the check, asks, answers JSON as long as weir's. */

import { createServer } from 'node:http';

/**
 * @typedef {{ identifier: string, cost: number }} Check
 * @typedef {{ success: boolean, remaining: number, reset: number }} Verdict
 * @param {number} limit
 * @param {(check: Check) => Promise<Verdict>} decide
 */
export function serve(limit, decide) {
  const server = createServer((request, response) => {
    /** @type {Buffer[]} */
    const pieces = [];
    request.on('data', (piece) => pieces.push(piece));
    request.on('end', async () => {
      const verdict = await decide(JSON.parse(Buffer.concat(pieces).toString()));
      const text = JSON.stringify({ limit, ...verdict });
      const length = Buffer.byteLength(text);
      response.writeHead(200, { 'Content-Type': 'application/json', 'Content-Length': length });
      response.end(text);
    });
  });
  server.keepAliveTimeout = 60_000;
  server.listen(0, '127.0.0.1', () => sayPort(server));
}

/** @param {import('node:net').Server} server */
export function sayPort(server) {
  const address = server.address();
  if (address === null || typeof address === 'string') throw new Error('no port');
  process.stdout.write(`port ${address.port}\n`);
}
