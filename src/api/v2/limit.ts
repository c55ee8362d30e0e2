/**
 * POST /v2/ratelimit.limit and /v2/ratelimit.multiLimit, one check or a batch of them, by a sliding
 * window unless the body names another algorithm: reads a body to valid checks, and writes the body
 * of the response from their decisions. Nothing is counted, and no namespace is created, unless the
 * whole body is valid and the key has the permissions. Failures are ApiErrors, in the order 400,
 * 403, 404.
 */

import Type from 'typebox';
import type { Key } from '../../auth/keyring.ts';
import { algorithmFields } from '../../core/algorithm-fields.ts';
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
import { type Decision, NEVER } from '../../core/decision.ts';
import { formatValue } from '../../core/describe.ts';
import { ApiError } from '../../core/errors.ts';
import { encodeFragment, type JsonWriter } from '../../core/json-writer.ts';
import type { Namespace } from '../../core/namespace.ts';
import {
  createStrictValidator,
  field,
  integer,
  JSON_OBJECT,
  milliseconds,
  text,
} from '../../core/schema.ts';
import { DEFAULT_RULE, RULE } from '../../core/window-rules.ts';
import { type BodyScanner, FIELD, UNSUPPORTED } from '../common/body-scanner.ts';
import {
  CHECK_FIELDS,
  CheckRequest,
  type CheckRules,
  DEFAULT_COST,
} from '../common/check-request.ts';
import { parseBody } from '../common/input.ts';
import type { NamespaceFinder } from '../common/namespace-finder.ts';
import type { RequestIds } from '../common/request-ids.ts';

const CheckSchema = Type.Object(
  {
    namespace: field(
      text(1, NAMESPACE_MAX_CHARACTERS),
      'Name or id of the namespace. A text that begins with `rlns_` is an id. The first check of ' +
        'a new name, if it has a cost, creates the namespace.',
    ),
    identifier: field(text(1, IDENTIFIER_MAX_CHARACTERS), CHECK_FIELDS.identifier),
    limit: field(integer(1, AMOUNT_MAX), CHECK_FIELDS.limit),
    duration: field(milliseconds(DURATION_MIN_MS, V2_DURATION_MAX_MS), CHECK_FIELDS.duration),
    cost: Type.Optional(field(integer(0, AMOUNT_MAX), CHECK_FIELDS.cost, DEFAULT_COST)),
    ...algorithmFields(DEFAULT_RULE),
  },
  JSON_OBJECT,
);

export const limitValidator = createStrictValidator(CheckSchema);
export const itemValidator = createStrictValidator(CheckSchema, 'a check');

const CHECK_RULES: CheckRules = {
  requiredFields: FIELD.namespace | FIELD.identifier | FIELD.limit | FIELD.duration,
  optionalFields: FIELD.cost,
  identifierMinCharacters: 1,
  durationMaxMs: V2_DURATION_MAX_MS,
};

/** Reads the checks of a thread, by index into objects that the next request overwrites. */
export class CheckReaderV2 {
  readonly #scanner: BodyScanner;
  readonly #namespaces: NamespaceFinder;
  readonly #checks: CheckRequest[];

