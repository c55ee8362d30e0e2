import { once } from 'node:events';
import { connect, type Socket } from 'node:net';
import { setTimeout as sleep } from 'node:timers/promises';
import { connect as connectTls } from 'node:tls';
import { describe, expect, onTestFinished, test, vi } from 'vitest';
import {
  GRPC_CONTROL_FRAMES_PER_S,
  GRPC_END_TIMEOUT_S,
  GRPC_HEADER_BLOCK_MAX_BYTES,
  GRPC_KEEPALIVE_S,
  GRPC_RESET_BURST,
  GRPC_STREAMS_MAX,
  GRPC_WINDOW_BYTES,
} from '../../../src/core/constants.ts';
import type { UnaryCall } from '../../../src/rls/transport/call.ts';
import { ERROR_CODE } from '../../../src/rls/transport/frames.ts';
import type { GrpcServerOptions } from '../../../src/rls/transport/grpc-server.ts';
import { CERTIFICATE_A } from '../../support/certificates.ts';
import { newSeed, trialCount } from '../../support/guarantees.ts';
import {
  CLIENT_START,
  callFrames,
  callHeaders,
  callWith,
  ECHO,
  echo,
  encodeHeaders,
  FRAME,
  frame,
  framed,
  framesAt,
  grpcClient,
  headerBlock,
  PREFACE,
  type ReceivedFrame,
  rawSocket,
  startGrpcServer,
  type TestGrpcServer,
} from '../../support/rls/grpc.ts';
import { seededRandom } from '../../support/seeded-random.ts';
import { waitUntil } from '../../support/server.ts';

const HELLO = Buffer.from('hello');
const LATER = '/later';
const SETTINGS = frame(FRAME.SETTINGS, 0, 0);
const HEADERS = frame(FRAME.HEADERS, 4, 1, headerBlock());
const END = frame(FRAME.DATA, 1, 1, framed(HELLO));

interface Connection extends TestGrpcServer {
  socket: Socket;
  frames: ReceivedFrame[];
  /** Calls of LATER without a response. */
  later: UnaryCall[];
  /** Numbers in the frames of a type: the code of RST_STREAM and GOAWAY, a window. */
  numbers: (type: number) => number[];
}

/** A connection that has sent the preface and SETTINGS. */
async function open(options: Partial<GrpcServerOptions> = {}): Promise<Connection> {
  const later: UnaryCall[] = [];
  const unary = { [ECHO]: echo, [LATER]: (_: Buffer, call: UnaryCall) => void later.push(call) };
  const server = await startGrpcServer({ unary, ...options });
  const socket = await rawSocket(server.port);
  const frames = framesAt(socket);
  socket.write(CLIENT_START);
  const numbers = (type: number) => {
    const offset = type === FRAME.GOAWAY ? 4 : 0;
    return frames
      .filter((it) => it.type === type)
      .map(({ payload }) => payload.readUInt32BE(offset));
  };
  return { ...server, socket, frames, later, numbers };
}

/** Waits until the server has read all that was written before. */
async function roundTrip({ socket, frames }: Connection): Promise<void> {
  const count = () => frames.filter(({ type, flags }) => type === FRAME.PING && flags === 1).length;
  const before = count();
  socket.write(frame(FRAME.PING, 0, 0, Buffer.from('roundtri')));
  await waitUntil('the PING is answered', () => count() > before || socket.destroyed);
}

function uint32(value: number): Buffer {
  const bytes = Buffer.alloc(4);
  bytes.writeUInt32BE(value);
  return bytes;
}

function setting(id: number, value: number): Buffer {
  return Buffer.concat([Buffer.from([0, id]), uint32(value)]);
}

/** Bodies of the responses of a stream. */
function bodyOf(frames: ReceivedFrame[], stream: number): Buffer {
  const data = frames.filter((it) => it.type === FRAME.DATA && it.stream === stream);
  return Buffer.concat(data.map(({ payload }) => payload));
}

function isEnded(frames: ReceivedFrame[], stream: number): boolean {
  return frames.some(
    (it) => it.stream === stream && it.type === FRAME.HEADERS && (it.flags & 1) > 0,
  );
}

