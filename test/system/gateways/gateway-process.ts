/**
 * Runs gateways as processes. Also the application behind them, a recording proxy between them and
 * weir, and clients that send requests through them.
 */

import { type ChildProcess, spawn } from 'node:child_process';
import { createHash, randomBytes } from 'node:crypto';
import { chmodSync, writeFileSync } from 'node:fs';
import {
  Agent,
  type AgentOptions,
  createServer,
  type IncomingHttpHeaders,
  type IncomingMessage,
  request,
  type ServerResponse,
} from 'node:http';
import { createServer as createTlsServer } from 'node:https';
import { type AddressInfo, connect, createServer as createTcpServer, type Socket } from 'node:net';
import { join } from 'node:path';
import type { Duplex } from 'node:stream';
import type { TLSSocket } from 'node:tls';
import type { CertificatePair } from '../../support/certificates.ts';
import type { ParsedResponse, RequestParts } from '../../support/http.ts';
import {
  cleanEnvironment,
  removeDirectory,
  temporaryDirectory,
  waitUntil,
} from '../../support/server.ts';

const HOST = '127.0.0.1';
/** A server proves with it that it understood the upgrade request (RFC 6455). */
const WEBSOCKET_GUID = '258EAFA5-E914-47DA-95CA-C5AB0DC85B11';
/** A gateway that has not ended this long after SIGTERM is killed. */
const STOP_TIMEOUT_MS = 10_000;

const children = new Set<ChildProcess>();
process.once('exit', () => {
  for (const child of children) child.kill('SIGTERM');
});

export interface Gateway {
  port: number;
  /** All that it has logged. */
  output: () => string;
  stop: () => Promise<void>;
}

export interface GatewayProcess extends Gateway {
  child: ChildProcess;
  /** Its working directory. */
  directory: string;
}

interface GatewayOptions {
  /** The printed configuration. */
  configuration: string;
  /** The name of the configuration file. */
  fileName: string;
  /** The port on which the configuration makes it serve. */
  port: number;
  /** The command line. It runs in the directory of the configuration file. */
  command: (path: string, directory: string) => string[];
  env?: Record<string, string>;
}

/** Starts a gateway in its own directory, which is also its home, and waits until it listens. */
export async function startGateway(options: GatewayOptions): Promise<GatewayProcess> {
  const { configuration, fileName, port } = options;
  const directory = temporaryDirectory();
  // Gateways started by root may drop to another user.
  chmodSync(directory, 0o755);
  const path = join(directory, fileName);
  writeFileSync(path, configuration);
  const [program, ...args] = options.command(path, directory);
  const home = { HOME: directory, XDG_CONFIG_HOME: directory, XDG_DATA_HOME: directory };
  const env = { ...cleanEnvironment(), ...home, ...options.env } as NodeJS.ProcessEnv;
  const child = spawn(program, args, { cwd: directory, env, stdio: ['ignore', 'pipe', 'pipe'] });
  children.add(child);
  let output = '';
  for (const stream of [child.stdout, child.stderr]) {
    stream.on('data', (data) => {
      output += data;
    });
  }
  let hasEnded = false;
  const ended = new Promise<void>((resolve) => {
    child.on('close', () => {
      hasEnded = true;
      children.delete(child);
      resolve();
    });
    child.on('error', (error) => {
      output += error.message;
    });
  });
  const stop = async () => {
    const killTimer = setTimeout(() => child.kill('SIGKILL'), STOP_TIMEOUT_MS);
    child.kill('SIGTERM');
    await ended;
    clearTimeout(killTimer);
    removeDirectory(directory);
  };
  try {
    await waitUntil(`${program} listens`, async () => {
      if (hasEnded) throw new Error(`${program} ended: ${output}`);
      const hosts = await Promise.all([HOST, '::1'].map((host) => isListening(port, host)));
      return hosts.includes(true);
    });
  } catch (error) {
    await stop();
    throw error;
  }
  return { port, child, directory, output: () => output, stop };
}

/** Whether a connection to an address succeeds. */
export function isListening(port: number, host: string): Promise<boolean> {
  return new Promise((resolve) => {
    const socket = connect(port, host);
    socket.on('connect', () => {
      socket.destroy();
      resolve(true);
    });
    socket.on('error', () => resolve(false));
  });
}

/** A request as the application received it. */
interface ReceivedRequest {
  method: string;
  url: string;
  headers: IncomingHttpHeaders;
  /** Names and values in turn, in the order received. */
  rawHeaders: string[];
  body: string;
  /** The server name of TLS; false if the client sent none. */
  servername: unknown;
}

