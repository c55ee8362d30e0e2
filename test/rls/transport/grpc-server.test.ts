import { once } from 'node:events';
import { constants } from 'node:http2';
import { Agent, request } from 'node:https';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { connect as connectTls } from 'node:tls';
import { credentials, type ServiceError } from '@grpc/grpc-js';
import { describe, expect, onTestFinished, test, vi } from 'vitest';
import {
  GRPC_DRAIN_GRACE_MS,
  GRPC_ERROR_MESSAGE_MAX,
  GRPC_HANDSHAKE_TIMEOUT_MS,
  GRPC_HTTP1_TIMEOUT_MS,
  GRPC_KEEPALIVE_S,
  GRPC_UNSENT_BYTES_MAX,
} from '../../../src/core/constants.ts';
import type { UnaryCall } from '../../../src/rls/transport/call.ts';
import { GRPC_STATUS, GrpcError } from '../../../src/rls/transport/status.ts';
import { CERTIFICATE_A, CERTIFICATE_B } from '../../support/certificates.ts';
import { newSeed, trialCount } from '../../support/guarantees.ts';
import {
  CLIENT_START,
  callWith,
  ECHO,
  echo,
  FRAME,
  frame,
  framed,
  framesAt,
  grpcClient,
  headerBlock,
  http2Session,
  openCall,
  PREFACE,
  rawSocket,
  responseOf,
  startGrpcServer,
} from '../../support/rls/grpc.ts';
import { seededRandom } from '../../support/seeded-random.ts';
import { removeDirectory, temporaryDirectory, waitUntil } from '../../support/server.ts';

const HELLO = Buffer.from('hello');

function errorOf(call: Promise<unknown>): Promise<ServiceError> {
  return call.then(
    () => {
      throw new Error('the call succeeded');
    },
    (error: ServiceError) => error,
  );
}