describe('bytes', () => {
  const calls = Buffer.concat([
    CLIENT_START,
    callFrames(1, 'one'),
    frame(
      FRAME.HEADERS,
      8 + 32,
      3,
      Buffer.concat([
        Buffer.from([3, 0, 0, 0, 0, 9]),
        headerBlock().subarray(0, 20),
        Buffer.alloc(3),
      ]),
    ),
    frame(FRAME.CONTINUATION, 0, 3, Buffer.alloc(0)),
    frame(FRAME.CONTINUATION, 4, 3, headerBlock().subarray(20)),
    frame(FRAME.PRIORITY, 0, 5, Buffer.alloc(5)),
    frame(
      FRAME.DATA,
      8,
      3,
      Buffer.concat([Buffer.from([2]), framed('two').subarray(0, 2), Buffer.alloc(2)]),
    ),
    frame(77, 255, 9, Buffer.from('unknown')),
    frame(FRAME.DATA, 8, 3, Buffer.concat([Buffer.from([0]), framed('two').subarray(2)])),
    frame(FRAME.DATA, 0, 3),
    frame(FRAME.WINDOW_UPDATE, 0, 3, uint32(9)),
    frame(FRAME.HEADERS, 5, 3, encodeHeaders([['x-trailer', 'a']])),
    callFrames(5, 'three'),
    frame(FRAME.GOAWAY, 0, 0, Buffer.alloc(8)),
  ]);

  async function answersOf(port: number, parts: Buffer[]): Promise<string[]> {
    const socket = await rawSocket(port);
    socket.setNoDelay(true);
    const frames = framesAt(socket);
    for (const [i, part] of parts.entries()) {
      socket.write(part);
      if (i < parts.length - 1) await new Promise(setImmediate);
    }
    socket.end();
    await once(socket, 'close');
    expect(frames.filter(({ type }) => type === FRAME.GOAWAY)).toEqual([]);
    return [1, 3, 5].map((id) => (isEnded(frames, id) ? bodyOf(frames, id).toString() : 'open'));
  }

  test('give the same answers however they are split, and after the client has closed', async () => {
    const { port } = await startGrpcServer();
    const expected = ['one', 'two', 'three'].map((text) => framed(text).toString());
    expect(await answersOf(port, [calls])).toEqual(expected);
    expect(
      await answersOf(
        port,
        [...calls].map((byte) => Buffer.from([byte])),
      ),
    ).toEqual(expected);
    for (let at = 1; at < calls.length; at += trialCount(7, 1)) {
      expect(await answersOf(port, [calls.subarray(0, at), calls.subarray(at)])).toEqual(expected);
    }
    const seed = newSeed();
    const below = seededRandom(seed);
    for (let trial = 0; trial < trialCount(20, 1_000); trial++) {
      const parts: Buffer[] = [];
      for (let at = 0; at < calls.length; ) {
        const length = 1 + below(120);
        parts.push(calls.subarray(at, at + length));
        at += length;
      }
      expect({ seed, is: await answersOf(port, parts) }).toEqual({ seed, is: expected });
    }
  });

  test('of many calls in a chunk are answered in their order', async () => {
    const connection = await open();
    const ids = Array.from({ length: 500 }, (_, i) => 2 * i + 1);
    connection.socket.write(Buffer.concat(ids.map((id) => callFrames(id, `call ${id}`))));
    await waitUntil('all are answered', () => isEnded(connection.frames, 999));
    for (const id of ids) expect(bodyOf(connection.frames, id)).toEqual(framed(`call ${id}`));
  });
});