export interface Application {
  port: number;
  /** All complete requests so far. */
  requests: ReceivedRequest[];
  stop: () => Promise<void>;
}

interface ApplicationOptions {
  tls?: CertificatePair;
  /** Whether it sends the client the quota that it has received, as behind Traefik. */
  returnsQuota?: boolean;
}

/**
 * Records requests, and responds with 200 and a body. Special paths: /403 and the like get that
 * status, .../limited gets RateLimit headers of the application, /cors gets headers of CORS, and
 * /broken closes the connection.
 * It accepts any protocol upgrade and any CONNECT, and echoes what it receives there.
 */
export async function startApplication({
  tls,
  returnsQuota = false,
}: ApplicationOptions = {}): Promise<Application> {
  const requests: ReceivedRequest[] = [];
  const respond = async (incoming: IncomingMessage, response: ServerResponse) => {
    const body = Buffer.concat(await incoming.toArray()).toString();
    const { method = '', url = '', headers, rawHeaders, socket } = incoming;
    const { servername } = socket as TLSSocket & { servername: unknown };
    requests.push({ method, url, headers, rawHeaders, body, servername });
    if (url === '/broken') {
      socket.destroy();
      return;
    }
    for (const [name, value] of Object.entries(returnsQuota ? headers : {})) {
      if (/^(x-)?ratelimit/.test(name)) response.setHeader(name, value!);
    }
    if (url.endsWith('/limited')) {
      response.setHeader('RateLimit-Policy', '"application";q=9;w=9');
      response.setHeader('RateLimit', '"application";r=9;t=9');
    }
    if (url === '/cors') {
      response.setHeader('Access-Control-Allow-Origin', 'https://app.example');
      response.setHeader('Access-Control-Expose-Headers', 'X-Application');
    }
    const text = 'application';
    const status = Number(/^\/(\d{3})\b/.exec(url)?.[1] ?? 200);
    response.writeHead(status, { 'X-Application': 'yes', 'Content-Length': text.length });
    response.end(text);
  };
  const options = { keepAliveTimeout: 60_000, maxHeaderSize: 131_072 };
  const server =
    tls === undefined
      ? createServer(options, respond)
      : createTlsServer({ ...options, ...tls }, respond);
  const upgraded = new Set<Duplex>();
  const echo = (socket: Duplex, head: string) => {
    upgraded.add(socket);
    socket.on('error', () => {});
    socket.write(head);
    socket.pipe(socket);
  };
  server.on('upgrade', ({ headers }: IncomingMessage, socket: Duplex) => {
    const accepted = createHash('sha1').update(`${headers['sec-websocket-key']}${WEBSOCKET_GUID}`);
    const lines = [
      'HTTP/1.1 101 Switching Protocols',
      'Connection: Upgrade',
      `Upgrade: ${headers.upgrade}`,
      `Sec-WebSocket-Accept: ${accepted.digest('base64')}`,
    ];
    echo(socket, `${lines.join('\r\n')}\r\n\r\n`);
  });
  server.on('connect', (_: unknown, socket: Duplex) => echo(socket, 'HTTP/1.1 200 OK\r\n\r\n'));
  await new Promise<void>((resolve) => server.listen(0, HOST, resolve));
  return {
    port: (server.address() as AddressInfo).port,
    requests,
    stop: () => {
      for (const socket of upgraded) socket.destroy();
      server.closeAllConnections();
      return new Promise((resolve) => server.close(() => resolve()));
    },
  };
}

export interface RecordingProxy {
  port: number;
  /** Number of connections opened to it so far. */
  connections: () => number;
  /** All bytes sent to weir, as latin1. */
  bytesToWeir: () => string;
  stop: () => Promise<void>;
}

/**
 * A proxy between a gateway and weir that records the bytes sent to weir.
 * @param misdirect another port, to which the first `count` connections go
 */
