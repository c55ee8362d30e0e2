/** A valid check, as the API passes it to the engine. */

import type { CheckParameters } from './decision.ts';
import type { Identity } from './hash.ts';
import type { Namespace } from './namespace.ts';

/** An authorized check. An applicable override has already replaced its parameters. */
export interface Check extends CheckParameters {
  namespace: Namespace;
  /** The hash of the namespace and the identifier. */
  identity: Identity;
  /** A getter may have to build it. */
  readonly identifier: string;
  /** Whether the check is decided on the current counter, and its cost is deducted later. */
  isAsync: boolean;
  /** The applied override, if the response reports it. */
  overrideId: string | undefined;
}

/** Copies a check for a later turn of the event loop. Requests reuse their check objects. */
export function copyCheck(check: Check): Check {
  const { namespace, identifier, limit, durationMs, cost, rule, burst, isAsync } = check;
  const { overrideId } = check;
  const { h0, h1, h2, h3 } = check.identity;
  const identity = { h0, h1, h2, h3 };
  const terms = { limit, durationMs, cost, rule, burst, isAsync };
  return { namespace, identity, identifier, ...terms, overrideId };
}
