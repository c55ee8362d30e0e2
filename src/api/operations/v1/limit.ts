/**
 * POST /v1/ratelimits.limit, a check by a fixed window unless the body names another algorithm:
 * reads a body to a valid check, and writes the body of the response from its decision. Nothing is
 * counted unless the whole body is valid and the key has the permission. Failures are ApiErrors, in
 * the order 400, 403, 404.
 */

import Type from 'typebox';
import type { Key } from '../../../auth/keyring.ts';
import { algorithmFields } from '../../../core/algorithm-fields.ts';
import type { Check } from '../../../core/check.ts';
import {
  AMOUNT_MAX,
  DURATION_MAX_MS,
  DURATION_MIN_MS,
  IDENTIFIER_MAX_CHARACTERS,
  NAMESPACE_MAX_CHARACTERS,
  RESOURCE_TEXT_MAX_CHARACTERS,
  RESOURCES_MAX,
} from '../../../core/constants.ts';
import type { Decision } from '../../../core/decision.ts';
import { encodeFragment, JsonWriter, type TextFragment } from '../../../core/json-writer.ts';
import { field, flag, integer, milliseconds, text } from '../../../core/schema.ts';
import { DEFAULT_RULE_V1, RULE } from '../../../core/window-rules.ts';
import { type BodyScanner, FIELD } from '../../common/body-scanner.ts';
import {
  CHECK_FIELDS,
  type CheckBody,
  CheckRequest,
  type CheckRules,
  DEFAULT_COST,
  DEFAULT_NAMESPACE,
} from '../../common/check-request.ts';
import type { NamespaceFinder } from '../../common/namespace-finder.ts';
import { counterOperation } from '../../common/operation.ts';
import { requestIdField } from '../../common/repeatable.ts';
import { flagged, limitFields } from '../../common/responses.ts';
import { readBody, type UnknownFieldListener } from '../../common/unknown-fields.ts';

const resourceText = (description: string) =>
  Type.Optional(field(text(1, RESOURCE_TEXT_MAX_CHARACTERS), description));

export function response() {
  return Type.Object({ success: flagged('Whether the check is allowed.'), ...limitFields() });
}

export const limitV1 = counterOperation({
  name: 'ratelimits.limit',
  version: 'v1',
  requires: { action: 'limit', in: 'the namespace' },
  // A `null` does not count as an absent field.
  request: {
    identifier: field(text(0, IDENTIFIER_MAX_CHARACTERS), CHECK_FIELDS.identifier),
    limit: field(integer(1, AMOUNT_MAX), CHECK_FIELDS.limit),
    duration: field(milliseconds(DURATION_MIN_MS, DURATION_MAX_MS), CHECK_FIELDS.duration),
    namespace: Type.Optional(
      field(
        text(1, NAMESPACE_MAX_CHARACTERS),
        'Name of the namespace. It must not begin with `rlns_`. Its first check with a cost ' +
          'creates it.',
        DEFAULT_NAMESPACE,
      ),
    ),
    cost: Type.Optional(field(integer(0, AMOUNT_MAX), CHECK_FIELDS.cost, DEFAULT_COST)),
    async: Type.Optional(
      field(
        flag(),
        'With `true` weir decides by the current counter, and deducts the tokens after the ' +
          'response.',
        false,
      ),
    ),
    ...algorithmFields(DEFAULT_RULE_V1),
    requestId: requestIdField(),
    meta: Type.Optional(
      field(Type.Object({}, { accepts: 'an object' }), 'Any object. weir does not use it.'),
    ),
    resources: Type.Optional(
      field(
        Type.Array(
          Type.Object(
            {
              type: resourceText('Type of the resource.'),
              id: resourceText('Id of the resource.'),
              name: resourceText('Name of the resource.'),
            },
            { accepts: 'an object with the texts "type", "id" and "name"' },
          ),
          { maxItems: RESOURCES_MAX, accepts: `an array of at most ${RESOURCES_MAX} objects` },
        ),
        'Resources that the client is about to access. weir does not use them.',
      ),
    ),
  },
});

