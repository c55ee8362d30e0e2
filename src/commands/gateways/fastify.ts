/** A module for fastify: weir is asked before any route acts. It fails as the policy says. */

import { weirClientSource } from './node-client.ts';
import type { GatewaySetup } from './setup.ts';

export function fastify(setup: GatewaySetup): string {
  const { namespace, identify, trustedHops } = setup.policy;
  const isFrameworks = identify.includes('ip') && trustedHops === 1;
  const behindProxy = `
//
// A caller's address is what fastify says: behind a proxy, Fastify({ trustProxy: 1 }).`;
  return `\
// weir.mjs: fastify asks weir about each request by the policy of ${namespace}, before any route.
//
//   import { limit } from "./weir.mjs";
//   app.addHook('onRequest', limit);${isFrameworks ? behindProxy : ''}

${weirClientSource(setup)}
export async function limit(request, reply) {
  const { status, headers, body } = await ask(identity(request));
  reply.headers(headers);
  // As bytes: fastify would add a charset to the type of a text.
  if (status !== 200) return reply.code(status).send(Buffer.from(body));
}
`;
}
