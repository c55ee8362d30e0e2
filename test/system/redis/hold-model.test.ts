/** Random holds of two machines that share a Redis, beside a model. */

import { setTimeout as sleep } from 'node:timers/promises';
import fc from 'fast-check';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { RULE } from '../../../src/core/window-rules.ts';
import type { CounterSelector } from '../../../src/engine/engine.ts';
import type { HoldId } from '../../../src/engine/hold-id.ts';
import { checkOf } from '../../support/engines.ts';
import { IS_LONG, newSeed, recordMeasurement, trialCount } from '../../support/guarantees.ts';
import { LONGEST_WINDOW_MS } from '../../support/http.ts';
import { isRedisMissing } from '../../support/programs/redis.ts';
import {
  type ModelReservation,
  type ModelTerms,
  ReservationModel,
} from '../../support/reservation-model.ts';
import { machineGroup, moveClock, type TestMachine } from './redis-machines.ts';

const ALL: CounterSelector = { durationsMs: undefined, rule: undefined };
const IDENTIFIERS = ['a', 'b'];
/** Large enough for leases of tokens. */
const LIMIT = 40;
const LEASE_LIMITS = [3, 6];
/** No sequence of commands takes as long as the first, and none takes as long as the second. */
const SHORT_TTL_MS = 60_000;
const LONG_TTL_MS = 43_200_000;
/** Ends what has the short ttl. So few of them do not make an ended hold unknown. */
const STEP_MS = SHORT_TTL_MS + 1_000;
const STEPS_MAX = 8;
/** Of a call to Redis on a busy machine. */
const LONGEST_CALL_MS = 100;
/** A machine learns in a moment that tokens have returned. With leases it may not. */
const FREE_WITHIN_MS = { leases: 100, withoutLeases: 10_000 };

const terms = fc.record({
  identifier: fc.constantFrom(...IDENTIFIERS),
  rule: fc.constantFrom(...Object.values(RULE)),
  /** GCRA has one limit. */
  lowerLimit: fc.constantFrom(LIMIT, LIMIT, 25),
  cost: fc.oneof(fc.nat(12), fc.nat(50)),
});
const command = fc.record({
  kind: fc.constantFrom(
    ...(['reserve', 'reserve', 'reserve', 'check', 'commit', 'commit', 'cancel'] as const),
    ...(['acquire', 'acquire', 'acquire', 'renew', 'release', 'release'] as const),
    ...(['step', 'reset'] as const),
  ),
  machine: fc.nat(1),
  terms: fc.oneof(
    { weight: 3, arbitrary: fc.array(terms, { minLength: 1, maxLength: 1 }) },
    { weight: 1, arbitrary: fc.array(terms, { minLength: 2, maxLength: 4 }) },
  ),
  ttlMs: fc.constantFrom(SHORT_TTL_MS, LONG_TTL_MS),
  leaseLimit: fc.constantFrom(...LEASE_LIMITS),
  which: fc.nat(1_000),
});
type Command = typeof command extends fc.Arbitrary<infer T> ? T : never;

interface ModelLease {
  identifier: string;
  tokens: number;
  limit: number;
  expiresAt: number;
  isEnded: boolean;
}

/** What the machines do, and what the model says. */
class Run {
  readonly model: ReservationModel;
  readonly #machines: readonly TestMachine[];
  readonly #name: string;
  readonly #seen: Record<string, number>;
  readonly #freeWithinMs: number;
  readonly #step: () => Promise<unknown>;
  readonly #ids = new Map<ModelReservation[], HoldId>();
  readonly #leases: ModelLease[] = [];
  readonly #leaseIds = new Map<ModelLease, HoldId>();
  #steps = 0;
  /** The clock of Redis is later by what the commands took. */
  #nowMs: number;

  constructor(
    machines: readonly TestMachine[],
    options: {
      name: string;
      model: ReservationModel;
      nowMs: number;
      freeWithinMs: number;
      step: () => Promise<unknown>;
    },
  ) {
    this.model = options.model;
    this.#machines = machines;
    this.#name = options.name;
    this.#seen = options.model.seen;
    this.#freeWithinMs = options.freeWithinMs;
    this.#step = options.step;
    this.#nowMs = options.nowMs;
  }

