/**
 * Gateways as processes on the text that `weir gateway` prints, the application behind them, the
 * wire between them and weir, and clients that ask through them.
 */

import { type ChildProcess, spawn, spawnSync } from 'node:child_process';
import { createHash, randomBytes } from 'node:crypto';
import { chmodSync, writeFileSync } from 'node:fs';
import { Agent, createServer, type IncomingHttpHeaders, request } from 'node:http';
import { type AddressInfo, connect, createServer as createTcpServer, type Socket } from 'node:net';
import { join } from 'node:path';
import type { Duplex } from 'node:stream';
import type { ParsedResponse, RequestParts } from './http.ts';
import { cleanEnvironment, removeDirectory, temporaryDirectory, waitUntil } from './server.ts';

const HOST = '127.0.0.1';
/** By which a server shows that it has understood (RFC 6455). */
const WEBSOCKET_GUID = '258EAFA5-E914-47DA-95CA-C5AB0DC85B11';
/** A gateway that is asked to end, and does not, is killed. */
const STOP_TIMEOUT_MS = 2_000;

const children = new Set<ChildProcess>();
process.once('exit', () => {
  for (const child of children) child.kill('SIGTERM');
});

/** Whether tests of a program are left out: it is not here, and this is no CI, where it must be. */
export function isMissing(program: string, ...args: string[]): boolean {
  return spawnSync(program, args).error !== undefined && process.env.CI === undefined;
}

export interface Gateway {
  port: number;
  child: ChildProcess;
  /** What it has said on both streams. */
  output: () => string;
  stop: () => Promise<void>;
}

export interface GatewayOptions {
  /** The configuration, as it was printed. */
  configuration: string;
  /** What the configuration's file is called. */
  fileName: string;
  /** The port on which the configuration has it serve. */
  port: number;
  /** The program and its arguments, in its directory, where the file is. */
  command: (path: string, directory: string) => string[];
  env?: Record<string, string>;
}

/** Starts it in a directory of its own, which is its home too, and waits until it listens. */
export async function startGateway(options: GatewayOptions): Promise<Gateway> {
  const { configuration, fileName, port } = options;
  const directory = temporaryDirectory();
  // Started by root, some serve as somebody else.
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
    const patience = setTimeout(() => child.kill('SIGKILL'), STOP_TIMEOUT_MS);
    child.kill('SIGTERM');
    await ended;
    clearTimeout(patience);
    removeDirectory(directory);
  };
  try {
    await waitUntil(`${program} listens`, () => {
      if (hasEnded) throw new Error(`${program} ended: ${output}`);
      return isListening(port);
    });
  } catch (error) {
    await stop();
    throw error;
  }
  return { port, child, output: () => output, stop };
}

function isListening(port: number): Promise<boolean> {
  return new Promise((resolve) => {
    const socket = connect(port, HOST);
    socket.on('connect', () => {
      socket.destroy();
      resolve(true);
    });
    socket.on('error', () => resolve(false));
  });
}

/** A request as it came to the application. */
export interface ReceivedRequest {
  method: string;
  url: string;
  headers: IncomingHttpHeaders;
  /** Names and values in turn, as they came. */
  rawHeaders: string[];
  body: string;
}

export interface Application {
  port: number;
  /** All requests so far, whole ones only. */
  requests: ReceivedRequest[];
  stop: () => Promise<void>;
}

/**
 * Notes what comes, and answers 200 with a header and a body of its own; a path that begins with a
 * status, as /403 does, is answered with that, .../limited with quotas of its own, and /broken not at
 * all. It changes to whatever protocol it is asked for, and connects to whom it is asked to, and says there what it hears.
 */
