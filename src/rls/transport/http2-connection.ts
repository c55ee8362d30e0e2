/**
 * The server side of an HTTP/2 connection (RFC 9113) with calls of gRPC. It reads each chunk of its
 * socket in place, and writes all responses to the calls of a chunk at once. What violates the
 * protocol ends its stream, or the connection by a GOAWAY. What a client can make this side do or
 * keep is bounded; a client over a bound loses its connection.
 */

import type { Socket } from 'node:net';
import {
  GRPC_CONTROL_FRAMES_PER_SETTINGS,
  GRPC_DRAIN_GRACE_MS,
  GRPC_DRAIN_PING_MS,
  GRPC_END_TIMEOUT_S,
  GRPC_HEADER_BLOCK_MAX_BYTES,
  GRPC_HEADERS_MAX_BYTES,
  GRPC_KEEPALIVE_S,
  GRPC_KNOWN_RESETS,
  GRPC_STREAMS_MAX,
  GRPC_UNSENT_BYTES_MAX,
  GRPC_WINDOW_BYTES,
} from '../../core/constants.ts';
import { ClientBudget } from './client-budget.ts';
import {
  ConnectionError,
  DEFAULT_WINDOW_BYTES,
  ERROR_CODE,
  FLAG,
  FRAME,
  FRAME_HEAD_BYTES,
  FRAME_MAX_BYTES,
  PREFACE,
  SETTING,
  STREAM_ID_MAX,
  WINDOW_MAX_BYTES,
  writeErrorOnly,
  writeFrame,
  writeGoaway,
  writeReset,
  writeSettings,
  writeWindowUpdate,
} from './frames.ts';
import { GrowingBuffer } from './growing-buffer.ts';
import { type HeaderBlock, HeaderDecoder } from './hpack.ts';
import type { BufferedBytes } from './message-reader.ts';
import { ResponseSender } from './response-sender.ts';
import { type Methods, type Route, routeOf } from './route.ts';
import { GRPC_STATUS, GrpcError } from './status.ts';
import { Stream, type StreamConnection } from './stream.ts';

/** Of all connections of a server. */
export interface ConnectionOptions extends Methods {
  readonly maxMessageBytes: number;
  readonly buffered: BufferedBytes;
  readonly onError: (error: Error) => void;
}

interface Request {
  readonly headers: HeaderBlock;
  readonly route: Route;
}

/** More output is written before the end of its chunk. */
const OUTPUT_BYTES_MAX = 65_536;
const NO_BYTES = Buffer.alloc(0);
const KEEPALIVE_PING = Buffer.from('weiraliv');
const DRAIN_PING = Buffer.from('weirdrai');

export class Http2Connection implements StreamConnection {
  readonly #socket: Socket;
  readonly #options: ConnectionOptions;
  readonly #onEstablished: () => void;
  readonly #out = new GrowingBuffer();
  readonly #decoder: HeaderDecoder<Request>;
  /** Bytes of an incomplete preface or frame. */
  #rest = NO_BYTES;
  #hasPreface = false;
  #hasSettings = false;
  #isReading = false;
  #isFlushScheduled = false;
  /** Whether no frames are read and written any more. */
  #isOver = false;
  /** Whether the client has closed its side. */
  #isReadOver = false;

  /** Open streams but the latest one, which is rarely open for longer than its chunk. */
  readonly #streams = new Map<number, Stream>();
  #latest: Stream | undefined;
  #lastId = 0;
  /** The last one before streams were ignored. */
  #lastAcceptedId = 0;
  /** The header block that goes on in CONTINUATION frames, and its stream. */
  #block: GrowingBuffer | undefined;
  #blockStreamId = 0;
  #blockEndsStream = false;
  /** The last streams that this side has reset, whose further frames the client may have sent. */
  readonly #resetIds = new Set<number>();

  #receiveWindow = GRPC_WINDOW_BYTES;
  readonly #sender = new ResponseSender(this.#out, (stream) => this.#remove(stream));

