/**
 * Reads requests that name a hold, all into one object that the next request overwrites. Failures
 * are ApiErrors (400).
 */

import type { Key } from '../../auth/keyring.ts';
import {
  decodeHoldId,
  HOLD_KIND,
  type HoldId,
  type HoldKind,
  parseHoldId,
} from '../../engine/hold-id.ts';
import { type BodyScanner, FIELD } from './body-scanner.ts';
import { isValidTtl } from './holds.ts';

/** A valid body of an operation on holds. */
interface HoldBody {
  reservationId?: string;
  leaseId?: string;
  cost?: number;
  costs?: readonly number[];
  ttl?: number;
}

/** A request on a hold. */
export interface HoldRequest {
  /** Undefined if no hold of this kind can have the id. */
  id: HoldId | undefined;
  /** The id as in the body, if no hold can have it. */
  invalidId: string;
  cost: number | undefined;
  costs: readonly number[] | undefined;
  /** Of a renewal. */
  ttlMs: number;
}

/** @returns the valid body. @throws ApiError (400) */
type BodyParser = (key: Key, bytes: ArrayBuffer | Uint8Array) => HoldBody;

export class HoldReader {
  readonly #scanner: BodyScanner;
  readonly #kind: HoldKind;
  readonly #parse: BodyParser;
  readonly #fields: number;
  readonly #request: HoldRequest = {
    id: undefined,
    invalidId: '',
    cost: undefined,
    costs: undefined,
    ttlMs: 0,
  };

  /**
   * @param fields bits of FIELD beside the id, which the scanner reads
   * @param parse reads any body
   */
  constructor(scanner: BodyScanner, kind: HoldKind, fields: number, parse: BodyParser) {
    this.#scanner = scanner;
    this.#kind = kind;
    const idField = kind === HOLD_KIND.lease ? FIELD.leaseId : FIELD.reservationId;
    this.#fields = idField | fields;
    this.#parse = parse;
  }

  /** @param bytes the complete body */
  read(key: Key, bytes: ArrayBuffer | Uint8Array): HoldRequest {
    const request = this.#request;
    if (this.#scanner.scanBody(bytes) && this.#setFromScan(request)) return request;
    const { reservationId, leaseId, cost, costs, ttl } = this.#parse(key, bytes);
    // The other one is an unknown field, which may have any value.
    const text = (this.#kind === HOLD_KIND.lease ? leaseId : reservationId)!;
    request.id = parseHoldId(this.#kind, text);
    request.invalidId = text;
    request.cost = cost;
    request.costs = costs;
    request.ttlMs = ttl ?? 0;
    return request;
  }

  /** @returns false if a rule of the operation may fail, or no hold can have the id */
  #setFromScan(request: HoldRequest): boolean {
    const { foundFields, memory, holdIdFrom, holdIdTo, cost, ttl } = this.#scanner;
    if (foundFields !== this.#fields) return false;
    request.id = decodeHoldId(this.#kind, memory.array, holdIdFrom, holdIdTo);
    if (request.id === undefined) return false;
    request.cost = (foundFields & FIELD.cost) === 0 ? undefined : cost;
    request.costs = undefined;
    request.ttlMs = ttl;
    return (foundFields & FIELD.ttl) === 0 || isValidTtl(ttl);
  }
}
