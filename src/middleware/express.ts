/** The package's `/express`: a middleware for Express, and for frameworks that call it alike. */

import { expressMiddleware, type Middleware } from './express-middleware.ts';
import { gatewayLimit, type RateLimitOptions } from './gateway-limit.ts';

export type { Middleware, Request } from './express-middleware.ts';
export type { ClientConcurrency, RateLimitOptions } from './gateway-limit.ts';

/**
 * Checks each request with a policy of weir, before any later handler runs. A denied request gets a
 * 429, and reaches no later handler. Without a decision of weir, `onError` applies. The middleware
 * calls `next` with an error only if `concurrency.identify` fails, and never rejects.
 *
 *     app.use('/login', rateLimit({ url: 'http://127.0.0.1:7072', namespace: 'login' }));
 *
 * @throws TypeError for invalid options
 */
export function rateLimit(options: RateLimitOptions): Middleware {
  return expressMiddleware(gatewayLimit('express', options));
}