describe('a call', () => {
  test('gets the response of its method, with the status OK', async () => {
    const { port } = await startGrpcServer();
    const client = grpcClient(port);
    for (const message of [HELLO, Buffer.alloc(0), Buffer.alloc(65_536, 7)]) {
      expect((await callWith(client, ECHO, message)).equals(message)).toBe(true);
    }
  });

  test('has headers, data and trailers without a date', async () => {
    const { port } = await startGrpcServer();
    const stream = openCall(await http2Session(port));
    stream.end(framed(HELLO));
    const { headers, trailers, body } = await responseOf(stream);
    expect(Object.keys(headers)).toEqual([':status', 'content-type']);
    expect(headers).toMatchObject({ ':status': 200, 'content-type': 'application/grpc' });
    expect(trailers).toMatchObject({ 'grpc-status': '0' });
    expect(body).toEqual(framed(HELLO));
  });

  test('may be answered in a later turn', async () => {
    const later: { call: UnaryCall; message: Buffer }[] = [];
    const { port } = await startGrpcServer({
      unary: { [ECHO]: (message, call) => later.push({ call, message }) },
    });
    const response = callWith(grpcClient(port), ECHO, HELLO);
    await waitUntil('the call has arrived', () => later.length === 1);
    const [{ call, message }] = later;
    expect(call.isOpen).toBe(true);
    call.respond(message);
    expect(call.isOpen).toBe(false);
    // Only the first response matters.
    call.respond(Buffer.from('again'));
    call.fail(new GrpcError(GRPC_STATUS.INTERNAL, 'late'));
    expect(await response).toEqual(HELLO);
  });

  test('gets the message that its response had when it was sent', async () => {
    const shared = Buffer.from('first');
    const { port } = await startGrpcServer({
      unary: {
        [ECHO]: (_message, call) => {
          call.respond(shared);
          shared.fill('x');
        },
      },
    });
    expect((await callWith(grpcClient(port), ECHO, HELLO)).toString()).toBe('first');
  });

  test('that fails has its status and message, with any characters', async () => {
    const message = 'limit "é" at 100 %: \u{1f600}\nend';
    const { port } = await startGrpcServer({
      unary: { [ECHO]: (_, call) => call.fail(new GrpcError(GRPC_STATUS.NOT_FOUND, message)) },
    });
    const error = await errorOf(callWith(grpcClient(port), ECHO, HELLO));
    expect([error.code, error.details]).toEqual([GRPC_STATUS.NOT_FOUND, message]);
    const stream = openCall(await http2Session(port));
    stream.end(framed(HELLO));
    const { headers, body } = await responseOf(stream);
    expect(headers['grpc-message']).toBe('limit "%C3%A9" at 100 %25: %F0%9F%98%80%0Aend');
    expect(body.length).toBe(0);
  });

  test('that fails with a long message has the begin of it', async () => {
    const message = '\u20ac'.repeat(100_000);
    const { port } = await startGrpcServer({
      unary: { [ECHO]: (_, call) => call.fail(new GrpcError(GRPC_STATUS.UNKNOWN, message)) },
    });
    const error = await errorOf(callWith(grpcClient(port), ECHO, HELLO));
    expect(error.code).toBe(GRPC_STATUS.UNKNOWN);
    expect(error.details).toBe(message.slice(0, GRPC_ERROR_MESSAGE_MAX));
  });

  test('ends with what its method throws, and other calls go on', async () => {
    const { port, errors } = await startGrpcServer({
      unary: {
        [ECHO]: echo,
        '/known': () => {
          throw new GrpcError(GRPC_STATUS.INVALID_ARGUMENT, 'wrong');
        },
        '/unknown': () => {
          throw new RangeError('a secret');
        },
      },
    });
    const client = grpcClient(port);
    const known = await errorOf(callWith(client, '/known', HELLO));
    expect([known.code, known.details]).toEqual([GRPC_STATUS.INVALID_ARGUMENT, 'wrong']);
    expect(errors).toEqual([]);
    const unknown = await errorOf(callWith(client, '/unknown', HELLO));
    expect(unknown.code).toBe(GRPC_STATUS.INTERNAL);
    expect(unknown.details).not.toContain('secret');
    expect(errors).toEqual([new RangeError('a secret')]);
    expect(await callWith(client, ECHO, HELLO)).toEqual(HELLO);
  });

  test('that the client resets is ignored, before its message, and before its response', async () => {
    const later: UnaryCall[] = [];
    const { port, errors } = await startGrpcServer({
      unary: { [ECHO]: echo, '/later': (_, call) => later.push(call) },
    });
    const session = await http2Session(port);
    for (const code of [0, constants.NGHTTP2_INTERNAL_ERROR, constants.NGHTTP2_CANCEL]) {
      const early = openCall(session);
      early.write(framed(HELLO));
      early.close(code);
      const answered = openCall(session, '/later');
      answered.end(framed(HELLO));
      await waitUntil('the call has arrived', () => later.length === 1);
      answered.close(code);
      const [call] = later.splice(0);
      await waitUntil('the call is closed', () => !call.isOpen);
      call.respond(HELLO);
      call.fail(new GrpcError(GRPC_STATUS.INTERNAL, 'late'));
    }
    const last = openCall(session);
    last.end(framed(HELLO));
    expect((await responseOf(last)).body).toEqual(framed(HELLO));
    expect(errors).toEqual([]);
  });
});

