/**
 * Three engines that share a real Redis, as three machines do, and a naive model of the window
 * rules: random checks, batches, refunds, resets and inspections, one after the other, each on any
 * machine, get the results that one machine in the model would give.
 *
 * With leases, a check may be denied because other machines were late to return tokens. It is then
 * repeated, for less time than a machine remembers a denial. And a check may be allowed from a
 * lease after others with larger limits have used more than its limit: then the checks with at most
 * its limit must not have used more than that.
 */

import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import type { Check } from '../../../src/core/check.ts';
import type { CheckParameters, Decision } from '../../../src/core/decision.ts';
import { hasWindows, NO_BURST, RULE } from '../../../src/core/window-rules.ts';
import { TestEngine } from '../../support/engines.ts';
import { newSeed, recordMeasurement, trialCount } from '../../support/guarantees.ts';
import { counterKey, LimiterModel, type TestCheck } from '../../support/limiter-model.ts';
import { isRedisMissing } from '../../support/programs/redis.ts';
import { useRedis } from './use-redis.ts';

const confirm = () => {};
const MACHINES = 3;
const NAMES = ['a', 'b', 'c'] as const;
const DURATION_MS = 3_600_000;
/** Less than a denial is remembered. */
const REPEAT_MS = 2_000;
/** The model knows the time of a decision only so exactly. */
const SLACK_MS = 10;
const ALL = { durationsMs: undefined, rule: undefined };

const terms = fc.record({
  name: fc.constantFrom(...NAMES),
  limit: fc.constantFrom(0, 1, 7, 40, 40, 300, 300, 1_000),
  cost: fc.oneof(fc.nat({ max: 3 }), fc.nat({ max: 60 })),
  rule: fc.constantFrom(RULE.fixed, RULE.fixed, RULE.sliding, RULE.gcra),
});
const operation = fc.record({
  kind: fc.constantFrom(
    ...(['check', 'check', 'check', 'check', 'check', 'batch', 'each'] as const),
    ...(['refund', 'inspect', 'reset', 'move'] as const),
  ),
  machine: fc.nat({ max: MACHINES - 1 }),
  /** A single check, a correction and an inspection are about the first one. */
  checks: fc.array(terms, { minLength: 1, maxLength: 4 }),
});
type Operation = typeof operation extends fc.Arbitrary<infer T> ? T : never;

describe.skipIf(isRedisMissing)('three machines, one after the other', () => {
  const redis = useRedis();

  it.each([true, false])(
    'decide, count, refund, reset and inspect as one machine does (leases: %s)',
    { timeout: 600_000 },
    async (leases) => {
      const seed = newSeed();
      const run = { operations: 0, repeats: 0, number: 0 };
      const property = fc.asyncProperty(
        fc.array(operation, { minLength: 20, maxLength: 60, size: 'max' }),
        async (operations) => {
          const use = { redis, prefix: `sequence-${leases}-${run.number++}`, leases };
          const engines: TestEngine[] = [];
          for (let i = 0; i < MACHINES; i++) engines.push(await TestEngine.open(use, 1_024));
          try {
            const machines = new Machines(engines, leases);
            for (const each of operations) await machines.run(each);
            run.operations += operations.length;
            run.repeats += machines.repeats;
          } finally {
            for (const engine of engines) engine.close();
          }
        },
      );
      const numRuns = trialCount(5, 400);
      await fc.assert(property, { seed, numRuns, endOnFailure: true });
      const mode = leases ? 'with leases' : 'without leases';
      recordMeasurement(
        'P2',
        `three machines in sequence, ${mode}`,
        `${run.operations} operations (seed ${seed})`,
        `${run.repeats} checks repeated`,
      );
    },
  );
});

/** The engines, and the model that does the same. */
class Machines {
  readonly #engines: readonly TestEngine[];
  readonly #hasLeases: boolean;
  readonly #model = new LimiterModel();
  readonly #usage = new UsageByLimit();
  #nowMs = 0;
  /** Counters of which a denied batch may not have returned all tokens. */
  readonly #reserved = new Set<string>();
  repeats = 0;

  constructor(engines: readonly TestEngine[], hasLeases: boolean) {
    this.#engines = engines;
    this.#hasLeases = hasLeases;
  }

