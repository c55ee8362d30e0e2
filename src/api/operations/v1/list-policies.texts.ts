/** The texts and the examples of GET /v1/ratelimits.listPolicies. */

import { ok, PAGE_TOO_LARGE } from '../../texts/examples.ts';
import { documented } from '../../texts/operation-texts.ts';
import { LACKS_READ } from '../../texts/sentences.ts';
import { listPolicies, response } from './list-policies.ts';

export const listPoliciesTexts = documented(listPolicies, response, {
  tag: 'Namespaces and policies',
  summary: 'List the policies of gateways',
  description: [
    'Lists the active policies of namespaces that the key may read, and the address to which ' +
      'gateways send checks without a key. A permission in one namespace is sufficient; other ' +
      'policies are then left out.',
  ],
  forbidden: LACKS_READ,
  examples: {
    page: {
      summary: 'One policy, and a port for gateways',
      request: {},
      ...ok({
        policies: [
          {
            cost: 1,
            trustedHops: 1,
            ipv6Prefix: 64,
            missing: 'share',
            onError: 'allow',
            shadow: false,
            legacyHeaders: false,
            gateway: ['nginx', 'caddy', 'envoy'],
            namespace: 'login',
            windows: [{ limit: 100, duration: 60_000 }],
            identify: ['ip'],
          },
        ],
        gateway: { url: 'http://127.0.0.1:7072' },
        total: 1,
      }),
    },
    invalid: {
      summary: 'A page that is too large',
      request: { limit: 101 },
      ...PAGE_TOO_LARGE(100),
    },
  },
});