describe('a violation of the protocol', () => {
  const pad = (length: number, rest: Buffer) => Buffer.concat([Buffer.from([length]), rest]);
  const code = ERROR_CODE;

  test.each([
    ['no SETTINGS first', frame(FRAME.PING, 0, 0, Buffer.alloc(8)), code.PROTOCOL_ERROR],
    ['HEADERS before SETTINGS', HEADERS, code.PROTOCOL_ERROR],
    ['DATA before SETTINGS', END, code.PROTOCOL_ERROR],
    ['an acknowledgement before SETTINGS', frame(FRAME.SETTINGS, 1, 0), code.PROTOCOL_ERROR],
  ])('ends the connection at its begin: %s', async (_name, bytes, expected) => {
    const { port, connections } = await startGrpcServer();
    const socket = await rawSocket(port);
    const frames = framesAt(socket);
    socket.write(Buffer.concat([PREFACE, bytes]));
    await once(socket, 'close');
    expect(frames.at(-1)).toMatchObject({ type: FRAME.GOAWAY });
    expect(frames.at(-1)!.payload.readUInt32BE(4)).toBe(expected);
    await waitUntil('the connection is closed', () => connections() === 0);
  });

  test.each([
    ['a frame that is too long', Buffer.from([0, 64, 1, 0, 0, 0, 0, 0, 1]), code.FRAME_SIZE_ERROR],
    ['HEADERS of stream 0', frame(FRAME.HEADERS, 4, 0, headerBlock()), code.PROTOCOL_ERROR],
    ['HEADERS of an even stream', frame(FRAME.HEADERS, 4, 2, headerBlock()), code.PROTOCOL_ERROR],
    ['HEADERS of a lower stream', [callFrames(5, 'a'), callFrames(3, 'a')], code.PROTOCOL_ERROR],
    ['HEADERS of a closed stream', [callFrames(1, 'a'), HEADERS], code.STREAM_CLOSED],
    [
      'HEADERS after the end of an open stream',
      [callFrames(1, 'a', LATER), HEADERS],
      code.STREAM_CLOSED,
    ],
    [
      'HEADERS with too much padding',
      frame(FRAME.HEADERS, 12, 1, pad(9, Buffer.alloc(8))),
      code.PROTOCOL_ERROR,
    ],
    ['HEADERS without the length of padding', frame(FRAME.HEADERS, 12, 1), code.FRAME_SIZE_ERROR],
    [
      'HEADERS with half a dependency',
      frame(FRAME.HEADERS, 36, 1, Buffer.alloc(4)),
      code.FRAME_SIZE_ERROR,
    ],
    [
      'HEADERS without HPACK',
      frame(FRAME.HEADERS, 5, 1, Buffer.from([0x80])),
      code.COMPRESSION_ERROR,
    ],
    [
      'a block with another frame in it',
      [frame(FRAME.HEADERS, 0, 1, headerBlock()), SETTINGS],
      code.PROTOCOL_ERROR,
    ],
    [
      'a block with an unknown frame in it',
      [frame(FRAME.HEADERS, 0, 1), frame(99, 0, 0)],
      code.PROTOCOL_ERROR,
    ],
    ['a block with DATA in it', [frame(FRAME.HEADERS, 0, 1), END], code.PROTOCOL_ERROR],
    ['a block with HEADERS in it', [frame(FRAME.HEADERS, 0, 1), HEADERS], code.PROTOCOL_ERROR],
    ['CONTINUATION without HEADERS', frame(FRAME.CONTINUATION, 4, 1), code.PROTOCOL_ERROR],
    ['CONTINUATION after a block', [HEADERS, frame(FRAME.CONTINUATION, 4, 1)], code.PROTOCOL_ERROR],
    [
      'CONTINUATION of another stream',
      [frame(FRAME.HEADERS, 0, 1), frame(FRAME.CONTINUATION, 4, 3)],
      code.PROTOCOL_ERROR,
    ],
    ['DATA of stream 0', frame(FRAME.DATA, 0, 0, HELLO), code.PROTOCOL_ERROR],
    ['DATA of a stream that is not open', frame(FRAME.DATA, 0, 1, HELLO), code.PROTOCOL_ERROR],
    [
      'DATA of an even stream',
      [callFrames(5, 'a'), frame(FRAME.DATA, 0, 2, HELLO)],
      code.PROTOCOL_ERROR,
    ],
    [
      'DATA with too much padding',
      [HEADERS, frame(FRAME.DATA, 8, 1, pad(6, HELLO))],
      code.PROTOCOL_ERROR,
    ],
    [
      'DATA without the length of padding',
      [HEADERS, frame(FRAME.DATA, 8, 1)],
      code.FRAME_SIZE_ERROR,
    ],
    ['PRIORITY of stream 0', frame(FRAME.PRIORITY, 0, 0, Buffer.alloc(5)), code.PROTOCOL_ERROR],
    ['PRIORITY of 4 bytes', frame(FRAME.PRIORITY, 0, 1, Buffer.alloc(4)), code.FRAME_SIZE_ERROR],
    ['RST_STREAM of stream 0', frame(FRAME.RST_STREAM, 0, 0, uint32(8)), code.PROTOCOL_ERROR],
    [
      'RST_STREAM of a stream that is not open',
      frame(FRAME.RST_STREAM, 0, 1, uint32(8)),
      code.PROTOCOL_ERROR,
    ],
    [
      'RST_STREAM of 5 bytes',
      [HEADERS, frame(FRAME.RST_STREAM, 0, 1, HELLO)],
      code.FRAME_SIZE_ERROR,
    ],
    ['SETTINGS of a stream', frame(FRAME.SETTINGS, 0, 1), code.PROTOCOL_ERROR],
    ['SETTINGS of 5 bytes', frame(FRAME.SETTINGS, 0, 0, HELLO), code.FRAME_SIZE_ERROR],
    [
      'an acknowledgement with content',
      frame(FRAME.SETTINGS, 1, 0, setting(4, 1)),
      code.FRAME_SIZE_ERROR,
    ],
    ['ENABLE_PUSH of 2', frame(FRAME.SETTINGS, 0, 0, setting(2, 2)), code.PROTOCOL_ERROR],
    [
      'INITIAL_WINDOW_SIZE of 2^31',
      frame(FRAME.SETTINGS, 0, 0, setting(4, 2 ** 31)),
      code.FLOW_CONTROL_ERROR,
    ],
    [
      'MAX_FRAME_SIZE of 16383',
      frame(FRAME.SETTINGS, 0, 0, setting(5, 16_383)),
      code.PROTOCOL_ERROR,
    ],
    [
      'MAX_FRAME_SIZE of 2^24',
      frame(FRAME.SETTINGS, 0, 0, setting(5, 2 ** 24)),
      code.PROTOCOL_ERROR,
    ],
    [
      'PUSH_PROMISE',
      [HEADERS, frame(FRAME.PUSH_PROMISE, 4, 1, Buffer.alloc(4))],
      code.PROTOCOL_ERROR,
    ],
    ['PING of a stream', frame(FRAME.PING, 0, 1, Buffer.alloc(8)), code.PROTOCOL_ERROR],
    ['PING of 7 bytes', frame(FRAME.PING, 0, 0, Buffer.alloc(7)), code.FRAME_SIZE_ERROR],
    ['GOAWAY of a stream', frame(FRAME.GOAWAY, 0, 1, Buffer.alloc(8)), code.PROTOCOL_ERROR],
    ['GOAWAY of 7 bytes', frame(FRAME.GOAWAY, 0, 0, Buffer.alloc(7)), code.FRAME_SIZE_ERROR],
    ['WINDOW_UPDATE of 5 bytes', frame(FRAME.WINDOW_UPDATE, 0, 0, HELLO), code.FRAME_SIZE_ERROR],
    ['WINDOW_UPDATE by 0', frame(FRAME.WINDOW_UPDATE, 0, 0, uint32(0)), code.PROTOCOL_ERROR],
    [
      'WINDOW_UPDATE by too much',
      frame(FRAME.WINDOW_UPDATE, 0, 0, uint32(2 ** 31 - 1)),
      code.FLOW_CONTROL_ERROR,
    ],
    [
      'WINDOW_UPDATE of a stream that is not open',
      frame(FRAME.WINDOW_UPDATE, 0, 1, uint32(1)),
      code.PROTOCOL_ERROR,
    ],
    [
      'SETTINGS that make a window too large',
      [
        HEADERS,
        frame(FRAME.WINDOW_UPDATE, 0, 1, uint32(2 ** 31 - 65_536)),
        frame(FRAME.SETTINGS, 0, 0, setting(4, 65_536)),
      ],
      code.FLOW_CONTROL_ERROR,
    ],
    [
      'a header block without end',
      Array.from({ length: 5 }, (_, i) =>
        frame(
          i === 0 ? FRAME.HEADERS : FRAME.CONTINUATION,
          0,
          1,
          Buffer.alloc(GRPC_HEADER_BLOCK_MAX_BYTES / 4),
        ),
      ),
      code.ENHANCE_YOUR_CALM,
    ],
  ] as [string, Buffer | Buffer[], number][])(
    'ends the connection: %s',
    async (_name, bytes, expected) => {
      const connection = await open();
      const { socket, frames, connections, errors } = connection;
      await roundTrip(connection);
      socket.write(Array.isArray(bytes) ? Buffer.concat(bytes) : bytes);
      await once(socket, 'close');
      expect(frames.at(-1)).toMatchObject({ type: FRAME.GOAWAY });
      expect(connection.numbers(FRAME.GOAWAY)).toEqual([expected]);
      await waitUntil('the connection is closed', () => connections() === 0);
      expect(errors).toEqual([]);
    },
  );

  const headers = (extra: [string, string][]) => {
    return frame(FRAME.HEADERS, 4, 1, encodeHeaders([...callHeaders(), ...extra]));
  };
  const length = (bytes: number) => headers([['content-length', String(bytes)]]);

  test.each([
    ['malformed headers', headers([['connection', 'close']]), code.PROTOCOL_ERROR],
    [
      'too many headers',
      headers(Array.from({ length: 200 }, () => ['x', 'a'])),
      code.ENHANCE_YOUR_CALM,
    ],
    ['trailers that do not end it', [HEADERS, HEADERS], code.PROTOCOL_ERROR],
    [
      'trailers with pseudo headers',
      [HEADERS, frame(FRAME.HEADERS, 5, 1, headerBlock())],
      code.PROTOCOL_ERROR,
    ],
    ['more DATA than content-length', [length(9), END], code.PROTOCOL_ERROR],
    ['less DATA than content-length', [length(11), END], code.PROTOCOL_ERROR],
    [
      'no DATA despite content-length',
      frame(FRAME.HEADERS, 5, 1, encodeHeaders([...callHeaders(), ['content-length', '1']])),
      code.PROTOCOL_ERROR,
    ],
    [
      'trailers before the content-length',
      [length(11), frame(FRAME.HEADERS, 5, 1)],
      code.PROTOCOL_ERROR,
    ],
    ['DATA after its end', [callFrames(1, 'a', LATER), END], code.STREAM_CLOSED],
    ['DATA after its response', [callFrames(1, 'a'), END], code.STREAM_CLOSED],
    [
      'WINDOW_UPDATE by 0',
      [HEADERS, frame(FRAME.WINDOW_UPDATE, 0, 1, uint32(0))],
      code.PROTOCOL_ERROR,
    ],
    [
      'WINDOW_UPDATE by too much',
      [HEADERS, frame(FRAME.WINDOW_UPDATE, 0, 1, uint32(2 ** 31 - 1))],
      code.FLOW_CONTROL_ERROR,
    ],
  ] as [string, Buffer | Buffer[], number][])(
    'ends its stream, and no other one: %s',
    async (_name, bytes, expected) => {
      const connection = await open();
      connection.socket.write(Array.isArray(bytes) ? Buffer.concat(bytes) : bytes);
      connection.socket.write(callFrames(3, 'next'));
      await waitUntil('the next call is answered', () => isEnded(connection.frames, 3));
      expect(connection.numbers(FRAME.RST_STREAM)).toEqual([expected]);
      expect(bodyOf(connection.frames, 3)).toEqual(framed('next'));
      expect(connection.numbers(FRAME.GOAWAY)).toEqual([]);
      // A client may have sent further frames of the stream before it got the reset.
      connection.socket.write(
        Buffer.concat([
          frame(FRAME.WINDOW_UPDATE, 0, 1, uint32(1)),
          frame(FRAME.RST_STREAM, 0, 1, uint32(8)),
        ]),
      );
      await roundTrip(connection);
      expect(connection.socket.destroyed).toBe(false);
      expect(connection.later.every((call) => !call.isOpen)).toBe(true);
    },
  );

  test('of a client that does not close its side is over in time', async () => {
    vi.useFakeTimers({ toFake: ['setInterval', 'clearInterval'] });
    onTestFinished(() => void vi.useRealTimers());
    const { port, connections } = await startGrpcServer();
    const socket = connect({ port, host: '127.0.0.1', allowHalfOpen: true });
    onTestFinished(() => void socket.destroy());
    socket.on('error', () => {});
    const frames = framesAt(socket);
    socket.write('GET / HTTP/1.1\r\nhost: somewhere\r\n\r\n');
    await once(socket, 'end');
    expect(frames.at(-1)).toMatchObject({ type: FRAME.GOAWAY });
    vi.advanceTimersByTime(1_000 * GRPC_END_TIMEOUT_S);
    expect(connections()).toBe(1);
    vi.advanceTimersByTime(1_000);
    await waitUntil('the connection is closed', () => connections() === 0);
  });
});