export async function startRecordingProxy(
  weirPort: number,
  misdirect = { count: 0, port: 0 },
): Promise<RecordingProxy> {
  const sockets = new Set<Socket>();
  let connections = 0;
  let sent = '';
  const server = createTcpServer((downstream) => {
    const upstream = connect(connections++ < misdirect.count ? misdirect.port : weirPort, HOST);
    for (const [socket, other] of [
      [downstream, upstream],
      [upstream, downstream],
    ]) {
      sockets.add(socket);
      socket.setNoDelay(true);
      socket.pipe(other);
      socket.on('error', () => other.destroy());
      socket.on('close', () => {
        other.destroy();
        sockets.delete(socket);
      });
    }
    downstream.on('data', (data: Buffer) => {
      sent += data.toString('latin1');
    });
  });
  await new Promise<void>((resolve) => server.listen(0, HOST, resolve));
  return {
    port: (server.address() as AddressInfo).port,
    connections: () => connections,
    bytesToWeir: () => sent,
    stop: () => {
      for (const socket of sockets) socket.destroy();
      return new Promise((resolve) => server.close(() => resolve()));
    },
  };
}

let lastClientNumber = 0;
/** A name of a client without usage. */
export const newClientName = () => `client-${++lastClientNumber}`;
/** The header that identifies a client without usage, where a policy looks at X-Api-Key. */
export const newKey = () => ({ 'X-Api-Key': newClientName() });

let lastAddress = 1;
/** An address without usage: the whole of 127.0.0.0/8 belongs to this machine. */
export function newAddress(): string {
  lastAddress++;
  return `127.0.${lastAddress >> 8}.${lastAddress & 255}`;
}

/** One connection, by default from such an address. */
export function agentFromNewAddress(localAddress = newAddress()): Agent {
  const options = { keepAlive: true, maxSockets: 1, localAddress };
  return new Agent(options as AgentOptions);
}

export const statusesOf = (responses: ParsedResponse[]) => responses.map(({ status }) => status);

/** The remaining tokens that a response shows. */
export const remainingIn = ({ headers }: ParsedResponse) =>
  Number(/;r=(\d+)/.exec(headers.ratelimit)?.[1]);

/** Sends a request through a gateway: by default a GET of / on its own connection. */
export function sendThrough(
  port: number,
  parts: RequestParts = {},
  agent?: Agent,
): Promise<ParsedResponse> {
  const { method = 'GET', path = '/', headers = {}, body = '' } = parts;
  return new Promise((resolve, reject) => {
    const options = { host: HOST, port, method, path, headers, agent: agent ?? false };
    const outgoing = request(options, (response) => {
      const headers = Object.entries(response.headers).map(([name, value]) => {
        return [name, String(value)];
      });
      const toResponse = (chunks: Buffer[]) => ({
        status: response.statusCode ?? 0,
        headers: Object.fromEntries(headers),
        body: Buffer.concat(chunks).toString(),
      });
      resolve(response.toArray().then(toResponse));
    });
    outgoing.on('error', reject);
    outgoing.end(body);
  });
}

/** Requests an upgrade to another protocol, and sends a word over it. */
export function upgradeProtocol(
  port: number,
  protocol: string,
  agent: Agent,
  path = '/',
): Promise<{ status: number; received: string }> {
  const headers = {
    Connection: 'Upgrade',
    Upgrade: protocol,
    'Sec-WebSocket-Version': '13',
    'Sec-WebSocket-Key': randomBytes(16).toString('base64'),
  };
  return new Promise((resolve, reject) => {
    const outgoing = request({ host: HOST, port, path, headers, agent });
    outgoing.on('error', reject);
    outgoing.on('response', (response) => {
      response.resume();
      resolve({ status: response.statusCode ?? 0, received: '' });
    });
    outgoing.on('upgrade', ({ statusCode = 0 }, socket) => {
      socket.on('error', reject);
      socket.on('data', (data) => {
        socket.destroy();
        resolve({ status: statusCode, received: String(data) });
      });
      socket.write('ping');
    });
    outgoing.end();
  });
}

/** Sends requests one after the other on one connection. */
export async function sendSequentially(
  port: number,
  all: RequestParts[],
  agent = new Agent({ keepAlive: true, maxSockets: 1 }),
): Promise<ParsedResponse[]> {
  const responses: ParsedResponse[] = [];
  for (const parts of all) responses.push(await sendThrough(port, parts, agent));
  agent.destroy();
  return responses;
}

/** Sends requests concurrently over a number of connections. */
export async function sendConcurrently(
  port: number,
  requestCount: number,
  connections: number,
  parts: RequestParts = {},
): Promise<ParsedResponse[]> {
  const agent = new Agent({ keepAlive: true, maxSockets: connections });
  const responses = await Promise.all(
    Array.from({ length: requestCount }, () => sendThrough(port, parts, agent)),
  );
  agent.destroy();
  return responses;
}
