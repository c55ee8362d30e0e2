/**
 * Sends checks on many connections until it is stopped. It counts requests when they are sent, and
 * records every decision in a ledger. A test can then assert that under a fault no request stayed
 * unanswered and no decision was wrong.
 *
 * The client must use less CPU than the server. Requests are prepared bytes, and of a response it
 * reads only what the ledger needs.
 */

import { connect, type Socket } from 'node:net';
import { setTimeout as sleep } from 'node:timers/promises';
import { expect } from 'vitest';
import { recordMeasurements } from '../../support/guarantees.ts';
import { requestBytes } from '../../support/http.ts';
import { seededRandom } from '../../support/seeded-random.ts';
import { waitUntil } from '../../support/server.ts';
import type { Ledger } from './ledger.ts';

/** A check as prepared bytes. */
export interface PreparedCheck {
  id: number;
  cost: number;
  bytes: Buffer;
}

export function prepareCheck(
  id: number,
  body: { cost: number } & Record<string, unknown>,
): PreparedCheck {
  return { id, cost: body.cost, bytes: requestBytes({ body: JSON.stringify(body) }) };
}

/** A copy of a check, with a number in the place of the `#` in its bytes. */
export function numbered({ cost, bytes }: PreparedCheck, n: number): PreparedCheck {
  const copy = Buffer.from(bytes);
  const [from, until] = [copy.indexOf('#'), copy.lastIndexOf('#') + 1];
  copy.write(String(n).padStart(until - from, '0'), from, 'latin1');
  return { id: n, cost, bytes: copy };
}

/** With shard workers, acceptors take one check of a connection at a time. */
export const CHECKS_PER_PACKET = { 'in-place': 16, worker: 1 } as const;

interface TrafficOptions {
  port: number;
  connections: number;
  checksPerPacket: number;
  seed: number;
  /** Chooses the next check. */
  nextCheck: (below: (n: number) => number) => PreparedCheck;
  ledger?: Ledger;
  /** The total number of checks, a multiple of `checksPerPacket`. Default: no end. */
  checks?: number;
  /** Called for every decision, with the time of `performance.now()` before it was sent. */
  onDecision?: (
    check: PreparedCheck,
    allowed: boolean,
    reset: number,
    connection: number,
    sentMs: number,
  ) => void;
}

const [OPEN, CLOSE, COLON, ZERO, T, E] = [...'{}:0te'].map((sign) => sign.charCodeAt(0));
/** Offsets from the opening brace of a response body: its first key, and the value of `success`. */
const FIRST_KEY_OFFSET = 2;
const SUCCESS_OFFSET = '{"success":'.length;
const CONNECTION_CLOSE = Buffer.from('onnection: close');

/** After this time without a response, the requests of a connection count as unanswered. */
const RESPONSE_TIMEOUT_MS = 15_000;

export class Traffic {
  sent = 0;
  responses = 0;
  /** Responses that were no decisions, by status. */
  readonly errors = new Map<number, number>();
  /** Connections that ended unexpectedly, with the number of unanswered requests. */
  readonly connectionErrors: string[] = [];
  /** Resolves when all connections are closed. */
  readonly ended: Promise<void>;
  readonly #options: TrafficOptions;
  #checksLeft: number;
  #isStopping = false;

  constructor(options: TrafficOptions) {
    this.#options = options;
    this.#checksLeft = options.checks ?? Number.POSITIVE_INFINITY;
    const connections = Array.from({ length: options.connections }, (_, i) =>
      this.#runConnection(i),
    );
    this.ended = Promise.all(connections).then(() => {});
  }

  get unanswered(): number {
    return this.sent - this.responses;
  }

  /** Stops sending, and waits for the outstanding responses. */
  async stop(): Promise<void> {
    this.#isStopping = true;
    await this.ended;
  }

  /** Responses per second, measured over `ms` from now, and until there is one. */
  async rate(ms: number): Promise<number> {
    const [since, before] = [performance.now(), this.responses];
    await sleep(ms);
    await waitUntil('there is a response', () => this.responses > before);
    return ((this.responses - before) / (performance.now() - since)) * 1e3;
  }