describe('flow control', () => {
  const message = Buffer.alloc(60_000, 'm');
  /** SETTINGS with an initial window of streams. */
  const window = (bytes: number) => frame(FRAME.SETTINGS, 0, 0, setting(4, bytes));
  const grant = (stream: number, bytes: number) =>
    frame(FRAME.WINDOW_UPDATE, 0, stream, uint32(bytes));

  test('holds for each stream, and for all of them', async () => {
    const connection = await open({ unary: { [ECHO]: (_, call) => call.respond(message) } });
    const { socket, frames } = connection;
    const received = (stream: number) => bodyOf(frames, stream).length;
    socket.write(Buffer.concat([window(100), callFrames(1, 'a'), callFrames(3, 'a')]));
    await roundTrip(connection);
    expect([received(1), received(3)]).toEqual([100, 100]);
    socket.write(grant(1, 50));
    await roundTrip(connection);
    expect([received(1), received(3)]).toEqual([150, 100]);
    // A smaller initial window makes those of streams negative.
    socket.write(Buffer.concat([window(20), grant(3, 80)]));
    await roundTrip(connection);
    expect([received(1), received(3)]).toEqual([150, 100]);
    socket.write(Buffer.concat([grant(3, 1), window(101)]));
    await roundTrip(connection);
    expect([received(1), received(3)]).toEqual([151, 182]);
    // Now the window of the connection is the bound: 65535 bytes.
    socket.write(window(1_000_000));
    await roundTrip(connection);
    expect(received(1) + received(3)).toBe(65_535);
    expect(received(1)).toBe(message.length + 5);
    socket.write(callFrames(5, 'a'));
    await roundTrip(connection);
    expect(received(5)).toBe(0);
    socket.write(grant(0, message.length));
    await roundTrip(connection);
    expect([received(3), received(5)]).toEqual([message.length + 5, 5_525]);
    socket.write(grant(0, message.length));
    await waitUntil('the last one has ended', () => isEnded(frames, 5));
    for (const id of [1, 3, 5]) expect(bodyOf(frames, id)).toEqual(framed(message));
    expect(frames.every(({ payload }) => payload.length <= 16_384)).toBe(true);
  });

  test('opens the windows of a client before they are used up', async () => {
    const connection = await open({ maxMessageBytes: 2 ** 24 });
    const { socket, frames } = connection;
    const claim = Buffer.concat([Buffer.from([0, 0, 255, 255, 255]), Buffer.alloc(16_379)]);
    socket.write(Buffer.concat([HEADERS, frame(FRAME.DATA, 0, 1, claim)]));
    const part = frame(FRAME.DATA, 0, 1, Buffer.alloc(16_384));
    socket.write(Buffer.concat(Array((4 * GRPC_WINDOW_BYTES) / 16_384 - 1).fill(part)));
    await roundTrip(connection);
    const granted = (id: number) => {
      return frames
        .filter(({ type, stream }) => type === FRAME.WINDOW_UPDATE && stream === id)
        .map(({ payload }) => payload.readUInt32BE(0));
    };
    const step = GRPC_WINDOW_BYTES / 2 + 16_384;
    expect(granted(1)).toEqual(Array(7).fill(step));
    expect(granted(0)).toEqual([GRPC_WINDOW_BYTES - 65_535, ...granted(1)]);
  });

  test('sends each message of a stream before its status', async () => {
    let end = () => {};
    const connection = await open({
      serverStreaming: {
        '/stream': (_, call) => {
          call.send(message);
          call.send(HELLO);
          call.onClose(() => end());
        },
      },
    });
    const { socket, frames } = connection;
    const closed = new Promise<void>((resolve) => {
      end = resolve;
    });
    socket.write(Buffer.concat([window(10), callFrames(1, 'a', '/stream')]));
    await roundTrip(connection);
    expect(bodyOf(frames, 1).length).toBe(10);
    socket.write(grant(1, 60_000));
    const all = Buffer.concat([framed(message), framed(HELLO)]);
    await waitUntil('both messages are there', () => bodyOf(frames, 1).length === 60_010);
    expect(bodyOf(frames, 1)).toEqual(all.subarray(0, 60_010));
    socket.write(grant(1, 100));
    await waitUntil('both messages are complete', () => bodyOf(frames, 1).length === all.length);
    socket.write(frame(FRAME.RST_STREAM, 0, 1, uint32(8)));
    await closed;
  });
});

