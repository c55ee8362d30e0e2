/**
 * Checks from many connections at once, without an end until they are told to stop. Every request
 * is counted when it is sent, and every answer goes into a ledger; so a test can say of a fault
 * that nothing was left unanswered, admitted beyond a limit or refused without need.
 *
 * A client is to take less than the server does: requests are bytes made beforehand, and of an
 * answer no more is read than what the ledger wants.
 */

import { connect, type Socket } from 'node:net';
import { requestBytes } from './http.ts';
import type { Ledger } from './ledger.ts';
import { seededRandom } from './seeded-random.ts';

/** A request made beforehand. */
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

export interface TrafficOptions {
  port: number;
  connections: number;
  /** Checks in a packet; 1 where another thread decides, which does not take more at once. */
  checksPerPacket: number;
  seed: number;
  /** What is asked next, by chance. */
  nextCheck: (below: (n: number) => number) => PreparedCheck;
  ledger?: Ledger;
  /** How many checks there are in all, in whole packets; without an end otherwise. */
  checks?: number;
  /** Hears of every decision besides the ledger. */
  onDecision?: (ask: PreparedCheck, allowed: boolean, reset: number, connection: number) => void;
}

const [OPEN, CLOSE, COLON, ZERO, T, E] = [...'{}:0te'].map((sign) => sign.charCodeAt(0));
/** How far behind the brace of an answer its first word begins, and the value of `success`. */
const FIRST_KEY_OFFSET = 2;
const SUCCESS_OFFSET = '{"success":'.length;
const CONNECTION_CLOSE = Buffer.from('onnection: close');

/** Without an answer for so long, a connection's requests count as unanswered. */
const RESPONSE_TIMEOUT_MS = 15_000;

export class Traffic {
  sent = 0;
  responses = 0;
  /** Of these, those that were no decision, by status. */
  readonly errors = new Map<number, number>();
  /** Connections that ended, though nobody had told them to, and what was left unanswered then. */
  readonly connectionErrors: string[] = [];
  /** Resolves when all connections are closed. */
  readonly ended: Promise<void>;
  readonly #options: TrafficOptions;
  #checksLeft: number;
  #isStopping = false;

  constructor(options: TrafficOptions) {
    this.#options = options;
    this.#checksLeft = options.checks ?? Number.POSITIVE_INFINITY;
    const lines = Array.from({ length: options.connections }, (_, i) => this.#runConnection(i));
    this.ended = Promise.all(lines).then(() => {});
  }

  get unanswered(): number {
    return this.sent - this.responses;
  }

  /** Sends no more, and waits for all answers that are due. */
  async stop(): Promise<void> {
    this.#isStopping = true;
    await this.ended;
  }

  /** Answers a second, over so long from now on. */
  async rate(ms: number): Promise<number> {
    const [since, before] = [performance.now(), this.responses];
    await new Promise((resolve) => setTimeout(resolve, ms));
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
      const send = () => {
        if (this.#isStopping || this.#checksLeft <= 0 || isToClose) {
          socket.end();
          return;
        }
        this.#checksLeft -= checksPerPacket;
        for (let i = 0; i < checksPerPacket; i++) batch[i] = nextCheck(below);
        waiting = checksPerPacket;
        this.sent += checksPerPacket;
        socket.write(
          checksPerPacket === 1 ? batch[0].bytes : Buffer.concat(batch.map((ask) => ask.bytes)),
        );
      };
      socket.setNoDelay(true);
      socket.setTimeout(RESPONSE_TIMEOUT_MS, () => socket.destroy(new Error('no answer')));
      socket.on('connect', send);
      socket.on('error', (error) => this.connectionErrors.push(error.message));
      socket.on('close', () => {
        if (waiting > 0)
          this.connectionErrors.push(`closed before ${waiting} of ${checksPerPacket} answers`);
        resolve();
      });
      socket.on('data', (data) => {
        const bytes = rest === undefined ? data : Buffer.concat([rest, data]);
        let at = 0;
        while (at < bytes.length && waiting > 0) {
          const end = this.#parseResponse(bytes, at, batch[checksPerPacket - waiting], connection);
          if (end < 0) break;
          waiting--;
          at = end;
        }
        if (waiting === 0 && at < bytes.length)
          this.connectionErrors.push('more answers than requests');
        rest = at < bytes.length ? bytes.subarray(at) : undefined;
        // The last answer of a connection says so.
        isToClose ||= bytes.includes(CONNECTION_CLOSE);
        if (waiting === 0) send();
      });
    });
  }

  /** Takes one answer. @returns where it ends, -1 where not all of it is there */
  #parseResponse(bytes: Buffer, at: number, ask: PreparedCheck, connection: number): number {
    const open = bytes.indexOf(OPEN, at);
    if (open < 0) return -1;
    if (bytes[open + FIRST_KEY_OFFSET] === E) return this.#parseError(bytes, at, open);
    const close = bytes.indexOf(CLOSE, open);
    if (close < 0) return -1;
    let reset = 0;
    for (let i = bytes.lastIndexOf(COLON, close) + 1; i < close; i++)
      reset = reset * 10 + bytes[i] - ZERO;
    const admitted = bytes[open + SUCCESS_OFFSET] === T;
    this.responses++;
    this.#options.ledger?.record(ask.id, reset, ask.cost, admitted);
    this.#options.onDecision?.(ask, admitted, reset, connection);
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
