// @ts-check
/** A server that sends a check to weir with @unkey/ratelimit before it handles a request. */

import { createServer } from 'node:http';
import { Ratelimit } from '@unkey/ratelimit';

const rootKey = process.env.WEIR_KEY;
if (!rootKey) throw new Error('WEIR_KEY is not set');

const TIMEOUT_MS = Number(process.env.CHECK_TIMEOUT_MS ?? 1_000);
/** How long the circuit breaker is open. Then one request sends a check, and waits for it. */
const OPEN_MS = 1_000;
/** The decision while weir fails: these are fail-open. `success: false` is fail-closed. */
const DECISION_IF_LATE = { success: true, limit: 0, remaining: 0, reset: 0 };
const DECISION_IF_REJECTED = { ...DECISION_IF_LATE };

const limiter = new Ratelimit({
  baseUrl: process.env.WEIR_URL ?? 'http://127.0.0.1:7070',
  rootKey,
  namespace: 'reports',
  limit: 5,
  duration: '60s',
  // weir is stopped or late. The client retries within this time.
  timeout: { ms: TIMEOUT_MS, fallback: DECISION_IF_LATE },
  // weir rejects the check, for example because of an invalid key.
  onError: (error) => {
    console.warn('weir has not decided:', error.message);
    return DECISION_IF_REJECTED;
  },
});

let isOpen = false;
let nextCheckAt = 0;

/**
 * A circuit breaker: after a check without a response, requests do not wait for weir. A rejected
 * check leaves it closed, because one client could cause that for all others.
 * @param {string} identifier
 */
async function decide(identifier) {
  if (isOpen && Date.now() < nextCheckAt) return DECISION_IF_LATE;
  // While it is open, the requests that come during this check do not wait.
  nextCheckAt = Date.now() + TIMEOUT_MS + OPEN_MS;
  const decision = await limiter.limit(identifier);
  isOpen = decision === DECISION_IF_LATE;
  if (isOpen) nextCheckAt = Date.now() + OPEN_MS;
  return decision;
}

const server = createServer(async (request, response) => {
  const decision = await decide(request.socket.remoteAddress ?? 'disconnected');
  if (decision.limit > 0) setQuotaHeaders(response, decision);
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
