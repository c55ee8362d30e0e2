/**
 * Writes `envoy.service.ratelimit.v3.RateLimitResponse` into a buffer that grows to the longest
 * response and is used again. The fields may be added in any order. An embedded message gets one
 * byte for its length, and moves if it needs more, so that no length is computed before.
 *
 * Fields with the value 0 are omitted, as in proto3. A number that its field cannot hold becomes
 * the nearest one that it can.
 */

import type { JsonObject, JsonValue } from '../../core/json.ts';
import { tagOf, WIRE_TYPE } from '../transport/protobuf.ts';

const { VARINT, FIXED64, BYTES } = WIRE_TYPE;

const OVERALL_CODE = tagOf(1, VARINT);
const STATUSES = tagOf(2, BYTES);
const RESPONSE_HEADERS_TO_ADD = tagOf(3, BYTES);
const RAW_BODY = tagOf(5, BYTES);
const DYNAMIC_METADATA = tagOf(6, BYTES);

const STATUS = {
  CODE: tagOf(1, VARINT),
  CURRENT_LIMIT: tagOf(2, BYTES),
  LIMIT_REMAINING: tagOf(3, VARINT),
  DURATION_UNTIL_RESET: tagOf(4, BYTES),
} as const;

const LIMIT = {
  REQUESTS_PER_UNIT: tagOf(1, VARINT),
  UNIT: tagOf(2, VARINT),
  NAME: tagOf(3, BYTES),
} as const;

/** Of `HeaderValue`, and of an entry of a map. */
const KEY = tagOf(1, BYTES);
const VALUE = tagOf(2, BYTES);

/** The only field of `Struct` and of `ListValue`, and the first of `Duration`. */
const FIELDS = tagOf(1, BYTES);
const VALUES = tagOf(1, BYTES);
const SECONDS = tagOf(1, VARINT);

/** Of `google.protobuf.Value`. Exactly one is present, also with the value 0. */
const JSON_VALUE = {
  NULL: tagOf(1, VARINT),
  NUMBER: tagOf(2, FIXED64),
  STRING: tagOf(3, BYTES),
  BOOL: tagOf(4, VARINT),
  STRUCT: tagOf(5, BYTES),
  LIST: tagOf(6, BYTES),
} as const;

const UINT32_MAX = 0xffff_ffff;
const INITIAL_BYTES = 4_096;
/** The code is known last, and is written first: its tag and a value of one byte. */
const CODE_BYTES = 2;
/** The longest varint. */
const VARINT_MAX_BYTES = 10;
const UTF8_MAX_BYTES_PER_UNIT = 3;

export interface ResponseLimit {
  requestsPerUnit: number;
  unit: number;
  name?: string | undefined;
}

export class ResponseWriter {
  #bytes = Buffer.allocUnsafe(INITIAL_BYTES);
  #at = CODE_BYTES;

  begin(): void {
    this.#at = CODE_BYTES;
  }

  /**
   * Adds the status of the next descriptor.
   * @param limit undefined if no limit applies
   * @param resetSeconds whole seconds until the window ends
   */
  addStatus(
    code: number,
    limit: ResponseLimit | undefined,
    remaining: number,
    resetSeconds: number | undefined,
  ): void {
    const status = this.#open(STATUSES);
    this.#uint32(STATUS.CODE, code);
    if (limit !== undefined) this.#limit(limit);
    this.#uint32(STATUS.LIMIT_REMAINING, remaining);
    if (resetSeconds !== undefined) {
      const duration = this.#open(STATUS.DURATION_UNTIL_RESET);
      this.#integer(SECONDS, Math.min(Number.MAX_SAFE_INTEGER, resetSeconds));
      this.#close(duration);
    }
    this.#close(status);
  }

  addResponseHeader(key: string, value: string): void {
    const header = this.#open(RESPONSE_HEADERS_TO_ADD);
    this.#string(KEY, key);
    this.#string(VALUE, value);
    this.#close(header);
  }

  setRawBody(text: string): void {
    this.#string(RAW_BODY, text);
  }

  setDynamicMetadata(value: JsonObject): void {
    this.#struct(DYNAMIC_METADATA, value);
  }

