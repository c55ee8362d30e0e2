/**
 * POST /v1/ratelimits.limit: may this identifier pass, by the fixed window? From the body to a
 * check that is in order, and from a decision to the answer's text; what decides is in `decide`.
 * Nothing is charged unless all of the body is in order and the key may do what it asks. Failures
 * are ApiErrors, in the order 400, 403, 404.
 */

import Type from 'typebox';
import type { Key } from '../../auth/keyring.ts';
import type { Decision } from '../../counters/window.ts';
import type { Check } from '../../decide/decider.ts';
import {
  AMOUNT_MAX,
  DURATION_MAX_MS,
  DURATION_MIN_MS,
  IDENTIFIER_MAX_CHARACTERS,
  NAMESPACE_MAX_CHARACTERS,
  RESOURCE_TEXT_MAX_CHARACTERS,
  RESOURCES_MAX,
} from '../../limits.ts';
import type { NamespaceFinder } from '../finder.ts';
import { parseBody } from '../json.ts';
import { bodyReader, flag, integer, text } from '../schema.ts';

export const DEFAULT_NAMESPACE = 'default';

const resourceText = () => Type.Optional(text(1, RESOURCE_TEXT_MAX_CHARACTERS));

/** Unknown keys are ignored, as v1 has it; `null` is no way to leave a field out. */
export const limitReader = bodyReader(
  Type.Object(
    {
      identifier: text(0, IDENTIFIER_MAX_CHARACTERS),
      limit: integer(1, AMOUNT_MAX),
      duration: integer(DURATION_MIN_MS, DURATION_MAX_MS),
      namespace: Type.Optional(text(1, NAMESPACE_MAX_CHARACTERS)),
      cost: Type.Optional(integer(0, AMOUNT_MAX)),
      async: Type.Optional(flag()),
      meta: Type.Optional(Type.Object({}, { takes: 'an object' })),
      resources: Type.Optional(
        Type.Array(
          Type.Object(
            { type: resourceText(), id: resourceText(), name: resourceText() },
            { takes: 'an object with the texts "type", "id" and "name"' },
          ),
          { maxItems: RESOURCES_MAX, takes: `an array of at most ${RESOURCES_MAX} objects` },
        ),
      ),
    },
    { takes: 'a JSON object' },
  ),
);

/**
 * What stands before `remaining` and after it, of the last answer: most checks have the limit and
 * the window of the one before.
 */
const made = { limit: 0, admitted: '', refused: '', reset: 0, end: '' };

/** The body of the 200. */
export function answerV1({ limit }: Check, { admitted, remaining, reset }: Decision): string {
  if (limit !== made.limit || made.admitted === '') {
    made.limit = limit;
    made.admitted = `{"success":true,"limit":${limit},"remaining":`;
    made.refused = `{"success":false,"limit":${limit},"remaining":`;
  }
  if (reset !== made.reset) {
    made.reset = reset;
    made.end = `,"reset":${reset}}`;
  }
  return (admitted ? made.admitted : made.refused) + remaining + made.end;
}

/** @param bytes the complete body */
export function readV1(
  namespaces: NamespaceFinder,
  key: Key,
  bytes: ArrayBuffer | Uint8Array,
): Check {
  const body = limitReader.read(parseBody(bytes));
  const { identifier, limit, duration, namespace: name = DEFAULT_NAMESPACE, cost = 1 } = body;
  const namespace =
    namespaces.find(key, 'limit', name, false) ?? namespaces.toUse(name, cost !== 0);
  return {
    namespace,
    identifier,
    limit,
    durationMs: duration,
    cost,
    isSliding: false,
    isAsync: body.async === true,
    overrideId: undefined,
  };
}
