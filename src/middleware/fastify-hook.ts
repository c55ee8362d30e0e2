/** What the hook for Fastify does with a decision. */

import type { CheckedRequest, ClosingResponse, GatewayDecision } from './gateway-check.ts';

/** The part of a reply of Fastify that the hook uses. */
export interface Reply {
  readonly raw: ClosingResponse;
  headers(values: Record<string, string>): unknown;
  code(status: number): { send(body: Uint8Array): unknown };
}

export type Hook = (request: CheckedRequest, reply: Reply) => Promise<unknown>;

export function fastifyHook(
  decide: (request: CheckedRequest, response: ClosingResponse) => Promise<GatewayDecision>,
): Hook {
  return async (request, reply) => {
    const { status, headers, body } = await decide(request, reply.raw);
    reply.headers(headers);
    if (status === 200) return undefined;
    // As bytes: Fastify would add a charset to the content type of a string.
    return reply.code(status).send(Buffer.from(body));
  };
}
