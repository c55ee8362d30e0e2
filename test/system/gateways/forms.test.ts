/**
 * nginx, Caddy and HAProxy with the other forms of the printed configuration.
 * test/system/gateways/envoy.test.ts has the same tests for Envoy.
 */

import { describe } from 'vitest';
import { caddySnippet } from '../../../src/commands/gateways/caddy.ts';
import { SYSTEM_CA_FILE } from '../../../src/commands/gateways/common.ts';
import { nginxSnippet } from '../../../src/commands/gateways/nginx.ts';
import { defineFormTests } from './gateway-form-cases.ts';
import { caddySite, haproxySite, nginxSite } from './gateway-sites.ts';
import { realCaddy, realHaproxy, realNginx } from './real-gateways.ts';

describe.skipIf(realNginx.isMissing)('nginx', () => {
  defineFormTests({
    ...realNginx,
    printSnippet: nginxSnippet,
    addToSite: nginxSite,
    trust: (text, caFile) => text.replace(SYSTEM_CA_FILE, caFile),
    tlsHost: 'localhost',
  });
});

describe.skipIf(realCaddy.isMissing)('Caddy', () => {
  defineFormTests({
    ...realCaddy,
    printSnippet: caddySnippet,
    addToSite: caddySite,
    trust: (text, caFile) => {
      return text.replaceAll(/#.*tls_trusted_ca_certs <file>/g, `tls_trusted_ca_certs ${caFile}`);
    },
    tlsHost: 'localhost',
  });
});

describe.skipIf(realHaproxy.isMissing)('HAProxy', () => {
  defineFormTests({
    ...realHaproxy,
    addToSite: haproxySite,
    trust: (text, caFile) => text.replace('ca-file @system-ca', `ca-file ${caFile}`),
    tlsHost: 'localhost',
  });
});
