/**
 * POST /v1/ratelimits.acquire: grants a lease if the live leases of the identifier leave room for
 * it. Failures are ApiErrors, in the order 400, 403, 404.
 */

import Type from 'typebox';
import type { Key } from '../../../auth/keyring.ts';
import { Bytes } from '../../../core/bytes.ts';
import {
  AMOUNT_MAX,
  IDENTIFIER_MAX_CHARACTERS,
  NAMESPACE_MAX_CHARACTERS,
} from '../../../core/constants.ts';
import { newIdentity } from '../../../core/hash.ts';
import { encodeFragment, type JsonWriter } from '../../../core/json-writer.ts';
import type { Namespace } from '../../../core/namespace.ts';
import { field, integer } from '../../../core/schema.ts';
import type { Lease, LeaseRequest } from '../../../engine/hold-engine.ts';
import type { OverridableAcquire } from '../../../overrides/active.ts';
import { type BodyScanner, FIELD } from '../../common/body-scanner.ts';
import { DEFAULT_COST, DEFAULT_NAMESPACE } from '../../common/check-request.ts';
import {
  expiresAt,
  holderFields,
  isValidTtl,
  orNull,
  ttlField,
  writeExpiry,
  writeHoldId,
} from '../../common/holds.ts';
import type { NamespaceFinder } from '../../common/namespace-finder.ts';
import { counterOperation } from '../../common/operation.ts';
import { requestIdField } from '../../common/repeatable.ts';
import { amount, flagged, idText } from '../../common/responses.ts';
import { readBody, type UnknownFieldListener } from '../../common/unknown-fields.ts';

export function response() {
  return Type.Object({
    success: flagged('Whether the lease is granted.'),
    leaseId: orNull(
      idText('rlls', ''),
      'Id of the lease. `null` after a denial, and if the lease is granted without a record, ' +
        'because there is no room for one and `WEIR_ON_FULL` is `allow`.',
    ),
    inUse: amount('Tokens of all live leases of the identifier, with this one.'),
    limit: amount('The limit that applied: that of the request, or that of an override.'),
    expiresAt: expiresAt('`null` without a `leaseId`.'),
  });
}

export const acquire = counterOperation({
  name: 'ratelimits.acquire',
  version: 'v1',
  requires: { action: 'limit', in: 'the namespace' },
  request: {
    ...holderFields,
    limit: field(
      integer(1, AMOUNT_MAX),
      'Tokens that may be in use at once. An override with `concurrency` replaces it.',
    ),
    cost: Type.Optional(
      field(integer(1, AMOUNT_MAX), 'Tokens that the lease uses while it is live.', DEFAULT_COST),
    ),
    ttl: ttlField('the lease ends by itself, unless it is renewed'),
    requestId: requestIdField(),
  },
});

/** A valid request. Its identifier stays as bytes, as that of a check. */
export class AcquireRequest implements OverridableAcquire, LeaseRequest {
  /** Set after the look-up of its name. */
  namespace!: Namespace;
  /** Set when the namespace is known. */
  readonly identity = newIdentity();
  limit = 0;
  cost = 0;
  ttlMs = 0;
  requestId: string | undefined = undefined;
  readonly memory: Bytes;
  /** The bytes of the identifier in `memory`, UTF-8. */
  identifierFrom = 0;
  identifierTo = 0;

  constructor(memory: Bytes) {
    this.memory = memory;
  }

  get identifier(): string {
    return this.memory.text(this.identifierFrom, this.identifierTo);
  }

  /** A copy for a later turn of the loop, with the bytes of the identifier. */
  copy(): AcquireRequest {
    const { namespace, limit, cost, ttlMs, requestId, identifierFrom, identifierTo } = this;
    const length = identifierTo - identifierFrom;
    const copied = new AcquireRequest(new Bytes(length));
    this.memory.array.copy(copied.memory.array, 0, identifierFrom, identifierTo);
    Object.assign(copied.identity, this.identity);
    const fields = { namespace, limit, cost, ttlMs, requestId, identifierTo: length };
    return Object.assign(copied, fields);
  }
}

