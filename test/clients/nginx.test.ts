/** nginx on the configuration that weir prints for it. */

import { describe } from 'vitest';
import { gatewayCases } from '../support/gateway-cases.ts';
import { realNginx } from '../support/gateways.ts';

describe.skipIf(realNginx.isMissing)('nginx', () => {
  gatewayCases({ ...realNginx, isProxy: true, dropsNames: true });
});
