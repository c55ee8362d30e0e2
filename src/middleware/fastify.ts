/** The package's `/fastify`: a hook for Fastify. */

import { fastifyHook, type Hook } from './fastify-hook.ts';
import { gatewayLimit, type RateLimitOptions } from './gateway-limit.ts';

export type { Hook, Reply } from './fastify-hook.ts';
export type { ClientConcurrency, RateLimitOptions } from './gateway-limit.ts';

/**
 * Checks each request with a policy of weir, before any route runs. A denied request gets a 429,
 * and reaches no route. Without a decision of weir, `onError` applies. The hook rejects only if
 * `concurrency.identify` fails.
 *
 *     app.addHook('onRequest', rateLimit({ url: 'http://127.0.0.1:7072', namespace: 'login' }));
 *
 * @throws TypeError for invalid options
 */
export function rateLimit(options: RateLimitOptions): Hook {
  return fastifyHook(gatewayLimit('fastify', options));
}