  #runConnection(connection: number): Promise<void> {
    const { port, checksPerPacket, seed, nextCheck } = this.#options;
    const below = seededRandom(seed + connection);
    return new Promise((resolve) => {
      const socket: Socket = connect(port, '127.0.0.1');
      const batch: PreparedCheck[] = [];
      let waiting = 0;
      let rest: Buffer | undefined;
      let isToClose = false;
      let sentMs = 0;
      const send = () => {
        if (this.#isStopping || this.#checksLeft <= 0 || isToClose) {
          socket.end();
          return;
        }
        this.#checksLeft -= checksPerPacket;
        for (let i = 0; i < checksPerPacket; i++) batch[i] = nextCheck(below);
        waiting = checksPerPacket;
        this.sent += checksPerPacket;
        sentMs = performance.now();
        socket.write(
          checksPerPacket === 1 ? batch[0].bytes : Buffer.concat(batch.map((check) => check.bytes)),
        );
      };
      socket.setNoDelay(true);
      socket.setTimeout(RESPONSE_TIMEOUT_MS, () => socket.destroy(new Error('no response')));
      socket.on('connect', send);
      socket.on('error', (error) => this.connectionErrors.push(error.message));
      socket.on('close', () => {
        if (waiting > 0)
          this.connectionErrors.push(`closed before ${waiting} of ${checksPerPacket} responses`);
        resolve();
      });
      socket.on('data', (data) => {
        const bytes = rest === undefined ? data : Buffer.concat([rest, data]);
        let at = 0;
        while (at < bytes.length && waiting > 0) {
          const check = batch[checksPerPacket - waiting];
          const end = this.#parseResponse(bytes, at, check, connection, sentMs);
          if (end < 0) break;
          waiting--;
          at = end;
        }
        if (waiting === 0 && at < bytes.length)
          this.connectionErrors.push('more responses than requests');
        rest = at < bytes.length ? bytes.subarray(at) : undefined;
        // The server announces the last response of a connection.
        isToClose ||= bytes.includes(CONNECTION_CLOSE);
        if (waiting === 0) send();
      });
    });
  }

  /** Parses one response. @returns its end; -1 if it is incomplete */
  #parseResponse(
    bytes: Buffer,
    at: number,
    check: PreparedCheck,
    connection: number,
    sentMs: number,
  ): number {
    const open = bytes.indexOf(OPEN, at);
    if (open < 0) return -1;
    if (bytes[open + FIRST_KEY_OFFSET] === E) return this.#parseError(bytes, at, open);
    const close = bytes.indexOf(CLOSE, open);
    if (close < 0) return -1;
    let reset = 0;
    for (let i = bytes.lastIndexOf(COLON, close) + 1; i < close; i++)
      reset = reset * 10 + bytes[i] - ZERO;
    const allowed = bytes[open + SUCCESS_OFFSET] === T;
    this.responses++;
    this.#options.ledger?.record(check.id, reset, check.cost, allowed);
    this.#options.onDecision?.(check, allowed, reset, connection, sentMs);
    return close + 1;
  }

  #parseError(bytes: Buffer, at: number, open: number): number {
    const head = bytes.toString('latin1', at, open);
    const length = Number(/content-length: (\d+)/i.exec(head)?.[1]);
    if (bytes.length < open + length) return -1;
    const status = Number(head.split(' ')[1]);
    this.responses++;
    this.errors.set(status, (this.errors.get(status) ?? 0) + 1);
    return open + length;
  }
}

/** Every request got a decision. */
export function expectAnswered({ unanswered, connectionErrors, errors }: Traffic): void {
  expect([unanswered, connectionErrors, [...errors]]).toEqual([0, [], []]);
}

/** Records what traffic got, with other measurements under the same fault. */
export function recordTraffic(
  fault: string,
  trials: string,
  traffic: Pick<Traffic, 'sent' | 'unanswered'>,
  ledger: Ledger,
  others: Parameters<typeof recordMeasurements>[2] = {},
): void {
  const { maxExcess, falseDenials, decisions, windows } = ledger.report();
  recordMeasurements(fault, `${trials}, ${decisions} decisions in ${windows} windows`, {
    P1: `largest excess over a limit: ${maxExcess}`,
    P2: `${falseDenials} false denials`,
    P3: `${traffic.unanswered} of ${traffic.sent} unanswered`,
    ...others,
  });
}
