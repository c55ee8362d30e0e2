/**
 * A decision as a line of JSON. Fields without a value are left out. Times are Unix milliseconds,
 * as in the API.
 */

import type { Identity } from '../core/hash.ts';

export interface DecisionEvent {
  /** When it was decided. */
  time: number;
  namespace: string;
  /** Undefined for a gateway check whose policy found no identifier. */
  identifier?: string;
  identity?: Identity;
  isAllowed: boolean;
  cost: number;
  /** Of the window that decided; undefined where no counter did. */
  limit?: number;
  durationMs?: number;
  remaining?: number;
  reset?: number;
  overrideId?: string;
  /** The namespace of the gateway policy that made the check. */
  policy?: string;
  /** Whether the policy let a denied request pass. */
  isShadow?: boolean;
  request?: RequestDetails;
}

/** What an event repeats of a request. weir does not use it. */
export interface RequestDetails {
  /** The header, if the request has a valid one. */
  traceparent?: string;
  meta?: unknown;
  resources?: unknown;
}

export const IDENTIFIER_FORMS = ['text', 'hash'] as const;
/** How an event names an identifier. The hash depends on the key of the data directory. */
export type IdentifierForm = (typeof IDENTIFIER_FORMS)[number];

/** @returns a line without its end */
export function formatEvent(event: DecisionEvent, form: IdentifierForm): string {
  const { time, namespace, identifier, identity, isAllowed, cost, request } = event;
  return JSON.stringify({
    time,
    namespace,
    ...(form === 'text' ? { identifier } : { identifierHash: identity && hashText(identity) }),
    decision: isAllowed ? 'allowed' : 'denied',
    cost,
    limit: event.limit,
    duration: event.durationMs,
    remaining: event.remaining,
    reset: event.reset,
    override: event.overrideId,
    policy: event.policy,
    shadow: event.isShadow === true ? true : undefined,
    traceparent: request?.traceparent,
    meta: request?.meta,
    resources: request?.resources,
  });
}

function hashText({ h0, h1, h2, h3 }: Identity): string {
  return [h0, h1, h2, h3].map((word) => (word >>> 0).toString(16).padStart(8, '0')).join('');
}

/** The header of W3C Trace Context: version, trace id, parent id and flags, and fields to come. */
const TRACEPARENT = /^[\da-f]{2}-[\da-f]{32}-[\da-f]{16}-[\da-f]{2}(-[\x21-\x7e]{0,200})?$/;

/** @returns undefined for a header that is not valid: the standard says that it must be ignored */
export function validTraceparent(header: string): string | undefined {
  return TRACEPARENT.test(header) ? header : undefined;
}