describe('a message', () => {
  test('may be split into frames at every byte', async () => {
    const { port } = await startGrpcServer();
    const session = await http2Session(port);
    const bytes = framed(HELLO);
    const splits = [...bytes.keys()].map((at) => [bytes.subarray(0, at), bytes.subarray(at)]);
    const single = [...bytes].map((byte) => Buffer.from([byte]));
    for (const parts of [...splits, single]) {
      const stream = openCall(session);
      for (const part of parts) {
        stream.write(part);
        await new Promise(setImmediate);
      }
      stream.end();
      expect((await responseOf(stream)).body).toEqual(bytes);
    }
  });

  test.each([
    ['is missing', Buffer.alloc(0), GRPC_STATUS.INTERNAL, 'got none'],
    ['has half a prefix', Buffer.from([0, 0]), GRPC_STATUS.INTERNAL, 'got none'],
    ['is incomplete', framed(HELLO).subarray(0, 7), GRPC_STATUS.INTERNAL, 'got none'],
    ['is compressed', framed(HELLO, 1), GRPC_STATUS.UNIMPLEMENTED, 'compressed'],
    ['has an unknown flag', framed(HELLO, 2), GRPC_STATUS.INTERNAL, 'got 2'],
    [
      'is followed by another',
      Buffer.concat([framed(HELLO), framed(HELLO)]),
      GRPC_STATUS.UNIMPLEMENTED,
      'one message',
    ],
    ['is too long', framed(Buffer.alloc(65_537)), GRPC_STATUS.RESOURCE_EXHAUSTED, 'got 65537'],
    [
      'says that it has 4 GiB',
      Buffer.from([0, 255, 255, 255, 255]),
      GRPC_STATUS.RESOURCE_EXHAUSTED,
      'at most 65536 bytes; got 4294967295',
    ],
  ])('that %s ends its call', async (_name, bytes, status, message) => {
    let calls = 0;
    const { port } = await startGrpcServer({ unary: { [ECHO]: () => calls++ } });
    const session = await http2Session(port);
    for (const step of [bytes.length, 3, 1]) {
      if (bytes.length / step > 50_000) continue;
      const stream = openCall(session);
      const response = responseOf(stream);
      for (let at = 0; at < bytes.length; at += step) {
        if (stream.writable) stream.write(bytes.subarray(at, at + step));
      }
      stream.end();
      const { headers } = await response;
      expect(headers).toMatchObject({ ':status': 200, 'grpc-status': String(status) });
      expect(headers['grpc-message']).toContain(message);
      if (status === GRPC_STATUS.UNIMPLEMENTED) {
        expect(headers['grpc-accept-encoding']).toBe('identity');
      }
    }
    expect(calls).toBe(0);
  });

  test('that is too long ends its call before it is complete', async () => {
    const { port } = await startGrpcServer();
    const stream = openCall(await http2Session(port));
    stream.write(Buffer.from([0, 255, 255, 255, 255, 1]));
    expect((await responseOf(stream)).headers['grpc-status']).toBe('8');
  });

  test('is buffered within the bound of the server, and those of ended calls do not count', async () => {
    const { port } = await startGrpcServer({ maxMessageBytes: 2 ** 24 });
    const session = await http2Session(port);
    const claim = Buffer.from([0, 0, 255, 255, 255, 1]);
    for (let i = 0; i < 3; i++) {
      // One message of 64 KiB after the other, up to 16 MiB.
      const open = Array.from({ length: 256 }, () => {
        const stream = openCall(session);
        stream.write(claim);
        return stream;
      });
      await new Promise((resolve) => session.ping(resolve));
      const over = openCall(session);
      over.write(Buffer.from([0, 0, 255, 255, 255, 1]));
      const { headers } = await responseOf(over);
      expect(headers['grpc-status']).toBe('8');
      expect(headers['grpc-message']).toContain('incomplete messages');
      for (const stream of open) stream.close(constants.NGHTTP2_CANCEL);
      const closed = await Promise.all(open.map((stream) => responseOf(stream)));
      expect(closed.filter(({ headers }) => 'grpc-status' in headers)).toEqual([]);
      await new Promise((resolve) => session.ping(resolve));
    }
  });
});

describe('a request that is no call', () => {
  test.each([
    ['another method of HTTP', { ':method': 'GET' }, 405, '13'],
    ['another content type', { 'content-type': 'application/json' }, 415, '13'],
    ['no content type', { 'content-type': '' }, 415, '13'],
    ['gRPC-Web', { 'content-type': 'application/grpc-web' }, 415, '13'],
    ['an unknown path', { ':path': '/test.Echo/Other' }, 200, '12'],
    ['the path /', { ':path': '/' }, 200, '12'],
  ])('with %s is rejected', async (_name, headers, httpStatus, status) => {
    const { port } = await startGrpcServer();
    const session = await http2Session(port);
    for (const end of [true, false]) {
      const stream = openCall(session, ECHO, headers);
      if (end) stream.end(framed(HELLO));
      const response = await responseOf(stream);
      expect(response.headers).toMatchObject({ ':status': httpStatus, 'grpc-status': status });
    }
  });

  test('with a content type of gRPC and protobuf is a call', async () => {
    const { port } = await startGrpcServer();
    const stream = openCall(await http2Session(port), ECHO, {
      'content-type': 'application/grpc+proto',
      'grpc-timeout': '20m',
    });
    stream.end(framed(HELLO));
    expect((await responseOf(stream)).trailers['grpc-status']).toBe('0');
  });
});