  constructor(scanner: BodyScanner, namespaces: NamespaceFinder) {
    this.#scanner = scanner;
    this.#namespaces = namespaces;
    this.#checks = Array.from(
      { length: MULTI_LIMIT_MAX },
      () => new CheckRequest(scanner.memory, RULE[DEFAULT_RULE], true),
    );
  }

  /** @param bytes the complete body */
  read(key: Key, bytes: ArrayBuffer | Uint8Array): CheckRequest {
    const check = this.#checks[0];
    const namespaces = this.#namespaces;
    const isScanned =
      this.#scanner.scanBody(bytes) && check.setFromScan(this.#scanner, CHECK_RULES);
    if (!isScanned) check.setFromBody(limitValidator.validate(parseBody(bytes)), 0);
    const { namespaceIdOrName, cost } = check;
    check.namespace =
      namespaces.find(key, 'limit', namespaceIdOrName) ??
      namespaces.getOrCreate(namespaceIdOrName, cost !== 0);
    return check;
  }

  /** @param bytes the complete body */
  readMany(key: Key, bytes: ArrayBuffer | Uint8Array): readonly CheckRequest[] {
    const checks = this.#scanMany(bytes) ?? this.#parseMany(bytes);
    const namespaces = this.#namespaces;
    let index = 0;
    try {
      // A 403 for any check has precedence over a 404 for another.
      const mayAll = key.permissions.mayLimitAnywhere;
      for (index = 0; index < checks.length && !mayAll; index++) {
        namespaces.requirePermission(key, 'limit', checks[index].namespaceIdOrName);
      }
      const missing: number[] = [];
      const created = new Set<string>();
      let last: string | undefined;
      let namespace: Namespace | undefined;
      for (index = 0; index < checks.length; index++) {
        const check = checks[index];
        // Most checks of a batch name the same namespace, and comparing costs less than a look-up.
        if (check.namespaceIdOrName !== last)
          namespace = namespaces.find(key, 'limit', check.namespaceIdOrName);
        last = check.namespaceIdOrName;
        if (namespace !== undefined) {
          check.namespace = namespace;
          continue;
        }
        missing.push(index);
        if (check.cost === 0) continue;
        created.add(check.namespaceIdOrName);
        namespaces.requireCapacity(created);
      }
      for (index of missing) {
        const check = checks[index];
        const { namespaceIdOrName: name } = check;
        // A check without a cost is one of the namespace that another check of the list creates.
        check.namespace = namespaces.getOrCreate(name, created.has(name));
      }
      return checks;
    } catch (error) {
      throw error instanceof ApiError ? error.forListItem('', index) : error;
    }
  }

  /** @returns undefined for a body that `#parseMany` has to read */
  #scanMany(bytes: ArrayBuffer | Uint8Array): readonly CheckRequest[] | undefined {
    const scanner = this.#scanner;
    const length = scanner.load(bytes);
    let at = scanner.firstItem();
    for (let count = 0; at !== UNSUPPORTED && count < MULTI_LIMIT_MAX; at = scanner.nextItem(at)) {
      at = scanner.scanObject(at);
      if (at === UNSUPPORTED || !this.#checks[count++].setFromScan(scanner, CHECK_RULES))
        return undefined;
      if (scanner.isEndOfList(at, length)) return this.#checks.slice(0, count);
    }
    return undefined;
  }

  #parseMany(bytes: ArrayBuffer | Uint8Array): readonly CheckRequest[] {
    const items = parseBody(bytes, MULTI_LIMIT_VALUES_MAX);
    const accepted = `an array of 1 to ${MULTI_LIMIT_MAX} checks`;
    if (!Array.isArray(items) || items.length < 1 || items.length > MULTI_LIMIT_MAX) {
      const message = `the body must be ${accepted}; got ${formatValue(items)}`;
      throw new ApiError('BAD_REQUEST', message, { location: 'body', fix: `give ${accepted}` });
    }
    let end = 0;
    return items.map((item, index) => {
      const check = this.#checks[index];
      try {
        end = check.setFromBody(itemValidator.validate(item), end);
      } catch (error) {
        throw error instanceof ApiError ? error.forListItem('', index) : error;
      }
      return check;
    });
  }
}

const META = encodeFragment('{"meta":{"requestId":"');
const LIMIT = encodeFragment('"},"data":{"limit":');
const REMAINING = encodeFragment(',"remaining":');
const RESET = encodeFragment(',"reset":');
const PASSES_AT = encodeFragment(',"passesAt":');
const ALLOWED = encodeFragment(',"success":true');
const DENIED = encodeFragment(',"success":false');
const OVERRIDE = encodeFragment(',"overrideId":"');
const QUOTE = encodeFragment('"');
const END = encodeFragment('}}');

/** The body of the 200 response, valid until the next one is written. */
export function writeResponseV2(
  writer: JsonWriter,
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
  writePassesAt(writer, decision);
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
const END_OF_BATCH = encodeFragment(']}}');

/** @param decisions by the index of the check */
export function writeMultiResponse(
  writer: JsonWriter,
  ids: RequestIds,
  checks: readonly CheckRequest[],
  passed: boolean,
  decisions: readonly Decision[],
): Uint8Array {
  writer.seek(0);
  writer.writeFragment(META);
  ids.writeNext(writer);
  writer.writeFragment(passed ? ALL_PASSED : NOT_ALL_PASSED);
  for (let index = 0; index < checks.length; index++) {
    const check = checks[index];
    const decision = decisions[index];
    const { allowed, remaining, reset } = decision;
    writer.writeFragment(index === 0 ? NAMESPACE : NEXT_NAMESPACE);
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
    writePassesAt(writer, decision);
    writeOverride(writer, check);
    writer.writeFragment(END_OF_ITEM);
  }
  writer.writeFragment(END_OF_BATCH);
  return writer.finish();
}

/** Only of a denied check that can pass later. Clients of other servers ignore the field. */
function writePassesAt(writer: JsonWriter, { allowed, passesAt }: Decision): void {
  if (allowed || passesAt === NEVER) return;
  writer.writeFragment(PASSES_AT);
  writer.writeInteger(passesAt);
}

function writeOverride(writer: JsonWriter, { overrideId }: Check): void {
  if (overrideId === undefined) return;
  writer.writeFragment(OVERRIDE);
  writer.writeAscii(overrideId);
  writer.writeFragment(QUOTE);
}
