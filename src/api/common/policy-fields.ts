/** The schema of a gateway policy in responses. */

import Type from 'typebox';
import { ALGORITHMS } from '../../core/algorithm-fields.ts';
import { DEFAULT_RULE } from '../../core/window-rules.ts';
import { GATEWAYS } from '../../policies/gateways.ts';
import { amount, flagged, listOf, named } from './responses.ts';

export function policyFields() {
  return {
    namespace: named('Name of the namespace.'),
    gateway: Type.Union([Type.Enum([...GATEWAYS]), Type.Array(Type.Enum([...GATEWAYS]))], {
      description: 'Gateway whose headers weir trusts, or an array if there are several.',
    }),
    windows: listOf(policyWindow(), 'All of them must allow a request.'),
    cost: amount('Tokens of a request.'),
    identify: listOf(Type.String(), 'Parts of the identifier.'),
    trustedHops: amount('Number of trusted proxies in a chain.'),
    ipv6Prefix: amount('Bits of an IPv6 address that identify a client.'),
    skip: Type.Optional(
      listOf(Type.String(), 'Requests that are allowed without a check: `preflight`, and paths.'),
    ),
    missing: Type.Enum(['share', 'allow', 'deny'], {
      description: 'Decision for a request without a part of its identifier.',
    }),
    onError: Type.Enum(['allow', 'deny'], { description: 'Decision if weir fails.' }),
    shadow: flagged('Whether the policy decides and counts, but denies no request.'),
    legacyHeaders: flagged('Whether responses also have the headers `X-RateLimit-*`.'),
  };
}

function policyWindow() {
  return Type.Object({
    limit: amount('Tokens that may be used in one window.'),
    duration: amount('Length of the window in milliseconds.'),
    algorithm: Type.Optional(
      Type.Enum([...ALGORITHMS], { description: `Window rule. Default: \`${DEFAULT_RULE}\`.` }),
    ),
    burst: Type.Optional(amount('Tokens that may be used at once. Only with `gcra`.')),
  });
}