describe('a connection', () => {
  test('that is rejected closes at once, and is not counted', async () => {
    const changes: number[] = [];
    let isOpen = false;
    const { port } = await startGrpcServer({
      onConnection: (change) => {
        changes.push(change);
        return isOpen;
      },
    });
    const rejected = await rawSocket(port);
    await once(rejected, 'close');
    isOpen = true;
    const client = grpcClient(port);
    expect(await callWith(client, ECHO, HELLO)).toEqual(HELLO);
    client.close();
    await waitUntil('the connection is closed', () => changes.length === 3);
    expect(changes).toEqual([1, 1, -1]);
  });

  test('survives thousands of resets in a moment', async () => {
    const { port } = await startGrpcServer({ unary: { [ECHO]: echo, '/never': () => {} } });
    const session = await http2Session(port);
    for (let round = 0; round < 10; round++) {
      const streams = Array.from({ length: 500 }, () => openCall(session, '/never'));
      for (const stream of streams) stream.end(framed(HELLO));
      await new Promise((resolve) => session.ping(resolve));
      for (const [i, stream] of streams.entries()) stream.close([2, 8][i % 2]);
      await Promise.all(streams.map((stream) => responseOf(stream)));
    }
    const last = openCall(session);
    last.end(framed(HELLO));
    expect((await responseOf(last)).trailers['grpc-status']).toBe('0');
    expect(session.destroyed).toBe(false);
  });

  test('whose client does not read responses closes at the bound of their bytes', async () => {
    const response = Buffer.alloc(262_144);
    let calls = 0;
    const { port, connections } = await startGrpcServer({
      unary: {
        [ECHO]: (_, call) => {
          calls++;
          call.respond(response);
        },
      },
    });
    const socket = await rawSocket(port);
    // The client grants no stream any bytes.
    const noWindow = Buffer.from([0, 4, 0, 0, 0, 0]);
    socket.write(Buffer.concat([PREFACE, frame(FRAME.SETTINGS, 0, 0, noWindow)]));
    socket.write(frame(FRAME.SETTINGS, 1, 0));
    for (let i = 0; i < 100; i++) {
      socket.write(frame(FRAME.HEADERS, 4, 2 * i + 1, headerBlock()));
      socket.write(frame(FRAME.DATA, 1, 2 * i + 1, framed(HELLO)));
    }
    socket.resume();
    await once(socket, 'close');
    expect(calls).toBeLessThanOrEqual(GRPC_UNSENT_BYTES_MAX / response.length + 1);
    await waitUntil('the connection is closed', () => connections() === 0);
  });

  test('may read many responses slowly, whose sum is over the bound', async () => {
    const response = Buffer.alloc(1_000_000);
    const { port } = await startGrpcServer({
      unary: { [ECHO]: (_, call) => call.respond(response) },
    });
    const client = grpcClient(port);
    for (let i = 0; i < 12; i++) {
      expect((await callWith(client, ECHO, HELLO)).length).toBe(response.length);
    }
  });

  test('with too many headers loses its call only', async () => {
    const { port } = await startGrpcServer();
    const session = await http2Session(port);
    const long = openCall(session, ECHO, { 'x-long': 'a'.repeat(20_000) });
    long.end(framed(HELLO));
    expect((await responseOf(long)).headers).toEqual({});
    const names = Array.from({ length: 200 }, (_, i) => [`x-${i}`, 'a']);
    const many = openCall(session, ECHO, Object.fromEntries(names));
    many.end(framed(HELLO));
    expect((await responseOf(many)).headers).toEqual({});
    const last = openCall(session);
    last.end(framed(HELLO));
    expect((await responseOf(last)).trailers['grpc-status']).toBe('0');
  });

  test.each([
    ['PING', frame(FRAME.PING, 0, 0, Buffer.alloc(8))],
    ['SETTINGS', frame(FRAME.SETTINGS, 0, 0, Buffer.from([0, 4, 0, 0, 1, 0]))],
  ])('that floods %s and reads nothing harms nobody', async (_name, flood) => {
    const { port } = await startGrpcServer();
    const socket = await rawSocket(port);
    socket.pause();
    socket.write(
      Buffer.concat([PREFACE, frame(FRAME.SETTINGS, 0, 0), frame(FRAME.SETTINGS, 1, 0)]),
    );
    for (let i = 0; i < 200; i++) socket.write(Buffer.concat(new Array(500).fill(flood)));
    const client = grpcClient(port);
    for (let i = 0; i < 20; i++) expect(await callWith(client, ECHO, HELLO)).toEqual(HELLO);
  });

  test('with mutated frames harms no other client, and is closed', async () => {
    vi.useFakeTimers({ toFake: ['setInterval', 'clearInterval'] });
    onTestFinished(() => void vi.useRealTimers());
    const { port, errors, connections } = await startGrpcServer();
    const client = grpcClient(port);
    const seed = newSeed();
    const below = seededRandom(seed);
    const valid = Buffer.concat([
      frame(FRAME.SETTINGS, 0, 0),
      frame(FRAME.SETTINGS, 1, 0),
      frame(FRAME.HEADERS, 4, 1, headerBlock()),
      frame(FRAME.DATA, 0, 1, framed(HELLO)),
      frame(FRAME.HEADERS, 4, 3, headerBlock()),
      frame(FRAME.DATA, 1, 3, framed(HELLO)),
      frame(FRAME.PING, 0, 0, Buffer.alloc(8)),
      frame(FRAME.RST_STREAM, 0, 1, Buffer.alloc(4)),
    ]);
    for (let i = 0; i < trialCount(300, 10_000); i++) {
      const bytes = Buffer.from(valid);
      for (let changes = 1 + below(6); changes > 0; changes--) {
        bytes[below(bytes.length)] = below(256);
      }
      const socket = await rawSocket(port);
      socket.resume();
      socket.end(Buffer.concat([PREFACE, bytes.subarray(0, below(bytes.length + 1))]));
      if (i % 16 === 0) {
        expect({ seed, is: await callWith(client, ECHO, HELLO) }).toEqual({ seed, is: HELLO });
      }
      socket.once('end', () => socket.destroy());
    }
    expect({ seed, errors }).toEqual({ seed, errors: [] });
    for (let i = 0; i < 2; i++) {
      vi.advanceTimersByTime(1_000 * GRPC_KEEPALIVE_S);
      // They let the client answer the PING.
      for (let k = 0; k < 3; k++) await callWith(client, ECHO, HELLO);
    }
    await waitUntil('the other connections are closed', () => connections() === 1);
    expect(await callWith(client, ECHO, HELLO)).toEqual(HELLO);
  });

  test.each([
    ['sends nothing', Buffer.alloc(0)],
    ['sends half of the preface', PREFACE.subarray(0, 10)],
    ['sends no settings', PREFACE],
    ['acknowledges no settings', Buffer.concat([PREFACE, frame(FRAME.SETTINGS, 0, 0)])],
  ])('that %s closes at the deadline, and an established one stays', async (_name, bytes) => {
    vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout'] });
    onTestFinished(() => void vi.useRealTimers());
    const { port, connections } = await startGrpcServer();
    const session = await http2Session(port);
    await new Promise((resolve) => session.ping(resolve));
    const socket = await rawSocket(port);
    socket.resume();
    if (bytes.length > 0) socket.write(bytes);
    await waitUntil('both are accepted', () => connections() === 2);
    vi.advanceTimersByTime(GRPC_HANDSHAKE_TIMEOUT_MS - 1);
    await new Promise((resolve) => session.ping(resolve));
    expect(connections()).toBe(2);
    vi.advanceTimersByTime(1);
    await waitUntil('the connection is closed', () => connections() === 1);
    const stream = openCall(session);
    stream.end(framed(HELLO));
    expect((await responseOf(stream)).body).toEqual(framed(HELLO));
  });

  test('of HTTP/1 in cleartext closes', async () => {
    const { port } = await startGrpcServer({ http1: (_req, res) => res.end('no') });
    const socket = await rawSocket(port);
    socket.resume();
    socket.write('GET / HTTP/1.1\r\nhost: a\r\n\r\n');
    await once(socket, 'close');
  });

  test('of a Unix socket is served', async () => {
    const directory = temporaryDirectory();
    onTestFinished(() => removeDirectory(directory));
    const path = join(directory, 'grpc.sock');
    const { port } = await startGrpcServer({}, { path });
    expect(port).toBe(0);
    expect(await callWith(grpcClient(`unix:${path}`), ECHO, HELLO)).toEqual(HELLO);
  });

  test('is not accepted on a port that another server has', async () => {
    const { port } = await startGrpcServer();
    const second = startGrpcServer({}, { host: '127.0.0.1', port });
    await expect(second).rejects.toMatchObject({ code: 'EADDRINUSE' });
  });
});

