/**
 * Calls of Envoy's rate limit service over HTTP/2, written and read as bytes on sockets: a client
 * library needs more CPU than the servers. Each connection has a fixed number of calls open; the
 * next call begins when one is answered. A call has one descriptor, whose value is the next of a
 * number of values. An answer other than the expected code is an error.
 */

import { connect, type Socket } from 'node:net';
import { type LoadMeasurement, latenciesOf } from './load-generator.ts';

export const RLS_DOMAIN = 'bench';
/** The keys of descriptors that are always allowed, and always denied after one call. */
export const RLS_KEYS = { allowed: 'allowed', denied: 'denied' } as const;

const PATH = '/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit';
const PREFACE = 'PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n';
const FRAME = { data: 0, headers: 1, rstStream: 3, settings: 4, ping: 6, windowUpdate: 8 } as const;
const FLAG = { endStream: 1, ack: 1, endHeaders: 4 } as const;
const HEAD_BYTES = 9;
const WINDOW_BYTES = 2 ** 30;
/** A client may not use a stream id twice, and ids end at 2^31. */
const LAST_STREAM = 2 ** 31 - 1_000;
const CODE = { allowed: 1, denied: 2 } as const;

export interface RlsLoad {
  port: number;
  connections: number;
  /** Calls that a connection has open at once. */
  streams: number;
  seconds: number;
  values: number;
  outcome: keyof typeof CODE;
}

export async function runRlsLoad(load: RlsLoad): Promise<LoadMeasurement> {
  const messages = Array.from({ length: load.values }, (_, i) => messageFor(load.outcome, i));
  const times: number[] = [];
  const results = { requests: 0, errors: 0 };
  const start = performance.now();
  const endMs = start + 1_000 * load.seconds;
  const clients = Array.from({ length: load.connections }, (_, number) => {
    return new Client(load, messages, number, endMs, times, results).run();
  });
  await Promise.all(clients);
  const seconds = (performance.now() - start) / 1_000;
  return { ...results, seconds, ...latenciesOf(times) };
}

class Client {
  readonly #socket: Socket;
  readonly #load: RlsLoad;
  readonly #messages: readonly Buffer[];
  readonly #endMs: number;
  readonly #times: number[];
  readonly #results: { requests: number; errors: number };
  readonly #sentMs = new Map<number, number>();
  readonly #expectedCode: number;
  #nextStream = 1;
  #nextMessage: number;
  #rest: Buffer = Buffer.alloc(0);
  #answered = 0;
  #unacknowledgedBytes = 0;

  constructor(
    load: RlsLoad,
    messages: readonly Buffer[],
    number: number,
    endMs: number,
    times: number[],
    results: { requests: number; errors: number },
  ) {
    this.#load = load;
    this.#messages = messages;
    this.#endMs = endMs;
    this.#times = times;
    this.#results = results;
    this.#expectedCode = CODE[load.outcome];
    // Each connection begins with another value.
    this.#nextMessage = Math.floor((number * messages.length) / load.connections);
    this.#socket = connect({ host: '127.0.0.1', port: load.port, noDelay: true });
  }

