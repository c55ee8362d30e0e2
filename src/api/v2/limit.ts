/**
 * POST /v2/ratelimit.limit and /v2/ratelimit.multiLimit: may this identifier pass, by the sliding
 * window; and may all of these, or none? From the body to checks that are in order, and from
 * decisions to the answer's text. Nothing is charged, and no namespace is made, unless all of the
 * body is in order and the key may do what it asks. Failures are ApiErrors, in the order 400, 403,
 * 404.
 */

import Type from 'typebox';
import type { Key } from '../../auth/keyring.ts';
import type { Check } from '../../core/check.ts';
import {
  AMOUNT_MAX,
  DURATION_MIN_MS,
  IDENTIFIER_MAX_CHARACTERS,
  MULTI_LIMIT_MAX,
  MULTI_LIMIT_VALUES_MAX,
  NAMESPACE_MAX_CHARACTERS,
  V2_DURATION_MAX_MS,
} from '../../core/constants.ts';
import type { Decision } from '../../core/decision.ts';
import { formatValue } from '../../core/describe.ts';
import { ApiError } from '../../core/errors.ts';
import type { Namespace } from '../../core/namespace.ts';
import { createStrictValidator, integer, milliseconds, text } from '../../core/schema.ts';
import { RULE } from '../../core/window-rules.ts';
import { type BodyScanner, FIELD, UNSUPPORTED } from '../common/body-scanner.ts';
import { type BodyWriter, encodeFragment } from '../common/body-writer.ts';
import { CheckRequest, type CheckRules } from '../common/check-request.ts';
import { parseBody } from '../common/json.ts';
import type { NamespaceFinder } from '../common/namespace-finder.ts';
import type { RequestIds } from '../common/request-ids.ts';

const CheckSchema = Type.Object(
  {
    namespace: text(1, NAMESPACE_MAX_CHARACTERS),
    identifier: text(1, IDENTIFIER_MAX_CHARACTERS),
    limit: integer(1, AMOUNT_MAX),
    duration: milliseconds(DURATION_MIN_MS, V2_DURATION_MAX_MS),
    cost: Type.Optional(integer(0, AMOUNT_MAX)),
  },
  { takes: 'a JSON object' },
);

export const limitValidator = createStrictValidator(CheckSchema);
export const itemValidator = createStrictValidator(CheckSchema, 'a check');

const CHECK_RULES: CheckRules = {
  requiredFields: FIELD.namespace | FIELD.identifier | FIELD.limit | FIELD.duration,
  optionalFields: FIELD.cost,
  identifierMinCharacters: 1,
  durationMaxMs: V2_DURATION_MAX_MS,
};

/** Reads the checks of a thread, each into the same object as the one of its number before. */
export class CheckReaderV2 {
  readonly #scanner: BodyScanner;
  readonly #namespaces: NamespaceFinder;
  readonly #checks: CheckRequest[];

  constructor(scanner: BodyScanner, namespaces: NamespaceFinder) {
    this.#scanner = scanner;
    this.#namespaces = namespaces;
    this.#checks = Array.from(
      { length: MULTI_LIMIT_MAX },
      () => new CheckRequest(scanner.memory, RULE.sliding, true),
    );
  }

  /** @param bytes the complete body */
  read(key: Key, bytes: ArrayBuffer | Uint8Array): CheckRequest {
    const check = this.#checks[0];
    const namespaces = this.#namespaces;
    const isTaken = this.#scanner.scanBody(bytes) && check.setFromScan(this.#scanner, CHECK_RULES);
    if (!isTaken) check.setFromBody(limitValidator.validate(parseBody(bytes)), 0);
    const { namespaceIdOrName, cost } = check;
    check.namespace =
      namespaces.find(key, 'limit', namespaceIdOrName) ??
      namespaces.getOrCreate(namespaceIdOrName, cost !== 0);
    return check;
  }

  /**
   * The checks of one request.
   * @param bytes the complete body
   */
  readMany(key: Key, bytes: ArrayBuffer | Uint8Array): readonly CheckRequest[] {
    const checks = this.#scanMany(bytes) ?? this.#parseMany(bytes);
    const namespaces = this.#namespaces;
    let at = 0;
    try {
      // A 403 for any of them comes before a 404 for another.
      const mayAll = key.permissions.mayLimitAnywhere;
      for (at = 0; at < checks.length && !mayAll; at++) {
        namespaces.requirePermission(key, 'limit', checks[at].namespaceIdOrName);
      }
      const missing: number[] = [];
      const created = new Set<string>();
      let last: string | undefined;
      let namespace: Namespace | undefined;
      for (at = 0; at < checks.length; at++) {
        const check = checks[at];
        // Most name the same: to compare is less than to look up.
        if (check.namespaceIdOrName !== last)
          namespace = namespaces.find(key, 'limit', check.namespaceIdOrName);
        last = check.namespaceIdOrName;
        if (namespace !== undefined) {
          check.namespace = namespace;
          continue;
        }
        missing.push(at);
        if (check.cost === 0) continue;
        created.add(check.namespaceIdOrName);
        namespaces.requireCapacity(created);
      }
      for (at of missing) {
        const check = checks[at];
        check.namespace = namespaces.getOrCreate(check.namespaceIdOrName, check.cost !== 0);
      }
      return checks;
    } catch (error) {
      throw error instanceof ApiError ? error.forListItem('', at) : error;
    }
  }

  /** @returns undefined for what it leaves to the schema */
  #scanMany(bytes: ArrayBuffer | Uint8Array): readonly CheckRequest[] | undefined {
    const scan = this.#scanner;
    const length = scan.load(bytes);
    let at = scan.firstItem();
    for (let count = 0; at !== UNSUPPORTED && count < MULTI_LIMIT_MAX; at = scan.nextItem(at)) {
      at = scan.scanObject(at);
      if (at === UNSUPPORTED || !this.#checks[count++].setFromScan(scan, CHECK_RULES))
        return undefined;
      if (scan.isEndOfList(at, length)) return this.#checks.slice(0, count);
    }
    return undefined;
  }

  #parseMany(bytes: ArrayBuffer | Uint8Array): readonly CheckRequest[] {
    const items = parseBody(bytes, MULTI_LIMIT_VALUES_MAX);
    const takes = `an array of 1 to ${MULTI_LIMIT_MAX} checks`;
    if (!Array.isArray(items) || items.length < 1 || items.length > MULTI_LIMIT_MAX) {
      const message = `the body must be ${takes}; got ${formatValue(items)}`;
      throw new ApiError('BAD_REQUEST', message, { location: 'body', fix: `give ${takes}` });
    }
    let end = 0;
    return items.map((item, number) => {
      const check = this.#checks[number];
      try {
        end = check.setFromBody(itemValidator.validate(item), end);
      } catch (error) {
        throw error instanceof ApiError ? error.forListItem('', number) : error;
      }
      return check;
    });
  }
}