describe('TLS', () => {
  const tls = { cert: Buffer.from(CERTIFICATE_A.cert), key: Buffer.from(CERTIFICATE_A.key) };
  const other = { cert: Buffer.from(CERTIFICATE_B.cert), key: Buffer.from(CERTIFICATE_B.key) };
  const trusting = ({ cert }: { cert: Buffer }) => credentials.createSsl(cert);
  const target = (port: number) => `localhost:${port}`;

  test('is served to clients that choose HTTP/2 by ALPN', async () => {
    const { port, connections } = await startGrpcServer({ tls });
    const client = grpcClient(target(port), trusting(tls));
    expect(await callWith(client, ECHO, HELLO)).toEqual(HELLO);
    client.close();
    await waitUntil('the connection is closed', () => connections() === 0);
  });

  test('has the certificate that replaced the first for new connections', async () => {
    const { server, port } = await startGrpcServer({ tls });
    const before = grpcClient(target(port), trusting(tls));
    await callWith(before, ECHO, HELLO);
    server.setTls(other);
    expect(await callWith(before, ECHO, HELLO)).toEqual(HELLO);
    expect(await callWith(grpcClient(target(port), trusting(other)), ECHO, HELLO)).toEqual(HELLO);
    const distrusting = await errorOf(
      callWith(grpcClient(target(port), trusting(tls)), ECHO, HELLO),
    );
    expect(distrusting.code).toBe(GRPC_STATUS.UNAVAILABLE);
  });

  test('with a CA of clients serves only those with a certificate of it', async () => {
    const { server, port } = await startGrpcServer({ tls: { ...tls, clientCa: other.cert } });
    const withCertificate = (pair: { cert: Buffer; key: Buffer }) => {
      return grpcClient(target(port), credentials.createSsl(tls.cert, pair.key, pair.cert));
    };
    expect(await callWith(withCertificate(other), ECHO, HELLO)).toEqual(HELLO);
    const none = grpcClient(target(port), trusting(tls));
    for (const client of [none, withCertificate(tls)]) {
      expect((await errorOf(callWith(client, ECHO, HELLO))).code).toBe(GRPC_STATUS.UNAVAILABLE);
    }
    server.setTls({ ...tls, clientCa: tls.cert });
    expect(await callWith(withCertificate(tls), ECHO, HELLO)).toEqual(HELLO);
  });

  /** Sends a request of HTTP/1. */
  function getHttp1(port: number, agent?: Agent): Promise<string> {
    return new Promise((resolve, reject) => {
      const options = { host: 'localhost', port, ca: tls.cert, ...(agent && { agent }) };
      request(options, async (res) => {
        let body = '';
        for await (const chunk of res) body += chunk;
        resolve(body);
      })
        .on('error', reject)
        .end();
    });
  }

  test('serves HTTP/1 beside gRPC to clients that choose it', async () => {
    const { port } = await startGrpcServer({ tls, http1: (req, res) => res.end(`of ${req.url}`) });
    const agent = new Agent({ keepAlive: true, maxSockets: 1 });
    onTestFinished(() => agent.destroy());
    for (let i = 0; i < 3; i++) expect(await getHttp1(port, agent)).toBe('of /');
    const client = grpcClient(target(port), trusting(tls));
    expect(await callWith(client, ECHO, HELLO)).toEqual(HELLO);
  });

  test('closes a connection of HTTP/1 without a complete request at the deadline', async () => {
    vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout'] });
    onTestFinished(() => void vi.useRealTimers());
    const { port, connections } = await startGrpcServer({ tls, http1: (_req, res) => res.end() });
    const options = { host: 'localhost', port, ca: tls.cert, ALPNProtocols: ['http/1.1'] };
    const socket = connectTls(options);
    await once(socket, 'secureConnect');
    socket.on('error', () => {});
    socket.write('GET / HTTP/1.1\r\nhost: a\r\n\r\n');
    await once(socket, 'data');
    socket.resume();
    socket.write('GET / HTTP/1.1\r\nhost');
    vi.advanceTimersByTime(GRPC_HTTP1_TIMEOUT_MS - 1);
    expect(connections()).toBe(1);
    vi.advanceTimersByTime(1);
    await waitUntil('the connection is closed', () => connections() === 0);
  });

  test('without a handler of HTTP/1 rejects it', async () => {
    const { port, connections } = await startGrpcServer({ tls });
    await expect(getHttp1(port)).rejects.toThrow();
    const socket = connectTls({
      host: 'localhost',
      port,
      ca: tls.cert,
      ALPNProtocols: ['http/1.1'],
    });
    await once(socket, 'error');
    await waitUntil('the connections are closed', () => connections() === 0);
  });

  test('ends connections of HTTP/1 when it drains', async () => {
    let respond = () => {};
    const { server, port } = await startGrpcServer({
      tls,
      http1: (_req, res) => {
        respond = () => res.end('last');
      },
    });
    const idle = connectTls({ host: 'localhost', port, ca: tls.cert, ALPNProtocols: ['http/1.1'] });
    await once(idle, 'secureConnect');
    idle.on('error', () => {});
    const agent = new Agent({ keepAlive: true });
    onTestFinished(() => agent.destroy());
    const last = getHttp1(port, agent);
    const initial = respond;
    await waitUntil('the request has arrived', () => respond !== initial);
    const drained = server.drain();
    respond();
    expect(await last).toBe('last');
    await drained;
  });
});