  async run({ kind, machine: at, checks: wanted }: Operation): Promise<void> {
    const engine = this.#engines[at];
    const checks = wanted.map(({ name, ...rest }) => {
      return engine.check(name, { ...rest, durationMs: DURATION_MS });
    });
    const [check] = checks;
    switch (kind) {
      case 'check': {
        const { name, ...rest } = { ...wanted[0], durationMs: DURATION_MS };
        return this.#checked([check], async () => [await engine.decide(name, rest)]);
      }
      case 'batch':
        return this.#checked(checks, async () => (await engine.decideBatch(checks)).decisions);
      case 'each':
        for (const one of checks) {
          await this.#checked([one], async () => {
            return (await engine.decideEach([one], false)).decisions;
          });
        }
        return;
      case 'refund':
        return this.#refund(engine, check);
      case 'reset':
        return this.#reset(engine, check);
      case 'inspect':
        return this.#inspect(engine, check);
      case 'move':
        // A machine spends a lease until its window ends by its own clock.
        if (this.#hasLeases) return;
        await this.#readClock();
        await engine.moveClockTo(this.#nowMs + DURATION_MS / 3);
        await this.#readClock();
    }
  }

  /** A bucket that was never used is full now, by the clock of Redis. */
  async #readClock(): Promise<number> {
    const terms = { rule: RULE.gcra, cost: 0, durationMs: DURATION_MS };
    const { reset } = await this.#engines[0].decide('clock', terms);
    this.#nowMs = reset;
    return reset;
  }

  /** Compares the decisions about checks that are allowed together, and counts them. */
  async #checked(
    checks: readonly Check[],
    decide: () => Promise<readonly Decision[]>,
  ): Promise<void> {
    const modelled = checks.map(modelOf);
    const model = this.#model;
    const fromMs = await this.#readClock();
    let decisions = await decide();
    const allows = () => decisions.every(({ allowed }) => allowed);
    const endMs = performance.now() + REPEAT_MS;
    while (!allows() && model.judge(modelled, this.#nowMs).passed && performance.now() < endMs) {
      this.repeats++;
      decisions = await decide();
      await this.#readClock();
    }
    const toMs = await this.#readClock();
    const before = model.judge(modelled, fromMs);
    const after = model.judge(modelled, toMs + SLACK_MS);
    // The result of a sliding window or of GCRA may change between the two times.
    if (before.passed === after.passed && !(allows() && this.#hasLeases)) {
      expect(allows(), textOf(checks)).toBe(after.passed);
    }
    if (!allows() && checks.length > 1) for (const one of modelled) this.#reserved.add(one.id.name);
    const hasBucket = modelled.some(({ rule }) => rule === RULE.gcra);
    if (!this.#hasLeases && !hasBucket && !modelled.some(({ id }) => this.#reserved.has(id.name))) {
      for (const [n, { remaining, reset, allowed }] of decisions.entries()) {
        const [a, b] = [before.answers[n], after.answers[n]];
        if (a.remaining !== b.remaining || a.reset !== b.reset || checks.length > 1) continue;
        expect({ allowed, remaining, reset }, textOf(checks)).toEqual({
          ...{ allowed: b.allowed, remaining: b.remaining, reset: b.reset },
        });
      }
    }
    if (!allows()) return;
    this.#usage.add(modelled, model);
    if (before.passed === after.passed) {
      const denied = modelled.filter((_, i) => !after.answers[i].allowed);
      for (const one of denied) this.#expectWithinLimit(one);
    }
    model.consume(modelled, tokensOf(modelled), after.fullTimes);
  }

  /** An allowed check that the model denies: checks with larger limits have used the rest. */
  #expectWithinLimit(check: TestCheck): void {
    expect(hasWindows(check.rule), textOf([check])).toBe(true);
    const used = this.#usage.upTo(check, this.#model);
    expect(used, textOf([check])).toBeLessThanOrEqual(check.limit);
  }

  async #refund(engine: TestEngine, check: Check): Promise<void> {
    const { identity, rule, durationMs, cost } = check;
    const now = await this.#readClock();
    const of = modelOf(check);
    const isGcra = !hasWindows(rule);
    // After a denied batch the tokens of a bucket are those of the limit in the batch.
    if (isGcra && this.#reserved.has(of.id.name)) return;
    const window = isGcra ? now : Math.floor(now / durationMs);
    if (cost === 0) return;
    const refunded = await engine.engine.refund(identity, rule, durationMs, window, cost, confirm);
    if (isGcra) {
      // Tokens may come back while Redis refunds.
      const missing = [now - SLACK_MS, (await this.#readClock()) + SLACK_MS].map((ms) => {
        return Math.min(cost, Number(this.#model.missingTokens(of, ms)));
      });
      expect(refunded, textOf([check])).toBeLessThanOrEqual(missing[0]);
      expect(refunded, textOf([check])).toBeGreaterThanOrEqual(missing[1]);
      this.#model.refundTokens(of, this.#nowMs, BigInt(refunded));
      return;
    }
    this.#model.judge([of], now);
    const { current, previous } = this.#model.usage(of);
    const expected = current < BigInt(cost) ? current : BigInt(cost);
    expect(BigInt(refunded), textOf([check])).toBe(expected);
    this.#model.setUsage(of, { current: current - expected, previous });
    this.#usage.refund(of, this.#model, refunded);
  }

  async #reset(engine: TestEngine, check: Check): Promise<void> {
    const of = modelOf({ ...check, rule: RULE.fixed });
    this.#model.judge([of], await this.#readClock());
    await engine.engine.reset(check.identity, ALL, confirm);
    this.#reserved.delete(of.id.name);
    this.#model.setUsage(of, { current: 0n, previous: 0n });
    this.#usage.clear(of, this.#model);
    this.#model.setFullTime({ ...of, rule: RULE.gcra }, { units: 0n, limit: 1n });
  }

  async #inspect(engine: TestEngine, check: Check): Promise<void> {
    const of = modelOf({ ...check, rule: RULE.fixed });
    const now = await this.#readClock();
    this.#model.judge([of], now);
    const counters = await engine.engine.inspect(check.identity, ALL, confirm);
    const counter = counters.find(({ current }) => current !== undefined);
    const { current: used } = this.#model.usage(of);
    if (used > 0n) expect(BigInt(counter?.current ?? 0), textOf([check])).toBe(used);
  }
}

