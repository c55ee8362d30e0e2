/** What the middleware for Express does with a decision. */

import type { IncomingMessage, ServerResponse } from 'node:http';
import type { GatewayDecision } from './gateway-check.ts';

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

export function expressMiddleware(
  decide: (request: Request, response: ServerResponse) => Promise<GatewayDecision>,
): Middleware {
  return async (request, response, next) => {
    let decision: GatewayDecision;
    try {
      decision = await decide(request, response);
    } catch (error) {
      // Express 4, connect and node:http would leave a rejection unhandled, which ends the process.
      next(error);
      return;
    }
    const { status, headers, body } = decision;
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