  /** @returns the message, in memory that the next response overwrites */
  finish(overallCode: number): Buffer {
    if (overallCode === 0) return this.#bytes.subarray(CODE_BYTES, this.#at);
    this.#bytes[0] = OVERALL_CODE;
    this.#bytes[1] = overallCode;
    return this.#bytes.subarray(0, this.#at);
  }

  #limit(limit: ResponseLimit): void {
    const { requestsPerUnit, unit, name = '' } = limit;
    const start = this.#open(STATUS.CURRENT_LIMIT);
    this.#uint32(LIMIT.REQUESTS_PER_UNIT, requestsPerUnit);
    this.#uint32(LIMIT.UNIT, unit);
    this.#string(LIMIT.NAME, name);
    this.#close(start);
  }

  #struct(tag: number, object: JsonObject): void {
    const struct = this.#open(tag);
    for (const [key, value] of Object.entries(object)) {
      const entry = this.#open(FIELDS);
      this.#string(KEY, key);
      this.#value(VALUE, value);
      this.#close(entry);
    }
    this.#close(struct);
  }

  #value(tag: number, value: JsonValue): void {
    const start = this.#open(tag);
    if (value === null) this.#varintField(JSON_VALUE.NULL, 0);
    else if (typeof value === 'boolean') this.#varintField(JSON_VALUE.BOOL, value ? 1 : 0);
    else if (typeof value === 'number') this.#double(JSON_VALUE.NUMBER, value);
    else if (typeof value === 'string') this.#text(JSON_VALUE.STRING, value);
    else if (Array.isArray(value)) {
      const list = this.#open(JSON_VALUE.LIST);
      for (const element of value) this.#value(VALUES, element);
      this.#close(list);
    } else this.#struct(JSON_VALUE.STRUCT, value);
    this.#close(start);
  }

  /** Begins an embedded message. @returns what `close` needs: where it begins */
  #open(tag: number): number {
    this.#ensure(2);
    this.#bytes[this.#at++] = tag;
    return ++this.#at;
  }

  /** Writes the length before the message that began at `start`. */
  #close(start: number): void {
    const length = this.#at - start;
    if (length < 0x80) {
      this.#bytes[start - 1] = length;
      return;
    }
    let further = 0;
    for (let rest = length; rest >= 0x80; rest = Math.floor(rest / 0x80)) further++;
    this.#ensure(further);
    this.#bytes.copyWithin(start + further, start, this.#at);
    const end = this.#at + further;
    this.#at = start - 1;
    this.#varint(length);
    this.#at = end;
  }

  /** A field of a message: absent if it is 0. */
  #uint32(tag: number, value: number): void {
    this.#integer(tag, Math.min(UINT32_MAX, value));
  }

  #integer(tag: number, value: number): void {
    if (value > 0) this.#varintField(tag, value);
  }

  #string(tag: number, text: string): void {
    if (text !== '') this.#text(tag, text);
  }

  #text(tag: number, text: string): void {
    const start = this.#open(tag);
    this.#ensure(UTF8_MAX_BYTES_PER_UNIT * text.length);
    this.#at += this.#bytes.write(text, this.#at, 'utf8');
    this.#close(start);
  }

  #double(tag: number, value: number): void {
    this.#ensure(9);
    this.#bytes[this.#at++] = tag;
    this.#at = this.#bytes.writeDoubleLE(value, this.#at);
  }

  #varintField(tag: number, value: number): void {
    this.#ensure(1 + VARINT_MAX_BYTES);
    this.#bytes[this.#at++] = tag;
    this.#varint(value);
  }

  #varint(value: number): void {
    let rest = value;
    for (; rest >= 0x80; rest = Math.floor(rest / 0x80)) {
      this.#bytes[this.#at++] = (rest % 0x80) | 0x80;
    }
    this.#bytes[this.#at++] = rest;
  }

  #ensure(count: number): void {
    const needed = this.#at + count;
    if (needed <= this.#bytes.length) return;
    const grown = Buffer.allocUnsafe(Math.max(needed, 2 * this.#bytes.length));
    this.#bytes.copy(grown, 0, 0, this.#at);
    this.#bytes = grown;
  }
}
