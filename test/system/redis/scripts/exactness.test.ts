/**
 * Three members that do what the protocol allows in any order, with a network that loses, delays,
 * repeats and reorders messages and loses answers, on a real server.
 */

import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { share } from '../../../../src/engine/memory/windows/sliding.ts';
import {
  type CounterAnswer,
  type CounterMessage,
  MESSAGE_STATUS,
  NO_WINDOW,
  SERVED,
} from '../../../../src/engine/redis/scripts/protocol.ts';
import { trialCount } from '../../../support/guarantees.ts';
import { isRedisMissing } from '../../../support/programs/redis.ts';
import { costs, IDENTITY, type ScriptMember, useMembers } from '../script-member.ts';

const DURATION_MS = 60_000;
/** The limits of a run. Where most checks have the same one, the window is full most of the time. */
const LIMITS = [[10], [40], [100], [400], [20, 60], [100, 20]] as const;
const LIMITS_MAX = 2;
const MEMBERS = 3;

const member = fc.nat({ max: MEMBERS - 1 });
const check = fc.record({
  /** In parts of the limit. */
  share: fc.oneof(fc.constant(0), fc.double({ min: 0, max: 0.7, noNaN: true })),
  limit: fc.nat({ max: LIMITS_MAX - 1 }),
  isSliding: fc.boolean(),
});
/** What becomes of a message: of the lost and the late, copies may arrive later. */
const fate = fc.constantFrom('answered', 'answered', 'answered', 'answered', 'answerLost', 'late');
const action = fc.oneof(
  {
    weight: 6,
    arbitrary: fc.record({
      kind: fc.constant('check' as const),
      member,
      checks: fc.array(check, { minLength: 1, maxLength: 3 }),
      wantsLease: fc.boolean(),
      rate: fc.nat({ max: 1_000 }),
      fate,
    }),
  },
  {
    weight: 2,
    arbitrary: fc.record({
      kind: fc.constantFrom('prefetch' as const, 'return' as const, 'refund' as const),
      member,
      amount: fc.integer({ min: 1, max: 20 }),
      isSliding: fc.boolean(),
      fate,
    }),
  },
  { weight: 6, arbitrary: fc.record({ kind: fc.constant('spend' as const), member, check }) },
  { weight: 4, arbitrary: fc.record({ kind: fc.constant('arrive' as const), which: fc.nat() }) },
  { weight: 1, arbitrary: fc.record({ kind: fc.constant('evict' as const), member }) },
  { weight: 1, arbitrary: fc.record({ kind: fc.constant('nextWindow' as const) }) },
);
type Action = typeof action extends fc.Arbitrary<infer T> ? T : never;

/** What a member knows of the counter. */
interface Slot {
  window: number;
  spent: number;
  previousSpent: number;
  lease: number;
  leaseLimit: number;
  isLeaseSliding: boolean;
  firstSequence: number;
  isStored: boolean;
  /** The message whose answer is awaited. */
  awaited: number;
  /** Whether Redis knows `spent`. */
  isReported: boolean;
}

/** What was allowed in one window, by limit, and refunded. */
class Truth {
  readonly #allowed = new Map<number, { limit: number; cost: number }[]>();
  readonly #refunded = new Map<number, { certain: number; possible: number }>();

  allow(window: number, cost: number, limit: number): void {
    const list = this.#allowed.get(window) ?? [];
    list.push({ limit, cost });
    this.#allowed.set(window, list);
  }

  refund(window: number, amount: number, isCertain: boolean): void {
    const { certain, possible } = this.#refundsOf(window);
    this.#refunded.set(window, {
      certain: certain + (isCertain ? amount : 0),
      possible: possible + amount,
    });
  }

  /** Tokens used by checks up to a limit, at the least. */
  least(window: number, limit: number): number {
    return Math.max(0, this.#sum(window, limit) - this.#refundsOf(window).possible);
  }

  /** Tokens used by all checks, at the most. */
  most(window: number): number {
    return this.#sum(window, Number.POSITIVE_INFINITY) - this.#refundsOf(window).certain;
  }

  #sum(window: number, limit: number): number {
    const list = this.#allowed.get(window) ?? [];
    return list.reduce((sum, one) => (one.limit <= limit ? sum + one.cost : sum), 0);
  }

  #refundsOf(window: number) {
    return this.#refunded.get(window) ?? { certain: 0, possible: 0 };
  }
}