const REQUIRED_FIELDS = FIELD.identifier | FIELD.limit | FIELD.ttl;
const ALL_FIELDS = REQUIRED_FIELDS | FIELD.namespace | FIELD.cost;

/** Reads the acquires of a thread, all into one object that the next one overwrites. */
export class AcquireReader {
  readonly #scanner: BodyScanner;
  readonly #namespaces: NamespaceFinder;
  readonly #onUnknownFields: UnknownFieldListener<typeof acquire.name>;
  readonly #request: AcquireRequest;

  constructor(
    scanner: BodyScanner,
    namespaces: NamespaceFinder,
    onUnknownFields: UnknownFieldListener<typeof acquire.name>,
  ) {
    this.#scanner = scanner;
    this.#namespaces = namespaces;
    this.#onUnknownFields = onUnknownFields;
    this.#request = new AcquireRequest(scanner.memory);
  }

  /** @param bytes the complete body */
  read(key: Key, bytes: ArrayBuffer | Uint8Array): AcquireRequest {
    const namespaces = this.#namespaces;
    const request = this.#request;
    const isScanned = this.#scanner.scanBody(bytes) && this.#isValidScan();
    const name = isScanned ? this.#setFromScan() : this.#setFromBody(key, bytes);
    request.namespace = namespaces.find(key, 'limit', name) ?? namespaces.getOrCreate(name, true);
    return request;
  }

  /** @returns false if a rule of the operation may fail */
  #isValidScan(): boolean {
    const { foundFields, limit, cost, ttl, identifierLength, namespaceLength } = this.#scanner;
    return (
      (foundFields & REQUIRED_FIELDS) === REQUIRED_FIELDS &&
      (foundFields & ~ALL_FIELDS) === 0 &&
      limit >= 1 &&
      isValidTtl(ttl) &&
      identifierLength <= IDENTIFIER_MAX_CHARACTERS &&
      ((foundFields & FIELD.cost) === 0 || cost >= 1) &&
      ((foundFields & FIELD.namespace) === 0 ||
        (namespaceLength >= 1 && namespaceLength <= NAMESPACE_MAX_CHARACTERS))
    );
  }

  /** @returns the name or id of the namespace */
  #setFromScan(): string {
    const scanner = this.#scanner;
    const request = this.#request;
    const { foundFields } = scanner;
    request.limit = scanner.limit;
    request.cost = (foundFields & FIELD.cost) === 0 ? DEFAULT_COST : scanner.cost;
    request.ttlMs = scanner.ttl;
    request.requestId = undefined;
    request.identifierFrom = scanner.identifierFrom;
    request.identifierTo = scanner.identifierTo;
    return (foundFields & FIELD.namespace) === 0 ? DEFAULT_NAMESPACE : scanner.readNamespace();
  }

  /** @returns the name or id of the namespace. @throws ApiError (400) */
  #setFromBody(key: Key, bytes: ArrayBuffer | Uint8Array): string {
    const body = readBody(acquire.validator, bytes, acquire.name, key, this.#onUnknownFields);
    const request = this.#request;
    request.limit = body.limit;
    request.cost = body.cost ?? DEFAULT_COST;
    request.ttlMs = body.ttl;
    request.requestId = body.requestId;
    request.identifierFrom = 0;
    request.identifierTo = request.memory.write(body.identifier, 0);
    return body.namespace ?? DEFAULT_NAMESPACE;
  }
}

const GRANTED = encodeFragment('{"success":true,"leaseId":');
const DENIED = encodeFragment('{"success":false,"leaseId":');
const IN_USE = encodeFragment(',"inUse":');
const LIMIT = encodeFragment(',"limit":');

/** Writes the body of the 200. */
export function writeAcquireResult(writer: JsonWriter, lease: Lease): void {
  writer.writeFragment(lease.granted ? GRANTED : DENIED);
  writeHoldId(writer, lease.id);
  writer.writeFragment(IN_USE);
  writer.writeInteger(lease.inUse);
  writer.writeFragment(LIMIT);
  writer.writeInteger(lease.limit);
  writeExpiry(writer, lease.id, lease.expiresAt);
}
