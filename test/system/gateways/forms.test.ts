/**
 * nginx, Caddy and HAProxy with the other forms of the printed configuration.
 * test/system/gateways/envoy.test.ts has the same tests for Envoy.
 */

import { describe } from 'vitest';
import { defineFormTests } from './gateway-form-cases.ts';
import { realCaddy, realHaproxy, realNginx } from './real-gateways.ts';

for (const gateway of [realNginx, realCaddy, realHaproxy]) {
  describe.skipIf(gateway.isMissing)(gateway.name, () => defineFormTests(gateway));
}
