/** Redis behind plain node:http, one script per check. Arguments: the limit, the port of Redis. */

import { readFileSync } from 'node:fs';
import { createClient } from 'redis';
import { serve } from './serve.mjs';

const [limit, redisPort] = process.argv.slice(2).map(Number);
const DURATION_MS = 60_000;
const client = createClient({ socket: { host: '127.0.0.1', port: redisPort } });
client.on('error', (error) => {
  throw error;
});
await client.connect();
const sha = await client.scriptLoad(readFileSync(new URL('window.lua', import.meta.url), 'utf8'));

serve(limit, async ({ identifier, cost }) => {
  // Different limits have separate counters.
  const keys = [`${limit}:${identifier}`];
  const [used, remainingMs] = await client.evalSha(sha, {
    keys,
    arguments: [String(cost), String(DURATION_MS)],
  });
  return {
    success: used <= limit,
    remaining: Math.max(0, limit - used),
    reset: Date.now() + remainingMs,
  };
});
