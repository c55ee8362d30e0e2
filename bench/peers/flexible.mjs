/** rate-limiter-flexible in memory, behind plain node:http. Argument: the limit. */

import { RateLimiterMemory, RateLimiterRes } from 'rate-limiter-flexible';
import { serve } from './serve.mjs';

const limit = Number(process.argv[2]);
const limiter = new RateLimiterMemory({ points: limit, duration: 60 });

serve(limit, async ({ identifier, cost }) => {
  let success = true;
  const result = await limiter.consume(identifier, cost).catch((denial) => {
    if (!(denial instanceof RateLimiterRes)) throw denial;
    success = false;
    return denial;
  });
  return { success, remaining: result.remainingPoints, reset: Date.now() + result.msBeforeNext };
});
