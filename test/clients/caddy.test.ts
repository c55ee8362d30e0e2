/** Caddy on the configuration that weir prints for it. */

import { describe } from 'vitest';
import { caddy } from '../../src/cli/gateways/caddy.ts';
import { isMissing, startGateway } from '../support/gateway.ts';
import { gatewayCases } from '../support/gateway-cases.ts';

describe.skipIf(isMissing('caddy', 'version'))('Caddy', () => {
  gatewayCases({
    name: 'caddy',
    isProxy: true,
    print: caddy,
    start: (text, port, key) => {
      return startGateway({
        text,
        file: 'Caddyfile',
        port,
        command: (path) => ['caddy', 'run', '--config', path, '--adapter', 'caddyfile'],
        env: { WEIR_KEY: key },
      });
    },
  });
});
