/**
 * Decodes the header blocks of one connection (HPACK, RFC 7541), and keeps of a request what a
 * server of gRPC needs. A block that is no HPACK is a ConnectionError, because the table of the
 * client is then unknown. A request that violates HTTP, or has too many headers, is marked as such.
 *
 * Clients repeat the bytes of their blocks. A block that left the table as it was is remembered
 * with its result, until the table changes.
 */

import { GRPC_HEADERS_MAX, GRPC_HEADERS_MAX_BYTES } from '../../core/constants.ts';
import { ConnectionError, ERROR_CODE } from './frames.ts';
import { decodeHuffman } from './huffman.ts';
import type { Latin1Buffer } from './latin1.ts';
import { STATIC_HEADERS } from './static-table.ts';

/** The default of SETTINGS_HEADER_TABLE_SIZE, which this side does not change. */
const TABLE_MAX_BYTES = 4_096;
/** The size of a header is that of its texts, and this. */
const FIELD_BYTES = 32;
/** A power of two. */
const TABLE_FIELDS = TABLE_MAX_BYTES / FIELD_BYTES;
/** Of an integer after its first byte: 21 bits, beyond all lengths and indexes. */
const INTEGER_BYTES_MAX = 3;

/** Blocks that are remembered, and the longest of them. */
const KNOWN_BLOCKS = 4;
const KNOWN_BLOCK_MAX_BYTES = 256;

/** What a header is for this server. */
const KIND = {
  OTHER: 0,
  METHOD: 1,
  SCHEME: 2,
  PATH: 3,
  AUTHORITY: 4,
  CONTENT_TYPE: 5,
  CONTENT_LENGTH: 6,
  MALFORMED: 7,
} as const;
const REQUIRED_PSEUDO_HEADERS = (1 << KIND.METHOD) | (1 << KIND.SCHEME) | (1 << KIND.PATH);

interface Field {
  readonly name: string;
  readonly value: string;
  readonly size: number;
  readonly kind: number;
}

/** The headers of a request, or its trailers. */
export interface HeaderBlock {
  readonly method: string;
  readonly path: string;
  readonly contentType: string;
  /** -1 for none. */
  readonly contentLength: number;
  /** Whether they violate HTTP as headers, and as trailers. */
  readonly isMalformed: boolean;
  readonly isMalformedTrailers: boolean;
  /** Whether there are more or longer ones than accepted. */
  readonly isTooLarge: boolean;
}

