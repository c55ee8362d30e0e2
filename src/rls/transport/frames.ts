/**
 * The frames of HTTP/2 (RFC 9113): their numbers, and those that a server of gRPC writes. Headers
 * are written without the table of HPACK, so that they are the same bytes on each connection.
 */

import { GRPC_ERROR_MESSAGE_MAX } from '../../core/constants.ts';
import { GRPC_CONTENT_TYPE } from '../../policies/grpc.ts';
import type { GrowingBuffer } from './growing-buffer.ts';
import { PREFIX_BYTES } from './message-reader.ts';
import { GRPC_STATUS, type GrpcError } from './status.ts';

export const PREFACE = Buffer.from('PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n');

export const FRAME = {
  DATA: 0,
  HEADERS: 1,
  PRIORITY: 2,
  RST_STREAM: 3,
  SETTINGS: 4,
  PUSH_PROMISE: 5,
  PING: 6,
  GOAWAY: 7,
  WINDOW_UPDATE: 8,
  CONTINUATION: 9,
} as const;

export const FLAG = { ACK: 1, END_STREAM: 1, END_HEADERS: 4, PADDED: 8, PRIORITY: 32 } as const;

export const SETTING = {
  ENABLE_PUSH: 2,
  MAX_CONCURRENT_STREAMS: 3,
  INITIAL_WINDOW_SIZE: 4,
  MAX_FRAME_SIZE: 5,
  MAX_HEADER_LIST_SIZE: 6,
} as const;

export const ERROR_CODE = {
  NO_ERROR: 0,
  PROTOCOL_ERROR: 1,
  INTERNAL_ERROR: 2,
  FLOW_CONTROL_ERROR: 3,
  STREAM_CLOSED: 5,
  FRAME_SIZE_ERROR: 6,
  REFUSED_STREAM: 7,
  COMPRESSION_ERROR: 9,
  ENHANCE_YOUR_CALM: 11,
} as const;

/** Ends a connection by a GOAWAY with its code and message. */
export class ConnectionError extends Error {
  readonly code: number;

  constructor(code: number, message: string) {
    super(message);
    this.code = code;
  }
}

export const FRAME_HEAD_BYTES = 9;
/** The default of SETTINGS_MAX_FRAME_SIZE, which is also its minimum: each side accepts it. */
export const FRAME_MAX_BYTES = 16_384;
export const STREAM_ID_MAX = 2 ** 31 - 1;
export const WINDOW_MAX_BYTES = 2 ** 31 - 1;
export const DEFAULT_WINDOW_BYTES = 65_535;

/** Writes the head of a frame. */
function writeHead(
  out: GrowingBuffer,
  length: number,
  type: number,
  flags: number,
  streamId: number,
): void {
  const { bytes } = out;
  let { at } = out;
  bytes[at++] = length >> 16;
  bytes[at++] = length >> 8;
  bytes[at++] = length;
  bytes[at++] = type;
  bytes[at++] = flags;
  out.at = at;
  writeUint32(out, streamId);
}

function writeUint32(out: GrowingBuffer, value: number): void {
  const { bytes } = out;
  let { at } = out;
  bytes[at++] = value >>> 24;
  bytes[at++] = value >> 16;
  bytes[at++] = value >> 8;
  bytes[at++] = value;
  out.at = at;
}

export function writeFrame(
  out: GrowingBuffer,
  type: number,
  flags: number,
  streamId: number,
  payload: Uint8Array,
): void {
  out.reserve(FRAME_HEAD_BYTES + payload.length);
  writeHead(out, payload.length, type, flags, streamId);
  out.add(payload);
}

/** A frame whose payload is a number of 32 bits. */
function writeNumberFrame(out: GrowingBuffer, type: number, streamId: number, value: number): void {
  out.reserve(FRAME_HEAD_BYTES + 4);
  writeHead(out, 4, type, 0, streamId);
  writeUint32(out, value);
}

export function writeReset(out: GrowingBuffer, streamId: number, code: number): void {
  writeNumberFrame(out, FRAME.RST_STREAM, streamId, code);
}

/** @param streamId 0 for the window of the connection */
export function writeWindowUpdate(out: GrowingBuffer, streamId: number, bytes: number): void {
  writeNumberFrame(out, FRAME.WINDOW_UPDATE, streamId, bytes);
}

export function writeGoaway(out: GrowingBuffer, lastId: number, code: number, reason = ''): void {
  const text = Buffer.from(reason);
  out.reserve(FRAME_HEAD_BYTES + 8 + text.length);
  writeHead(out, 8 + text.length, FRAME.GOAWAY, 0, 0);
  writeUint32(out, lastId);
  writeUint32(out, code);
  out.add(text);
}

