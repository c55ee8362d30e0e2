/** A valid check, as the API passes it to the engine. */

import type { CheckParameters } from './decision.ts';
import type { Identity } from './hash.ts';
import type { Namespace } from './namespace.ts';

/** A check whose key may make it. An override that applies to it has replaced its terms. */
export interface Check extends CheckParameters {
  namespace: Namespace;
  /** The hash of the namespace and the identifier. */
  identity: Identity;
  /** Decide by the counter as it is, and deduct the cost later. */
  isAsync: boolean;
  /** The override that applies to it, where the response names it. */
  overrideId: string | undefined;
}

/** A copy for a later turn of the loop: requests reuse the objects of their checks. */
export function copyCheck(check: Check): Check {
  const { namespace, limit, durationMs, cost, rule, burst, isAsync, overrideId } = check;
  const { h0, h1, h2, h3 } = check.identity;
  const identity = { h0, h1, h2, h3 };
  return { namespace, identity, limit, durationMs, cost, rule, burst, isAsync, overrideId };
}
