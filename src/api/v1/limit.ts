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
import { type AnswerWriter, piece } from '../answer.ts';
import { AskedCheck, type Takes } from '../asked.ts';
import type { NamespaceFinder } from '../finder.ts';
import { parseBody } from '../json.ts';
import { FIELD, type Scan } from '../scan.ts';
import { bodyReader, flag, integer, text } from '../schema.ts';

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

const TAKES: Takes = {
  required: FIELD.identifier | FIELD.limit | FIELD.duration,
  optional: FIELD.namespace | FIELD.cost | FIELD.async,
  identifierMin: 0,
  durationMaxMs: DURATION_MAX_MS,
};

/** Reads the checks of a thread, each into the same object. */
export class ReaderV1 {
  readonly #scan: Scan;
  readonly #namespaces: NamespaceFinder;
  readonly #check: AskedCheck;

  constructor(scan: Scan, namespaces: NamespaceFinder) {
    this.#scan = scan;
    this.#namespaces = namespaces;
    this.#check = new AskedCheck(scan.memory, false);
  }

  /** @param bytes the complete body */
  read(key: Key, bytes: ArrayBuffer | Uint8Array): AskedCheck {
    const check = this.#check;
    const namespaces = this.#namespaces;
    const isTaken = this.#scan.isObject(bytes) && check.take(this.#scan, TAKES);
    if (!isTaken) check.set(limitReader.read(parseBody(bytes)), 0);
    const { named, cost } = check;
    check.namespace =
      namespaces.find(key, 'limit', named, false) ?? namespaces.toUse(named, cost !== 0);
    return check;
  }
}

const ADMITTED = piece('{"success":true,"limit":');
const REFUSED = piece('{"success":false,"limit":');
const REMAINING = piece(',"remaining":');
const RESET = piece(',"reset":');
const END = piece('}');

/** The body of the 200. */
export function answerV1(writer: AnswerWriter, { limit }: Check, decision: Decision): Uint8Array {
  writer.begin();
  writer.piece(decision.admitted ? ADMITTED : REFUSED);
  writer.integer(limit);
  writer.piece(REMAINING);
  writer.integer(decision.remaining);
  writer.piece(RESET);
  writer.integer(decision.reset);
  writer.piece(END);
  return writer.end();
}