const KINDS: ReadonlyMap<string, number> = new Map<string, number>([
  [':method', KIND.METHOD],
  [':scheme', KIND.SCHEME],
  [':path', KIND.PATH],
  [':authority', KIND.AUTHORITY],
  ['content-type', KIND.CONTENT_TYPE],
  ['content-length', KIND.CONTENT_LENGTH],
  // Those of a connection of HTTP/1.
  ['connection', KIND.MALFORMED],
  ['keep-alive', KIND.MALFORMED],
  ['proxy-connection', KIND.MALFORMED],
  ['transfer-encoding', KIND.MALFORMED],
  ['upgrade', KIND.MALFORMED],
]);
/** Of names that are no pseudo headers. */
const NAME = /^[!#$%&'*+.^_`|~0-9a-z-]+$/;
const INVALID_VALUE = /[\0\r\n]|^[ \t]|[ \t]$/;
const CONTENT_LENGTH = /^\d{1,15}$/;
const EMPTY = Buffer.alloc(0) as Latin1Buffer;

/** @param name and the value have a character for each byte */
function fieldOf(name: string, value: string): Field {
  return { name, value, size: name.length + value.length + FIELD_BYTES, kind: kindOf(name, value) };
}

function kindOf(name: string, value: string): number {
  if (INVALID_VALUE.test(value)) return KIND.MALFORMED;
  const kind = KINDS.get(name);
  if (kind === undefined) {
    const isValid = NAME.test(name) && (name !== 'te' || value === 'trailers');
    return isValid ? KIND.OTHER : KIND.MALFORMED;
  }
  if (kind === KIND.PATH && value === '') return KIND.MALFORMED;
  if (kind === KIND.CONTENT_LENGTH && !CONTENT_LENGTH.test(value)) return KIND.MALFORMED;
  return kind;
}

const STATIC_TABLE: readonly Field[] = STATIC_HEADERS.map(([name, value]) => fieldOf(name, value));

class Builder {
  method = '';
  path = '';
  contentType = '';
  contentLength = -1;
  #count = 0;
  #bytes = 0;
  #pseudoHeaders = 0;
  #hasOthers = false;
  #isMalformed = false;

  add(field: Field): void {
    this.#count++;
    this.#bytes += field.size;
    const { kind } = field;
    if (kind >= KIND.METHOD && kind <= KIND.AUTHORITY) this.#addPseudoHeader(kind, field.value);
    else this.#hasOthers = true;
    if (kind === KIND.CONTENT_TYPE) this.contentType = field.value;
    else if (kind === KIND.CONTENT_LENGTH) this.#setContentLength(Number(field.value));
    else if (kind === KIND.MALFORMED) this.#isMalformed = true;
  }

  #addPseudoHeader(kind: number, value: string): void {
    if (this.#hasOthers || (this.#pseudoHeaders & (1 << kind)) !== 0) this.#isMalformed = true;
    this.#pseudoHeaders |= 1 << kind;
    if (kind === KIND.METHOD) this.method = value;
    else if (kind === KIND.PATH) this.path = value;
  }

  #setContentLength(length: number): void {
    if (this.contentLength >= 0 && this.contentLength !== length) this.#isMalformed = true;
    this.contentLength = length;
  }

  build(): HeaderBlock {
    const { method, path, contentType, contentLength } = this;
    const hasRequired = (this.#pseudoHeaders & REQUIRED_PSEUDO_HEADERS) === REQUIRED_PSEUDO_HEADERS;
    return {
      method,
      path,
      contentType,
      contentLength,
      isMalformed: this.#isMalformed || !hasRequired,
      isMalformedTrailers: this.#isMalformed || this.#pseudoHeaders !== 0,
      isTooLarge: this.#count > GRPC_HEADERS_MAX || this.#bytes > GRPC_HEADERS_MAX_BYTES,
    };
  }
}

interface KnownBlock<T> {
  readonly bytes: Buffer;
  readonly length: number;
  /** Of the table, which is part of the meaning of the bytes. */
  readonly version: number;
  readonly result: T;
}

export class HeaderDecoder<T> {
  readonly #interpret: (block: HeaderBlock) => T;
  /** A ring, whose newest field is at `#newest`. */
  readonly #table: Field[] = [];
  #newest = 0;
  #count = 0;
  #tableBytes = 0;
  #tableMaxBytes = TABLE_MAX_BYTES;
  /** Changes with the table. */
  #version = 0;
  readonly #known: KnownBlock<T>[] = [];
  #nextKnown = 0;
  #bytes = EMPTY;
  #at = 0;
  #end = 0;

  /** @param interpret gives the result for a block, which is remembered with it */
  constructor(interpret: (block: HeaderBlock) => T) {
    this.#interpret = interpret;
  }

  /** Decodes the block between two offsets. @throws {ConnectionError} */
  decode(bytes: Buffer, start: number, end: number): T {
    for (const known of this.#known) {
      if (known.version === this.#version && isEqual(known, bytes, start, end)) return known.result;
    }
    const version = this.#version;
    this.#bytes = bytes as Latin1Buffer;
    this.#at = start;
    this.#end = end;
    const result = this.#interpret(this.#decode());
    this.#bytes = EMPTY;
    if (this.#version === version) this.#remember(bytes, start, end, result);
    return result;
  }

  #remember(bytes: Buffer, start: number, end: number, result: T): void {
    const length = end - start;
    if (length > KNOWN_BLOCK_MAX_BYTES) return;
    const index = this.#nextKnown;
    this.#nextKnown = (index + 1) % KNOWN_BLOCKS;
    const copy = this.#known[index]?.bytes ?? Buffer.allocUnsafe(KNOWN_BLOCK_MAX_BYTES);
    bytes.copy(copy, 0, start, end);
    this.#known[index] = { bytes: copy, length, version: this.#version, result };
  }

  #decode(): HeaderBlock {
    const builder = new Builder();
    let isFirst = true;
    while (this.#at < this.#end) {
      const byte = this.#bytes[this.#at];
      if ((byte & 0xe0) === 0x20) {
        if (!isFirst) throw invalid('a change of the table size after a header');
        this.#resize(this.#integer(5));
        continue;
      }
      isFirst = false;
      if ((byte & 0x80) !== 0) builder.add(this.#fieldAt(this.#integer(7)));
      else if ((byte & 0xc0) === 0x40) {
        const field = this.#literal(6);
        this.#insert(field);
        builder.add(field);
      } else builder.add(this.#literal(4));
    }
    return builder.build();
  }

  #literal(prefixBits: number): Field {
    const index = this.#integer(prefixBits);
    const name = index === 0 ? this.#text() : this.#fieldAt(index).name;
    return fieldOf(name, this.#text());
  }

  #fieldAt(index: number): Field {
    if (index > 0 && index <= STATIC_TABLE.length) return STATIC_TABLE[index - 1];
    const age = index - STATIC_TABLE.length - 1;
    if (age < 0 || age >= this.#count) throw invalid(`the index ${index}, which has no header`);
    return this.#table[(this.#newest - age) & (TABLE_FIELDS - 1)];
  }

  #insert(field: Field): void {
    this.#version++;
    this.#evict(this.#tableMaxBytes - field.size);
    // A field that is larger than the table empties it.
    if (field.size > this.#tableMaxBytes) return;
    this.#newest = (this.#newest + 1) & (TABLE_FIELDS - 1);
    this.#table[this.#newest] = field;
    this.#count++;
    this.#tableBytes += field.size;
  }

  #resize(maxBytes: number): void {
    if (maxBytes > TABLE_MAX_BYTES) throw invalid(`a table of ${maxBytes} bytes`);
    this.#version++;
    this.#tableMaxBytes = maxBytes;
    this.#evict(maxBytes);
  }

  #evict(maxBytes: number): void {
    while (this.#tableBytes > maxBytes && this.#count > 0) {
      this.#count--;
      const index = (this.#newest - this.#count) & (TABLE_FIELDS - 1);
      this.#tableBytes -= this.#table[index].size;
      // Its texts would stay in memory.
      this.#table[index] = STATIC_TABLE[0];
    }
  }

  #text(): string {
    if (this.#at >= this.#end) throw invalid('a header that ends after its block');
    const isHuffman = (this.#bytes[this.#at] & 0x80) !== 0;
    const length = this.#integer(7);
    const start = this.#at;
    if (length > this.#end - start) throw invalid('a header that ends after its block');
    this.#at = start + length;
    if (!isHuffman) return this.#bytes.latin1Slice(start, this.#at);
    const text = decodeHuffman(this.#bytes, start, this.#at);
    if (text === undefined) throw invalid('an invalid Huffman code');
    return text;
  }

  #integer(prefixBits: number): number {
    const prefixMax = (1 << prefixBits) - 1;
    let value = this.#bytes[this.#at++] & prefixMax;
    if (value < prefixMax) return value;
    for (let i = 0; i < INTEGER_BYTES_MAX; i++) {
      if (this.#at >= this.#end) throw invalid('a number that ends after its block');
      const byte = this.#bytes[this.#at++];
      value += (byte & 0x7f) << (7 * i);
      if (byte < 0x80) return value;
    }
    throw invalid('a number of more than 21 bits');
  }
}

function isEqual(known: KnownBlock<unknown>, bytes: Buffer, start: number, end: number): boolean {
  if (known.length !== end - start) return false;
  const expected = known.bytes;
  for (let i = known.length - 1; i >= 0; i--) {
    if (expected[i] !== bytes[start + i]) return false;
  }
  return true;
}

function invalid(what: string): ConnectionError {
  return new ConnectionError(ERROR_CODE.COMPRESSION_ERROR, `a header block has ${what}`);
}
