/**
 * POST /v2/ratelimit.limit and /v2/ratelimit.multiLimit: may this identifier pass, by the sliding
 * window; and may all of these, or none? From the body to checks that are in order, and from
 * decisions to the answer's text. Nothing is charged, and no namespace is made, unless all of the
 * body is in order and the key may do what it asks. Failures are ApiErrors, in the order 400, 403,
 * 404.
 */

import Type, { type Static } from 'typebox';
import type { Key } from '../../auth/keyring.ts';
import type { Decision } from '../../counters/window.ts';
import type { Check } from '../../decide/decider.ts';
import { describe } from '../../describe.ts';
import { ApiError } from '../../errors.ts';
import {
  AMOUNT_MAX,
  DURATION_MIN_MS,
  IDENTIFIER_MAX_CHARACTERS,
  MULTI_LIMIT_MAX,
  NAMESPACE_MAX_CHARACTERS,
  V2_DURATION_MAX_MS,
} from '../../limits.ts';
import type { Namespace } from '../../namespaces/known.ts';
import type { NamespaceFinder } from '../finder.ts';
import { parseBody } from '../json.ts';
import { integer, strictReader, text } from '../schema.ts';

const Limit = Type.Object(
  {
    namespace: text(1, NAMESPACE_MAX_CHARACTERS),
    identifier: text(1, IDENTIFIER_MAX_CHARACTERS),
    limit: integer(1, AMOUNT_MAX),
    duration: integer(DURATION_MIN_MS, V2_DURATION_MAX_MS),
    cost: Type.Optional(integer(0, AMOUNT_MAX)),
  },
  { takes: 'a JSON object' },
);
type Body = Static<typeof Limit>;

const reader = strictReader(Limit);
const itemReader = strictReader(Limit, 'a check');

/** @param bytes the complete body */
export function readV2(
  namespaces: NamespaceFinder,
  key: Key,
  bytes: ArrayBuffer | Uint8Array,
): Check {
  const body = reader.read(parseBody(bytes));
  const { namespace: name, cost = 1 } = body;
  const namespace = namespaces.find(key, 'limit', name) ?? namespaces.toUse(name, cost !== 0);
  return checkOf(body, namespace);
}

/** The checks of one request, as it asks them and as they are decided. */
interface ManyChecks {
  bodies: readonly Body[];
  checks: Check[];
}

/** @param bytes the complete body */
export function readMany(
  namespaces: NamespaceFinder,
  key: Key,
  bytes: ArrayBuffer | Uint8Array,
): ManyChecks {
  const items = parseBody(bytes);
  const takes = `an array of 1 to ${MULTI_LIMIT_MAX} checks`;
  if (!Array.isArray(items) || items.length < 1 || items.length > MULTI_LIMIT_MAX) {
    const message = `the body must be ${takes}, got ${describe(items)}`;
    throw new ApiError('BAD_REQUEST', message, { location: 'body', fix: `give ${takes}` });
  }
  const found: (Namespace | undefined)[] = [];
  const checks: Check[] = [];
  let at = 0;
  try {
    for (at = 0; at < items.length; at++) itemReader.read(items[at]);
    const bodies: Body[] = items;
    // A 403 for any of them comes before a 404 for another.
    const mayAll = key.permissions.mayLimitAnywhere;
    for (at = 0; at < bodies.length && !mayAll; at++) {
      namespaces.require(key, 'limit', bodies[at].namespace);
    }
    const created = new Set<string>();
    let last: string | undefined;
    let namespace: Namespace | undefined;
    for (at = 0; at < bodies.length; at++) {
      const { namespace: name, cost } = bodies[at];
      // Most name the same: to compare is less than to look up.
      if (name !== last) namespace = namespaces.find(key, 'limit', name);
      last = name;
      found.push(namespace);
      if (namespace !== undefined || cost === 0) continue;
      created.add(name);
      namespaces.requireRoom(created);
    }
    for (at = 0; at < bodies.length; at++) {
      const body = bodies[at];
      const namespace = found[at] ?? namespaces.toUse(body.namespace, body.cost !== 0);
      checks.push(checkOf(body, namespace));
    }
    return { bodies, checks };
  } catch (error) {
    throw error instanceof ApiError ? error.inItem('', at) : error;
  }
}

function checkOf({ identifier, limit, duration, cost = 1 }: Body, namespace: Namespace): Check {
  return {
    namespace,
    identifier,
    limit,
    durationMs: duration,
    cost,
    isSliding: true,
    isAsync: false,
    overrideId: undefined,
  };
}

/** The body of the 200. */
export function answerV2(check: Check, decision: Decision, requestId: string): string {
  return (
    `{"meta":{"requestId":"${requestId}"},"data":{"limit":${check.limit},"remaining":` +
    `${decision.remaining},"reset":${decision.reset},"success":${decision.admitted}` +
    `${overrideText(check)}}}`
  );
}

/** @param decision of a check, by its number */
export function answerMany(
  { bodies, checks }: ManyChecks,
  passed: boolean,
  decision: (number: number) => Decision,
  requestId: string,
): string {
  // Most checks share their namespace, limit and window: what is between is put together once.
  const piece = { name: '', begin: '', limit: -1, middle: '', reset: -1, end: '', refused: '' };
  const texts = checks.map((check, i) => {
    const { admitted, remaining, reset } = decision(i);
    const { namespace } = bodies[i];
    if (namespace !== piece.name) {
      piece.name = namespace;
      piece.begin = `{"namespace":${quoted(namespace)},"identifier":`;
    }
    if (check.limit !== piece.limit) {
      piece.limit = check.limit;
      piece.middle = `,"limit":${check.limit},"remaining":`;
    }
    if (reset !== piece.reset) {
      piece.reset = reset;
      piece.end = `,"reset":${reset},"passed":true`;
      piece.refused = `,"reset":${reset},"passed":false`;
    }
    const begin = piece.begin + quoted(check.identifier) + piece.middle + remaining;
    return `${begin}${admitted ? piece.end : piece.refused}${overrideText(check)}}`;
  });
  const meta = `{"meta":{"requestId":"${requestId}"},"data":{"passed":${passed},"limits":[`;
  return `${meta}${texts.join(',')}]}}`;
}

function overrideText({ overrideId }: Check): string {
  return overrideId === undefined ? '' : `,"overrideId":"${overrideId}"`;
}

/** Text of which JSON escapes nothing, as most is: to ask takes less than `JSON.stringify`. */
const PLAIN = /^[ !#-[\]-~]*$/;

function quoted(text: string): string {
  return PLAIN.test(text) ? `"${text}"` : JSON.stringify(text);
}
