/**
 * Reads the one message of a call from DATA frames, which may split it anywhere. Before the message
 * are a flag and its length. A call whose only frame is its message needs no reader and no copy;
 * another message is collected in a buffer of its length, within the bound of one message and that
 * of all.
 */

import { GRPC_BUFFERED_BYTES_MAX } from '../../core/constants.ts';
import { GRPC_STATUS, GrpcError } from './status.ts';

/** The flag, and the length as 32 bits. */
export const PREFIX_BYTES = 5;

/** The bytes of incomplete messages that a server buffers. */
export class BufferedBytes {
  #bytes = 0;

  add(count: number): void {
    if (this.#bytes + count > GRPC_BUFFERED_BYTES_MAX) {
      throw new GrpcError(
        GRPC_STATUS.RESOURCE_EXHAUSTED,
        `the server buffers at most ${GRPC_BUFFERED_BYTES_MAX} bytes of incomplete messages`,
      );
    }
    this.#bytes += count;
  }

  subtract(count: number): void {
    this.#bytes -= count;
  }
}

/** @returns the message, in the memory of the bytes, if they are exactly one that is accepted */
export function wholeMessage(
  bytes: Buffer,
  start: number,
  end: number,
  maxBytes: number,
): Buffer | undefined {
  const length = end - start - PREFIX_BYTES;
  if (length < 0 || length > maxBytes || bytes[start] !== 0) return undefined;
  if (bytes.readUInt32BE(start + 1) !== length) return undefined;
  return bytes.subarray(start + PREFIX_BYTES, end);
}

export class MessageReader {
  readonly #maxBytes: number;
  readonly #buffered: BufferedBytes;
  #prefix: Buffer | undefined;
  #prefixLength = 0;
  #body: Buffer | undefined;
  #bodyLength = 0;
  /** Of the body that `#buffered` counts. */
  #countedBytes = 0;
  #message: Buffer | undefined;

  constructor(maxBytes: number, buffered: BufferedBytes) {
    this.#maxBytes = maxBytes;
    this.#buffered = buffered;
  }

  /** The complete message. */
  get message(): Buffer | undefined {
    return this.#message;
  }

  /** Adds the content of a DATA frame. @throws {GrpcError} if it is not accepted */
  add(chunk: Buffer): void {
    if (chunk.length === 0) return;
    if (this.#message !== undefined) {
      throw new GrpcError(GRPC_STATUS.UNIMPLEMENTED, 'a call must have one message; got another');
    }
    let at = 0;
    if (this.#body === undefined) {
      const prefix = this.#readPrefix(chunk);
      if (prefix === undefined) return;
      at = prefix.end;
      this.#buffered.add(prefix.length);
      this.#countedBytes = prefix.length;
      this.#body = Buffer.allocUnsafe(prefix.length);
    }
    const copied = chunk.copy(this.#body, this.#bodyLength, at);
    this.#bodyLength += copied;
    if (this.#bodyLength < this.#body.length) return;
    this.#message = this.#body;
    this.add(chunk.subarray(at + copied));
  }

  /** Must be called when the call ends. */
  release(): void {
    this.#buffered.subtract(this.#countedBytes);
    this.#countedBytes = 0;
    this.#body = undefined;
    this.#message = undefined;
  }

  /** @returns the length of the message, and where it begins; undefined if the prefix goes on */
  #readPrefix(chunk: Buffer): { length: number; end: number } | undefined {
    if (this.#prefixLength === 0 && chunk.length >= PREFIX_BYTES) {
      return { length: this.#lengthIn(chunk), end: PREFIX_BYTES };
    }
    this.#prefix ??= Buffer.alloc(PREFIX_BYTES);
    const copied = chunk.copy(this.#prefix, this.#prefixLength);
    this.#prefixLength += copied;
    if (this.#prefixLength < PREFIX_BYTES) return undefined;
    return { length: this.#lengthIn(this.#prefix), end: copied };
  }

  #lengthIn(prefix: Buffer): number {
    const [flag] = prefix;
    if (flag === 1) {
      throw new GrpcError(
        GRPC_STATUS.UNIMPLEMENTED,
        'the message must not be compressed; accepted encodings: identity',
      );
    }
    if (flag !== 0) {
      const rule = 'the first byte of a message must be 0, for one that is not compressed';
      throw new GrpcError(GRPC_STATUS.INTERNAL, `${rule}; got ${flag}`);
    }
    const length = prefix.readUInt32BE(1);
    if (length > this.#maxBytes) {
      const rule = `a message must have at most ${this.#maxBytes} bytes`;
      throw new GrpcError(GRPC_STATUS.RESOURCE_EXHAUSTED, `${rule}; got ${length}`);
    }
    return length;
  }
}

/** A message with its prefix. */
export function framed(message: Uint8Array): Buffer {
  const bytes = Buffer.allocUnsafe(PREFIX_BYTES + message.length);
  bytes[0] = 0;
  bytes.writeUInt32BE(message.length, 1);
  bytes.set(message, PREFIX_BYTES);
  return bytes;
}
