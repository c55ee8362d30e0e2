/**
 * Clients of machines that share their holds through Redis. Each operation goes to any machine, so
 * that most holds begin on one and end on another. A client also vanishes: it ends its connection
 * while a request is in flight, and leaves what it has to its expiry. What certainly counted, by the
 * answers alone, is recorded as intervals, from which the excess over each limit is computed.
 */

import { setTimeout as sleep } from 'node:timers/promises';
import { expect } from 'vitest';
import { newSeed } from '../../support/guarantees.ts';
import { LONGEST_WINDOW_MS } from '../../support/http.ts';
import type { Fields, Operation } from '../../support/operations.ts';
import { seededRandom } from '../../support/seeded-random.ts';
import type { Machine } from './cluster-machines.ts';
import { inspectHolds, operationBytes } from './hold-clients.ts';
import { type HttpConnection, openConnections } from './http-connections.ts';

export const HOLD_LIMIT = 60;
export const HOLD_COST_MAX = 10;
const LEASE_COST_MAX = 2;
/** Each acquire of an identifier names the same one. */
const LEASE_LIMITS = [1, 5, 12];
const TTL_MIN_MS = 1_000;
export const TTL_MAX_MS = 2_000;
/** The clock of Redis, by which holds expire, and that of the test differ by this at most. */
const CLOCK_SLACK_MS = 50;
const ALGORITHMS = ['fixed', 'sliding', 'gcra'];
/** So many reservations of a counter, then another one is used: commits fill it. */
const RESERVATIONS_PER_COUNTER = 150;
/** Of so many operations, one is that of a client which vanishes. */
const VANISHING = 25;
const RETRY_MS = 20;

/** Tokens that certainly count. The times are Unix times in ms. */
interface Use {
  tokens: number;
  fromMs: number;
  untilMs: number;
}

/** What clients know of an identifier. */
interface Account {
  identifier: string;
  limit: number;
  /** Of windows: what their checks have beside the identifier and the limit. */
  window: Fields;
  uses: Use[];
  /** Tokens that a commit declared beyond its reservation, or too late; they may exceed a limit. */
  excess: Use[];
  /** Tokens that may stay counted, because a request had no answer. */
  pending: number;
}

interface OwnHold {
  id: string;
  account: Account;
  use: Use;
}

/** What a load has done. */
export interface HoldFigures {
  operations: number;
  granted: number;
  denied: number;
  /** Requests with a 503, or without a response. */
  unanswered: number;
  vanished: number;
  /** The most lease tokens of the largest limit that were certainly in use at once. */
  mostInUse: number;
  mostCounted: number;
  /** Tokens above a limit. */
  over: number;
  /** Holds that were unknown, or had ended, before their expiry. */
  lost: number;
}

export class HoldLoad {
  readonly seed = newSeed();
  readonly leases: Account[];
  readonly windows: Account[] = [];
  readonly #machines: readonly Machine[];
  readonly #name: string;
  readonly #below = seededRandom(this.seed);
  readonly #current: Account[] = [];
  readonly #ended: Promise<unknown>;
  #isStopping = false;
  #reservations = 0;
  #operations = 0;
  #granted = 0;
  #denied = 0;
  #unanswered = 0;
  #vanished = 0;
  #lost = 0;