  async act(of: Command): Promise<void> {
    const machine = this.#machines[of.machine];
    const { identifier } = of.terms[0];
    switch (of.kind) {
      case 'check':
      case 'reserve':
        return this.#decide(machine, of);
      case 'commit':
      case 'cancel':
        return this.#settle(of);
      case 'acquire':
        return this.#acquire(machine, of);
      case 'renew':
        return this.#renew(machine, of);
      case 'release':
        return this.#release(machine, of);
      case 'step':
        return this.#passTime(machine);
      case 'reset':
        await machine.engine.reset(this.#check(identifier).identity, ALL, () => {});
        this.model.reset(`${this.#name} ${identifier}`);
        // A machine takes a reservation for an earlier one: by as much as its call takes, if it has
        // learned the clock just before. One that was before the reset would return nothing.
        for (const { engine } of this.#machines) {
          await engine.holds.liveHolds(this.#check(identifier).identity);
        }
        await sleep(LONGEST_CALL_MS);
    }
  }

  /** Redis and the model agree. @param isExact whether no lease of tokens may have been lost */
  async expectEqual(isExact: boolean): Promise<void> {
    for (const identifier of IDENTIFIERS) {
      const { identity } = this.#check(identifier);
      const [{ engine }, other] = this.#machines;
      const counters = await engine.inspect(identity, ALL, () => {});
      const of = (rule: 'fixed' | 'gcra') => {
        return counters.find(({ usage }) => usage[rule])?.usage[rule]?.used ?? 0;
      };
      for (const rule of ['fixed', 'gcra'] as const) {
        const counter = { ...this.#terms(identifier), rule: RULE[rule] };
        const used = this.model.used(counter, this.#nowMs);
        if (isExact) expect([rule, of(rule)]).toEqual([rule, used]);
        else expect(of(rule)).toBeGreaterThanOrEqual(used);
        expect(used).toBeLessThanOrEqual(LIMIT + this.model.excess(counter));
      }
      const live = this.model.lists.flat().filter((reservation) => {
        return (
          reservation.state === 'live' && reservation.identifier === `${this.#name} ${identifier}`
        );
      });
      expect(await other.engine.holds.liveHolds(identity)).toMatchObject({
        inUse: this.#inUse(identifier),
        reservedTokens: live.reduce((sum, { amount }) => sum + amount, 0),
      });
    }
  }

  async #decide(machine: TestMachine, { kind, terms, ttlMs }: Command): Promise<void> {
    const costed = (kind === 'check' ? terms.slice(0, 1) : terms).map((of) => {
      const { lowerLimit, cost, rule } = of;
      const limit = rule === RULE.gcra ? LIMIT : lowerLimit;
      return { ...this.#terms(of.identifier), rule, limit, cost };
    });
    const checks = costed.map(({ identifier, ...of }) => checkOf(identifier, of));
    const { engine, clock } = machine;
    const decide = async () => {
      if (kind === 'check') return machine.decide(checks[0].identity, costed[0]);
      return engine.holds.reserve(checks, clock.monotonicMs(), ttlMs);
    };
    const fits = this.#fits(costed);
    const endMs = performance.now() + this.#freeWithinMs;
    let decided = await decide();
    while (fits && !decided.allowed && performance.now() < endMs) decided = await decide();
    if (fits && !decided.allowed) {
      this.#saw('deniedEarly');
      expect(this.#freeWithinMs).toBe(FREE_WITHIN_MS.leases);
      return;
    }
    expect(decided.allowed).toBe(fits);
    const nows = costed.map(() => this.#nowMs);
    if (kind === 'check') this.model.check(costed[0], costed[0].cost, this.#nowMs);
    else this.model.reserve(costed, nows, this.#nowMs + ttlMs);
    if ('id' in decided) {
      expect(decided.id !== undefined).toBe(fits);
      if (decided.id !== undefined) this.#ids.set(this.model.lists.at(-1)!, decided.id as HoldId);
    }
  }

  /** Once, and then again on both machines with other costs. */
  async #settle({ kind, machine, terms, which }: Command): Promise<void> {
    const list = this.model.lists[which % this.model.lists.length];
    if (list === undefined) return;
    const id = this.#ids.get(list)!;
    const costs = list.map((_, n) => (kind === 'commit' ? (terms[n] ?? terms[0]).cost : 0));
    const nows = list.map(() => this.#nowMs);
    const expected = this.model.commit(list, costs, nows);
    const { holds } = this.#machines[machine].engine;
    if (kind === 'commit') expect(await holds.commit(id, costs)).toEqual(expected);
    else expect(await holds.cancel(id)).toBe(expected?.released);
    for (const { engine } of this.#machines) {
      expect(
        await engine.holds.commit(
          id,
          costs.map((cost) => cost + 3),
        ),
      ).toEqual(expected);
    }
  }

  async #acquire(machine: TestMachine, { terms, ttlMs, leaseLimit }: Command): Promise<void> {
    const [{ identifier, cost }] = terms;
    const { namespace, identity } = this.#check(identifier);
    const tokens = 1 + (cost % 3);
    const use = { namespace, identity, limit: leaseLimit, cost: tokens, ttlMs };
    const before = this.#inUse(identifier);
    const granted = before + tokens <= leaseLimit;
    const lease = await machine.engine.holds.acquire(use);
    expect(lease).toMatchObject({ granted, inUse: before + (granted ? tokens : 0) });
    this.#saw(granted ? 'acquired' : 'deniedLeases');
    if (lease.id === undefined) return;
    const expiresAt = this.#nowMs + ttlMs;
    const model = { identifier, tokens, limit: leaseLimit, expiresAt, isEnded: false };
    this.#leases.push(model);
    this.#leaseIds.set(model, lease.id);
  }

  async #renew(machine: TestMachine, { which, ttlMs }: Command): Promise<void> {
    const lease = this.#leases[which % this.#leases.length];
    if (lease === undefined) return;
    const granted = !lease.isEnded;
    const renewed = await machine.engine.holds.renew(this.#leaseIds.get(lease)!, ttlMs);
    expect(renewed).toMatchObject({ granted, limit: lease.limit });
    this.#saw(granted ? 'renewed' : 'renewedTooLate');
    if (!granted) return;
    expect(renewed.inUse).toBe(this.#inUse(lease.identifier));
    lease.expiresAt = this.#nowMs + ttlMs;
  }

  async #release(machine: TestMachine, { which }: Command): Promise<void> {
    const lease = this.#leases[which % this.#leases.length];
    if (lease === undefined) return;
    const released = await machine.engine.holds.release(this.#leaseIds.get(lease)!);
    expect(released).toBe(lease.isEnded ? 0 : lease.tokens);
    this.#saw('releases');
    lease.isEnded = true;
  }

  async #passTime(machine: TestMachine): Promise<void> {
    if (this.#steps++ >= STEPS_MAX) return;
    await this.#step();
    this.#nowMs += STEP_MS;
    // It ends the holds whose time is over, if no worker has.
    await machine.engine.holds.liveHolds(this.#check('a').identity);
    for (const reservation of this.model.lists.flat()) this.model.expire(reservation, this.#nowMs);
    for (const lease of this.#leases) lease.isEnded ||= lease.expiresAt <= this.#nowMs;
  }

  #fits(costed: readonly (ModelTerms & { cost: number })[]): boolean {
    const counterOf = ({ identifier, rule }: ModelTerms) => `${identifier} ${rule === RULE.gcra}`;
    return costed.every((check, n) => {
      const before = costed.slice(0, n).filter((of) => counterOf(of) === counterOf(check));
      const cost = check.cost + before.reduce((sum, of) => sum + of.cost, 0);
      return check.cost === 0 || this.model.used(check, this.#nowMs) + cost <= check.limit;
    });
  }

  #inUse(identifier: string): number {
    return this.#leases
      .filter((lease) => lease.identifier === identifier && !lease.isEnded)
      .reduce((sum, { tokens }) => sum + tokens, 0);
  }

  #terms(identifier: string): ModelTerms {
    const name = `${this.#name} ${identifier}`;
    return { identifier: name, rule: RULE.fixed, durationMs: LONGEST_WINDOW_MS, limit: LIMIT };
  }

  #check(identifier: string) {
    return checkOf(`${this.#name} ${identifier}`);
  }

  #saw(what: string): void {
    this.#seen[what] = (this.#seen[what] ?? 0) + 1;
  }
}

describe.skipIf(isRedisMissing)('holds of two machines', () => {
  const group = machineGroup({ syncMs: 50 });
  let pump: NodeJS.Timeout;
  /** The workers of other threads read their queues by themselves. */
  beforeEach(() => {
    pump = setInterval(() => {
      for (const { worker } of group.machines) worker.processEntries();
    }, 1);
  });
  afterEach(() => clearInterval(pump));

  test.each([
    ['release', true],
    ['release', false],
    ['charge', false],
  ] as const)(
    'are what a list of holds is (at their expiry: %s, leases of tokens: %s)',
    {
      timeout: trialCount(120_000, 3_600_000),
    },
    async (onHoldExpiry, leases) => {
      const machines = await group.start(2, { onHoldExpiry, leases });
      const seed = newSeed();
      const seen: Record<string, number> = {};
      let operations = 0;
      let runs = 0;
      const property = fc.asyncProperty(
        fc.array(command, { minLength: 20, maxLength: 40 }),
        async (commands) => {
          const nowMs = Math.floor(await moveClock(group.redis, 0));
          const run = new Run(machines, {
            ...{ name: `run_${runs++}`, model: new ReservationModel(onHoldExpiry, seen), nowMs },
            freeWithinMs: leases ? FREE_WITHIN_MS.leases : FREE_WITHIN_MS.withoutLeases,
            step: () => moveClock(group.redis, STEP_MS),
          });
          for (const of of commands) {
            operations++;
            await run.act(of);
          }
          await run.expectEqual(!leases);
        },
      );
      await fc.assert(property, { seed, numRuns: trialCount(10, 300), endOnFailure: true });
      const counts = Object.entries(seen).map(([name, count]) => `${count} ${name}`);
      recordMeasurement(
        'P1',
        `random holds of two machines (${onHoldExpiry}${leases ? ', leases' : ''})`,
        `${runs} sequences, ${operations} operations`,
        `as the model; ${counts.join(', ')}; seed ${seed}`,
      );
      const kinds = ['committed', 'repeated', 'excess', 'acquired', 'releases'];
      const rare = ['late', 'released', 'voided', 'expired', 'lists', 'deniedLeases', 'renewed'];
      for (const kind of IS_LONG ? [...kinds, ...rare] : kinds) {
        expect(seen[kind], kind).toBeGreaterThan(0);
      }
    },
  );
});
