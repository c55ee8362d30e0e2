/**
 * Reads `envoy.service.ratelimit.v3.RateLimitRequest`. A reader reuses its objects, so a request
 * needs only the strings of its values. Invalid protobuf is a GrpcError with the status INTERNAL,
 * and a request over a bound one with INVALID_ARGUMENT; the fields of the reader then have no
 * meaning.
 */

import { RLS_DESCRIPTORS_MAX, RLS_ENTRIES_MAX } from '../../core/constants.ts';
import { ProtobufReader, tagOf, WIRE_TYPE } from '../transport/protobuf.ts';
import { GRPC_STATUS, GrpcError } from '../transport/status.ts';
import { KnownTexts } from './known-texts.ts';

const { VARINT, BYTES } = WIRE_TYPE;

const REQUEST = {
  DOMAIN: tagOf(1, BYTES),
  DESCRIPTORS: tagOf(2, BYTES),
  HITS_ADDEND: tagOf(3, VARINT),
} as const;

const DESCRIPTOR = {
  ENTRIES: tagOf(1, BYTES),
  LIMIT: tagOf(2, BYTES),
  HITS_ADDEND: tagOf(3, BYTES),
  IS_NEGATIVE_HITS: tagOf(4, VARINT),
} as const;

const ENTRY = { KEY: tagOf(1, BYTES), VALUE: tagOf(2, BYTES) } as const;

const LIMIT = {
  REQUESTS_PER_UNIT: tagOf(1, VARINT),
  UNIT: tagOf(2, VARINT),
  UNIT_MULTIPLIER: tagOf(3, BYTES),
} as const;

/** The only field of `UInt32Value` and `UInt64Value`. */
const WRAPPED = tagOf(1, VARINT);

export interface RequestDescriptor {
  /** Of `keys` and `values`. Their further elements have no meaning. */
  entryCount: number;
  keys: string[];
  values: string[];
  /** -1 for none. A larger value than Number.MAX_SAFE_INTEGER becomes it. */
  hitsAddend: number;
  isNegativeHits: boolean;
  /** Of the override of the limit, as an unsigned number of 32 bits; -1 for no override. */
  limitUnit: number;
  limitRequests: number;
  /** -1 for none. */
  limitUnitMultiplier: number;
}

/** A request, whatever its encoding. */
export interface RateLimitRequest {
  readonly domain: string;
  readonly hitsAddend: number;
  /** Of `descriptors`, whose further elements have no meaning. */
  readonly descriptorCount: number;
  readonly descriptors: readonly RequestDescriptor[];
}

