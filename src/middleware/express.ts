/** The package's `/express`: a middleware for Express, and for frameworks that call it alike. */

import type { IncomingMessage, ServerResponse } from 'node:http';
import { gatewayCheck, type RateLimitOptions } from './gateway-check.ts';

export type { RateLimitOptions } from './gateway-check.ts';

/** A request of Express. Without `ip`, the address of the connection is that of the client. */
export interface Request extends IncomingMessage {
  ip?: string | undefined;
  originalUrl?: string;
}

export type Middleware = (
  request: Request,
  response: ServerResponse,
  next: (error?: unknown) => void,
) => Promise<void>;

/**
 * Checks each request with a policy of weir, before any later handler runs. A denied request gets a
 * 429, and reaches no later handler. The middleware never calls `next` with an error: without a
 * decision of weir, `onError` applies.
 *
 *     app.use('/login', rateLimit({ url: 'http://127.0.0.1:7072', namespace: 'login' }));
 *
 * @throws TypeError for invalid options
 */
export function rateLimit(options: RateLimitOptions): Middleware {
  const check = gatewayCheck('express', options);
  return async (request, response, next) => {
    const { status, headers, body } = await check(request);
    // Something else has answered in the meantime, for example a timeout of the application.
    if (response.headersSent) return;
    for (const [name, value] of Object.entries(headers)) response.setHeader(name, value);
    if (status === 200) {
      next();
      return;
    }
    response.statusCode = status;
    response.end(body);
  };
}