describe('a bound', () => {
  const PING = frame(FRAME.PING, 0, 0, Buffer.alloc(8));

  test.each([
    ['PING', PING],
    ['SETTINGS', SETTINGS],
    ['acknowledgements', frame(FRAME.SETTINGS, 1, 0)],
    ['PRIORITY', frame(FRAME.PRIORITY, 0, 1, Buffer.alloc(5))],
    ['unknown frames', frame(99, 0, 0)],
    ['WINDOW_UPDATE', frame(FRAME.WINDOW_UPDATE, 0, 0, uint32(1))],
    ['empty DATA', frame(FRAME.DATA, 0, 1)],
    ['DATA of padding', frame(FRAME.DATA, 8, 1, Buffer.from([1, 0]))],
    ['GOAWAY', frame(FRAME.GOAWAY, 0, 0, Buffer.alloc(8))],
  ])('ends a flood of %s', async (_name, bytes) => {
    vi.useFakeTimers({ toFake: ['setInterval', 'clearInterval'] });
    onTestFinished(() => void vi.useRealTimers());
    const connection = await open();
    connection.socket.write(HEADERS);
    connection.socket.write(Buffer.concat(Array(GRPC_CONTROL_FRAMES_PER_S + 100).fill(bytes)));
    await once(connection.socket, 'close');
    expect(connection.numbers(FRAME.GOAWAY)).toEqual([ERROR_CODE.ENHANCE_YOUR_CALM]);
  });

  test('ends a flood of CONTINUATION without content', async () => {
    const connection = await open();
    connection.socket.write(frame(FRAME.HEADERS, 0, 1));
    const part = frame(FRAME.CONTINUATION, 0, 1);
    connection.socket.write(Buffer.concat(Array(GRPC_CONTROL_FRAMES_PER_S + 100).fill(part)));
    await once(connection.socket, 'close');
    expect(connection.numbers(FRAME.GOAWAY)).toEqual([ERROR_CODE.ENHANCE_YOUR_CALM]);
  });

  test('allows as many frames in the next second', async () => {
    vi.useFakeTimers({ toFake: ['setInterval', 'clearInterval'] });
    onTestFinished(() => void vi.useRealTimers());
    const connection = await open();
    for (let second = 0; second < 3; second++) {
      await roundTrip(connection);
      vi.advanceTimersByTime(1_000);
      connection.socket.write(Buffer.concat(Array(GRPC_CONTROL_FRAMES_PER_S - 300).fill(PING)));
      await roundTrip(connection);
    }
    expect(connection.numbers(FRAME.GOAWAY)).toEqual([]);
  });

  test.each([
    [
      'resets',
      (id: number) => [callFrames(id, 'a', LATER), frame(FRAME.RST_STREAM, 0, id, uint32(8))],
    ],
    ['calls that must be reset', (id: number) => [frame(FRAME.HEADERS, 5, id)]],
    ['DATA of closed calls', (id: number) => [callFrames(id, ''), frame(FRAME.DATA, 0, id, HELLO)]],
  ])('ends a flood of %s', async (_name, framesOf) => {
    vi.useFakeTimers({ toFake: ['setInterval', 'clearInterval'] });
    onTestFinished(() => void vi.useRealTimers());
    const connection = await open();
    const { socket, frames } = connection;
    const flood = (from: number, count: number) => {
      const ids = Array.from({ length: count }, (_, i) => 2 * (from + i) + 1);
      return Buffer.concat(ids.flatMap(framesOf));
    };
    const step = 1_000;
    for (let sent = 0; sent < GRPC_RESET_BURST; sent += step) {
      socket.write(flood(sent, step));
      await roundTrip(connection);
      frames.splice(0);
    }
    expect(socket.destroyed).toBe(false);
    socket.write(flood(GRPC_RESET_BURST, 1));
    await once(socket, 'close');
    expect(connection.numbers(FRAME.GOAWAY)).toEqual([ERROR_CODE.ENHANCE_YOUR_CALM]);
  });

  test('of open calls refuses further ones, until others end', async () => {
    const connection = await open();
    const { socket, later } = connection;
    const ids = Array.from({ length: GRPC_STREAMS_MAX + 10 }, (_, i) => 2 * i + 1);
    socket.write(Buffer.concat(ids.map((id) => callFrames(id, 'a', LATER))));
    await roundTrip(connection);
    expect(later.length).toBe(GRPC_STREAMS_MAX);
    expect(connection.numbers(FRAME.RST_STREAM)).toEqual(Array(10).fill(ERROR_CODE.REFUSED_STREAM));
    for (const call of later) call.respond(HELLO);
    socket.write(callFrames(4_001, 'a'));
    await waitUntil('the next call is answered', () => isEnded(connection.frames, 4_001));
    for (const id of ids.slice(0, GRPC_STREAMS_MAX)) {
      expect(bodyOf(connection.frames, id)).toEqual(framed(HELLO));
    }
  });
});