export function writeSettings(out: GrowingBuffer, settings: readonly [number, number][]): void {
  const payload = Buffer.alloc(6 * settings.length);
  for (const [i, [id, value]] of settings.entries()) {
    payload.writeUInt16BE(id, 6 * i);
    payload.writeUInt32BE(value, 6 * i + 2);
  }
  writeFrame(out, FRAME.SETTINGS, 0, 0, payload);
}

/** A literal header of HPACK that is not added to the table. */
function header(name: string, value: string): Buffer {
  return Buffer.concat([Buffer.from([0]), text(name), text(value)]);
}

/** The length has a prefix of 7 bits. */
function text(value: string): Buffer {
  const bytes = Buffer.from(value, 'latin1');
  const length = [];
  let rest = bytes.length - 127;
  if (rest < 0) length.push(bytes.length);
  else {
    for (length.push(127); rest >= 128; rest >>= 7) length.push((rest & 127) | 128);
    length.push(rest);
  }
  return Buffer.concat([Buffer.from(length), bytes]);
}

/** `:status: 200` of the static table. */
const STATUS_200 = Buffer.from([0x88]);
const CONTENT_TYPE = header('content-type', GRPC_CONTENT_TYPE);
const HEADERS_BLOCK = Buffer.concat([STATUS_200, CONTENT_TYPE]);
const OK_TRAILERS_BLOCK = header('grpc-status', String(GRPC_STATUS.OK));
const RESPONSE_BYTES =
  3 * FRAME_HEAD_BYTES + HEADERS_BLOCK.length + PREFIX_BYTES + OK_TRAILERS_BLOCK.length;

/** Writes the headers, a message that fits one frame, and the status OK. */
export function writeResponse(out: GrowingBuffer, streamId: number, message: Uint8Array): void {
  out.reserve(RESPONSE_BYTES + message.length);
  writeHead(out, HEADERS_BLOCK.length, FRAME.HEADERS, FLAG.END_HEADERS, streamId);
  out.add(HEADERS_BLOCK);
  writeHead(out, PREFIX_BYTES + message.length, FRAME.DATA, 0, streamId);
  out.bytes[out.at++] = 0;
  writeUint32(out, message.length);
  out.add(message);
  writeOkTrailers(out, streamId);
}

export function writeHeaders(out: GrowingBuffer, streamId: number): void {
  writeFrame(out, FRAME.HEADERS, FLAG.END_HEADERS, streamId, HEADERS_BLOCK);
}

const TRAILERS_FLAGS = FLAG.END_HEADERS | FLAG.END_STREAM;

export function writeOkTrailers(out: GrowingBuffer, streamId: number): void {
  writeFrame(out, FRAME.HEADERS, TRAILERS_FLAGS, streamId, OK_TRAILERS_BLOCK);
}

/** Ends a stream whose headers were sent. */
export function writeErrorTrailers(out: GrowingBuffer, streamId: number, error: GrpcError): void {
  writeFrame(out, FRAME.HEADERS, TRAILERS_FLAGS, streamId, errorBlock(error));
}

/** Ends a stream on which nothing was sent ("Trailers-Only"). */
export function writeErrorOnly(
  out: GrowingBuffer,
  streamId: number,
  httpStatus: number,
  error: GrpcError,
): void {
  const status = httpStatus === 200 ? STATUS_200 : header(':status', String(httpStatus));
  const block = Buffer.concat([status, CONTENT_TYPE, errorBlock(error)]);
  writeFrame(out, FRAME.HEADERS, TRAILERS_FLAGS, streamId, block);
}

function errorBlock({ status, message }: GrpcError): Buffer {
  const headers = [
    header('grpc-status', String(status)),
    header('grpc-message', percentEncode(message.slice(0, GRPC_ERROR_MESSAGE_MAX))),
  ];
  // Needed with UNIMPLEMENTED for a compressed message, and true with any other.
  if (status === GRPC_STATUS.UNIMPLEMENTED) {
    headers.push(header('grpc-accept-encoding', 'identity'));
  }
  return Buffer.concat(headers);
}

/** The encoding of `grpc-message`: printable ASCII without `%` stays. */
function percentEncode(message: string): string {
  return message.replace(/[^ -$&-~]+/g, (part) => {
    return [...Buffer.from(part)]
      .map((byte) => `%${byte.toString(16).toUpperCase().padStart(2, '0')}`)
      .join('');
  });
}