export class RequestReader implements RateLimitRequest {
  domain = '';
  hitsAddend = 0;
  /** Of `descriptors`, whose further elements have no meaning. */
  descriptorCount = 0;
  readonly #descriptors: RequestDescriptor[] = [];
  readonly #reader = new ProtobufReader();
  readonly #knownTexts = new KnownTexts();
  readonly #decodeKnown = (bytes: Buffer, start: number, end: number) => {
    return this.#knownTexts.get(bytes, start, end);
  };

  get descriptors(): readonly RequestDescriptor[] {
    return this.#descriptors;
  }

  /** Reads a request. The fields of this reader are its values until the next call. */
  read(bytes: Uint8Array): void {
    this.#clear();
    const reader = this.#reader;
    reader.start(bytes);
    try {
      this.#readRequest(reader);
    } finally {
      reader.stop();
    }
  }

  #readRequest(reader: ProtobufReader): void {
    let received = 0;
    while (!reader.isAtEnd) {
      const tag = reader.tag();
      if (tag === REQUEST.DESCRIPTORS) {
        if (++received > RLS_DESCRIPTORS_MAX) reader.skipField(tag);
        else this.#readDescriptor(reader);
      } else if (tag === REQUEST.DOMAIN) this.domain = reader.text(this.#decodeKnown);
      else if (tag === REQUEST.HITS_ADDEND) this.hitsAddend = reader.uint32();
      else reader.skipField(tag);
    }
    if (received > RLS_DESCRIPTORS_MAX) {
      throw new GrpcError(
        GRPC_STATUS.INVALID_ARGUMENT,
        `a request must have at most ${RLS_DESCRIPTORS_MAX} descriptors; got ${received}`,
      );
    }
  }

  #readDescriptor(reader: ProtobufReader): void {
    const descriptor = this.#nextDescriptor();
    const outerEnd = reader.enter();
    let received = 0;
    while (!reader.isAtEnd) {
      const tag = reader.tag();
      if (tag === DESCRIPTOR.ENTRIES) {
        if (++received > RLS_ENTRIES_MAX) reader.skipField(tag);
        else this.#readEntry(reader, descriptor);
      } else if (tag === DESCRIPTOR.HITS_ADDEND) {
        descriptor.hitsAddend = readWrapped(reader, descriptor.hitsAddend, false);
      } else if (tag === DESCRIPTOR.IS_NEGATIVE_HITS) descriptor.isNegativeHits = reader.bool();
      else if (tag === DESCRIPTOR.LIMIT) readLimit(reader, descriptor);
      else reader.skipField(tag);
    }
    reader.leave(outerEnd);
    if (received > RLS_ENTRIES_MAX) {
      throw new GrpcError(
        GRPC_STATUS.INVALID_ARGUMENT,
        `a descriptor must have at most ${RLS_ENTRIES_MAX} entries;` +
          ` got ${received} in descriptor ${this.descriptorCount}`,
      );
    }
  }

  #readEntry(reader: ProtobufReader, descriptor: RequestDescriptor): void {
    let key = '';
    let value = '';
    const outerEnd = reader.enter();
    while (!reader.isAtEnd) {
      const tag = reader.tag();
      if (tag === ENTRY.KEY) key = reader.text(this.#decodeKnown);
      else if (tag === ENTRY.VALUE) value = reader.text();
      else reader.skipField(tag);
    }
    reader.leave(outerEnd);
    const index = descriptor.entryCount++;
    descriptor.keys[index] = key;
    descriptor.values[index] = value;
  }

  #nextDescriptor(): RequestDescriptor {
    const index = this.descriptorCount++;
    if (index === this.#descriptors.length) this.#descriptors.push(newDescriptor());
    return this.#descriptors[index];
  }

  /** Also releases the strings of the last request, so that many requests do not retain more. */
  #clear(): void {
    for (let i = 0; i < this.descriptorCount; i++) clearDescriptor(this.#descriptors[i]);
    this.domain = '';
    this.hitsAddend = 0;
    this.descriptorCount = 0;
  }
}

function newDescriptor(): RequestDescriptor {
  return {
    entryCount: 0,
    keys: [],
    values: [],
    hitsAddend: -1,
    isNegativeHits: false,
    limitUnit: -1,
    limitRequests: 0,
    limitUnitMultiplier: -1,
  };
}

function clearDescriptor(descriptor: RequestDescriptor): void {
  for (let i = 0; i < descriptor.entryCount; i++) {
    descriptor.keys[i] = '';
    descriptor.values[i] = '';
  }
  descriptor.entryCount = 0;
  descriptor.hitsAddend = -1;
  descriptor.isNegativeHits = false;
  descriptor.limitUnit = -1;
  descriptor.limitRequests = 0;
  descriptor.limitUnitMultiplier = -1;
}

/** An occurrence of a message is merged into the ones before. */
function readLimit(reader: ProtobufReader, descriptor: RequestDescriptor): void {
  if (descriptor.limitUnit === -1) descriptor.limitUnit = 0;
  const outerEnd = reader.enter();
  while (!reader.isAtEnd) {
    const tag = reader.tag();
    if (tag === LIMIT.REQUESTS_PER_UNIT) descriptor.limitRequests = reader.uint32();
    else if (tag === LIMIT.UNIT) descriptor.limitUnit = reader.uint32();
    else if (tag === LIMIT.UNIT_MULTIPLIER) {
      descriptor.limitUnitMultiplier = readWrapped(reader, descriptor.limitUnitMultiplier, true);
    } else reader.skipField(tag);
  }
  reader.leave(outerEnd);
}

/**
 * Reads a `UInt32Value` or a `UInt64Value`.
 * @param earlier the value of the occurrences before, into which this one is merged; -1 for none
 */
function readWrapped(reader: ProtobufReader, earlier: number, is32Bit: boolean): number {
  let value = Math.max(0, earlier);
  const outerEnd = reader.enter();
  while (!reader.isAtEnd) {
    const tag = reader.tag();
    if (tag === WRAPPED) value = is32Bit ? reader.uint32() : reader.uint64();
    else reader.skipField(tag);
  }
  reader.leave(outerEnd);
  return value;
}
