/** Sentences that the texts of several operations have. */

import { CREATE_NAMESPACE, type NamespaceAction } from '../../auth/permissions.ts';
import { NAMESPACES_MAX, REQUEST_ID_MS } from '../../core/constants.ts';
import { numberText } from './number-text.ts';
import { inNamespace } from './operation-texts.ts';

export const CREATES_NAMESPACE =
  `A new name creates a namespace. The key then needs the permission \`${CREATE_NAMESPACE}\`. A ` +
  `server has at most ${numberText(NAMESPACES_MAX)} namespaces.`;
export const GCRA =
  'With `gcra` a counter is a bucket of `burst` tokens. Used tokens come back one by one, ' +
  '`limit` of them in each `duration`. A check whose cost is above the burst is always denied. ' +
  '`gcra` has counters of its own; `fixed` and `sliding` share theirs. An override replaces ' +
  '`limit` and `duration`. If the burst is above the limit of the override, it is lowered to ' +
  'that limit.';
export const FULL_TABLE =
  'If a new counter finds no free slot and can evict no other counter, `WEIR_ON_FULL` decides. ' +
  '`deny` denies the check, with `remaining: 0`; its `reset` is the earliest end of a window in ' +
  'the slots for this counter. `allow` allows the check and does not count it.';
export const FULL_HOLDS =
  'At most about `WEIR_HOLDS` holds are recorded at once, and for one identifier at most a ' +
  'sixteenth of them. With `WEIR_ENGINE=redis` one identifier can have all of them, or a 64th in ' +
  'a Redis Cluster. Without room for a record `WEIR_ON_FULL` decides: `deny` denies the request; ' +
  '`allow` grants it without a record, so without an id.';
export const HOLD_NOT_FOUND =
  'It does not exist, it ended more than 10 minutes ago, or the key lacks the permission `limit` ' +
  'in its namespace.';
const REQUEST_ID_S = REQUEST_ID_MS / 1_000;
export const REPEATABLE =
  `With a \`requestId\` a client can repeat the request for ${REQUEST_ID_S} s, for example after ` +
  'a timeout. weir stores the answer to an allowed request. A repetition with the same API key, ' +
  'namespace, identifier and parameters gets this answer, and is not counted again. A denied ' +
  'request is decided anew.';
export const REPEATED_DIFFERENTLY =
  'The `requestId` is that of a request that was allowed with other parameters less than ' +
  `${REQUEST_ID_S} s ago.`;
export const AFTER_ASYNC =
  'The operation waits until all earlier asynchronous checks are deducted. If that takes longer ' +
  'than 2 s, the response is a 503, and nothing is changed.';
export const OVERRIDDEN_DURATION =
  'Give the `duration` that the request of the check had, also if an override replaced it. If an ' +
  'override is set or deleted after the check, the operation may select another counter.';
export const SETS_OVERRIDE =
  'Creates an override, or replaces its values under the same id. The response is sent when the ' +
  'override is durable and applies to the next check on every connection.';
export const APPLIES =
  'Each identifier that matches a pattern has its own counter. The algorithm and the cost stay ' +
  'those of the check. An override replaces all windows of a policy by one window, which has the ' +
  'algorithm and the burst of the first one.';
export const LIMITS_LEASES =
  'An override with `concurrency` also replaces the `limit` of `ratelimits.acquire` for its ' +
  'identifiers.';
export const CHECK_NOT_FOUND =
  'The namespace does not exist, and the key lacks the permission to create it.';
export const ENDS =
  'An override with `expires` ends by itself at that time. Checks then have the next override ' +
  'that matches, or their own limit. A set replaces all values: without `expires`, the override ' +
  'has no end any more. An override that is set after its end is a new one, with another id.';
export const OVERRIDE_NOT_FOUND = 'The namespace or the override does not exist.';
const LACKS = 'the API key lacks the permission';
export const LACKS_READ = `${LACKS} "ratelimit.*.read_namespace"`;
/** @param item the first item whose namespace the key may not use */
export const lacksForItem = (item: string, action: NamespaceAction) => {
  const quoted = inNamespace(action).map((permission) => `"${permission}"`);
  return `${item}: ${LACKS} ${quoted.join(' or ')}`;
};
export const PAGES = 'Pages are in the order of creation.';
export const ANALYTICS_OF_THIS_MACHINE =
  'The figures are those of this weir; with several machines, add them up.';
