/** A module for express: weir is asked before any route acts. It fails as the policy says. */

import { weirClientSource } from './node-client.ts';
import type { GatewaySetup } from './setup.ts';

export function express(setup: GatewaySetup): string {
  const { namespace, identify, trustedHops } = setup.policy;
  const isFrameworks = identify.includes('ip') && trustedHops === 1;
  const behindProxy = `
//
// A caller's address is what express says: behind a proxy, app.set('trust proxy', 1).`;
  return `\
// weir.mjs: express asks weir about each request by the policy of ${namespace}, before any route.
//
//   import { limit } from "./weir.mjs";
//   app.use(limit);${isFrameworks ? behindProxy : ''}

${weirClientSource(setup)}
export async function limit(request, response, next) {
  const { status, headers, body } = await ask(identity(request));
  for (const [name, value] of Object.entries(headers)) response.setHeader(name, value);
  if (status === 200) return next();
  response.statusCode = status;
  response.end(body);
}
`;
}