describe('a connection', () => {
  test('whose client has closed its side gets the responses to complete calls, and ends', async () => {
    const { port, connections } = await startGrpcServer({
      unary: { [ECHO]: (message, call) => void setImmediate(() => call.respond(message)) },
    });
    const socket = await rawSocket(port);
    const frames = framesAt(socket);
    socket.end(
      Buffer.concat([
        CLIENT_START,
        callFrames(1, 'one'),
        callFrames(3, 'two'),
        frame(FRAME.HEADERS, 4, 5, headerBlock()),
      ]),
    );
    await once(socket, 'close');
    expect([bodyOf(frames, 1), bodyOf(frames, 3)]).toEqual([framed('one'), framed('two')]);
    expect(isEnded(frames, 5)).toBe(false);
    await waitUntil('the connection is closed', () => connections() === 0);
  });

  test('ends when its client closes it in the handshake of TLS', async () => {
    const tls = { cert: Buffer.from(CERTIFICATE_A.cert), key: Buffer.from(CERTIFICATE_A.key) };
    const { port, connections } = await startGrpcServer({ tls });
    for (const bytes of ['', '\x16\x03\x01', 'GET / HTTP/1.1\r\n\r\n']) {
      const socket = await rawSocket(port);
      socket.resume();
      socket.end(bytes);
      await once(socket, 'close');
    }
    await waitUntil('the connections are closed', () => connections() === 0);
  });

  test('whose client answers no PING is closed', async () => {
    vi.useFakeTimers({ toFake: ['setInterval', 'clearInterval'] });
    onTestFinished(() => void vi.useRealTimers());
    const connection = await open();
    const { socket, frames } = connection;
    await roundTrip(connection);
    const pings = () => frames.filter(({ type, flags }) => type === FRAME.PING && flags === 0);
    vi.advanceTimersByTime(1_000 * GRPC_KEEPALIVE_S);
    await waitUntil('the PING has arrived', () => pings().length === 1);
    socket.write(frame(FRAME.PING, 1, 0, pings()[0].payload));
    await roundTrip(connection);
    vi.advanceTimersByTime(1_000 * GRPC_KEEPALIVE_S);
    await waitUntil('the next PING has arrived', () => pings().length === 2);
    // It answers another one.
    socket.write(frame(FRAME.PING, 1, 0, Buffer.alloc(8)));
    await roundTrip(connection);
    vi.advanceTimersByTime(1_000 * GRPC_KEEPALIVE_S);
    await once(socket, 'close');
  });

  test('over TLS serves calls in chunks of any size', async () => {
    const tls = { cert: Buffer.from(CERTIFICATE_A.cert), key: Buffer.from(CERTIFICATE_A.key) };
    const { port } = await startGrpcServer({ tls });
    const socket = connectTls({ host: 'localhost', port, ca: tls.cert, ALPNProtocols: ['h2'] });
    onTestFinished(() => void socket.destroy());
    await once(socket, 'secureConnect');
    const frames = framesAt(socket);
    socket.write(CLIENT_START);
    for (let id = 1; id < 400; id += 2) {
      const bytes = callFrames(id, `call ${id}`);
      socket.write(bytes.subarray(0, id % bytes.length));
      if (id % 7 === 0) await sleep(0);
      socket.write(bytes.subarray(id % bytes.length));
    }
    await waitUntil('all are answered', () => isEnded(frames, 399));
    for (let id = 1; id < 400; id += 2) expect(bodyOf(frames, id)).toEqual(framed(`call ${id}`));
  });

  test('keeps what it has written while its client does not read', async () => {
    const connection = await open();
    const { socket, frames } = connection;
    await roundTrip(connection);
    socket.write(frame(FRAME.WINDOW_UPDATE, 0, 0, uint32(2 ** 30)));
    socket.pause();
    const message = (id: number) => Buffer.alloc(3_000, `${id} `);
    for (let id = 1; id < 2_000; id += 2) {
      socket.write(callFrames(id, message(id)));
      if (id % 100 === 1) await sleep(0);
    }
    await sleep(20);
    socket.resume();
    await waitUntil('all are answered', () => isEnded(frames, 1_999));
    for (let id = 1; id < 2_000; id += 2) {
      expect(bodyOf(frames, id).equals(framed(message(id)))).toBe(true);
    }
  });
});

