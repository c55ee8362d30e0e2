/**
 * Machines with all defaults, one Redis, and the outside client that counts what a fault costs. It
 * has counters that all machines have used in part, and counters that the first machine has used
 * up. Wrong answers end in the figures, and fail nothing here.
 */

import { setTimeout as sleep } from 'node:timers/promises';
import type { RedisServer } from '../../support/programs/redis.ts';
import { waitUntil } from '../../support/server.ts';
import {
  closeMachines,
  type Machine,
  newMachines,
  sumCounts,
  type UnprovenCounts,
} from './cluster-machines.ts';
import {
  type Algorithm,
  type Counter,
  hourMs,
  OutsideClient,
  type Seen,
} from './outside-client.ts';

export const MACHINES = 3;
export const ALGORITHMS: readonly Algorithm[] = ['fixed', 'sliding', 'gcra'];
/** Of the keys of a counter: that of a window or of a bucket, and the list of both. */
export const COUNTER_KEY = /:[cg]:/;
export const INDEX_KEY = /:i:/;
/** Shares of their limits that all machines together have used of counters. */
export const SHARES = { first: 0.4, beforeFault: 0.6 };
/** Until all answers are right, at most. */
export const NORMAL_MAX_MS = 10_000;
/** All keys of a counter have the identity. */
const IDENTITY = /[0-9a-f]{32}/;
const LIMITS = [10, 100, 1_000];
const USE_TRIES = 3;
/** Counters that are used at the same time: more load the computer, so that Redis answers late. */
const PARALLEL = 4;
const TRIES_MAX = 500;
/** A lease has at most so much of a limit, and is lost with its machine. */
const LEASE_SHARE = 0.05;
/** Rounds of right answers, after which the machines are normal. */
const RIGHT_ROUNDS = 20;
const PAUSE_MS = 5;

/** What a fault has cost. */
export interface LossFigures extends Seen {
  /** Denials of checks that fit: of counters that lost keys, and of all other counters. */
  deniedLost: number;
  deniedOthers: number;
  /** From the end of the fault. Undefined: not in time. */
  normalS: number | undefined;
  /** As the machines count them: checks that `WEIR_ON_ENGINE_DOWN` decided. */
  withoutRedis: number;
  /** Of these, those that it allowed. */
  allowedWithoutRedis: number;
  /** The checks that it denied, and the denials that waited for another machine in vain. */
  deniedUnproven: number;
}

export type Environment = Record<string, string | undefined>;

/** Counters by what the fault does to them. */
export interface Affected {
  lost?: readonly Counter[];
  others?: readonly Counter[];
}

let [counters, clusters] = [0, 0];

export function newCounter(limit: number, algorithm: Algorithm, duration = hourMs()): Counter {
  return { identifier: `counter_${counters++}`, limit, duration, algorithm };
}

/** A hundredth of the limit, so that a window needs no more than a hundred checks. */
const costOf = ({ limit }: Counter) => Math.max(1, limit / 100);

export class ObservedCluster {
  readonly redis: RedisServer;
  readonly prefix: string;
  readonly machines: readonly Machine[];
  readonly client = new OutsideClient();
  /** Counters that all machines have used in part, and counters that the first has used up. */
  shared: readonly Counter[] = [];
  idle: readonly Counter[] = [];
  readonly #identities = new Map<Counter, string>();
  #before = sumCounts([]);
  readonly #denied = { lost: 0, others: 0 };

  private constructor(redis: RedisServer, prefix: string, machines: readonly Machine[]) {
    this.redis = redis;
    this.prefix = prefix;
    this.machines = machines;
  }

  /** Machines that are not started, with an empty Redis. The caller closes them. */
  static async create(redis: RedisServer, env: Environment = {}): Promise<ObservedCluster> {
    await redis.command('FLUSHALL');
    await redis.command('CONFIG', 'SET', 'maxmemory', '0', 'maxmemory-policy', 'noeviction');
    const prefix = `observed${clusters++}`;
    // The defaults, but for what `Machine` sets for other tests.
    const defaults = { WEIR_REDIS_PREFIX: prefix, WEIR_ON_ENGINE_DOWN: undefined };
    const machines = await newMachines(redis, MACHINES, { env: { ...defaults, ...env } });
    return new ObservedCluster(redis, prefix, machines);
  }