class Simulation {
  readonly #members: readonly ScriptMember[];
  readonly #identity;
  readonly #slots: Slot[];
  readonly #truth = new Truth();
  readonly #limits: readonly number[];
  /** Messages that have not arrived, or may arrive again. */
  readonly #network: { sender: number; message: CounterMessage; window: number }[] = [];
  #window = NO_WINDOW;
  #leftMs = DURATION_MS;
  /**
   * Whether tokens count as used that nobody has used: of a lease that was written off, or of a copy
   * that arrived in a later window than it was sent in, from a slot that is evicted.
   */
  #countsUnused = false;
  denials = 0;
  allowed = 0;

  constructor(members: readonly ScriptMember[], number: number, limits: readonly number[]) {
    this.#limits = limits;
    this.#members = members;
    this.#identity = { ...IDENTITY, h1: number };
    this.#slots = members.map((one) => newSlot(one));
  }

  async run(action: Action): Promise<void> {
    switch (action.kind) {
      case 'check':
        this.#slots[action.member].lease = 0;
        return this.#send(action.member, action.fate, {
          checks: action.checks.map((one) => this.#checkOf(one)),
          wantsLease: action.wantsLease,
          rate: action.rate,
        });
      case 'prefetch':
        return this.#send(action.member, action.fate, {
          kept: this.#slots[action.member].lease,
          lastLimit: this.#limits[action.amount % this.#limits.length],
          isSliding: action.isSliding,
          wantsLease: true,
          rate: action.amount,
        });
      case 'return':
        this.#slots[action.member].lease = 0;
        return this.#send(action.member, action.fate, {});
      case 'refund':
        this.#slots[action.member].lease = 0;
        return this.#refund(action.member, action.fate, action.amount);
      case 'spend':
        return this.#spend(action.member, this.#checkOf(action.check));
      case 'arrive': {
        if (this.#network.length === 0) return;
        const { sender, message, window } = this.#network[action.which % this.#network.length];
        // The member does not wait for it any more.
        const answer = await this.#deliver(sender, message);
        if (answer.status === MESSAGE_STATUS.done && answer.window > window) {
          this.#countsUnused = true;
        }
        return;
      }
      case 'evict': {
        const slot = this.#slots[action.member];
        if (slot.lease > 0 || !slot.isReported) return;
        this.#slots[action.member] = newSlot(this.#members[action.member]);
        return;
      }
      case 'nextWindow':
        if (this.#window !== NO_WINDOW) await this.#nextWindow();
    }
  }

  #checkOf({
    share: part,
    limit: which,
    isSliding,
  }: typeof check extends fc.Arbitrary<infer T> ? T : never) {
    const limit = this.#limits[which % this.#limits.length];
    return costs(Math.ceil(part * limit), limit, { isSliding });
  }

  async #deliver(sender: number, message: CounterMessage): Promise<CounterAnswer> {
    const answer = await this.#members[sender].call([message]);
    const [counter] = answer.counters;
    if (counter.writtenOff > 0) this.#countsUnused = true;
    const nowMs = Math.floor(answer.clockUs / 1_000);
    const window = Math.floor(nowMs / DURATION_MS);
    if (window > this.#window) this.#enter(window);
    this.#leftMs = (window + 1) * DURATION_MS - nowMs;
    return counter;
  }

  async #send(sender: number, fate: string, more: Partial<CounterMessage>): Promise<void> {
    const slot = this.#slots[sender];
    const { window, spent, previousSpent, firstSequence, isStored } = slot;
    const state = { window, spent, previousSpent, firstSequence, isStored };
    const base = { identity: this.#identity, durationMs: DURATION_MS, hasPrevious: true };
    const message = this.#members[sender].message({ ...base, ...state, ...more });
    slot.awaited = message.sequence;
    slot.isReported = false;
    if (fate !== 'answered') this.#network.push({ sender, message, window: this.#window });
    if (fate === 'late') {
      if (message.refund > 0) this.#truth.refund(message.refundWindow, message.refund, false);
      return;
    }
    const answer = await this.#deliver(sender, message);
    if (fate === 'answered') this.#take(sender, message, answer);
    else this.#truth.refund(message.refundWindow, message.refund, false);
  }

  async #refund(sender: number, fate: string, amount: number): Promise<void> {
    const { spent, window } = this.#slots[sender];
    const refund = Math.min(amount, spent);
    if (refund <= 0) return;
    await this.#send(sender, fate, { refund, refundWindow: window });
  }

  #take(sender: number, message: CounterMessage, answer: CounterAnswer): void {
    const slot = this.#slots[sender];
    expect(answer.status).not.toBe(MESSAGE_STATUS.stale);
    expect(answer.status).not.toBe(MESSAGE_STATUS.recovering);
    if (answer.window !== slot.window) {
      slot.previousSpent = answer.window === slot.window + 1 ? slot.spent : 0;
      slot.spent = 0;
      slot.lease = 0;
      slot.window = answer.window;
    }
    slot.isStored = answer.isStored;
    const verdictsOf = (verdict: number) => {
      return message.checks.filter((_, i) => answer.served[i] === verdict);
    };
    for (const check of verdictsOf(SERVED.allowed)) this.#allow(slot, check);
    // A check may wait for a lease while a later one is allowed, and then not fit any more.
    for (const check of verdictsOf(SERVED.denied)) this.#proveDenied(answer, check);
    if (answer.refunded > 0) {
      slot.spent -= answer.refunded;
      this.#truth.refund(answer.window, answer.refunded, true);
    }
    if (answer.lent > 0) {
      const isSliding = message.isSliding || message.checks.some((one) => one.isSliding);
      slot.isLeaseSliding = isSliding && (slot.lease === 0 || slot.isLeaseSliding);
      slot.leaseLimit = Math.max(slot.lease > 0 ? slot.leaseLimit : 0, answer.lentLimit);
      slot.lease += answer.lent;
    }
    slot.isReported = message.checks.length === 0 && answer.lent === 0 && slot.lease === 0;
  }

  #spend(of: number, check: CounterMessage['checks'][number]): void {
    const slot = this.#slots[of];
    if (slot.lease < check.cost || slot.leaseLimit > check.limit) return;
    if (check.isSliding && !slot.isLeaseSliding) return;
    slot.lease -= check.cost;
    slot.isReported = false;
    this.#allow(slot, check);
  }

  #allow(slot: Slot, { cost, limit, isSliding }: CounterMessage['checks'][number]): void {
    slot.spent += cost;
    if (cost === 0) return;
    this.allowed += cost;
    this.#truth.allow(slot.window, cost, limit);
    for (const one of this.#limits) {
      expect(this.#truth.least(slot.window, one), `of limit ${one}`).toBeLessThanOrEqual(one);
    }
    if (!isSliding) return;
    const before = this.#truth.least(slot.window - 1, Number.POSITIVE_INFINITY);
    const carried = share(before, this.#leftMs, DURATION_MS);
    expect(this.#truth.least(slot.window, limit) + carried).toBeLessThanOrEqual(limit);
  }

  #proveDenied(answer: CounterAnswer, check: CounterMessage['checks'][number]): void {
    this.denials++;
    if (this.#countsUnused) return;
    const leftMs = Math.ceil(answer.leftUs / 1_000);
    const before = this.#truth.most(answer.window - 1);
    const carried = check.isSliding ? share(before, leftMs, DURATION_MS) : 0;
    expect(this.#truth.most(answer.window) + carried + check.cost).toBeGreaterThan(check.limit);
  }

  /** Deadlines of leases are earlier than the end of their window. */
  #enter(window: number): void {
    // Only an answer tells the window. Messages sent before the first one were sent in this window.
    if (this.#window === NO_WINDOW) for (const one of this.#network) one.window = window;
    this.#window = window;
    for (const slot of this.#slots) slot.lease = 0;
  }

  async #nextWindow(): Promise<void> {
    const [first, ...others] = this.#members;
    this.#enter(this.#window + 1);
    first.header.clockUs = Math.max(
      first.header.clockUs,
      this.#window * DURATION_MS * 1_000 + 20_000_000,
    );
    for (const one of [first, ...others]) await one.call([]);
  }
}

function newSlot(of: ScriptMember): Slot {
  return {
    window: NO_WINDOW,
    spent: 0,
    previousSpent: 0,
    lease: 0,
    leaseLimit: 0,
    isLeaseSliding: false,
    firstSequence: of.message({}).sequence + 1,
    isStored: false,
    awaited: 0,
    isReported: true,
  };
}

describe.skipIf(isRedisMissing)('the exchange of three members', () => {
  const { members } = useMembers(MEMBERS);

  it('allows no more than any limit, and proves denials, whatever the network does', async () => {
    let number = 0;
    let denials = 0;
    let allowed = 0;
    const property = fc.asyncProperty(
      fc.array(action, { minLength: 50, maxLength: 150, size: 'max' }),
      fc.constantFrom(...LIMITS),
      async (actions, limits) => {
        const simulation = new Simulation(members, number++, limits);
        for (const one of actions) await simulation.run(one);
        denials += simulation.denials;
        allowed += simulation.allowed;
      },
    );
    // Shrinking would take longer than the test may.
    await fc.assert(property, { numRuns: trialCount(30, 500), endOnFailure: true });
    expect(denials).toBeGreaterThan(0);
    expect(allowed).toBeGreaterThan(0);
  });
});
