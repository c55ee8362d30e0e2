/**
 * POST /v2/ratelimit.multiLimit, a batch of checks with the fields of `ratelimit.limit`: reads a
 * body to valid checks, and writes the body of the response from their decisions. Nothing is
 * counted, and no namespace is created, unless the whole body is valid and the key has the
 * permissions. Failures are ApiErrors, in the order 400, 403, 404.
 */

import Type from 'typebox';
import type { Key } from '../../../auth/keyring.ts';
import {
  MULTI_LIMIT_MAX,
  MULTI_LIMIT_MAX_BYTES,
  MULTI_LIMIT_VALUES_MAX,
} from '../../../core/constants.ts';
import type { Decision } from '../../../core/decision.ts';
import { formatValue } from '../../../core/describe.ts';
import { ApiError } from '../../../core/errors.ts';
import { encodeFragment, type JsonWriter } from '../../../core/json-writer.ts';
import { type BodyScanner, UNSUPPORTED } from '../../common/body-scanner.ts';
import type { CheckRequest } from '../../common/check-request.ts';
import { parseBody } from '../../common/input.ts';
import { resolveNamespaces } from '../../common/listed-namespaces.ts';
import type { NamespaceFinder } from '../../common/namespace-finder.ts';
import { counterOperation } from '../../common/operation.ts';
import type { RequestIds } from '../../common/request-ids.ts';
import { envelope, flagged, limitFields, listOf, named } from '../../common/responses.ts';
import {
  CHECK_RULES,
  checkFields,
  decisionFields,
  newCheck,
  writeOverride,
  writePassesAt,
} from './limit.ts';

export function response() {
  const checked = Type.Object({
    namespace: named('The `namespace` of the check.'),
    identifier: named('The `identifier` of the check.'),
    ...limitFields(),
    passed: flagged('Whether this check alone would be allowed.'),
    ...decisionFields(),
  });
  return envelope(
    Type.Object({
      passed: flagged('Whether all checks are allowed. If not, none of them is counted.'),
      limits: listOf(checked, 'The checks, in the order of the request.'),
    }),
  );
}

/** Its validator is that of one check of the list. */
export const multiLimit = counterOperation(
  {
    name: 'ratelimit.multiLimit',
    version: 'v2',
    requires: { action: 'limit', in: 'the namespace' },
    maxBytes: MULTI_LIMIT_MAX_BYTES,
    request: checkFields,
  },
  'a check',
);

/** Reads the lists of a thread, by index into objects that the next list overwrites. */
export class CheckListReader {
  readonly #scanner: BodyScanner;
  readonly #namespaces: NamespaceFinder;
  readonly #checks: CheckRequest[];

  constructor(scanner: BodyScanner, namespaces: NamespaceFinder) {
    this.#scanner = scanner;
    this.#namespaces = namespaces;
    this.#checks = Array.from({ length: MULTI_LIMIT_MAX }, () => newCheck(scanner.memory));
  }

  /** @param bytes the complete body */
  read(key: Key, bytes: ArrayBuffer | Uint8Array): readonly CheckRequest[] {
    const checks = this.#scan(bytes) ?? this.#parse(bytes);
    resolveNamespaces(this.#namespaces, key, checks, '', false);
    return checks;
  }

  /** @returns undefined for a body that `#parse` has to read */
  #scan(bytes: ArrayBuffer | Uint8Array): readonly CheckRequest[] | undefined {
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

  #parse(bytes: ArrayBuffer | Uint8Array): readonly CheckRequest[] {
    const items = parseBody(bytes, MULTI_LIMIT_VALUES_MAX);
    const accepted = `an array of 1 to ${MULTI_LIMIT_MAX} checks`;
    if (!Array.isArray(items) || items.length < 1 || items.length > MULTI_LIMIT_MAX) {
      const message = `the body must be ${accepted}; got ${formatValue(items)}`;
      throw new ApiError('BAD_REQUEST', message, { location: 'body', fix: `give ${accepted}` });
    }
    let end = 0;
    return items.map((value, index) => {
      const check = this.#checks[index];
      try {
        end = check.setFromBody(multiLimit.validator.validate(value), end);
      } catch (error) {
        throw error instanceof ApiError ? error.forListItem('', index) : error;
      }
      return check;
    });
  }
}

const META = encodeFragment('{"meta":{"requestId":"');
const REMAINING = encodeFragment(',"remaining":');
const RESET = encodeFragment(',"reset":');
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
export function writeListResponse(
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
