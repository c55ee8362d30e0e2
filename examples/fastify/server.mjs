// @ts-check
/** A Fastify application. weir checks each request for /exports, and no other. */

import Fastify from 'fastify';
import { limit } from './weir.mjs';

// Behind one proxy, Fastify must take the address of the client from X-Forwarded-For:
// Fastify({ trustProxy: 1 }).
const app = Fastify();

app.get('/health', async () => 'ok\n');

// The hook applies to the routes of its plugin only: probes are never denied.
app.register(async (limited) => {
  limited.addHook('onRequest', limit);
  limited.get('/exports', async () => ({ exports: [] }));
});

const port = Number(process.env.PORT ?? 8080);
console.log(await app.listen({ port, host: '127.0.0.1' }));
