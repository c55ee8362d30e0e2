/**
 * Emulation of gateways that cannot run here, after their sources: the request that a gateway
 * sends to weir for a client's request, and its reaction to weir's response. Each emulator reads
 * the configuration that weir prints for its gateway. This file serves clients through one.
 */

import { once } from 'node:events';
import { Agent, createServer, type IncomingMessage, request } from 'node:http';
import { connect } from 'node:net';
import type { GatewaySetup } from '../../../src/commands/gateways/setup.ts';
import type { Gateway as GatewayName } from '../../../src/policies/gateways.ts';
import { exchange, type ParsedResponse } from '../../support/http.ts';
import type { Gateway } from './gateway-process.ts';
import type { TestedGateway } from './real-gateways.ts';

/** A client's request as it arrives at a gateway. */
export interface ClientRequest {
  method: string;
  target: string;
  /** Headers in the client's spelling and order. */
  headers: [string, string][];
  /** The peer address of the connection. */
  remoteAddress: string;
}

type Headers = Record<string, string>;

/** A request that the application gets, or a response of the gateway instead. */
type Reaction =
  | { headers: Record<string, string[]>; responseHeaders: (status: number) => Headers }
  | { denial: { status: number; headers: Headers; body: string } };

export interface GatewayEmulator {
  /** The address of weir. */
  weir: { host: string; port: number };
  timeoutMs: number;
  /** The request to weir; undefined if no policy protects the path. */
  checkRequest: (request: ClientRequest) => Buffer | undefined;
  /** @param response of weir; undefined if there is none in time */
  react: (request: ClientRequest, response: ParsedResponse | undefined) => Reaction;
}

/** Serializes a request line and headers. */
export function serializeHead(requestLine: string, headers: [string, string][]): Buffer {
  const text = headers.map(([name, value]) => `${name}: ${value}\r\n`).join('');
  return Buffer.from(`${requestLine}\r\n${text}\r\n`, 'latin1');
}

/** The headers of weir's response with one of these names. */
export function pickHeaders({ headers }: ParsedResponse, names: readonly string[]): Headers {
  const picked = names.map((name) => name.toLowerCase());
  return Object.fromEntries(Object.entries(headers).filter(([name]) => picked.includes(name)));
}

/** @param emulate reads the printed text, with weir's key from the environment of the gateway */
export function emulatedGateway(
  name: GatewayName,
  print: (setup: GatewaySetup) => string,
  emulate: (text: string, key: string) => GatewayEmulator,
): TestedGateway {
  let upstreamPort = 0;
  return {
    name,
    isMissing: false,
    isEmulated: true,
    print: (setup) => {
      upstreamPort = setup.upstream.port;
      return print(setup);
    },
    start: (text, port, key) => serveThrough(emulate(text, key), port, upstreamPort),
  };
}

async function serveThrough(
  emulator: GatewayEmulator,
  port: number,
  upstreamPort: number,
): Promise<Gateway> {
  const agent = new Agent({ keepAlive: true });
  let output = '';
  const check = async (bytes: Buffer, method: string): Promise<ParsedResponse | undefined> => {
    const socket = connect(emulator.weir.port, emulator.weir.host);
    const responses = exchange(socket, [bytes], 1, false, [method]);
    // Instead of the timeout of `exchange`.
    socket.setTimeout(emulator.timeoutMs);
    const [response] = await responses.catch(() => []);
    if (response === undefined) output += 'weir is stopped, or timed out\n';
    return response;
  };
  const server = createServer({ maxHeaderSize: 131_072 }, async (incoming, outgoing) => {
    const { method = '', url: target = '', rawHeaders, socket } = incoming;
    const body = Buffer.concat(await incoming.toArray());
    const headers = rawHeaders.flatMap((name, i): [string, string][] => {
      return i % 2 === 0 ? [[name, rawHeaders[i + 1]]] : [];
    });
    const received = { method, target, headers, remoteAddress: socket.remoteAddress! };
    const bytes = emulator.checkRequest(received);
    const response = bytes && (await check(bytes, bytes.toString().split(' ', 1)[0]));
    const reaction = emulator.react(received, response);
    if ('denial' in reaction) {
      const { status, headers, body } = reaction.denial;
      outgoing.writeHead(status, headers).end(method === 'HEAD' ? '' : body);
      return;
    }
    const options = { host: '127.0.0.1', port: upstreamPort, method, path: target, agent };
    // Node accepts one value of some headers only.
    const sent = Object.entries(reaction.headers).map(([name, value]) => {
      return [name, value.length === 1 ? value[0] : value];
    });
    const forwarded = request({ ...options, headers: Object.fromEntries(sent) }).end(body);
    const [answer] = (await once(forwarded, 'response')) as [IncomingMessage];
    const status = answer.statusCode!;
    outgoing.writeHead(status, { ...answer.headers, ...reaction.responseHeaders(status) });
    answer.pipe(outgoing);
  });
  await new Promise<void>((resolve) => server.listen(port, '127.0.0.1', resolve));
  return {
    port,
    output: () => output,
    stop: () => {
      agent.destroy();
      server.closeAllConnections();
      return new Promise((resolve) => server.close(() => resolve()));
    },
  };
}