/** Tokens that the checks of a window have used, by the limits of the checks. */
class UsageByLimit {
  readonly #windows = new Map<string, Map<number, number>>();

  add(checks: readonly TestCheck[], model: LimiterModel): void {
    for (const check of checks) {
      if (!hasWindows(check.rule)) continue;
      const window = this.#windowOf(check, model);
      window.set(check.limit, (window.get(check.limit) ?? 0) + check.cost);
    }
  }

  /** Nobody knows which checks are refunded: as many of the smallest limits as possible. */
  refund(check: TestCheck, model: LimiterModel, tokens: number): void {
    const window = this.#windowOf(check, model);
    let left = tokens;
    for (const [limit, used] of [...window].sort(([a], [b]) => a - b)) {
      const refunded = Math.min(left, used);
      window.set(limit, used - refunded);
      left -= refunded;
    }
  }

  clear(check: TestCheck, model: LimiterModel): void {
    this.#windowOf(check, model).clear();
  }

  /** Tokens of the checks with at most the limit of this check. */
  upTo(check: TestCheck, model: LimiterModel): number {
    const limits = [...this.#windowOf(check, model)].filter(([limit]) => limit <= check.limit);
    return limits.reduce((sum, [, used]) => sum + used, 0);
  }

  #windowOf({ id }: TestCheck, model: LimiterModel): Map<number, number> {
    const key = `${id.name} ${Math.floor(model.timeOf(id) / DURATION_MS)}`;
    const window = this.#windows.get(key) ?? new Map<number, number>();
    this.#windows.set(key, window);
    return window;
  }
}

/** All tokens of allowed checks, also of those that the model denies. */
function tokensOf(checks: readonly TestCheck[]): Map<string, bigint> {
  const tokens = new Map<string, bigint>();
  for (const check of checks) {
    const key = counterKey(check);
    tokens.set(key, (tokens.get(key) ?? 0n) + BigInt(check.cost));
  }
  return tokens;
}

function modelOf({ identity, limit, durationMs, cost, rule }: Check): TestCheck {
  const name = `${identity.h0},${identity.h1}`;
  const id = { ...identity, name, group: 'all', namespaceTag: 1 };
  return { id, limit, durationMs, cost, rule, burst: NO_BURST };
}

function textOf(checks: readonly CheckParameters[]): string {
  return JSON.stringify(checks.map(({ limit, cost, rule }) => ({ limit, cost, rule })));
}