export async function startApplication(): Promise<Application> {
  const requests: ReceivedRequest[] = [];
  const server = createServer(
    { keepAliveTimeout: 60_000, maxHeaderSize: 131_072 },
    (asked, answer) => {
      const chunks: Buffer[] = [];
      asked.on('data', (chunk: Buffer) => chunks.push(chunk));
      asked.on('end', () => {
        const { method = '', url = '', headers, rawHeaders } = asked;
        const whole = Buffer.concat(chunks).toString();
        requests.push({ method, url, headers, rawHeaders, body: whole });
        if (url === '/broken') {
          asked.socket.destroy();
          return;
        }
        const status = Number(/^\/(\d{3})\b/.exec(url)?.[1] ?? 200);
        const body = 'application';
        if (url.endsWith('/limited')) {
          answer.setHeader('RateLimit-Policy', '"application";q=9;w=9');
          answer.setHeader('RateLimit', '"application";r=9;t=9');
        }
        answer.writeHead(status, { 'X-Application': 'yes', 'Content-Length': body.length });
        answer.end(body);
      });
    },
  );
  const upgraded = new Set<Duplex>();
  server.on('upgrade', ({ headers }, socket: Duplex) => {
    upgraded.add(socket);
    socket.on('error', () => {});
    const accepted = createHash('sha1').update(`${headers['sec-websocket-key']}${WEBSOCKET_GUID}`);
    const answer = [
      'HTTP/1.1 101 Switching Protocols',
      'Connection: Upgrade',
      `Upgrade: ${headers.upgrade}`,
      `Sec-WebSocket-Accept: ${accepted.digest('base64')}`,
    ];
    socket.write(`${answer.join('\r\n')}\r\n\r\n`);
    socket.pipe(socket);
  });
  server.on('connect', (_, socket: Duplex) => {
    upgraded.add(socket);
    socket.on('error', () => {});
    socket.write('HTTP/1.1 200 OK\r\n\r\n');
    socket.pipe(socket);
  });
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
  /** How many connections were opened to it so far. */
  connections: () => number;
  /** All bytes that went to weir, as latin1. */
  bytesToWeir: () => string;
  stop: () => Promise<void>;
}

/** Stands between a gateway and weir, passes all bytes on, and keeps those that go to weir. */
export async function startRecordingProxy(weirPort: number): Promise<RecordingProxy> {
  const sockets = new Set<Socket>();
  let connections = 0;
  let sent = '';
  const server = createTcpServer((near) => {
    connections++;
    const far = connect(weirPort, HOST);
    for (const [socket, other] of [
      [near, far],
      [far, near],
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
    near.on('data', (data: Buffer) => {
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

/** A GET of / through a gateway, on a connection of its own, unless it is said otherwise. */
export function sendThrough(
  port: number,
  parts: RequestParts = {},
  agent?: Agent,
): Promise<ParsedResponse> {
  const { method = 'GET', path = '/', headers = {}, body = '' } = parts;
  return new Promise((resolve, reject) => {
    const asked = request(
      { host: HOST, port, method, path, headers, agent: agent ?? false },
      (answer) => {
        const chunks: Buffer[] = [];
        answer.on('data', (chunk: Buffer) => chunks.push(chunk));
        answer.on('error', reject);
        answer.on('end', () => {
          resolve({
            status: answer.statusCode ?? 0,
            headers: Object.fromEntries(
              Object.entries(answer.headers).map(([name, value]) => [name, String(value)]),
            ),
            body: Buffer.concat(chunks).toString(),
          });
        });
      },
    );
    asked.on('error', reject);
    asked.end(body);
  });
}

/** Asks to change to another protocol, and says something by it. */
export function upgradeProtocol(
  port: number,
  protocol: string,
  agent: Agent,
): Promise<{ status: number; heard: string }> {
  const headers = {
    Connection: 'Upgrade',
    Upgrade: protocol,
    'Sec-WebSocket-Version': '13',
    'Sec-WebSocket-Key': randomBytes(16).toString('base64'),
  };
  return new Promise((resolve, reject) => {
    const asked = request({ host: HOST, port, headers, agent });
    asked.on('error', reject);
    asked.on('response', (answer) => {
      answer.resume();
      resolve({ status: answer.statusCode ?? 0, heard: '' });
    });
    asked.on('upgrade', ({ statusCode = 0 }, socket) => {
      socket.on('error', reject);
      socket.on('data', (data) => {
        socket.destroy();
        resolve({ status: statusCode, heard: String(data) });
      });
      socket.write('said');
    });
    asked.end();
  });
}

/** Requests one after the other, each on the connection of the one before. */
export async function sendSequentially(
  port: number,
  all: RequestParts[],
  agent = new Agent({ keepAlive: true, maxSockets: 1 }),
): Promise<ParsedResponse[]> {
  const answers: ParsedResponse[] = [];
  for (const parts of all) answers.push(await sendThrough(port, parts, agent));
  agent.destroy();
  return answers;
}

/** So many requests at once, over as many connections as are said. */
export async function sendConcurrently(
  port: number,
  requestCount: number,
  connections: number,
  parts: RequestParts = {},
): Promise<ParsedResponse[]> {
  const agent = new Agent({ keepAlive: true, maxSockets: connections });
  const answers = await Promise.all(
    Array.from({ length: requestCount }, () => sendThrough(port, parts, agent)),
  );
  agent.destroy();
  return answers;
}
