/** An application in fastify with the module that weir prints for it. */

import { describe } from 'vitest';
import { fastify } from '../../src/cli/gateways/fastify.ts';
import { startGateway } from '../support/gateway.ts';
import { gatewayCases } from '../support/gateway-cases.ts';

const APPLICATION = new URL('./fastify.process.mjs', import.meta.url).pathname;

describe('fastify', () => {
  let upstream = '';
  gatewayCases({
    name: 'fastify',
    print: (setup) => {
      upstream = String(setup.upstream.port);
      return fastify(setup);
    },
    start: (text, port, key) => {
      return startGateway({
        text,
        file: 'weir.mjs',
        port,
        command: (path) => [process.execPath, APPLICATION, path, String(port), upstream],
        env: { WEIR_KEY: key },
      });
    },
  });
});
