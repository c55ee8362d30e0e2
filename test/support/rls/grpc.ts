/** A server of gRPC for tests, clients of grpc-js, and sessions that send what no client sends. */

import { once } from 'node:events';
import {
  type ClientHttp2Session,
  type ClientHttp2Stream,
  connect as connectHttp2,
} from 'node:http2';
import { connect, type Socket } from 'node:net';
import { Client, type ClientOptions, credentials, type ServiceError } from '@grpc/grpc-js';
import { onTestFinished } from 'vitest';
import type { UnaryMethod } from '../../../src/rls/transport/call.ts';
import {
  type GrpcAddress,
  GrpcServer,
  type GrpcServerOptions,
} from '../../../src/rls/transport/grpc-server.ts';

export const ECHO = '/test.Echo/Echo';
export const echo: UnaryMethod = (message, call) => call.respond(message);

export interface TestGrpcServer {
  server: GrpcServer;
  port: number;
  /** Open connections. */
  connections: () => number;
  errors: Error[];
}

/** Starts a server that the end of the test closes. */
export async function startGrpcServer(
  options: Partial<GrpcServerOptions> = {},
  address: GrpcAddress = { host: '127.0.0.1', port: 0 },
): Promise<TestGrpcServer> {
  let connections = 0;
  const errors: Error[] = [];
  const server = new GrpcServer({
    unary: { [ECHO]: echo },
    maxMessageBytes: 65_536,
    onConnection: (change) => {
      connections += change;
      return true;
    },
    onError: (error) => errors.push(error),
    ...options,
  });
  const port = await server.listen(address);
  onTestFinished(() => server.close());
  return { server, port, connections: () => connections, errors };
}

/** A client that the end of the test closes. */
export function grpcClient(
  target: number | string,
  channelCredentials = credentials.createInsecure(),
  options: ClientOptions = {},
): Client {
  const address = typeof target === 'number' ? `127.0.0.1:${target}` : target;
  // Without a pool of its own, clients of one address share a connection.
  const own = { 'grpc.use_local_subchannel_pool': 1, ...options };
  const client = new Client(address, channelCredentials, own);
  onTestFinished(() => client.close());
  return client;
}

/** Calls a method with bytes. */
export function callWith(client: Client, path: string, message: Buffer): Promise<Buffer> {
  return new Promise((resolve, reject) => {
    const raw = (bytes: Buffer) => bytes;
    client.makeUnaryRequest(path, raw, raw, message, (error: ServiceError | null, value) => {
      if (error === null) resolve(value!);
      else reject(error);
    });
  });
}

/** A message with its prefix. */
export function framed(message: Buffer | string, flag = 0): Buffer {
  const bytes = Buffer.from(message);
  const prefix = Buffer.alloc(5);
  prefix[0] = flag;
  prefix.writeUInt32BE(bytes.length, 1);
  return Buffer.concat([prefix, bytes]);
}

/** A session that the end of the test closes. */
export async function http2Session(port: number): Promise<ClientHttp2Session> {
  const session = connectHttp2(`http://127.0.0.1:${port}`);
  session.on('error', () => {});
  onTestFinished(() => session.destroy());
  await once(session, 'remoteSettings');
  return session;
}

export interface Http2Response {
  headers: Record<string, unknown>;
  trailers: Record<string, unknown>;
  body: Buffer;
}

/** Opens a stream for a call. */
export function openCall(
  session: ClientHttp2Session,
  path = ECHO,
  headers: Record<string, string> = {},
): ClientHttp2Stream {
  const own = { ':method': 'POST', ':path': path, 'content-type': 'application/grpc', ...headers };
  const stream = session.request({ te: 'trailers', ...own }, { endStream: false });
  stream.on('error', () => {});
  return stream;
}

/** The response of a stream, when it has closed. */
export async function responseOf(stream: ClientHttp2Stream): Promise<Http2Response> {
  const response: Http2Response = { headers: {}, trailers: {}, body: Buffer.alloc(0) };
  stream.on('response', (headers) => Object.assign(response.headers, headers));
  stream.on('trailers', (trailers) => Object.assign(response.trailers, trailers));
  stream.on('data', (chunk: Buffer) => {
    response.body = Buffer.concat([response.body, chunk]);
  });
  // Not by `once`, which fails with an error of the stream.
  if (!stream.destroyed) await new Promise((resolve) => stream.on('close', resolve));
  return response;
}

/** A connection for any bytes, which the end of the test closes. */
export async function rawSocket(port: number): Promise<Socket> {
  const socket = connect(port, '127.0.0.1');
  socket.on('error', () => {});
  onTestFinished(() => {
    socket.destroy();
  });
  await once(socket, 'connect');
  return socket;
}

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

/** A frame of HTTP/2. */
export function frame(
  type: number,
  flags: number,
  stream: number,
  payload: Buffer = Buffer.alloc(0),
): Buffer {
  const head = Buffer.alloc(9);
  head.writeUIntBE(payload.length, 0, 3);
  head[3] = type;
  head[4] = flags;
  head.writeUInt32BE(stream, 5);
  return Buffer.concat([head, payload]);
}

/** Headers as HPACK, without a table. */
export function encodeHeaders(headers: readonly (readonly [string, string])[]): Buffer {
  const parts = headers.flatMap(([name, value]) => [
    Buffer.from([0, name.length]),
    Buffer.from(name),
    Buffer.from([value.length]),
    Buffer.from(value),
  ]);
  return Buffer.concat(parts);
}

export function callHeaders(path = ECHO): [string, string][] {
  return [
    [':method', 'POST'],
    [':scheme', 'http'],
    [':path', path],
    [':authority', 'test'],
    ['content-type', 'application/grpc'],
    ['te', 'trailers'],
  ];
}

export function headerBlock(path = ECHO): Buffer {
  return encodeHeaders(callHeaders(path));
}

export interface ReceivedFrame {
  type: number;
  flags: number;
  stream: number;
  payload: Buffer;
}

/** The frames of a server that have arrived at a socket. */
export function framesAt(socket: Socket): ReceivedFrame[] {
  const frames: ReceivedFrame[] = [];
  let bytes = Buffer.alloc(0);
  socket.on('data', (chunk: Buffer) => {
    bytes = Buffer.concat([bytes, chunk]);
    while (bytes.length >= 9 && bytes.length >= 9 + bytes.readUIntBE(0, 3)) {
      const end = 9 + bytes.readUIntBE(0, 3);
      const [type, flags, stream] = [bytes[3], bytes[4], bytes.readUInt32BE(5)];
      frames.push({ type, flags, stream, payload: bytes.subarray(9, end) });
      bytes = bytes.subarray(end);
    }
  });
  return frames;
}

/** What a client sends first. */
export const CLIENT_START = Buffer.concat([
  PREFACE,
  frame(FRAME.SETTINGS, 0, 0),
  frame(FRAME.SETTINGS, 1, 0),
]);

/** A call in two frames. */
export function callFrames(stream: number, message: Buffer | string, path = ECHO): Buffer {
  return Buffer.concat([
    frame(FRAME.HEADERS, 4, stream, headerBlock(path)),
    frame(FRAME.DATA, 1, stream, framed(message)),
  ]);
}
