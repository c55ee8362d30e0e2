/** What a policy probably does not mean, although it is valid. */

import { formatValue } from '../core/describe.ts';
import { readPart } from './identity-part.ts';
import type { Policy } from './policy.ts';

/** Headers in which proxies and CDNs send the address of the client. */
const ADDRESS_HEADERS: ReadonlySet<string> = new Set([
  'cf-connecting-ip',
  'cf-connecting-ipv6',
  'cf-pseudo-ipv4',
  'client-ip',
  'do-connecting-ip',
  'fastly-client-ip',
  'fly-client-ip',
  'true-client-ip',
  'x-appengine-user-ip',
  'x-azure-clientip',
  'x-azure-socketip',
  'x-client-ip',
  'x-cluster-client-ip',
  'x-envoy-external-address',
  'x-nf-client-connection-ip',
  'x-original-forwarded-for',
  'x-remote-addr',
  'x-remote-ip',
]);

/** @returns sentences without a full stop, each about one part of one policy */
export function policyWarnings(policies: readonly Policy[]): string[] {
  return policies.flatMap(({ namespace, identify }) => {
    return identify.flatMap((text) => {
      const part = readPart(text);
      if (part?.by !== 'header' || !ADDRESS_HEADERS.has(part.name)) return [];
      return [
        `policy ${formatValue(namespace)}: ${formatValue(text)} in "identify" compares an address` +
          ' as text, so a client has a new counter for each of its IPv6 addresses; use' +
          ` ${formatValue(`ip:${text}`)}`,
      ];
    });
  });
}