const CHECK_RULES: CheckRules = {
  requiredFields: FIELD.identifier | FIELD.limit | FIELD.duration,
  optionalFields: FIELD.namespace | FIELD.cost | FIELD.async,
  identifierMinCharacters: 0,
  durationMaxMs: DURATION_MAX_MS,
};

/** Reads the checks of a thread, all into one object that the next check overwrites. */
export class CheckReaderV1 {
  readonly #scanner: BodyScanner;
  readonly #namespaces: NamespaceFinder;
  readonly #onUnknownFields: UnknownFieldListener<typeof limitV1.name>;
  readonly #check: CheckRequest;

  /** @param needsOverrideId whether events show it: no response of v1 does */
  constructor(
    scanner: BodyScanner,
    namespaces: NamespaceFinder,
    onUnknownFields: UnknownFieldListener<typeof limitV1.name>,
    needsOverrideId: boolean,
  ) {
    this.#scanner = scanner;
    this.#namespaces = namespaces;
    this.#onUnknownFields = onUnknownFields;
    this.#check = new CheckRequest(scanner.memory, RULE[DEFAULT_RULE_V1], needsOverrideId);
  }

  /** @param bytes the complete body */
  read(key: Key, bytes: ArrayBuffer | Uint8Array): CheckRequest {
    const check = this.#check;
    const namespaces = this.#namespaces;
    const isScanned =
      this.#scanner.scanBody(bytes) && check.setFromScan(this.#scanner, CHECK_RULES);
    // Only a body that the scanner does not support can have a `requestId`, or unknown fields.
    if (!isScanned) check.setFromBody(this.#parse(key, bytes), 0);
    const { namespaceIdOrName, cost } = check;
    check.namespace =
      namespaces.find(key, 'limit', namespaceIdOrName, false) ??
      namespaces.getOrCreate(namespaceIdOrName, cost !== 0);
    return check;
  }

  #parse(key: Key, bytes: ArrayBuffer | Uint8Array): CheckBody {
    return readBody(limitV1.validator, bytes, limitV1.name, key, this.#onUnknownFields);
  }
}

const REMAINING = encodeFragment(',"remaining":');
const RESET = encodeFragment(',"reset":');
const END = encodeFragment('}');
const RESPONSE_BYTES = 128;

/** The last allowed or denied response: only the parts that differ are written again. */
class ResponseBodyCache {
  readonly #writer = new JsonWriter(RESPONSE_BYTES);
  readonly #prefix: TextFragment;
  #limit = -1;
  #reset = -1;
  /** Offsets of the last `remaining`, and of the end of the body. */
  #remainingFrom = 0;
  #remainingTo = -1;
  #end = 0;

  constructor(prefix: TextFragment) {
    this.#prefix = prefix;
  }

  write(limit: number, remaining: number, reset: number): Uint8Array {
    const writer = this.#writer;
    if (limit !== this.#limit) {
      writer.seek(0);
      writer.writeFragment(this.#prefix);
      writer.writeInteger(limit);
      writer.writeFragment(REMAINING);
      this.#limit = limit;
      this.#remainingFrom = writer.position;
      this.#remainingTo = -1;
    }
    writer.seek(this.#remainingFrom);
    writer.writeInteger(remaining);
    if (writer.position !== this.#remainingTo || reset !== this.#reset) {
      this.#remainingTo = writer.position;
      this.#reset = reset;
      writer.writeFragment(RESET);
      writer.writeInteger(reset);
      writer.writeFragment(END);
      this.#end = writer.position;
    }
    return writer.view(this.#end);
  }
}

const allowedBody = new ResponseBodyCache(encodeFragment('{"success":true,"limit":'));
const deniedBody = new ResponseBodyCache(encodeFragment('{"success":false,"limit":'));

/** The body of the 200 response, valid until the next one is written. */
export function writeResponseV1(
  { limit }: Pick<Check, 'limit'>,
  decision: Pick<Decision, 'allowed' | 'remaining' | 'reset'>,
): Uint8Array {
  const body = decision.allowed ? allowedBody : deniedBody;
  return body.write(limit, decision.remaining, decision.reset);
}
