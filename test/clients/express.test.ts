/** An application in express with the module that weir prints for it. */

import { describe } from 'vitest';
import { express } from '../../src/cli/gateways/express.ts';
import { startGateway } from '../support/gateway.ts';
import { gatewayCases } from '../support/gateway-cases.ts';

const APPLICATION = new URL('./express.process.mjs', import.meta.url).pathname;

describe('express', () => {
  let upstream = '';
  gatewayCases({
    name: 'express',
    print: (setup) => {
      upstream = String(setup.upstream.port);
      return express(setup);
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