describe('drain', () => {
  const tls = { cert: Buffer.from(CERTIFICATE_A.cert), key: Buffer.from(CERTIFICATE_A.key) };

  test.each([
    ['in cleartext', {}, credentials.createInsecure()],
    ['over TLS', { tls }, credentials.createSsl(tls.cert)],
  ])('loses no call of clients under load, %s', async (_name, security, channelCredentials) => {
    let calls = 0;
    const options = {
      ...security,
      unary: {
        [ECHO]: (message: Buffer, call: UnaryCall) => {
          calls++;
          setImmediate(() => call.respond(message));
        },
      },
    };
    const first = await startGrpcServer(options);
    const second = await startGrpcServer(options);
    const targets = `ipv4:127.0.0.1:${first.port},127.0.0.1:${second.port}`;
    const lost: string[] = [];
    let isOver = false;
    let succeeded = 0;
    const clients = Array.from({ length: 4 }, () => {
      const names = { 'grpc.ssl_target_name_override': 'localhost' };
      return grpcClient(targets, channelCredentials, names);
    });
    const callers = clients.flatMap((client) => {
      return Array.from({ length: 8 }, async () => {
        while (!isOver) {
          await callWith(client, ECHO, HELLO).then(
            () => succeeded++,
            (error: ServiceError) => lost.push(error.message),
          );
        }
      });
    });
    try {
      await waitUntil('all clients call', () => calls > 500);
      await first.server.drain();
      await waitUntil('the connections are closed', () => first.connections() === 0);
      const before = calls;
      await waitUntil('clients call the second server', () => calls > before + 500);
    } finally {
      isOver = true;
      await Promise.all(callers);
    }
    expect(lost).toEqual([]);
    expect(succeeded).toBe(calls);
  });

  test('waits for an open call, and for its response to be sent', async () => {
    const later: UnaryCall[] = [];
    const { server, port } = await startGrpcServer({
      unary: { [ECHO]: (_, call) => later.push(call) },
    });
    const response = callWith(grpcClient(port), ECHO, HELLO);
    await waitUntil('the call has arrived', () => later.length === 1);
    let isDrained = false;
    const drained = server.drain().then(() => {
      isDrained = true;
    });
    // The connection is closed for new calls by then.
    await sleep(2 * GRPC_DRAIN_GRACE_MS);
    expect(isDrained).toBe(false);
    later[0].respond(Buffer.alloc(60_000));
    expect((await response).length).toBe(60_000);
    await drained;
  });

  test('accepts the calls that a client has sent before it read of the drain', async () => {
    const { server, port, connections } = await startGrpcServer();
    const socket = await rawSocket(port);
    const frames = framesAt(socket);
    const count = (type: number) => frames.filter((frame) => frame.type === type).length;
    socket.write(
      Buffer.concat([PREFACE, frame(FRAME.SETTINGS, 0, 0), frame(FRAME.SETTINGS, 1, 0)]),
    );
    await waitUntil('the settings are acknowledged', () => count(FRAME.SETTINGS) === 2);
    const drained = server.drain();
    await waitUntil('the PING has arrived', () => count(FRAME.PING) === 1);
    // The answer to the PING comes after the call, as from a client that had sent the call before.
    socket.write(frame(FRAME.HEADERS, 4, 1, headerBlock()));
    socket.write(frame(FRAME.DATA, 1, 1, framed(HELLO)));
    const { payload } = frames.find(({ type }) => type === FRAME.PING)!;
    socket.write(frame(FRAME.PING, 1, 0, payload));
    await drained;
    const lastStreams = frames
      .filter(({ type }) => type === FRAME.GOAWAY)
      .map(({ payload }) => payload.readUInt32BE(0));
    expect(lastStreams).toEqual([2 ** 31 - 1, 1]);
    const responses = frames.filter(({ type }) => type === FRAME.DATA);
    expect(responses.map(({ payload }) => payload)).toEqual([framed(HELLO)]);
    await waitUntil('the connection is closed', () => connections() === 0);
  });

  test('is not prolonged by a client that answers its PING again and again', async () => {
    const { server, port } = await startGrpcServer();
    const socket = await rawSocket(port);
    const frames = framesAt(socket);
    socket.write(CLIENT_START);
    let isDrained = false;
    await waitUntil('the settings are acknowledged', () => {
      return frames.filter(({ type }) => type === FRAME.SETTINGS).length === 2;
    });
    const drained = server.drain().then(() => {
      isDrained = true;
    });
    const ping = () => frames.find(({ type }) => type === FRAME.PING);
    await waitUntil('the PING has arrived', () => ping() !== undefined);
    const answer = frame(FRAME.PING, 1, 0, ping()!.payload);
    for (let i = 0; i < 40 && !isDrained; i++) {
      socket.write(answer);
      await sleep(GRPC_DRAIN_GRACE_MS / 4);
    }
    expect(isDrained).toBe(true);
    await drained;
  });

  test('does not wait for a client that answers no PING', async () => {
    const { server, port } = await startGrpcServer();
    const socket = await rawSocket(port);
    socket.write(
      Buffer.concat([PREFACE, frame(FRAME.SETTINGS, 0, 0), frame(FRAME.SETTINGS, 1, 0)]),
    );
    const frames = framesAt(socket);
    await waitUntil('the settings are acknowledged', () => frames.length > 1);
    await server.drain();
  });

  test('closes connections that have not acknowledged the settings', async () => {
    const { server, port, connections } = await startGrpcServer();
    const silent = await rawSocket(port);
    const [frames, socket] = [framesAt(silent), await rawSocket(port)];
    const others = framesAt(socket);
    socket.write(Buffer.concat([PREFACE, frame(FRAME.SETTINGS, 0, 0)]));
    await waitUntil('both are accepted', () => frames.length > 0 && others.length > 1);
    await server.drain();
    await waitUntil('the connections are closed', () => connections() === 0);
    for (const [first] of [frames, others]) expect(first.type).toBe(FRAME.SETTINGS);
  });

  test('of a server without connections is over at once', async () => {
    const { server } = await startGrpcServer();
    await server.drain();
  });

  test('is ended by close, which ends all calls', async () => {
    const { server, port } = await startGrpcServer({ unary: { [ECHO]: () => {} } });
    const call = errorOf(callWith(grpcClient(port), ECHO, HELLO));
    const silent = await rawSocket(port);
    silent.resume();
    const drained = server.drain();
    server.close();
    await drained;
    expect((await call).code).toBe(GRPC_STATUS.UNAVAILABLE);
  });
});
