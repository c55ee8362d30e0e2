/** fastify with @fastify/rate-limit, keyed by the body. Argument: the limit. */

import rateLimit from '@fastify/rate-limit';
import fastify from 'fastify';
import { printPort } from './serve.mjs';

const limit = Number(process.argv[2]);
const app = fastify({ keepAliveTimeout: 60_000 });
const headers = {
  'x-ratelimit-limit': false,
  'x-ratelimit-remaining': false,
  'x-ratelimit-reset': false,
};

await app.register(rateLimit, {
  max: limit,
  timeWindow: 60_000,
  // By default it runs before the body is read, and its cache evicts above 5 000 identifiers.
  hook: 'preHandler',
  cache: 100_000,
  keyGenerator: (request) => request.body.identifier,
  addHeaders: headers,
  addHeadersOnExceeding: headers,
});
app.post('/v1/ratelimits.limit', async () => {
  // The plugin does not expose the remaining tokens.
  return { success: true, limit, remaining: limit, reset: Date.now() + 60_000 };
});
await app.listen({ host: '127.0.0.1', port: 0 });
printPort(app.server);
