/** What an event says of a decision. Times are Unix milliseconds, as in the API. */

import type { Identity } from '../core/hash.ts';
import type { Namespace } from '../core/namespace.ts';
import type { RuleNumber } from '../core/window-rules.ts';

/** Fields without a value are left out of the line of an event. */
export interface DecisionEvent {
  namespace: Namespace;
  /** Undefined for a gateway check whose policy found no identifier. */
  identifier: string | undefined;
  identity: Identity | undefined;
  isAllowed: boolean;
  cost: number;
  /** Undefined where no counter decided. */
  window: DecidedWindow | undefined;
  /** Of a request for a lease, in place of the window. */
  lease?: DecidedLease;
  overrideId: string | undefined;
  /** The namespace of the gateway policy that made the check. */
  policy: string | undefined;
  /** Whether the policy let a denied request pass. */
  isShadow: boolean;
  request: RequestDetails;
}

/** The window that decided, after an override, and its counter after the check. */
export interface DecidedWindow {
  limit: number;
  durationMs: number;
  remaining: number;
  reset: number;
  /** These two are not in the line of an event. */
  rule: RuleNumber;
  burst: number;
}

export interface DecidedLease {
  limit: number;
  /** Tokens of all live leases of the identifier after the decision. */
  inUse: number;
}

/** The parts of a request that an event repeats. weir does not use them. */
export interface RequestDetails {
  /** The header, if the request has a valid one. */
  traceparent: string | undefined;
  /** In JSON. */
  meta?: string | undefined;
  resources?: string | undefined;
}

export const IDENTIFIER_FORMS = ['text', 'hash'] as const;
/** How an event names an identifier. The hash depends on the key of the data directory. */
export type IdentifierForm = (typeof IDENTIFIER_FORMS)[number];
