/**
 * POST /v2/ratelimit.limit and /v2/ratelimit.multiLimit: may this identifier pass, by the sliding
 * window; and may all of these, or none? From the body to checks that are in order, and from
 * decisions to the answer's text. Nothing is charged, and no namespace is made, unless all of the
 * body is in order and the key may do what it asks. Failures are ApiErrors, in the order 400, 403,
 * 404.
 */

import Type from 'typebox';
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
  MULTI_LIMIT_VALUES_MAX,
  NAMESPACE_MAX_CHARACTERS,
  V2_DURATION_MAX_MS,
} from '../../limits.ts';
import type { Namespace } from '../../namespaces/known.ts';
import { type AnswerWriter, piece } from '../answer.ts';
import { AskedCheck, type Takes } from '../asked.ts';
import type { NamespaceFinder } from '../finder.ts';
import { parseBody } from '../json.ts';
import type { RequestIds } from '../request-ids.ts';
import { FIELD, type Scan, UNUSUAL } from '../scan.ts';
import { integer, milliseconds, strictReader, text } from '../schema.ts';

const Limit = Type.Object(
  {
    namespace: text(1, NAMESPACE_MAX_CHARACTERS),
    identifier: text(1, IDENTIFIER_MAX_CHARACTERS),
    limit: integer(1, AMOUNT_MAX),
    duration: milliseconds(DURATION_MIN_MS, V2_DURATION_MAX_MS),
    cost: Type.Optional(integer(0, AMOUNT_MAX)),
  },
  { takes: 'a JSON object' },
);

export const limitReader = strictReader(Limit);
export const itemReader = strictReader(Limit, 'a check');

const TAKES: Takes = {
  required: FIELD.namespace | FIELD.identifier | FIELD.limit | FIELD.duration,
  optional: FIELD.cost,
  identifierMin: 1,
  durationMaxMs: V2_DURATION_MAX_MS,
};

/** Reads the checks of a thread, each into the same object as the one of its number before. */
export class ReaderV2 {
  readonly #scan: Scan;
  readonly #namespaces: NamespaceFinder;
  readonly #checks: AskedCheck[];

  constructor(scan: Scan, namespaces: NamespaceFinder) {
    this.#scan = scan;
    this.#namespaces = namespaces;
    this.#checks = Array.from({ length: MULTI_LIMIT_MAX }, () => new AskedCheck(scan.memory, true));
  }

  /** @param bytes the complete body */
  read(key: Key, bytes: ArrayBuffer | Uint8Array): AskedCheck {
    const check = this.#checks[0];
    const namespaces = this.#namespaces;
    const isTaken = this.#scan.isObject(bytes) && check.take(this.#scan, TAKES);
    if (!isTaken) check.set(limitReader.read(parseBody(bytes)), 0);
    const { named, cost } = check;
    check.namespace = namespaces.find(key, 'limit', named) ?? namespaces.toUse(named, cost !== 0);
    return check;
  }

  /**
   * The checks of one request.
   * @param bytes the complete body
   */
  readMany(key: Key, bytes: ArrayBuffer | Uint8Array): readonly AskedCheck[] {
    const checks = this.#scanMany(bytes) ?? this.#parseMany(bytes);
    const namespaces = this.#namespaces;
    let at = 0;
    try {
      // A 403 for any of them comes before a 404 for another.
      const mayAll = key.permissions.mayLimitAnywhere;
      for (at = 0; at < checks.length && !mayAll; at++) {
        namespaces.require(key, 'limit', checks[at].named);
      }
      const missing: number[] = [];
      const created = new Set<string>();
      let last: string | undefined;
      let namespace: Namespace | undefined;
      for (at = 0; at < checks.length; at++) {
        const check = checks[at];
        // Most name the same: to compare is less than to look up.
        if (check.named !== last) namespace = namespaces.find(key, 'limit', check.named);
        last = check.named;
        if (namespace !== undefined) {
          check.namespace = namespace;
          continue;
        }
        missing.push(at);
        if (check.cost === 0) continue;
        created.add(check.named);
        namespaces.requireRoom(created);
      }
      for (at of missing) {
        const check = checks[at];
        check.namespace = namespaces.toUse(check.named, check.cost !== 0);
      }
      return checks;
    } catch (error) {
      throw error instanceof ApiError ? error.inItem('', at) : error;
    }
  }

