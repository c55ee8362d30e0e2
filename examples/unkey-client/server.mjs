// @ts-check
/** A server that sends a check to weir with @unkey/ratelimit before it handles a request. */

import { createServer } from 'node:http';
import { Ratelimit } from '@unkey/ratelimit';

const rootKey = process.env.WEIR_KEY;
if (!rootKey) throw new Error('WEIR_KEY is not set');

const TIMEOUT_MS = Number(process.env.CHECK_TIMEOUT_MS ?? 1_000);
/** The decision while weir fails: this one is fail-open. `success: false` is fail-closed. */
const DECISION_ON_FAILURE = { success: true, limit: 0, remaining: 0, reset: 0 };

const limiter = new Ratelimit({
  baseUrl: process.env.WEIR_URL ?? 'http://127.0.0.1:7070',
  rootKey,
  namespace: 'reports',
  limit: 5,
  duration: '60s',
  // weir is stopped or late. The client retries within this time.
  timeout: { ms: TIMEOUT_MS, fallback: DECISION_ON_FAILURE },
  // weir rejects the check, for example because of an invalid key.
  onError: (error) => {
    console.warn('weir has not decided:', error.message);
    return DECISION_ON_FAILURE;
  },
});

const server = createServer(async (request, response) => {
  const decision = await limiter.limit(request.socket.remoteAddress ?? 'disconnected');
  if (decision !== DECISION_ON_FAILURE) setQuotaHeaders(response, decision);
  if (!decision.success) response.statusCode = 429;
  response.end(decision.success ? 'report\n' : 'too many requests\n');
});
const port = Number(process.env.PORT ?? 8080);
server.listen(port, '127.0.0.1', () => console.log(`http://127.0.0.1:${port}`));

/**
 * @param {import('node:http').ServerResponse} response
 * @param {import('@unkey/ratelimit').RatelimitResponse} decision
 */
function setQuotaHeaders(response, { success, remaining, reset }) {
  const seconds = Math.max(1, Math.ceil((reset - Date.now()) / 1_000));
  response.setHeader('RateLimit', `"reports";r=${remaining};t=${seconds}`);
  if (!success) response.setHeader('Retry-After', seconds);
}
