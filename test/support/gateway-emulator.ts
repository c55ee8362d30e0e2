/**
 * What gateways that are not installed do with a client's request, replayed from their sources: the
 * bytes of the request they make of it, and what they make of weir's answer. Here is what the
 * replays have in common; each reads the configuration that is printed for it.
 */

import { connect } from 'node:net';
import { POLICY_DEFAULTS, type Policy } from '../../src/policies/policy.ts';
import { LONGEST_WINDOW_MS, type ParsedResponse, parseResponses } from './http.ts';

/** A request as it comes in at a gateway. */
export interface ClientRequest {
  method?: string;
  target?: string;
  /** Lines, as the client has written them; there is a Host besides. */
  headers?: [string, string][];
  /** The address of its connection. */
  remoteAddress?: string;
}

/** What the end client gets, and which headers the application got, if it was asked. */
export interface EmulatedResponse {
  status: number;
  headers: Record<string, string>;
  body: string;
  applicationHeaders?: Record<string, string>;
}

/** What a replay takes besides the printed text. */
export interface EmulatorOptions {
  /** Of weir, in the environment of the gateway or in the place of its placeholder. */
  key?: string;
  /** Proxies in front, which what a text says of them leaves to whoever sets the gateway up. */
  trustedIPs?: string[];
  /** Waits for weir as long as the text says; else the busy machine of the tests has its time. */
  usesConfiguredTimeout?: boolean;
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

/** As a client writes it. */
export function serializeHead(head: string, headers: [string, string][]): Buffer {
  const text = headers.map(([name, value]) => `${name}: ${value}\r\n`).join('');
  return Buffer.from(`${head}\r\n${text}\r\n`, 'latin1');
}

const GENEROUS_TIMEOUT_MS = 20_000;

export function timeoutFor(
  configuredMs: number,
  { usesConfiguredTimeout = false }: EmulatorOptions,
): number {
  return usesConfiguredTimeout ? configuredMs : GENEROUS_TIMEOUT_MS;
}

/** @returns nothing where there is no whole answer in time */
export function sendOnce(
  host: string,
  port: number,
  bytes: Buffer,
  timeoutMs: number,
): Promise<ParsedResponse | undefined> {
  return new Promise((resolve) => {
    const socket = connect(port, host);
    let received = '';
    const finish = (answer?: ParsedResponse) => {
      socket.destroy();
      resolve(answer);
    };
    const isHead = bytes.subarray(0, 5).toString() === 'HEAD ';
    socket.setTimeout(timeoutMs, () => finish());
    socket.on('error', () => finish());
    socket.on('close', () => finish());
    socket.setEncoding('latin1');
    socket.on('data', (data) => {
      received += data;
      // To a HEAD there is a length without a body.
      const whole = isHead
        ? received.replace(/content-length: \d+/i, 'content-length: 0')
        : received;
      const [answer] = parseResponses(whole).answers;
      if (answer !== undefined) finish(answer);
    });
    socket.write(bytes);
  });
}

/** What the application answers, with headers of the gateway's. */
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
