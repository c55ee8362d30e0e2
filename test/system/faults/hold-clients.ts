/**
 * Clients that reserve, commit, cancel, acquire and release on identifiers of their own, one request
 * after the other, and abandon some holds. They record what each answer says.
 */

import { expect } from 'vitest';
import { LONGEST_WINDOW_MS, requestBytes } from '../../support/http.ts';
import { type Fields, type Operation, pathAndMethodOf } from '../../support/operations.ts';
import { HoldHistory } from './hold-history.ts';
import { type HttpConnection, openConnections } from './http-connections.ts';

/** Reservations are never denied. */
export const WINDOW_LIMIT = 1_000_000_000;
export const LEASE_LIMIT = 12;
export const HOLD_COST_MAX = 3;
const IDENTIFIERS = 4;
/** Of so many holds, one is left to its expiry. */
const ABANDONED = 5;

export function operationBytes(operation: Operation, fields: Fields): Buffer {
  const { path } = pathAndMethodOf(operation);
  return requestBytes({ path, body: JSON.stringify(fields) });
}

/** Sends a request, and returns the body of the 200. Rejects when the connection ends. */
export async function callOn(
  connection: HttpConnection,
  operation: Operation,
  fields: Fields,
): Promise<Fields> {
  const { status, body } = await connection.send(operationBytes(operation, fields));
  // A long test sends more requests than responses fit into memory.
  connection.responses.length = 0;
  if (status !== 200) throw new Error(`${operation}: ${status} ${body}`);
  return JSON.parse(body);
}

/** A commit that was answered. */
interface AnsweredCommit {
  fields: Fields;
  answer: Fields;
  answeredMs: number;
}

interface HoldClientOptions {
  name: string;
  below: (n: number) => number;
  /** The time to live of the next hold. */
  nextTtlMs: () => number;
}

/** The identifiers, and the holds that it has not ended. */
export class HoldClient {
  readonly windows = new Map<string, HoldHistory>();
  readonly leases = new Map<string, HoldHistory>();
  commits: AnsweredCommit[] = [];
  operations = 0;
  /** Requests whose connection ended before the response. */
  unanswered = 0;
  isStopping = false;
  readonly #options: HoldClientOptions;
  #reserved: { id: string; identifier: string; cost: number }[] = [];
  #acquired: { id: string; identifier: string }[] = [];

  constructor(options: HoldClientOptions) {
    this.#options = options;
    for (let i = 0; i < IDENTIFIERS; i++) {
      this.windows.set(`${options.name}_window_${i}`, new HoldHistory());
      this.leases.set(`${options.name}_lease_${i}`, new HoldHistory());
    }
  }

  /** Forgets its holds, which have all ended. @param usage the tokens counted, by identifier */
  restart(usage: ReadonlyMap<string, number>): void {
    for (const identifier of this.windows.keys()) {
      this.windows.set(identifier, new HoldHistory(usage.get(identifier)));
    }
    for (const identifier of this.leases.keys()) this.leases.set(identifier, new HoldHistory());
    this.commits = [];
    this.#reserved = [];
    this.#acquired = [];
  }

  /** Sends requests until it is stopped, or the server ends. Rejects if an answer is wrong. */
  async run(port: number): Promise<void> {
    const [connection] = openConnections(port, 1);
    const { below } = this.#options;
    const acts = [this.#reserve, this.#commit, this.#cancel, this.#acquire, this.#release];
    const choices = [0, 0, 0, 1, 1, 2, 3, 3, 3, 4, 4];
    while (!this.isStopping && !connection.isClosed) {
      await acts[choices[below(choices.length)]](connection);
    }
    connection.socket.destroy();
  }

  #reserve = async (connection: HttpConnection) => {
    const { below, nextTtlMs } = this.#options;
    const identifier = this.#any(this.windows);
    const cost = 1 + below(HOLD_COST_MAX);
    const terms = { limit: WINDOW_LIMIT, duration: LONGEST_WINDOW_MS, ttl: nextTtlMs() };
    const fields = { identifier, cost, ...terms };
    const answer = await this.#ask(connection, 'ratelimits.reserve', fields);
    // Without an answer, nothing of it is left after its expiry.
    const history = this.windows.get(identifier)!;
    if (answer === undefined) history.recordPending('pending', cost, Date.now() + terms.ttl);
    else {
      expect(answer.success).toBe(true);
      const { reservationId: id, expiresAt } = answer as {
        reservationId: string;
        expiresAt: number;
      };
      history.record(id, cost, expiresAt);
      if (below(ABANDONED) > 0) this.#reserved.push({ id, identifier, cost });
    }
  };

