/**
 * Emulation of gateways that cannot run here, after their sources: the request that a gateway
 * sends to weir for a client's request, and its reaction to weir's response. This file holds what
 * the emulators share. Each emulator reads the configuration that weir prints for its gateway.
 */

import { connect } from 'node:net';
import { POLICY_DEFAULTS, type Policy } from '../../../src/policies/policy.ts';
import { LONGEST_WINDOW_MS, type ParsedResponse, parseResponses } from '../../support/http.ts';

/** A client's request as it arrives at a gateway. */
export interface ClientRequest {
  method?: string;
  target?: string;
  /** Headers in the client's spelling and order. A Host header is added. */
  headers?: [string, string][];
  /** The peer address of the connection. */
  remoteAddress?: string;
}

/** The client's response, and the headers that the application received, if it got the request. */
interface EmulatedResponse {
  status: number;
  headers: Record<string, string>;
  body: string;
  applicationHeaders?: Record<string, string>;
}

/** Options besides the printed configuration. */
export interface EmulatorOptions {
  /** Weir's key, from the gateway's environment or in place of the printed placeholder. */
  key?: string;
}

export interface GatewayEmulator {
  /** The request to weir. */
  checkRequest: (request: ClientRequest) => Buffer;
  send: (request: ClientRequest) => Promise<EmulatedResponse>;
}

export const HOST = 'shop.example';
export const APPLICATION_BODY = 'from the application';
export const KEY_VARIABLE = 'WEIR_KEY';

export function testPolicy(namespace: string, part: Partial<Policy>): Policy {
  return {
    namespace,
    gateway: 'envoy',
    windows: [{ limit: 1, duration: LONGEST_WINDOW_MS }],
    identify: ['ip'],
    ...POLICY_DEFAULTS,
    ...part,
  };
}

/** Serializes a request line and headers. */
export function serializeHead(requestLine: string, headers: [string, string][]): Buffer {
  const text = headers.map(([name, value]) => `${name}: ${value}\r\n`).join('');
  return Buffer.from(`${requestLine}\r\n${text}\r\n`, 'latin1');
}

/** Longer than the printed timeouts, for a busy test machine. */
const TIMEOUT_MS = 20_000;

/** @returns undefined if there is no complete response */
export function sendOnce(
  host: string,
  port: number,
  bytes: Buffer,
): Promise<ParsedResponse | undefined> {
  return new Promise((resolve) => {
    const socket = connect(port, host);
    let received = '';
    const finish = (response?: ParsedResponse) => {
      socket.destroy();
      resolve(response);
    };
    const isHead = bytes.subarray(0, 5).toString() === 'HEAD ';
    socket.setTimeout(TIMEOUT_MS, () => finish());
    socket.on('error', () => finish());
    socket.on('close', () => finish());
    socket.setEncoding('latin1');
    socket.on('data', (data) => {
      received += data;
      // The response to HEAD has a content-length, but no body.
      const whole = isHead
        ? received.replace(/content-length: \d+/i, 'content-length: 0')
        : received;
      const [response] = parseResponses(whole).answers;
      if (response !== undefined) finish(response);
    });
    socket.write(bytes);
  });
}

/** The application's response, with the headers that the gateway adds. */
export function applicationResponse(
  request: ClientRequest,
  applicationHeaders: Record<string, string>,
  added: Record<string, string> = {},
): EmulatedResponse {
  const body = request.method === 'HEAD' ? '' : APPLICATION_BODY;
  return {
    status: 200,
    headers: { 'content-type': 'text/plain', ...added },
    body,
    applicationHeaders,
  };
}