  constructor(machines: readonly Machine[], name: string, clients: number) {
    this.#machines = machines;
    this.#name = name;
    this.leases = LEASE_LIMITS.map((limit) => this.#account(`${name}_lease_${limit}`, limit));
    this.#ended = Promise.all(Array.from({ length: clients }, () => this.#runClient()));
  }

  get operations(): number {
    return this.#operations;
  }

  get granted(): number {
    return this.#granted;
  }

  /** Resolves when all requests are answered. */
  async stop(): Promise<void> {
    this.#isStopping = true;
    await this.#ended;
  }

  /** Waits until every machine shows that no hold is live. */
  async waitUntilAllEnded(): Promise<void> {
    await sleep(TTL_MAX_MS);
    for (const { port } of this.#machines.filter(({ isServing }) => isServing)) {
      for (const { identifier } of [...this.leases, ...this.windows]) {
        const shown = () => inspectHolds(port, identifier);
        await expect.poll(shown).toMatchObject({ inUse: 0, reserved: 0, live: 0 });
      }
    }
  }

  figures(): HoldFigures {
    const largest = this.leases.at(-1)!;
    const windows = this.windows.map((account) => mostOf(account));
    const over = [...this.leases.map((account) => mostOf(account)), ...windows];
    return {
      ...{ operations: this.#operations, granted: this.#granted, denied: this.#denied },
      ...{ unanswered: this.#unanswered, vanished: this.#vanished, lost: this.#lost },
      mostInUse: mostOf(largest).counted,
      mostCounted: Math.max(...windows.map(({ counted }) => counted)),
      over: over.reduce((sum, one) => sum + one.over, 0),
    };
  }

  #account(identifier: string, limit: number, window: Fields = {}): Account {
    return { identifier, limit, window, uses: [], excess: [], pending: 0 };
  }

  async #runClient(): Promise<void> {
    const client = new Client(this.#machines, this.#below);
    const reserved: OwnHold[] = [];
    const acquired: OwnHold[] = [];
    const acts = [
      () => this.#acquire(client, acquired),
      () => this.#acquire(client, acquired),
      () => this.#renew(client, acquired),
      () => this.#release(client, acquired),
      () => this.#reserve(client, reserved),
      () => this.#reserve(client, reserved),
      () => this.#commit(client, reserved),
      () => this.#cancel(client, reserved),
    ];
    while (!this.#isStopping) {
      if (this.#below(VANISHING) === 0) {
        this.#vanished++;
        client.vanishAt = this.#below(4);
        await acts[this.#below(acts.length)]();
        client.vanishAt = undefined;
        reserved.length = 0;
        acquired.length = 0;
      } else await acts[this.#below(acts.length)]();
      await sleep(this.#below(6));
    }
    client.close();
  }

  /** @returns undefined without an answer */
  async #ask(client: Client, operation: Operation, fields: Fields): Promise<Fields | undefined> {
    this.#operations++;
    const answer = await client.ask(operation, fields);
    if (answer === undefined) {
      this.#unanswered++;
      if (client.vanishAt === undefined) await sleep(RETRY_MS);
    } else if (answer.success === true) this.#granted++;
    else if (answer.success === false) this.#denied++;
    return answer;
  }

  async #acquire(client: Client, acquired: OwnHold[]): Promise<void> {
    const account = this.leases[this.#below(this.leases.length)];
    const { identifier, limit } = account;
    const cost = Math.min(limit, 1 + this.#below(LEASE_COST_MAX));
    const fields = { identifier, limit, cost, ttl: this.#ttlMs() };
    const answer = await this.#ask(client, 'ratelimits.acquire', fields);
    if (answer?.success !== true) return;
    expect(answer.inUse).toBeLessThanOrEqual(limit);
    acquired.push({ id: String(answer.leaseId), account, use: useOf(account, cost, answer) });
  }

  async #renew(client: Client, acquired: OwnHold[]): Promise<void> {
    const hold = acquired[this.#below(Math.max(1, acquired.length))];
    if (hold === undefined) return;
    const fields = { leaseId: hold.id, ttl: this.#ttlMs() };
    const sentMs = Date.now();
    const answer = await this.#ask(client, 'ratelimits.renew', fields);
    if (answer === undefined) {
      // A renewal sets an earlier expiry too.
      hold.use.untilMs = Math.min(hold.use.untilMs, sentMs + fields.ttl - CLOCK_SLACK_MS);
    } else if (answer.success === true) {
      hold.use.untilMs = Number(answer.expiresAt) - CLOCK_SLACK_MS;
    } else {
      if (Date.now() < hold.use.untilMs) this.#lost++;
      hold.use.untilMs = Math.min(hold.use.untilMs, sentMs);
      acquired.splice(acquired.indexOf(hold), 1);
    }
  }

  async #release(client: Client, acquired: OwnHold[]): Promise<void> {
    const hold = this.#take(acquired);
    if (hold === undefined) return;
    await this.#end(client, hold, 'ratelimits.release', { leaseId: hold.id });
  }

  async #reserve(client: Client, reserved: OwnHold[]): Promise<void> {
    const account = this.#window();
    const { identifier, limit, window } = account;
    const cost = 1 + this.#below(HOLD_COST_MAX);
    const fields = { identifier, limit, cost, ttl: this.#ttlMs(), ...window };
    const answer = await this.#ask(client, 'ratelimits.reserve', fields);
    if (answer === undefined) account.pending += cost;
    if (answer?.success !== true) return;
    reserved.push({ id: String(answer.reservationId), account, use: useOf(account, cost, answer) });
  }

  async #commit(client: Client, reserved: OwnHold[]): Promise<void> {
    const hold = this.#take(reserved);
    if (hold === undefined) return;
    const { account, use } = hold;
    const cost = this.#below(4) === 0 ? this.#below(2 * HOLD_COST_MAX) : this.#below(2);
    const forEver = { fromMs: Date.now(), untilMs: Number.POSITIVE_INFINITY };
    const fields = { reservationId: hold.id, cost };
    const answer = await this.#end(client, hold, 'ratelimits.commit', fields);
    if (answer === UNKNOWN) return;
    if (answer === undefined) {
      account.pending += cost;
      account.excess.push({ tokens: cost, ...forEver });
      return;
    }
    const charged = Number(answer.charged);
    const beyond = answer.late ? charged : Math.max(0, charged - use.tokens);
    if (beyond > 0) account.excess.push({ tokens: beyond, ...forEver });
    if (charged > 0) account.uses.push({ tokens: charged, ...forEver, fromMs: Date.now() });
  }

  async #cancel(client: Client, reserved: OwnHold[]): Promise<void> {
    const hold = this.#take(reserved);
    if (hold === undefined) return;
    await this.#end(client, hold, 'ratelimits.cancel', { reservationId: hold.id });
  }

  /** Asks to end a hold, which certainly counts until then. */
  async #end(
    client: Client,
    { use }: OwnHold,
    operation: Operation,
    fields: Fields,
  ): Promise<Fields | undefined> {
    const { untilMs } = use;
    use.untilMs = Math.min(untilMs, Date.now());
    const answer = await this.#ask(client, operation, fields);
    if (answer === UNKNOWN && Date.now() < untilMs) this.#lost++;
    return answer;
  }

  #window(): Account {
    const kind = this.#below(ALGORITHMS.length);
    const generation = Math.floor(
      this.#reservations++ / ALGORITHMS.length / RESERVATIONS_PER_COUNTER,
    );
    const identifier = `${this.#name}_${ALGORITHMS[kind]}_${generation}`;
    if (this.#current[kind]?.identifier !== identifier) {
      const window = { duration: LONGEST_WINDOW_MS, algorithm: ALGORITHMS[kind] };
      this.#current[kind] = this.#account(identifier, HOLD_LIMIT, window);
      this.windows.push(this.#current[kind]);
    }
    return this.#current[kind];
  }

  #ttlMs(): number {
    return TTL_MIN_MS + this.#below(TTL_MAX_MS - TTL_MIN_MS);
  }

  #take<T>(holds: T[]): T | undefined {
    return holds.splice(this.#below(Math.max(1, holds.length)), 1)[0];
  }
}

/** The answer to a hold that is not known, any more or at all. */
const UNKNOWN: Fields = {};

/** A client with a connection to each machine, which it keeps. */
class Client {
  readonly #machines: readonly Machine[];
  readonly #below: (n: number) => number;
  readonly #connections = new Map<number, HttpConnection>();
  /** After how many ms it ends its connection, with the request in flight. */
  vanishAt: number | undefined;

  constructor(machines: readonly Machine[], below: (n: number) => number) {
    this.#machines = machines;
    this.#below = below;
  }

  /**
   * Rejects unless the status is 200, 404 or 503.
   * @returns UNKNOWN for a 404; undefined if it may have been done
   */
  async ask(operation: Operation, fields: Fields): Promise<Fields | undefined> {
    const serving = this.#machines.filter(({ isServing }) => isServing);
    const { port } = serving[this.#below(serving.length)];
    const connection = this.#connect(port);
    const { vanishAt } = this;
    if (vanishAt !== undefined) setTimeout(() => connection.socket.destroy(), vanishAt);
    try {
      const { status, body } = await connection.send(operationBytes(operation, fields));
      connection.responses.length = 0;
      if (status === 503) return undefined;
      if (status === 404) return UNKNOWN;
      if (status !== 200) throw new Error(`${operation}: ${status} ${body}`);
      return JSON.parse(body);
    } catch (error) {
      if (!connection.isClosed) throw error;
      return undefined;
    }
  }

  close(): void {
    for (const { socket } of this.#connections.values()) socket.destroy();
  }

  #connect(port: number): HttpConnection {
    const open = this.#connections.get(port);
    if (open !== undefined && !open.isClosed && !open.socket.destroyed) return open;
    const [connection] = openConnections(port, 1);
    this.#connections.set(port, connection);
    return connection;
  }
}

/** Tokens of a hold that was just granted, until its expiry. */
function useOf({ uses }: Account, tokens: number, { expiresAt }: Fields): Use {
  const use = { tokens, fromMs: Date.now(), untilMs: Number(expiresAt) - CLOCK_SLACK_MS };
  uses.push(use);
  return use;
}

/** The most that certainly counted at once, and the most above the limit and declared excess. */
function mostOf({ uses, excess, limit }: Account): { counted: number; over: number } {
  const changes = [
    ...uses
      .filter(({ fromMs, untilMs }) => fromMs < untilMs)
      .flatMap(({ tokens, ...at }) => [
        { atMs: at.fromMs, counted: tokens, excess: 0 },
        { atMs: at.untilMs, counted: -tokens, excess: 0 },
      ]),
    ...excess.map(({ tokens, fromMs }) => ({ atMs: fromMs, counted: 0, excess: tokens })),
  ];
  // A hold that ends in the same millisecond, or may exceed the limit, comes first.
  changes.sort((a, b) => a.atMs - b.atMs || a.counted - b.counted || b.excess - a.excess);
  const sum = { counted: 0, excess: 0 };
  const most = { counted: 0, over: 0 };
  for (const change of changes) {
    sum.counted += change.counted;
    sum.excess += change.excess;
    most.counted = Math.max(most.counted, sum.counted);
    most.over = Math.max(most.over, sum.counted - sum.excess - limit);
  }
  return most;
}
