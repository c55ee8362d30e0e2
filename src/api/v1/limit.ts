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
import { AnswerWriter, type Piece, piece } from '../answer.ts';
import { AskedCheck, type Takes } from '../asked.ts';
import type { NamespaceFinder } from '../finder.ts';
import { parseBody } from '../json.ts';
import { FIELD, type Scan } from '../scan.ts';
import { bodyReader, flag, integer, milliseconds, text } from '../schema.ts';

const resourceText = () => Type.Optional(text(1, RESOURCE_TEXT_MAX_CHARACTERS));

/** Unknown keys are ignored, as v1 has it; `null` is no way to leave a field out. */
export const limitReader = bodyReader(
  Type.Object(
    {
      identifier: text(0, IDENTIFIER_MAX_CHARACTERS),
      limit: integer(1, AMOUNT_MAX),
      duration: milliseconds(DURATION_MIN_MS, DURATION_MAX_MS),
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

const REMAINING = piece(',"remaining":');
const RESET = piece(',"reset":');
const END = piece('}');
const ANSWER_BYTES = 128;

/** Answers of one kind. Before and behind `remaining` only what has changed is written anew. */
class Answer {
  readonly #writer = new AnswerWriter(ANSWER_BYTES);
  readonly #begin: Piece;
  #limit = -1;
  #reset = -1;
  /** Where the last `remaining` began and ended, and the answer did. */
  #remainingFrom = 0;
  #remainingTo = -1;
  #end = 0;

  constructor(begin: Piece) {
    this.#begin = begin;
  }

  write(limit: number, remaining: number, reset: number): Uint8Array {
    const writer = this.#writer;
    if (limit !== this.#limit) {
      writer.begin(0);
      writer.piece(this.#begin);
      writer.integer(limit);
      writer.piece(REMAINING);
      this.#limit = limit;
      this.#remainingFrom = writer.at;
      this.#remainingTo = -1;
    }
    writer.begin(this.#remainingFrom);
    writer.integer(remaining);
    if (writer.at !== this.#remainingTo || reset !== this.#reset) {
      this.#remainingTo = writer.at;
      this.#reset = reset;
      writer.piece(RESET);
      writer.integer(reset);
      writer.piece(END);
      this.#end = writer.at;
    }
    return writer.upTo(this.#end);
  }
}

const admitted = new Answer(piece('{"success":true,"limit":'));
const refused = new Answer(piece('{"success":false,"limit":'));

/** The body of the 200. */
export function answerV1({ limit }: Check, decision: Decision): Uint8Array {
  const answer = decision.admitted ? admitted : refused;
  return answer.write(limit, decision.remaining, decision.reset);
}
