/** express with express-rate-limit, keyed by the body. Argument: the limit. */

import express from 'express';
import { rateLimit } from 'express-rate-limit';
import { printPort } from './serve.mjs';

const limit = Number(process.argv[2]);
const app = express().disable('x-powered-by').disable('etag');
const limited = rateLimit({
  limit,
  windowMs: 60_000,
  standardHeaders: false,
  legacyHeaders: false,
  keyGenerator: (request) => request.body.identifier,
});

app.post('/v1/ratelimits.limit', express.json(), limited, (request, response) => {
  const { remaining, resetTime } = request.rateLimit;
  response.json({ success: true, limit, remaining, reset: resetTime.getTime() });
});
const server = app.listen(0, '127.0.0.1', () => printPort(server));
server.keepAliveTimeout = 60_000;
