/** Caddy on the configuration that weir prints for it. */

import { describe } from 'vitest';
import { gatewayCases } from '../support/gateway-cases.ts';
import { realCaddy } from '../support/gateways.ts';

describe.skipIf(realCaddy.isMissing)('Caddy', () => {
  gatewayCases({ ...realCaddy, isProxy: true });
});
