/**
 * Reads the encoding of protobuf: tags, varints, and fields that a reader does not know. It follows
 * the decoder of Go, which envoyproxy/ratelimit uses. Invalid bytes are a GrpcError with the status
 * INTERNAL, as servers of gRPC report them, which says where they are. It never reads beyond the
 * end of the message.
 */

import { PROTOBUF_GROUP_DEPTH_MAX } from '../../core/constants.ts';
import type { Latin1Buffer } from './latin1.ts';
import { GRPC_STATUS, GrpcError } from './status.ts';

export const WIRE_TYPE = {
  VARINT: 0,
  FIXED64: 1,
  BYTES: 2,
  GROUP_START: 3,
  GROUP_END: 4,
  FIXED32: 5,
} as const;

/** The largest tag whose field number is valid: 29 bits, and 3 of the wire type. */
const TAG_MAX = 0xffff_ffff;
/** Of the bits of a varint that do not fit four groups of 7 bits. */
const HIGH_BITS_FACTOR = 2 ** 28;
const EMPTY: Buffer = Buffer.alloc(0);

const decoder = new TextDecoder('utf-8', { fatal: true, ignoreBOM: true });

/** The tag of a field: its number and wire type. */
export function tagOf(field: number, wireType: number): number {
  return field * 8 + wireType;
}

export class ProtobufReader {
  #bytes = EMPTY;
  #at = 0;
  /** Of the message, or of the message in it that is being read. */
  #end = 0;

  start(bytes: Uint8Array): void {
    this.#bytes = Buffer.isBuffer(bytes)
      ? bytes
      : Buffer.from(bytes.buffer, bytes.byteOffset, bytes.length);
    this.#at = 0;
    this.#end = bytes.length;
  }

  /** Releases the bytes. */
  stop(): void {
    this.#bytes = EMPTY;
  }

  get isAtEnd(): boolean {
    return this.#at >= this.#end;
  }

  /** Begins to read an embedded message. @returns what `leave` needs */
  enter(): number {
    const outerEnd = this.#end;
    this.#end = this.#skipLength();
    return outerEnd;
  }

  leave(outerEnd: number): void {
    this.#end = outerEnd;
  }

  /** @returns the tag of the next field, which `tagOf` computes too */
  tag(): number {
    const at = this.#at;
    const tag = this.#varint();
    if (tag > TAG_MAX || tag < 8) throw invalid('an invalid field number', at);
    if (tag % 8 > WIRE_TYPE.FIXED32) throw invalid(`the wire type ${tag % 8}`, at);
    return tag;
  }

  /** A varint, of which the lower 32 bits count, as in the decoders of protobuf. */
  uint32(): number {
    this.#varint();
    return this.#low32;
  }

  /** A larger value becomes Number.MAX_SAFE_INTEGER. */
  uint64(): number {
    return Math.min(this.#varint(), Number.MAX_SAFE_INTEGER);
  }

  bool(): boolean {
    return this.#varint() !== 0;
  }

  /** @param decode gives the text of bytes, as a table of known texts does */
  text(decode = decodeText): string {
    const end = this.#skipLength();
    const start = this.#at;
    this.#at = end;
    return decode(this.#bytes, start, end);
  }

  /** Skips the value of a field. */
  skipField(tag: number): void {
    this.#skip(tag, 0);
  }

  #skip(tag: number, depth: number): void {
    const wireType = tag % 8;
    if (wireType === WIRE_TYPE.VARINT) this.#varint();
    else if (wireType === WIRE_TYPE.BYTES) this.#at = this.#skipLength();
    else if (wireType === WIRE_TYPE.FIXED64) this.#advance(8);
    else if (wireType === WIRE_TYPE.FIXED32) this.#advance(4);
    else if (wireType === WIRE_TYPE.GROUP_START) this.#skipGroup(tag, depth);
    else throw invalid('the end of a group that did not begin', this.#at);
  }

  #skipGroup(tag: number, depth: number): void {
    if (depth >= PROTOBUF_GROUP_DEPTH_MAX) {
      throw invalid(`more than ${PROTOBUF_GROUP_DEPTH_MAX} nested groups`, this.#at);
    }
    const last = tag - WIRE_TYPE.GROUP_START + WIRE_TYPE.GROUP_END;
    for (let next = this.tag(); next !== last; next = this.tag()) this.#skip(next, depth + 1);
  }

  #advance(count: number): void {
    if (count > this.#end - this.#at) throw this.#truncated();
    this.#at += count;
  }

  /** Reads the length of the value that follows. @returns where the value ends */
  #skipLength(): number {
    const length = this.uint64();
    if (length > this.#end - this.#at) throw this.#truncated();
    return this.#at + length;
  }

  /** The lower 32 bits of the last varint, of which `#varint` returns a rounded value. */
  #low32 = 0;

  /** Up to 64 bits, as a double: exact up to Number.MAX_SAFE_INTEGER. */
  #varint(): number {
    const bytes = this.#bytes;
    const end = this.#end;
    const start = this.#at;
    // One byte is the common case.
    if (start < end && bytes[start] < 0x80) {
      this.#at = start + 1;
      this.#low32 = bytes[start];
      return this.#low32;
    }
    let at = start;
    let low = 0;
    let high = 0;
    for (let i = 0; i < 10; i++) {
      if (at >= end) throw this.#truncated();
      const byte = bytes[at++];
      const bits = byte & 0x7f;
      if (i < 4) low |= bits << (7 * i);
      else high += bits * 2 ** (7 * (i - 4));
      if (byte < 0x80) {
        if (i === 9 && byte > 1) break;
        this.#at = at;
        this.#low32 = (low | ((high % 16) << 28)) >>> 0;
        return low + high * HIGH_BITS_FACTOR;
      }
    }
    throw invalid('a varint of more than 64 bits', start);
  }

  #truncated(): GrpcError {
    return invalid('a field that ends after its message', this.#at);
  }
}

/** Texts are mostly ASCII, of which this needs no decoder. A byte order mark stays in the text. */
export function decodeText(bytes: Buffer, start: number, end: number): string {
  for (let i = start; i < end; i++) {
    if (bytes[i] >= 0x80) return decodeUtf8(bytes, start, end);
  }
  return (bytes as Latin1Buffer).latin1Slice(start, end);
}

function decodeUtf8(bytes: Buffer, start: number, end: number): string {
  try {
    return decoder.decode(bytes.subarray(start, end));
  } catch {
    throw invalid('a string that is not UTF-8', start);
  }
}

function invalid(what: string, at: number): GrpcError {
  return new GrpcError(
    GRPC_STATUS.INTERNAL,
    `the message must be valid protobuf; it has ${what} at byte ${at}`,
  );
}