  #commit = async (connection: HttpConnection) => {
    const hold = this.#take(this.#reserved);
    if (hold === undefined) return;
    const cost = this.#options.below(2 * HOLD_COST_MAX);
    const fields = { reservationId: hold.id, cost };
    const answer = await this.#ask(connection, 'ratelimits.commit', fields);
    const history = this.windows.get(hold.identifier)!;
    if (answer === undefined) history.recordPending(hold.id, cost, Number.POSITIVE_INFINITY);
    else {
      expect(answer).toMatchObject({ success: true, charged: cost });
      history.record(hold.id, cost, Number.POSITIVE_INFINITY);
      this.commits.push({ fields, answer, answeredMs: performance.now() });
    }
  };

  #cancel = async (connection: HttpConnection) => {
    const hold = this.#take(this.#reserved);
    if (hold === undefined) return;
    const answer = await this.#ask(connection, 'ratelimits.cancel', { reservationId: hold.id });
    const history = this.windows.get(hold.identifier)!;
    if (answer === undefined) history.recordPending(hold.id, 0, 0);
    else {
      expect([0, hold.cost]).toContain(answer.released);
      history.record(hold.id, 0, 0);
    }
  };

  #acquire = async (connection: HttpConnection) => {
    const { below, nextTtlMs } = this.#options;
    const identifier = this.#any(this.leases);
    const history = this.leases.get(identifier)!;
    const cost = 1 + below(HOLD_COST_MAX);
    const fields = { identifier, cost, limit: LEASE_LIMIT, ttl: nextTtlMs() };
    const sentMs = Date.now();
    const answer = await this.#ask(connection, 'ratelimits.acquire', fields);
    if (answer === undefined) {
      history.recordPending('pending', cost, Date.now() + fields.ttl);
      return;
    }
    const { success, leaseId, inUse, expiresAt } = answer as {
      success: boolean;
      leaseId: string;
      inUse: number;
      expiresAt: number;
    };
    const [least, most] = history.range(sentMs, Date.now());
    const before = success ? inUse - cost : inUse;
    expect([before >= least, before <= most, inUse <= LEASE_LIMIT]).toEqual([true, true, true]);
    expect(success).toBe(before + cost <= LEASE_LIMIT);
    if (!success) return;
    history.record(leaseId, cost, expiresAt);
    if (below(ABANDONED) > 0) this.#acquired.push({ id: leaseId, identifier });
  };

  #release = async (connection: HttpConnection) => {
    const hold = this.#take(this.#acquired);
    if (hold === undefined) return;
    const answer = await this.#ask(connection, 'ratelimits.release', { leaseId: hold.id });
    const history = this.leases.get(hold.identifier)!;
    if (answer === undefined) history.recordPending(hold.id, 0, 0);
    else history.record(hold.id, 0, 0);
  };

  /** @returns undefined if the connection ends before the response */
  async #ask(
    connection: HttpConnection,
    operation: Operation,
    fields: Fields,
  ): Promise<Fields | undefined> {
    this.operations++;
    try {
      return await callOn(connection, operation, fields);
    } catch (error) {
      if (!connection.isClosed) throw error;
      this.unanswered++;
      return undefined;
    }
  }

  #any(histories: ReadonlyMap<string, HoldHistory>): string {
    return [...histories.keys()][this.#options.below(histories.size)];
  }

  #take<T>(holds: T[]): T | undefined {
    return holds.splice(this.#options.below(Math.max(1, holds.length)), 1)[0];
  }
}

/** The tokens counted in the longest window, by identifier. */
export async function readUsage(
  port: number,
  identifiers: Iterable<string>,
): Promise<Map<string, number>> {
  const [connection] = openConnections(port, 1);
  const usage = new Map<string, number>();
  for (const identifier of identifiers) {
    const fields = { identifier, limit: WINDOW_LIMIT, duration: LONGEST_WINDOW_MS, cost: 0 };
    const { remaining } = await callOn(connection, 'ratelimits.limit', fields);
    usage.set(identifier, WINDOW_LIMIT - Number(remaining));
  }
  connection.socket.destroy();
  return usage;
}

/** What an inspection shows of the holds of an identifier. */
export interface ShownHolds {
  reserved: number;
  inUse: number;
  live: number;
}

export async function inspectHolds(port: number, identifier: string): Promise<ShownHolds> {
  const [connection] = openConnections(port, 1);
  const { holds } = await callOn(connection, 'ratelimits.inspect', { identifier });
  connection.socket.destroy();
  return holds as ShownHolds;
}
