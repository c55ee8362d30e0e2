/** The package's `/fastify`: a hook for Fastify. */

import { type CheckedRequest, gatewayCheck, type RateLimitOptions } from './gateway-check.ts';

export type { RateLimitOptions } from './gateway-check.ts';

/** The part of a reply of Fastify that the hook uses. */
export interface Reply {
  headers(values: Record<string, string>): unknown;
  code(status: number): { send(body: Uint8Array): unknown };
}

export type Hook = (request: CheckedRequest, reply: Reply) => Promise<unknown>;

/**
 * Checks each request with a policy of weir, before any route runs. A denied request gets a 429,
 * and reaches no route. The hook never rejects: without a decision of weir, `onError` applies.
 *
 *     app.addHook('onRequest', rateLimit({ url: 'http://127.0.0.1:7072', namespace: 'login' }));
 *
 * @throws TypeError for invalid options
 */
export function rateLimit(options: RateLimitOptions): Hook {
  const check = gatewayCheck('fastify', options);
  return async (request, reply) => {
    const { status, headers, body } = await check(request);
    reply.headers(headers);
    if (status === 200) return undefined;
    // As bytes: Fastify would add a charset to the content type of a string.
    return reply.code(status).send(Buffer.from(body));
  };
}