const FUZZ_TIMEOUT_MS = 1_200_000;

test('mutated frames after a valid start harm nobody, and no call is counted twice', {
  timeout: FUZZ_TIMEOUT_MS,
}, async () => {
  let calls = 0;
  let ended = 0;
  const { port, errors, connections } = await startGrpcServer({
    unary: {
      [ECHO]: (message, call) => {
        calls++;
        call.respond(message);
        ended += call.isOpen ? 0 : 1;
      },
      [LATER]: (message, call) => void setImmediate(() => call.respond(message)),
    },
    serverStreaming: {
      '/stream': (_, call) => {
        calls++;
        call.send(HELLO);
        call.onClose(() => ended++);
      },
    },
  });
  const client = grpcClient(port);
  const seed = newSeed();
  const below = seededRandom(seed);
  const start = 24;
  const valid = Buffer.concat([
    CLIENT_START,
    HEADERS,
    frame(FRAME.DATA, 0, 1, framed(HELLO).subarray(0, 4)),
    frame(FRAME.SETTINGS, 0, 0, setting(4, 3)),
    frame(FRAME.HEADERS, 0, 3, headerBlock(LATER).subarray(0, 30)),
    frame(FRAME.CONTINUATION, 4, 3, headerBlock(LATER).subarray(30)),
    frame(FRAME.DATA, 9, 3, Buffer.concat([Buffer.from([2]), framed(HELLO), Buffer.alloc(2)])),
    frame(FRAME.DATA, 1, 1, framed(HELLO).subarray(4)),
    frame(FRAME.WINDOW_UPDATE, 0, 3, uint32(7)),
    callFrames(5, 'stream', '/stream'),
    frame(FRAME.PING, 0, 0, Buffer.alloc(8)),
    callFrames(7, 'last'),
    frame(FRAME.RST_STREAM, 0, 5, uint32(8)),
    frame(FRAME.WINDOW_UPDATE, 0, 0, uint32(70_000)),
    frame(FRAME.GOAWAY, 0, 0, Buffer.alloc(8)),
  ]);
  for (let i = 0; i < trialCount(2_000, 100_000); i++) {
    const bytes = Buffer.from(valid);
    for (let changes = 1 + below(4); changes > 0; changes--) {
      bytes[start + below(bytes.length - start)] = below(256);
    }
    const socket = connect(port, '127.0.0.1');
    socket.on('error', () => {});
    socket.resume();
    socket.once('end', () => socket.destroy());
    socket.end(below(2) === 0 ? bytes : bytes.subarray(0, start + below(bytes.length - start)));
    await once(socket, 'close');
    if (i % 100 > 0) continue;
    expect({ seed, is: await callWith(client, ECHO, HELLO) }).toEqual({ seed, is: HELLO });
  }
  await waitUntil('the other connections are closed', () => connections() === 1);
  expect({ seed, errors }).toEqual({ seed, errors: [] });
  expect({ seed, ended }).toEqual({ seed, ended: calls });
});
