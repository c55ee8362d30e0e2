/** Applications in express and fastify with the modules that weir prints for them. */

import { describe } from 'vitest';
import { express } from '../../src/cli/gateways/express.ts';
import { fastify } from '../../src/cli/gateways/fastify.ts';
import { startGateway } from '../support/gateway.ts';
import { gatewayCases } from '../support/gateway-cases.ts';

describe.each([
  { name: 'express', module: express },
  { name: 'fastify', module: fastify },
] as const)('$name', ({ name, module }) => {
  const application = new URL(`./${name}.process.mjs`, import.meta.url).pathname;
  let upstream = '';
  gatewayCases({
    name,
    isProxy: false,
    print: (setup) => {
      upstream = String(setup.upstream.port);
      return module(setup);
    },
    start: (text, port, key) => {
      return startGateway({
        text,
        file: 'weir.mjs',
        port,
        command: (path) => {
          // Longer ones than weir takes.
          const heads = '--max-http-header-size=131072';
          return [process.execPath, heads, application, path, String(port), upstream];
        },
        env: { WEIR_KEY: key },
      });
    },
  });
});
