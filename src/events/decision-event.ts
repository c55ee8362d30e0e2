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
  /** In JSON: the objects of many events would take far more memory than their bodies. */
  meta?: string | undefined;
  resources?: string | undefined;
}

export const IDENTIFIER_FORMS = ['text', 'hash'] as const;
/** How an event names an identifier. The hash depends on the key of the data directory. */
export type IdentifierForm = (typeof IDENTIFIER_FORMS)[number];

/**
 * Written field by field: `JSON.stringify` of the whole event takes several times as long.
 * @returns a line without its end
 */
export function formatEvent(event: DecisionEvent, form: IdentifierForm): string {
  const { identifier, identity, isAllowed, limit, durationMs, overrideId, policy } = event;
  let line = `{"time":${event.time},"namespace":${JSON.stringify(event.namespace)}`;
  if (form === 'text') line += textField('identifier', identifier);
  else if (identity !== undefined) line += `,"identifierHash":"${hashText(identity)}"`;
  line += `,"decision":"${isAllowed ? 'allowed' : 'denied'}","cost":${event.cost}`;
  if (limit !== undefined) {
    line += `,"limit":${limit},"duration":${durationMs}`;
    line += `,"remaining":${event.remaining},"reset":${event.reset}`;
  }
  if (overrideId !== undefined) line += `,"override":"${overrideId}"`;
  if (policy !== undefined) line += textField('policy', policy);
  if (event.isShadow === true) line += ',"shadow":true';
  return event.request === undefined ? `${line}}` : `${line}${requestFields(event.request)}}`;
}

function requestFields({ traceparent, meta, resources }: RequestDetails): string {
  const metaField = meta === undefined ? '' : `,"meta":${meta}`;
  const resourcesField = resources === undefined ? '' : `,"resources":${resources}`;
  return textField('traceparent', traceparent) + metaField + resourcesField;
}

function textField(name: string, text: string | undefined): string {
  return text === undefined ? '' : `,"${name}":${JSON.stringify(text)}`;
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