  run(): Promise<void> {
    const socket = this.#socket;
    return new Promise((resolve, reject) => {
      socket.on('error', reject);
      socket.on('close', () => {
        if (this.#sentMs.size > 0) reject(new Error('the server closed a connection with calls'));
        else resolve();
      });
      socket.on('data', (chunk) => this.#read(chunk));
      socket.on('connect', () => {
        const windowSize = Buffer.from([0, 4, 0, 0, 0, 0]);
        windowSize.writeUInt32BE(WINDOW_BYTES, 2);
        socket.write(
          Buffer.concat([
            Buffer.from(PREFACE),
            frame(FRAME.settings, 0, 0, windowSize),
            frame(FRAME.windowUpdate, 0, 0, uint32(WINDOW_BYTES)),
          ]),
        );
        this.#send(this.#load.streams);
      });
    });
  }

  #send(count: number): void {
    const now = performance.now();
    const frames: Buffer[] = [];
    for (let i = 0; i < count && now < this.#endMs && this.#nextStream < LAST_STREAM; i++) {
      const stream = this.#nextStream;
      this.#nextStream += 2;
      const message = this.#messages[this.#nextMessage];
      this.#nextMessage = (this.#nextMessage + 1) % this.#messages.length;
      const call = Buffer.concat([HEADERS, message]);
      call.writeUInt32BE(stream, 5);
      call.writeUInt32BE(stream, HEADERS.length + 5);
      frames.push(call);
      this.#sentMs.set(stream, now);
    }
    if (frames.length > 0) this.#socket.write(Buffer.concat(frames));
    else if (this.#sentMs.size === 0) this.#socket.end();
  }

  #read(chunk: Buffer): void {
    const bytes = this.#rest.length === 0 ? chunk : Buffer.concat([this.#rest, chunk]);
    let at = 0;
    while (bytes.length - at >= HEAD_BYTES) {
      const length = bytes.readUIntBE(at, 3);
      const end = at + HEAD_BYTES + length;
      if (bytes.length < end) break;
      this.#receive(bytes, at, length);
      at = end;
    }
    this.#rest = bytes.subarray(at);
    const answered = this.#answered;
    this.#answered = 0;
    if (answered > 0) this.#send(answered);
  }

  #receive(bytes: Buffer, at: number, length: number): void {
    const type = bytes[at + 3];
    const flags = bytes[at + 4];
    const stream = bytes.readUInt32BE(at + 5);
    const payload = at + HEAD_BYTES;
    if (type === FRAME.data) {
      this.#acknowledge(length);
      // The prefix of the message, then the field `overall_code`.
      const isExpected = length >= 7 && bytes[payload + 5] === 8;
      if (!isExpected || bytes[payload + 6] !== this.#expectedCode) this.#results.errors++;
    } else if (type === FRAME.settings && (flags & FLAG.ack) === 0) {
      this.#socket.write(frame(FRAME.settings, FLAG.ack, 0, Buffer.alloc(0)));
    } else if (type === FRAME.ping && (flags & FLAG.ack) === 0) {
      const data = bytes.subarray(payload, payload + length);
      this.#socket.write(frame(FRAME.ping, FLAG.ack, 0, data));
    }
    const isEnd = type <= FRAME.headers && (flags & FLAG.endStream) !== 0;
    if (!isEnd && type !== FRAME.rstStream) return;
    if (type === FRAME.rstStream) this.#results.errors++;
    const sentMs = this.#sentMs.get(stream);
    if (sentMs === undefined) return;
    this.#sentMs.delete(stream);
    this.#times.push(performance.now() - sentMs);
    this.#results.requests++;
    this.#answered++;
  }

  /** Gives the server the window for what was received. */
  #acknowledge(bytes: number): void {
    this.#unacknowledgedBytes += bytes;
    if (this.#unacknowledgedBytes < WINDOW_BYTES / 4) return;
    this.#socket.write(frame(FRAME.windowUpdate, 0, 0, uint32(this.#unacknowledgedBytes)));
    this.#unacknowledgedBytes = 0;
  }
}

function frame(type: number, flags: number, stream: number, payload: Buffer): Buffer {
  const head = Buffer.alloc(HEAD_BYTES);
  head.writeUIntBE(payload.length, 0, 3);
  head[3] = type;
  head[4] = flags;
  head.writeUInt32BE(stream, 5);
  return Buffer.concat([head, payload]);
}

function uint32(value: number): Buffer {
  const bytes = Buffer.alloc(4);
  bytes.writeUInt32BE(value);
  return bytes;
}

/** The headers of a call: literals without Huffman code, not added to the table of HPACK. */
const HEADERS = frame(
  FRAME.headers,
  FLAG.endHeaders,
  0,
  Buffer.concat(
    [
      [':method', 'POST'],
      [':scheme', 'http'],
      [':path', PATH],
      [':authority', '127.0.0.1'],
      ['content-type', 'application/grpc'],
      ['te', 'trailers'],
    ].flatMap(([name, value]) => [Buffer.from([0]), hpackText(name), hpackText(value)]),
  ),
);

function hpackText(text: string): Buffer {
  return Buffer.concat([Buffer.from([text.length]), Buffer.from(text)]);
}

function field(number: number, value: Buffer | string): Buffer {
  const bytes = Buffer.from(value);
  return Buffer.concat([Buffer.from([(number << 3) | 2, bytes.length]), bytes]);
}

/** The DATA frame of a call. */
function messageFor(outcome: RlsLoad['outcome'], number: number): Buffer {
  const value = `user_${String(number).padStart(6, '0')}`;
  const entry = Buffer.concat([field(1, RLS_KEYS[outcome]), field(2, value)]);
  const message = Buffer.concat([field(1, RLS_DOMAIN), field(2, field(1, entry))]);
  const prefixed = Buffer.concat([Buffer.from([0]), uint32(message.length), message]);
  return frame(FRAME.data, FLAG.endStream, 0, prefixed);
}