  /** @returns undefined for what it leaves to the schema */
  #scanMany(bytes: ArrayBuffer | Uint8Array): readonly AskedCheck[] | undefined {
    const scan = this.#scan;
    const length = scan.put(bytes);
    let at = scan.firstItem();
    for (let count = 0; at !== UNUSUAL && count < MULTI_LIMIT_MAX; at = scan.nextItem(at)) {
      at = scan.object(at);
      if (at === UNUSUAL || !this.#checks[count++].take(scan, TAKES)) return undefined;
      if (scan.isEnd(at, length)) return this.#checks.slice(0, count);
    }
    return undefined;
  }

  #parseMany(bytes: ArrayBuffer | Uint8Array): readonly AskedCheck[] {
    const items = parseBody(bytes, MULTI_LIMIT_VALUES_MAX);
    const takes = `an array of 1 to ${MULTI_LIMIT_MAX} checks`;
    if (!Array.isArray(items) || items.length < 1 || items.length > MULTI_LIMIT_MAX) {
      const message = `the body must be ${takes}; got ${describe(items)}`;
      throw new ApiError('BAD_REQUEST', message, { location: 'body', fix: `give ${takes}` });
    }
    let end = 0;
    return items.map((item, number) => {
      const check = this.#checks[number];
      try {
        end = check.set(itemReader.read(item), end);
      } catch (error) {
        throw error instanceof ApiError ? error.inItem('', number) : error;
      }
      return check;
    });
  }
}

const META = piece('{"meta":{"requestId":"');
const LIMIT = piece('"},"data":{"limit":');
const REMAINING = piece(',"remaining":');
const RESET = piece(',"reset":');
const ADMITTED = piece(',"success":true');
const REFUSED = piece(',"success":false');
const OVERRIDE = piece(',"overrideId":"');
const QUOTE = piece('"');
const END = piece('}}');

/** The body of the 200. */
export function answerV2(
  writer: AnswerWriter,
  ids: RequestIds,
  check: Check,
  decision: Decision,
): Uint8Array {
  writer.begin(0);
  writer.piece(META);
  ids.write(writer);
  writer.piece(LIMIT);
  writer.integer(check.limit);
  writer.piece(REMAINING);
  writer.integer(decision.remaining);
  writer.piece(RESET);
  writer.integer(decision.reset);
  writer.piece(decision.admitted ? ADMITTED : REFUSED);
  writeOverride(writer, check);
  writer.piece(END);
  return writer.all();
}

const ALL_PASSED = piece('"},"data":{"passed":true,"limits":[');
const NOT_ALL_PASSED = piece('"},"data":{"passed":false,"limits":[');
const NAMESPACE = piece('{"namespace":');
const NEXT_NAMESPACE = piece(',{"namespace":');
const IDENTIFIER = piece(',"identifier":');
const ITEM_LIMIT = piece(',"limit":');
const PASSED = piece(',"passed":true');
const FAILED = piece(',"passed":false');
const END_OF_ITEM = piece('}');
const END_OF_MANY = piece(']}}');

/** @param decision of a check, by its number */
export function answerMany(
  writer: AnswerWriter,
  ids: RequestIds,
  checks: readonly AskedCheck[],
  passed: boolean,
  decision: (number: number) => Decision,
): Uint8Array {
  writer.begin(0);
  writer.piece(META);
  ids.write(writer);
  writer.piece(passed ? ALL_PASSED : NOT_ALL_PASSED);
  for (let number = 0; number < checks.length; number++) {
    const check = checks[number];
    const { admitted, remaining, reset } = decision(number);
    writer.piece(number === 0 ? NAMESPACE : NEXT_NAMESPACE);
    writer.json(check.named);
    writer.piece(IDENTIFIER);
    writer.jsonOf(check.memory, check.from, check.to);
    writer.piece(ITEM_LIMIT);
    writer.integer(check.limit);
    writer.piece(REMAINING);
    writer.integer(remaining);
    writer.piece(RESET);
    writer.integer(reset);
    writer.piece(admitted ? PASSED : FAILED);
    writeOverride(writer, check);
    writer.piece(END_OF_ITEM);
  }
  writer.piece(END_OF_MANY);
  return writer.all();
}

function writeOverride(writer: AnswerWriter, { overrideId }: Check): void {
  if (overrideId === undefined) return;
  writer.piece(OVERRIDE);
  writer.ascii(overrideId);
  writer.piece(QUOTE);
}
