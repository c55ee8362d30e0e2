/** nginx on the configuration that weir prints for it. */

import { describe } from 'vitest';
import { nginx } from '../../src/cli/gateways/nginx.ts';
import { isMissing, startGateway } from '../support/gateway.ts';
import { gatewayCases } from '../support/gateway-cases.ts';

describe.skipIf(isMissing('nginx', '-v'))('nginx', () => {
  gatewayCases({
    name: 'nginx',
    isProxy: true,
    dropsNames: true,
    print: nginx,
    start: (text, port, key) => {
      return startGateway({
        text: text.replace('$key_of_weir', key),
        file: 'nginx.conf',
        port,
        command: (path, directory) => ['nginx', '-p', directory, '-c', path, '-g', 'daemon off;'],
      });
    },
  });
});