  readonly #budget = new ClientBudget();
  /** Since the last PING, or since the end. */
  #seconds = 0;
  #awaitsPing = false;
  #isDraining = false;
  #awaitsDrainPing = false;
  #drainTimer: NodeJS.Timeout | undefined;
  /** Whether no further streams are accepted. */
  #isClosing = false;

  /** @param onEstablished is called when each side has acknowledged the settings of the other */
  constructor(socket: Socket, options: ConnectionOptions, onEstablished: () => void) {
    this.#socket = socket;
    this.#options = options;
    this.#onEstablished = onEstablished;
    this.#decoder = new HeaderDecoder((headers) => ({
      headers,
      route: routeOf(headers, options),
    }));
    socket.allowHalfOpen = true;
    socket.on('data', (chunk: Buffer) => this.#readChunk(chunk));
    socket.on('end', () => this.#endReading());
    socket.on('close', () => this.#close());
    writeSettings(this.#out, [
      [SETTING.MAX_CONCURRENT_STREAMS, GRPC_STREAMS_MAX],
      [SETTING.INITIAL_WINDOW_SIZE, GRPC_WINDOW_BYTES],
      [SETTING.MAX_HEADER_LIST_SIZE, GRPC_HEADERS_MAX_BYTES],
    ]);
    writeWindowUpdate(this.#out, 0, GRPC_WINDOW_BYTES - DEFAULT_WINDOW_BYTES);
    this.#flush();
  }

  get maxMessageBytes(): number {
    return this.#options.maxMessageBytes;
  }

  get buffered(): BufferedBytes {
    return this.#options.buffered;
  }

  onError(error: Error): void {
    this.#options.onError(error);
  }

  /** Must be called each second: renews what a client may do in one, and probes the client. */
  tick(): void {
    this.#budget.renew();
    this.#seconds++;
    if (this.#isOver) {
      if (this.#seconds > GRPC_END_TIMEOUT_S) this.#socket.destroy();
    } else if (this.#seconds >= GRPC_KEEPALIVE_S) this.#probe();
  }

  /**
   * Tells the client to open no more calls, and closes the connection when those are over that it
   * opened before it read this: the answer to the PING comes after them.
   */
  drain(): void {
    if (this.#isDraining || this.#isOver) return;
    this.#isDraining = true;
    this.#awaitsDrainPing = true;
    writeGoaway(this.#out, STREAM_ID_MAX, ERROR_CODE.NO_ERROR);
    writeFrame(this.#out, FRAME.PING, 0, 0, DRAIN_PING);
    this.#drainTimer = setTimeout(() => this.#stopAccepting(), GRPC_DRAIN_PING_MS);
    this.#flushLater();
  }

  sendMessage(stream: Stream, message: Uint8Array, isLast: boolean): void {
    if (this.#isOver) return;
    this.#sender.sendMessage(stream, message, isLast);
    // Such a client opens no window any more.
    if (this.#isReadOver && stream.unsent !== undefined) this.#remove(stream);
    if (this.#sender.unsentBytes > GRPC_UNSENT_BYTES_MAX) this.#destroy();
    this.#flushLater();
  }

  sendError(stream: Stream, error: GrpcError): void {
    if (this.#isOver) return;
    if (!stream.areHeadersSent) {
      writeErrorOnly(this.#out, stream.id, 200, error);
      this.#endEarly(stream.id, stream.isReadOver);
      this.#remove(stream);
    } else this.#sender.endWithError(stream, error);
    this.#flushLater();
  }

  // Reading

  #readChunk(chunk: Buffer): void {
    if (this.#isOver) return;
    const bytes = this.#rest.length === 0 ? chunk : Buffer.concat([this.#rest, chunk]);
    this.#isReading = true;
    try {
      const end = this.#readFrames(bytes);
      // A copy, which does not keep the whole chunk in memory.
      this.#rest = end < bytes.length ? Buffer.from(bytes.subarray(end)) : NO_BYTES;
    } catch (error) {
      this.#fail(error);
    }
    this.#isReading = false;
    this.#flush();
  }

  /** @returns where the incomplete rest begins */
  #readFrames(bytes: Buffer): number {
    let at = 0;
    if (!this.#hasPreface) {
      const length = Math.min(PREFACE.length, bytes.length);
      if (PREFACE.compare(bytes, 0, length, 0, length) !== 0) {
        throw new ConnectionError(ERROR_CODE.PROTOCOL_ERROR, 'invalid connection preface');
      }
      if (length < PREFACE.length) return 0;
      this.#hasPreface = true;
      at = PREFACE.length;
    }
    while (bytes.length - at >= FRAME_HEAD_BYTES && !this.#isOver) {
      const length = (bytes[at] << 16) | (bytes[at + 1] << 8) | bytes[at + 2];
      if (length > FRAME_MAX_BYTES) {
        const message = `a frame of ${length} bytes; at most ${FRAME_MAX_BYTES} are accepted`;
        throw new ConnectionError(ERROR_CODE.FRAME_SIZE_ERROR, message);
      }
      const start = at + FRAME_HEAD_BYTES;
      if (length > bytes.length - start) break;
      const streamId = bytes.readUInt32BE(at + 5) & STREAM_ID_MAX;
      this.#readFrame(bytes[at + 3], bytes[at + 4], streamId, bytes, start, start + length);
      at = start + length;
      if (this.#out.at > OUTPUT_BYTES_MAX) this.#flush();
    }
    return at;
  }

  #readFrame(
    type: number,
    flags: number,
    id: number,
    bytes: Buffer,
    start: number,
    end: number,
  ): void {
    if (this.#block !== undefined && type !== FRAME.CONTINUATION) {
      throw protocolError('a header block must go on with CONTINUATION');
    }
    if (type === FRAME.DATA) {
      this.#readData(flags, id, bytes, start, end);
      return;
    }
    if (type === FRAME.HEADERS) {
      if (!this.#hasSettings) throw protocolError('SETTINGS must be the first frame');
      this.#readHeaders(flags, id, bytes, start, end);
      return;
    }
    const length = end - start;
    if (type === FRAME.SETTINGS) {
      this.#readSettings(flags, id, bytes, start, end);
      return;
    }
    if (!this.#hasSettings) throw protocolError('SETTINGS must be the first frame');
    if (type === FRAME.RST_STREAM) {
      requireLength('RST_STREAM', length, 4);
      this.#readReset(id);
      return;
    }
    this.#budget.addControlFrame();
    switch (type) {
      case FRAME.PRIORITY:
        if (id === 0) throw protocolError('PRIORITY of stream 0');
        requireLength('PRIORITY', length, 5);
        break;
      case FRAME.PUSH_PROMISE:
        throw protocolError('PUSH_PROMISE of a client');
      case FRAME.PING:
        if (id !== 0) throw protocolError('PING of a stream');
        requireLength('PING', length, 8);
        this.#readPing(flags, bytes.subarray(start, end));
        break;
      case FRAME.GOAWAY:
        if (id !== 0) throw protocolError('GOAWAY of a stream');
        if (length < 8) requireLength('GOAWAY', length, 8);
        break;
      case FRAME.WINDOW_UPDATE:
        requireLength('WINDOW_UPDATE', length, 4);
        this.#readWindowUpdate(id, bytes.readUInt32BE(start) & STREAM_ID_MAX);
        break;
      case FRAME.CONTINUATION:
        this.#readContinuation(flags, id, bytes.subarray(start, end));
        break;
    }
  }

  #readHeaders(flags: number, id: number, bytes: Buffer, start: number, end: number): void {
    if (id % 2 === 0) throw protocolError(`HEADERS of stream ${id}, which no client can open`);
    let at = start;
    let blockEnd = end;
    if ((flags & FLAG.PADDED) !== 0) {
      if (at >= end) throw new ConnectionError(ERROR_CODE.FRAME_SIZE_ERROR, 'HEADERS too short');
      blockEnd -= bytes[at++];
    }
    if ((flags & FLAG.PRIORITY) !== 0) {
      if (at + 5 > end) throw new ConnectionError(ERROR_CODE.FRAME_SIZE_ERROR, 'HEADERS too short');
      at += 5;
    }
    if (blockEnd < at) throw protocolError('HEADERS with more padding than bytes');
    const endsStream = (flags & FLAG.END_STREAM) !== 0;
    if ((flags & FLAG.END_HEADERS) !== 0) {
      this.#acceptHeaders(id, this.#decoder.decode(bytes, at, blockEnd), endsStream);
      return;
    }
    this.#blockStreamId = id;
    this.#blockEndsStream = endsStream;
    this.#block = new GrowingBuffer();
    this.#addToBlock(this.#block, bytes.subarray(at, blockEnd));
  }

  #readContinuation(flags: number, id: number, part: Buffer): void {
    const block = this.#block;
    if (block === undefined || id !== this.#blockStreamId) {
      throw protocolError('CONTINUATION without HEADERS of its stream');
    }
    this.#addToBlock(block, part);
    if ((flags & FLAG.END_HEADERS) === 0) return;
    this.#block = undefined;
    const request = this.#decoder.decode(block.bytes, 0, block.at);
    this.#acceptHeaders(id, request, this.#blockEndsStream);
  }

  #addToBlock(block: GrowingBuffer, part: Buffer): void {
    if (block.at + part.length > GRPC_HEADER_BLOCK_MAX_BYTES) {
      const message = `a header block must have at most ${GRPC_HEADER_BLOCK_MAX_BYTES} bytes`;
      throw new ConnectionError(ERROR_CODE.ENHANCE_YOUR_CALM, message);
    }
    block.reserve(part.length);
    block.add(part);
  }

  #acceptHeaders(id: number, request: Request, endsStream: boolean): void {
    if (id <= this.#lastId) {
      this.#acceptTrailers(id, request, endsStream);
      return;
    }
    this.#lastId = id;
    this.#budget.addCall();
    const { headers, route } = request;
    if (this.#isClosing) {
      this.#rememberReset(id);
      return;
    }
    this.#lastAcceptedId = id;
    if (headers.isMalformed) this.#reset(id, ERROR_CODE.PROTOCOL_ERROR);
    else if (headers.isTooLarge) this.#reset(id, ERROR_CODE.ENHANCE_YOUR_CALM);
    else if (this.#openCount >= GRPC_STREAMS_MAX) this.#reset(id, ERROR_CODE.REFUSED_STREAM);
    else if (endsStream && headers.contentLength > 0) this.#reset(id, ERROR_CODE.PROTOCOL_ERROR);
    else if (route.method === undefined) {
      writeErrorOnly(this.#out, id, route.httpStatus, route.error);
      this.#endEarly(id, endsStream);
    } else {
      const { method, isUnary } = route;
      this.#keepLatest();
      const stream = new Stream(id, this, method, isUnary, headers.contentLength);
      this.#latest = stream;
      if (endsStream) this.#endStream(stream, NO_BYTES, 0, 0);
    }
  }

  #acceptTrailers(id: number, { headers }: Request, endsStream: boolean): void {
    const stream = this.#streamOf(id);
    if (stream === undefined || stream.isReadOver) {
      if (this.#resetIds.has(id)) return;
      const code = id === this.#lastId ? ERROR_CODE.STREAM_CLOSED : ERROR_CODE.PROTOCOL_ERROR;
      throw new ConnectionError(code, `HEADERS of stream ${id}, which is closed`);
    }
    if (!endsStream || headers.isMalformedTrailers || stream.missingBytes > 0) {
      this.#abort(stream, ERROR_CODE.PROTOCOL_ERROR);
    } else this.#endStream(stream, NO_BYTES, 0, 0);
  }

  #readData(flags: number, id: number, bytes: Buffer, start: number, end: number): void {
    if (!this.#hasSettings) throw protocolError('SETTINGS must be the first frame');
    const stream = this.#streamOf(id);
    if (stream === undefined) this.#requireOpened('DATA', id);
    let at = start;
    let contentEnd = end;
    if ((flags & FLAG.PADDED) !== 0) {
      if (at >= end) throw new ConnectionError(ERROR_CODE.FRAME_SIZE_ERROR, 'DATA too short');
      contentEnd -= bytes[at++];
      if (contentEnd < at) throw protocolError('DATA with more padding than bytes');
    }
    this.#receive(end - start);
    if (stream === undefined) {
      this.#budget.addControlFrame();
      if (!this.#resetIds.has(id)) this.#reset(id, ERROR_CODE.STREAM_CLOSED);
      return;
    }
    if (stream.isReadOver) {
      this.#abort(stream, ERROR_CODE.STREAM_CLOSED);
      return;
    }
    stream.receiveWindow -= end - start;
    const endsStream = (flags & FLAG.END_STREAM) !== 0;
    if (stream.missingBytes >= 0) {
      stream.missingBytes -= contentEnd - at;
      if (stream.missingBytes < 0 || (endsStream && stream.missingBytes > 0)) {
        this.#abort(stream, ERROR_CODE.PROTOCOL_ERROR);
        return;
      }
    }
    if (endsStream) {
      this.#endStream(stream, bytes, at, contentEnd);
      return;
    }
    if (at === contentEnd) this.#budget.addControlFrame();
    stream.read(bytes, at, contentEnd, false);
    if (!stream.isClosed && stream.receiveWindow < GRPC_WINDOW_BYTES / 2) {
      writeWindowUpdate(this.#out, id, GRPC_WINDOW_BYTES - stream.receiveWindow);
      stream.receiveWindow = GRPC_WINDOW_BYTES;
    }
  }

  /**
   * Opens the window again before it is used up, so that no client can exceed it: bytes of DATA are
   * never kept unread, and the bounds of messages are not those of windows.
   */
  #receive(count: number): void {
    this.#receiveWindow -= count;
    if (this.#receiveWindow >= GRPC_WINDOW_BYTES / 2) return;
    writeWindowUpdate(this.#out, 0, GRPC_WINDOW_BYTES - this.#receiveWindow);
    this.#receiveWindow = GRPC_WINDOW_BYTES;
  }

  #readReset(id: number): void {
    const stream = this.#streamOf(id);
    if (stream === undefined) this.#requireOpened('RST_STREAM', id);
    this.#budget.addReset();
    if (stream !== undefined) this.#remove(stream);
  }

  #readSettings(flags: number, id: number, bytes: Buffer, start: number, end: number): void {
    if (id !== 0) throw protocolError('SETTINGS of a stream');
    if ((flags & FLAG.ACK) !== 0) {
      requireLength('an acknowledgement of SETTINGS', end - start, 0);
      if (!this.#hasSettings) throw protocolError('SETTINGS must be the first frame');
      this.#budget.addControlFrame();
      this.#onEstablished();
      return;
    }
    if ((end - start) % 6 !== 0) {
      throw new ConnectionError(ERROR_CODE.FRAME_SIZE_ERROR, 'SETTINGS with half a setting');
    }
    this.#budget.addControlFrame(GRPC_CONTROL_FRAMES_PER_SETTINGS);
    let window: number | undefined;
    for (let at = start; at < end; at += 6) {
      const setting = bytes.readUInt16BE(at);
      const value = bytes.readUInt32BE(at + 2);
      checkSetting(setting, value);
      if (setting === SETTING.INITIAL_WINDOW_SIZE) window = value;
    }
    this.#hasSettings = true;
    writeFrame(this.#out, FRAME.SETTINGS, FLAG.ACK, 0, NO_BYTES);
    if (window === undefined) return;
    this.#keepLatest();
    this.#sender.setInitialWindow(window, this.#streams.values());
  }

  #readPing(flags: number, payload: Buffer): void {
    if ((flags & FLAG.ACK) === 0) writeFrame(this.#out, FRAME.PING, FLAG.ACK, 0, payload);
    else if (payload.equals(KEEPALIVE_PING)) this.#awaitsPing = false;
    else if (payload.equals(DRAIN_PING) && this.#awaitsDrainPing) this.#continueDraining();
  }

  #readWindowUpdate(id: number, bytes: number): void {
    if (id === 0) {
      if (bytes === 0) throw protocolError('WINDOW_UPDATE by 0');
      this.#sender.openWindow(bytes);
      return;
    }
    const stream = this.#streamOf(id);
    if (stream === undefined) this.#requireOpened('WINDOW_UPDATE', id);
    else if (bytes === 0) this.#abort(stream, ERROR_CODE.PROTOCOL_ERROR);
    else if (!this.#sender.openStreamWindow(stream, bytes)) {
      this.#abort(stream, ERROR_CODE.FLOW_CONTROL_ERROR);
    }
  }

  /** The client has closed its side: it can complete no call, and open no window. */
  #endReading(): void {
    this.#isReadOver = true;
    this.#keepLatest();
    for (const stream of this.#streams.values()) {
      const canEnd = stream.isReadOver && stream.isUnary && stream.unsent === undefined;
      if (!canEnd) this.#remove(stream);
    }
    this.#endIfIdle();
  }

  #probe(): void {
    this.#seconds = 0;
    if (this.#awaitsPing) {
      this.#destroy();
      return;
    }
    this.#awaitsPing = true;
    writeFrame(this.#out, FRAME.PING, 0, 0, KEEPALIVE_PING);
    this.#flushLater();
  }

  // Streams

  get #openCount(): number {
    return this.#streams.size + (this.#latest === undefined ? 0 : 1);
  }

  #streamOf(id: number): Stream | undefined {
    return this.#latest?.id === id ? this.#latest : this.#streams.get(id);
  }

  #keepLatest(): void {
    if (this.#latest === undefined) return;
    this.#streams.set(this.#latest.id, this.#latest);
    this.#latest = undefined;
  }

  #requireOpened(frame: string, id: number): void {
    if (id % 2 === 1 && id <= this.#lastId) return;
    throw protocolError(`${frame} of stream ${id}, which is not open`);
  }

  /** The client has ended its side. */
  #endStream(stream: Stream, bytes: Buffer, start: number, end: number): void {
    stream.isReadOver = true;
    stream.read(bytes, start, end, true);
  }

  /** After a response: tells a client to stop that has not ended its side. */
  #endEarly(id: number, isReadOver: boolean): void {
    if (isReadOver) return;
    writeReset(this.#out, id, ERROR_CODE.NO_ERROR);
    this.#rememberReset(id);
  }

  /** Rejects a stream. Clients can cause it, so it counts as if they had reset it. */
  #reset(id: number, code: number): void {
    this.#budget.addReset();
    writeReset(this.#out, id, code);
    this.#rememberReset(id);
  }

  #abort(stream: Stream, code: number): void {
    this.#remove(stream);
    this.#reset(stream.id, code);
  }

  #rememberReset(id: number): void {
    this.#resetIds.add(id);
    if (this.#resetIds.size <= GRPC_KNOWN_RESETS) return;
    const [oldest] = this.#resetIds;
    this.#resetIds.delete(oldest);
  }

  #remove(stream: Stream): void {
    if (stream.isClosed) return;
    if (this.#latest === stream) this.#latest = undefined;
    else this.#streams.delete(stream.id);
    this.#sender.forget(stream);
    stream.close();
    if (this.#isClosing || this.#isReadOver) this.#endIfIdle();
  }

  // Writing

  /** Several responses of a turn outside of a chunk are written at once. */
  #flushLater(): void {
    if (this.#isReading || this.#isFlushScheduled) return;
    this.#isFlushScheduled = true;
    setImmediate(() => {
      this.#isFlushScheduled = false;
      this.#flush();
    });
  }

  #flush(): void {
    const socket = this.#socket;
    if (this.#out.at === 0 || !socket.writable) return;
    socket.write(this.#out.take());
    // The kernel has all bytes.
    this.#out.reuse(socket.writableLength === 0);
    if (socket.writableLength + this.#sender.unsentBytes > GRPC_UNSENT_BYTES_MAX) this.#destroy();
  }

  // The end

  #continueDraining(): void {
    this.#awaitsDrainPing = false;
    clearTimeout(this.#drainTimer);
    this.#drainTimer = setTimeout(() => this.#stopAccepting(), GRPC_DRAIN_GRACE_MS);
  }

  #stopAccepting(): void {
    if (this.#isOver) return;
    this.#isClosing = true;
    writeGoaway(this.#out, this.#lastAcceptedId, ERROR_CODE.NO_ERROR);
    this.#keepLatest();
    const error = new GrpcError(GRPC_STATUS.UNAVAILABLE, 'the server is draining');
    for (const stream of this.#streams.values()) {
      if (!stream.isUnary) stream.fail(error);
    }
    this.#endIfIdle();
    this.#flushLater();
  }

  #endIfIdle(): void {
    if (this.#openCount === 0 && !this.#isOver) this.#end();
  }

  /** Ends the connection after what is written. The client has some time to read it. */
  #end(): void {
    this.#isOver = true;
    this.#seconds = 0;
    this.#rest = NO_BYTES;
    this.#flush();
    this.#socket.end();
  }

  #fail(error: unknown): void {
    if (this.#isOver) return;
    if (!(error instanceof ConnectionError)) {
      this.onError(error instanceof Error ? error : new Error(String(error)));
    }
    const { code, message } =
      error instanceof ConnectionError
        ? error
        : new ConnectionError(ERROR_CODE.INTERNAL_ERROR, 'the server failed');
    writeGoaway(this.#out, this.#lastAcceptedId, code, message);
    this.#end();
    this.#closeStreams();
  }

  /** Closes the connection at once: its client does not read. */
  #destroy(): void {
    this.#isOver = true;
    this.#socket.destroy();
  }

  #close(): void {
    this.#isOver = true;
    clearTimeout(this.#drainTimer);
    this.#closeStreams();
  }

  #closeStreams(): void {
    this.#keepLatest();
    for (const stream of this.#streams.values()) this.#remove(stream);
  }
}

function protocolError(message: string): ConnectionError {
  return new ConnectionError(ERROR_CODE.PROTOCOL_ERROR, message);
}

/** Other settings do not matter: this side uses no table of HPACK, and frames of the least size. */
function checkSetting(setting: number, value: number): void {
  if (setting === SETTING.ENABLE_PUSH && value > 1) {
    throw protocolError(`SETTINGS_ENABLE_PUSH must be 0 or 1; got ${value}`);
  }
  if (setting === SETTING.MAX_FRAME_SIZE && (value < FRAME_MAX_BYTES || value >= 2 ** 24)) {
    throw protocolError(`SETTINGS_MAX_FRAME_SIZE must be 16384 to 16777215; got ${value}`);
  }
  if (setting === SETTING.INITIAL_WINDOW_SIZE && value > WINDOW_MAX_BYTES) {
    const message = `SETTINGS_INITIAL_WINDOW_SIZE must be at most 2147483647; got ${value}`;
    throw new ConnectionError(ERROR_CODE.FLOW_CONTROL_ERROR, message);
  }
}

function requireLength(frame: string, length: number, expected: number): void {
  if (length === expected) return;
  const message = `${frame} must have ${expected} bytes; got ${length}`;
  throw new ConnectionError(ERROR_CODE.FRAME_SIZE_ERROR, message);
}