const META = encodeFragment('{"meta":{"requestId":"');
const LIMIT = encodeFragment('"},"data":{"limit":');
const REMAINING = encodeFragment(',"remaining":');
const RESET = encodeFragment(',"reset":');
const ALLOWED = encodeFragment(',"success":true');
const DENIED = encodeFragment(',"success":false');
const OVERRIDE = encodeFragment(',"overrideId":"');
const QUOTE = encodeFragment('"');
const END = encodeFragment('}}');

/** The body of the 200. */
export function writeResponseV2(
  writer: BodyWriter,
  ids: RequestIds,
  check: Check,
  decision: Decision,
): Uint8Array {
  writer.seek(0);
  writer.writeFragment(META);
  ids.writeNext(writer);
  writer.writeFragment(LIMIT);
  writer.writeInteger(check.limit);
  writer.writeFragment(REMAINING);
  writer.writeInteger(decision.remaining);
  writer.writeFragment(RESET);
  writer.writeInteger(decision.reset);
  writer.writeFragment(decision.allowed ? ALLOWED : DENIED);
  writeOverride(writer, check);
  writer.writeFragment(END);
  return writer.finish();
}

const ALL_PASSED = encodeFragment('"},"data":{"passed":true,"limits":[');
const NOT_ALL_PASSED = encodeFragment('"},"data":{"passed":false,"limits":[');
const NAMESPACE = encodeFragment('{"namespace":');
const NEXT_NAMESPACE = encodeFragment(',{"namespace":');
const IDENTIFIER = encodeFragment(',"identifier":');
const ITEM_LIMIT = encodeFragment(',"limit":');
const PASSED = encodeFragment(',"passed":true');
const FAILED = encodeFragment(',"passed":false');
const END_OF_ITEM = encodeFragment('}');
const END_OF_MANY = encodeFragment(']}}');

/** @param decisions by the number of the check */
export function writeMultiResponse(
  writer: BodyWriter,
  ids: RequestIds,
  checks: readonly CheckRequest[],
  passed: boolean,
  decisions: readonly Decision[],
): Uint8Array {
  writer.seek(0);
  writer.writeFragment(META);
  ids.writeNext(writer);
  writer.writeFragment(passed ? ALL_PASSED : NOT_ALL_PASSED);
  for (let number = 0; number < checks.length; number++) {
    const check = checks[number];
    const { allowed, remaining, reset } = decisions[number];
    writer.writeFragment(number === 0 ? NAMESPACE : NEXT_NAMESPACE);
    writer.writeJsonText(check.namespaceIdOrName);
    writer.writeFragment(IDENTIFIER);
    writer.writeJsonTextFrom(check.memory, check.identifierFrom, check.identifierTo);
    writer.writeFragment(ITEM_LIMIT);
    writer.writeInteger(check.limit);
    writer.writeFragment(REMAINING);
    writer.writeInteger(remaining);
    writer.writeFragment(RESET);
    writer.writeInteger(reset);
    writer.writeFragment(allowed ? PASSED : FAILED);
    writeOverride(writer, check);
    writer.writeFragment(END_OF_ITEM);
  }
  writer.writeFragment(END_OF_MANY);
  return writer.finish();
}

function writeOverride(writer: BodyWriter, { overrideId }: Check): void {
  if (overrideId === undefined) return;
  writer.writeFragment(OVERRIDE);
  writer.writeAscii(overrideId);
  writer.writeFragment(QUOTE);
}
