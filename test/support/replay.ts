/**
 * What gateways that are not installed do with a client's request, replayed from their sources: the
 * bytes of the request they make of it, and what they make of weir's answer. Here is what the
 * replays have in common; each reads the configuration that is printed for it.
 */

import { connect } from 'node:net';
import { POLICY_DEFAULTS, type Policy } from '../../src/policies/policy.ts';
import { type Answer, LASTING_MS, takeAnswers } from './http.ts';

/** A request as it comes in at a gateway. */
export interface ClientRequest {
  method?: string;
  target?: string;
  /** Lines, as the client has written them; there is a Host besides. */
  headers?: [string, string][];
  /** The address of its connection. */
  from?: string;
}

/** What the end client gets, and which headers the application got, if it was asked. */
export interface Seen {
  status: number;
  headers: Record<string, string>;
  body: string;
  application?: Record<string, string>;
}

/** What a replay takes besides the printed text. */
export interface ReplayOptions {
  /** Of weir, in the environment of the gateway or in the place of its placeholder. */
  key?: string;
  /** Proxies in front, which what a text says of them leaves to whoever sets the gateway up. */
  trustedIPs?: string[];
  /** Waits for weir as long as the text says; else the busy machine of the tests has its time. */
  isPunctual?: boolean;
}

export interface Replay {
  /** The request to weir. */
  bytes: (request: ClientRequest) => Buffer;
  ask: (request: ClientRequest) => Promise<Seen>;
}

export const HOST = 'shop.example';
export const APPLICATION = 'from the application';
export const KEY_VARIABLE = 'WEIR_KEY';

export function policyOf(namespace: string, part: Partial<Policy>): Policy {
  return {
    namespace,
    gateway: 'envoy',
    windows: [{ limit: 1, duration: LASTING_MS }],
    identify: ['ip'],
    ...POLICY_DEFAULTS,
    ...part,
  };
}

/** As a client writes it. */
export function lines(head: string, headers: [string, string][]): Buffer {
  const text = headers.map(([name, value]) => `${name}: ${value}\r\n`).join('');
  return Buffer.from(`${head}\r\n${text}\r\n`, 'latin1');
}

const BUSY_MS = 20_000;

export function patience(configuredMs: number, { isPunctual = false }: ReplayOptions): number {
  return isPunctual ? configuredMs : BUSY_MS;
}

/** @returns nothing where there is no whole answer in time */
export function exchangeOnce(
  host: string,
  port: number,
  bytes: Buffer,
  timeoutMs: number,
): Promise<Answer | undefined> {
  return new Promise((resolve) => {
    const socket = connect(port, host);
    let received = '';
    const finish = (answer?: Answer) => {
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
      const [answer] = takeAnswers(whole).answers;
      if (answer !== undefined) finish(answer);
    });
    socket.write(bytes);
  });
}

/** What the application answers, with headers of the gateway's. */
export function fromApplication(
  request: ClientRequest,
  application: Record<string, string>,
  added: Record<string, string> = {},
): Seen {
  const body = request.method === 'HEAD' ? '' : APPLICATION;
  return { status: 200, headers: { 'content-type': 'text/plain', ...added }, body, application };
}