  async start(): Promise<void> {
    await Promise.all(this.machines.map((machine) => machine.start()));
  }

  async close(): Promise<void> {
    this.client.close();
    await closeMachines(this.machines);
  }

  get ports(): number[] {
    return this.machines.filter(({ isServing }) => isServing).map(({ port }) => port);
  }

  /**
   * Makes counters and uses them. If Redis was late meanwhile, tokens may be lost, or over: then it
   * makes others.
   */
  async use(idleLimits: readonly number[] = LIMITS): Promise<void> {
    for (let i = 0; i < USE_TRIES; i++) {
      this.shared = ALGORITHMS.flatMap((rule) => LIMITS.map((limit) => newCounter(limit, rule)));
      this.idle = [
        ...idleLimits.map((limit) => newCounter(limit, 'fixed')),
        ...[newCounter(100, 'sliding'), newCounter(100, 'gcra')],
      ];
      const before = await this.#counts();
      await this.#learnIdentities();
      await this.useUpTo(SHARES.first, this.shared);
      await this.useUpTo(1, this.idle, this.ports.slice(0, 1));
      if ((await this.#counts()).withoutRedis === before.withoutRedis) return;
    }
  }

  /** Uses a share of limits, through all ports in turn. */
  async useUpTo(
    share: number,
    counters: readonly Counter[],
    ports: readonly number[] = this.ports,
  ): Promise<void> {
    await inParallel(counters, async (counter) => {
      const cost = costOf(counter);
      for (let i = 0, denials = 0; i < TRIES_MAX && denials < 2 * ports.length; i++) {
        if (share < 1 && this.client.allowed(counter) + cost > share * counter.limit) return;
        const { isAllowed } = await this.client.check([ports[i % ports.length]], counter, cost);
        denials = isAllowed ? 0 : denials + 1;
      }
      this.client.concede(counter, Math.max(0, counter.limit - this.client.allowed(counter)));
    });
  }

  /** The first check of a counter shows which keys it has. */
  async #learnIdentities(): Promise<void> {
    const known = new Set((await this.#keys()).map(identityOf));
    for (const counter of [...this.shared, ...this.idle]) {
      // A check that was decided without Redis made no key.
      await waitUntil('the counter has a key', async () => {
        await this.client.check([this.ports[0]], counter, costOf(counter));
        const identities = (await this.#keys()).map(identityOf);
        const identity = identities.find((one) => one !== undefined && !known.has(one));
        for (const one of identities) known.add(one);
        if (identity !== undefined) this.#identities.set(counter, identity);
        return identity !== undefined;
      });
    }
  }

  async #keys(): Promise<string[]> {
    return (await this.redis.command('KEYS', `${this.prefix}:*`)) as string[];
  }

  async keysOf(counters: readonly Counter[], kinds = /./): Promise<string[]> {
    const identities = counters.map((counter) => this.#identities.get(counter));
    const keys = await this.#keys();
    return keys.filter((key) => kinds.test(key) && identities.includes(identityOf(key)));
  }

  /** Begins to count what the fault costs. */
  async beginFault(): Promise<void> {
    this.client.clear();
    this.#before = await this.#counts();
  }

  /** The leases of a machine that was killed stay deducted. */
  concedeLeases(counters: readonly Counter[]): void {
    for (const counter of counters) {
      this.client.concede(counter, Math.floor(counter.limit * LEASE_SHARE));
    }
  }

  /**
   * Sends a check, and counts a false denial.
   * @param affected what the fault did to its counter
   * @returns whether there is a decision, whether it is right, and whether it allowed the check
   */
  async ask(
    port: number,
    counter: Counter,
    cost: number,
    affected: keyof Affected = 'others',
  ): Promise<{ isDecided: boolean; isRight: boolean; isAllowed: boolean }> {
    const { verdict, isAllowed } = await this.client.check([port], counter, cost);
    if (verdict === 'denied falsely') this.#denied[affected]++;
    return { isDecided: verdict !== 'failed', isRight: verdict === 'right', isAllowed };
  }

  /**
   * Asks for a new counter, for one that lost keys and for another one in turn, until many answers
   * in a row are right.
   * @param leastMs for so long it asks, because an answer may be wrong later
   * @returns when they began to be right, in s; undefined if they were not in time
   */
  async untilNormal(
    { lost = [], others = [] }: Affected,
    { ports = this.ports, leastMs = 0, mostMs = NORMAL_MAX_MS } = {},
  ): Promise<number | undefined> {
    const beginMs = performance.now();
    const needed = Math.max(RIGHT_ROUNDS, ports.length * Math.max(lost.length, others.length));
    for (let n = 0, rounds = 0, rightMs = 0; ; n++) {
      const nowMs = performance.now() - beginMs;
      if (rounds >= needed && nowMs >= leastMs) return rightMs / 1_000;
      if (nowMs >= mostMs) return undefined;
      if (rounds === 0) rightMs = nowMs;
      const port = ports[n % ports.length];
      const turn = Math.floor(n / ports.length);
      const ask = (counter: Counter, affected: keyof Affected) => {
        // No lease is large enough for every second check.
        const cost = turn % 2 === 0 ? 2 * LEASE_SHARE * counter.limit : 1;
        return this.ask(port, counter, cost, affected);
      };
      const answers = [await this.ask(port, newCounter(10, ALGORITHMS[n % 3]), 1)];
      if (lost.length > 0) answers.push(await ask(lost[turn % lost.length], 'lost'));
      if (others.length > 0) answers.push(await ask(others[turn % others.length], 'others'));
      rounds = answers.every(({ isRight }) => isRight) ? rounds + 1 : 0;
      await sleep(PAUSE_MS);
    }
  }

  /** Uses counters up through all machines: each allows its limit, and no more. */
  async useUp({ lost = [], others = [] }: Affected): Promise<void> {
    const { ports } = this;
    await inParallel([...lost, ...others], async (counter) => {
      const affected = lost.includes(counter) ? 'lost' : 'others';
      for (let i = 0, denials = 0; i < TRIES_MAX && denials < 2 * ports.length; i++) {
        const port = ports[i % ports.length];
        const { isAllowed } = await this.ask(port, counter, costOf(counter), affected);
        denials = isAllowed ? 0 : denials + 1;
      }
    });
  }

  async figures(normalS: number | undefined): Promise<LossFigures> {
    const { lost: deniedLost, others: deniedOthers } = this.#denied;
    const counts = await this.#counts();
    const counted = (name: keyof UnprovenCounts) => counts[name] - this.#before[name];
    return {
      ...{ ...this.client.seen, deniedLost, deniedOthers, normalS },
      withoutRedis: counted('withoutRedis'),
      allowedWithoutRedis: counted('withoutRedis') - counted('deniedWithoutRedis'),
      deniedUnproven: counted('deniedWithoutRedis') + counted('unproven'),
    };
  }

  /** Also of machines that have ended, as of the last time that they were read. */
  async #counts(): Promise<UnprovenCounts> {
    const serving = this.machines.filter(({ isServing }) => isServing);
    await Promise.all(serving.map((machine) => machine.readCounts()));
    return sumCounts(this.machines.map(({ counts }) => counts));
  }
}

const identityOf = (key: string) => IDENTITY.exec(key)?.[0];

/** Runs a function for each of many counters, a few at a time. */
async function inParallel(
  counters: readonly Counter[],
  run: (counter: Counter) => Promise<unknown>,
): Promise<void> {
  const left = [...counters];
  const work = async () => {
    for (let next = left.shift(); next !== undefined; next = left.shift()) await run(next);
  };
  await Promise.all(Array.from({ length: PARALLEL }, work));
}
