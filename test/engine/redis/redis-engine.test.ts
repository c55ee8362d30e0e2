/**
 * The acceptor's side of the redis engine: its decisions without Redis, its batches and its
 * corrections. The tests play the shard worker in the same shared memory, and decide when it acts.
 */

import { MessageChannel } from 'node:worker_threads';
import { afterEach, describe, expect, test, vi } from 'vitest';
import type { Check } from '../../../src/core/check.ts';
import { CHECK_DEADLINE_MS, CHECK_QUEUE_ENTRIES, SHARDS } from '../../../src/core/constants.ts';
import { type Decision, type FullTablePolicy, OUTCOME } from '../../../src/core/decision.ts';
import { RULE } from '../../../src/core/window-rules.ts';
import { createEngine } from '../../../src/decision-thread/create-engine.ts';
import type { BatchDecision } from '../../../src/engine/engine.ts';
import {
  CheckQueueConsumer,
  copyEntry,
  type QueueEntry,
} from '../../../src/engine/queue/check-queue-consumer.ts';
import { attachChannel } from '../../../src/engine/queue/queue.ts';
import { allocateRedisEngine } from '../../../src/engine/redis/allocate.ts';
import { newLeaseState } from '../../../src/engine/redis/counter/lease-state.ts';
import { BREAKER, EngineState } from '../../../src/engine/redis/engine-state.ts';
import { ENTRY_KIND } from '../../../src/engine/redis/entry-kinds.ts';
import { LeaseTable } from '../../../src/engine/redis/lease-table.ts';
import {
  beginRequest,
  type WorkerRequest,
  type WorkerResult,
} from '../../../src/engine/redis/port-messages.ts';
import { shardOf } from '../../../src/engine/table/shard.ts';
import type { RedisSettings } from '../../../src/redis/settings.ts';
import { Clock, ClockPublisher } from '../../../src/shared-memory/clock.ts';
import { allocateControl, Control } from '../../../src/shared-memory/control.ts';
import { ACCEPTOR_STAT } from '../../../src/shared-memory/stats.ts';
import {
  DURATION_MS,
  decideMany,
  decideOne,
  checkOf as engineCheckOf,
  skipMonotonicTime,
} from '../../support/engines.ts';
import { redisSettings } from '../../support/redis-settings.ts';

const WORKER_LOCK_OWNER = 1_000;
const SETTINGS = redisSettings('redis://127.0.0.1', { recovery: 'exact', redisTimeoutMs: 20 });
const confirm = () => {};
const checkOf = (identifier: string, terms: Partial<Check> = {}) => {
  return engineCheckOf(identifier, { limit: 100, ...terms });
};

class TestAcceptor {
  readonly engine;
  readonly state: EngineState;
  readonly clock: Clock;
  readonly #control = new Control(allocateControl(1, 1));
  readonly #tables: LeaseTable[];
  readonly #consumer: CheckQueueConsumer;
  #ports = new MessageChannel();

  constructor(settings: Partial<RedisSettings> = {}, fullTablePolicy: FullTablePolicy = 'deny') {
    new ClockPublisher(this.#control);
    this.clock = new Clock(this.#control);
    const holdPolicies = { whenFull: fullTablePolicy, onExpiry: 'release' as const };
    const options = { settings: { ...SETTINGS, ...settings }, holdPolicies, holds: 16 };
    const data = allocateRedisEngine(this.#control, 1_024, options, this.clock);
    this.state = new EngineState(data.state);
    this.state.setJoined(0, true);
    this.engine = createEngine(data, 0, this.#control, this.clock);
    this.#tables = data.tables.map((buffer, shard) => {
      return new LeaseTable(buffer, shard, this.state, WORKER_LOCK_OWNER, () => {});
    });
    expect(this.#tables).toHaveLength(SHARDS);
    const memory = attachChannel(data.channels[0][0], 0, 0);
    this.#consumer = new CheckQueueConsumer(
      memory,
      this.#control.workerStats(0),
      this.#ports.port2,
    );
    this.engine.connectWorker(0, this.#ports.port1);
  }

  close(): void {
    this.#ports.port2.close();
  }

  count(name: keyof typeof ACCEPTOR_STAT): number {
    return this.#control.acceptorStats(0).get(ACCEPTOR_STAT[name]);
  }

  /** Gives the counter of a check a lease, and what is known of other machines' usage. */
  lend({ identity, durationMs, namespace }: Check, lease: number, others = 0): void {
    const table = this.#tables[shardOf(identity)];
    const state = newLeaseState();
    const lock = table.lockFor(identity);
    table.acquire(lock);
    const slot =
      table.find(identity, durationMs) ||
      table.insert(identity, namespace.hashState[0], durationMs, this.clock.monotonicMs());
    table.read(slot, state);
    state.window = Math.floor(this.clock.nowMs() / durationMs);
    state.lease = lease;
    state.others = others;
    state.othersDeducted = others;
    state.coversSliding = true;
    state.deadlineMs = Number.MAX_SAFE_INTEGER;
    state.boundUntilMs = Number.MAX_SAFE_INTEGER;
    table.write(slot, state);
    table.release(lock);
  }

  /** The tokens of a counter: spent, in the lease and reserved. */
  tokens({ identity, durationMs }: Check): { spent: number; lease: number; reserved: number } {
    const table = this.#tables[shardOf(identity)];
    const state = newLeaseState();
    const lock = table.lockFor(identity);
    table.acquire(lock);
    const slot = table.find(identity, durationMs);
    if (slot !== 0) table.read(slot, state);
    table.release(lock);
    const { spent, lease, reserved } = state;
    return { spent, lease, reserved };
  }

  /** What the acceptor has queued since. */
  entries(): QueueEntry[] {
    const entries: QueueEntry[] = [];
    this.#consumer.readNew(CHECK_QUEUE_ENTRIES, (entry) => entries.push(copyEntry(entry)));
    return entries;
  }

  /** @returns false: the acceptor has withdrawn the entry */
  reply({ number, parameters }: QueueEntry, allowed: boolean, remaining: number): boolean {
    const { durationMs } = parameters;
    const reset = (Math.floor(this.clock.nowMs() / durationMs) + 1) * durationMs;
    if (!this.#consumer.claim(number)) return false;
    this.#consumer.reply(number, {
      allowed,
      remaining,
      reset,
      passesAt: allowed ? 0 : reset,
      outcome: OUTCOME.decided,
    });
    this.#consumer.flush();
    return true;
  }

  /** Claims an entry, as a worker that dies before its reply. */
  claim({ number }: QueueEntry): boolean {
    return this.#consumer.claim(number);
  }

  /** Serves the requests that come on the port. A new port is that of a new worker. */
  serve(result: (request: WorkerRequest) => WorkerResult | undefined): void {
    this.#ports.port2.on('message', (request: WorkerRequest) => {
      const served = result(request);
      if (served === undefined) return;
      this.#ports.port2.postMessage({ number: request.number, result: served });
    });
  }

  restartWorker(): void {
    this.#ports = new MessageChannel();
    this.engine.connectWorker(0, this.#ports.port1);
  }

  decide(check: Check): Promise<Decision> {
    return decideOne(this.engine, check, this.clock, () => {});
  }

  decideBatch(checks: Check[]): Promise<BatchDecision> {
    return decideMany(checks, (completion) => {
      return this.engine.decideBatch(checks, this.clock.monotonicMs(), undefined, completion);
    });
  }

  decideEach(checks: Check[], countsDenied: boolean): Promise<BatchDecision> {
    const startedMs = this.clock.monotonicMs();
    return decideMany(checks, (completion) => {
      return this.engine.decideEach(checks, startedMs, undefined, completion, countsDenied);
    });
  }
}

const opened: TestAcceptor[] = [];
const open = (...rest: ConstructorParameters<typeof TestAcceptor>) => {
  const acceptor = new TestAcceptor(...rest);
  opened.push(acceptor);
  return acceptor;
};
afterEach(() => {
  for (const acceptor of opened.splice(0)) acceptor.close();
  vi.restoreAllMocks();
  vi.useRealTimers();
});

const summary = ({ decisions }: BatchDecision) => {
  return decisions.map(({ allowed, remaining }) => [allowed, remaining]);
};

describe('a check', () => {
  test('is decided from a lease at once, and by its worker where that does not suffice', async () => {
    const acceptor = open();
    const check = checkOf('a', { cost: 4 });
    acceptor.lend(check, 6, 10);
    expect(await acceptor.decide(check)).toMatchObject({ allowed: true, remaining: 86 });
    expect(acceptor.entries()).toEqual([]);
    const later = acceptor.decide(check);
    const [entry] = acceptor.entries();
    expect(entry).toMatchObject({ kind: ENTRY_KIND.tokens, parameters: { cost: 4 } });
    expect(acceptor.reply(entry, true, 82)).toBe(true);
    expect(await later).toMatchObject({ allowed: true, remaining: 82 });
    expect(acceptor.tokens(check)).toMatchObject({ spent: 4, lease: 2 });
    expect(acceptor.count('engineDownAllowed')).toBe(0);
  });

  test('is always decided by its worker when leases are off', async () => {
    const acceptor = open({ leases: 'off' });
    const check = checkOf('a');
    acceptor.lend(check, 6);
    const later = acceptor.decide(check);
    const [entry] = acceptor.entries();
    acceptor.reply(entry, false, 0);
    expect(await later).toMatchObject({ allowed: false });
  });

  test('that its worker does not decide in time is withdrawn and decided without Redis', async () => {
    const acceptor = open();
    const check = checkOf('a', { limit: 5, cost: 4 });
    const first = acceptor.decide(check);
    const [entry] = acceptor.entries();
    expect(await first).toMatchObject({ allowed: true, remaining: 1 });
    expect(acceptor.reply(entry, true, 0)).toBe(false);
    expect(await acceptor.decide(check)).toMatchObject({ allowed: false, remaining: 1 });
    expect(acceptor.tokens(check).spent).toBe(4);
    expect(acceptor.count('withdrawnChecks')).toBe(2);
    expect([acceptor.count('engineDownAllowed'), acceptor.count('engineDownDenied')]).toEqual([
      1, 1,
    ]);
  });

  test('that is not answered in time is denied while Redis recovers, and not decided alone', async () => {
    const acceptor = open();
    acceptor.state.setRecovering(0, true);
    expect(await acceptor.decide(checkOf('a'))).toMatchObject({ allowed: false, remaining: 0 });
    expect(await acceptor.decide(checkOf('a', { cost: 0 }))).toMatchObject({ allowed: true });
    acceptor.state.setBreaker(0, BREAKER.open);
    expect(await acceptor.decide(checkOf('a'))).toMatchObject({ allowed: true });
    expect(acceptor.count('engineDownDenied')).toBe(1);
  });

  test('that its worker had begun to reply to when it died fails, and may be counted', async () => {
    const acceptor = open();
    const later = acceptor.decide(checkOf('a'));
    const [entry] = acceptor.entries();
    expect(acceptor.claim(entry)).toBe(true);
    skipMonotonicTime(CHECK_DEADLINE_MS);
    await expect(later).rejects.toMatchObject({
      code: 'SERVICE_UNAVAILABLE',
      message: expect.stringContaining('the check may have been counted'),
    });
  });

  test.each([
    ['local', 'a', [true, true, false]],
    ['allow', 'a', [true, true, true]],
    ['deny', 'a', [false, false, false]],
  ] as const)(
    'is decided at once while the breaker is open: %s',
    async (onEngineDown, name, all) => {
      const acceptor = open({ onEngineDown });
      acceptor.state.setBreaker(0, BREAKER.open);
      const check = checkOf(name, { limit: 2 });
      for (const allowed of all) expect((await acceptor.decide(check)).allowed).toBe(allowed);
      expect(await acceptor.decide(checkOf(name, { cost: 0 }))).toMatchObject({ allowed: true });
      expect(acceptor.entries()).toEqual([]);
      const counted = acceptor.count('engineDownAllowed') + acceptor.count('engineDownDenied');
      expect([counted, acceptor.count('engineDownDenied')]).toEqual([
        4,
        all.filter((allowed) => !allowed).length,
      ]);
    },
  );

  test('is decided without Redis by a share of its limit, where that is set', async () => {
    const acceptor = open({ localShare: 'divided' });
    acceptor.state.setBreaker(0, BREAKER.open);
    acceptor.state.setMachineCount(3);
    const check = checkOf('a', { limit: 7 });
    expect((await acceptor.decide(check)).allowed).toBe(true);
    expect((await acceptor.decide(check)).allowed).toBe(true);
    expect((await acceptor.decide(check)).allowed).toBe(false);
  });

  test('that waits is decided soon after the breaker opens', async () => {
    const acceptor = open({ onEngineDown: 'deny' });
    const later = acceptor.decide(checkOf('a'));
    acceptor.state.setBreaker(0, BREAKER.open);
    expect((await later).allowed).toBe(false);
  });

  test('is decided without Redis when the queue is full', async () => {
    const acceptor = open({ onEngineDown: 'allow' });
    const completion = { complete: () => {}, fail: () => {} };
    const check = checkOf('a');
    const decide = () => {
      return acceptor.engine.decide(check, acceptor.clock.monotonicMs(), undefined, completion);
    };
    for (let i = 0; i < CHECK_QUEUE_ENTRIES; i++) expect(decide()).toBeUndefined();
    expect(decide()).toMatchObject({ allowed: true });
    expect(acceptor.count('queueFull')).toBe(1);
  });

  test('that is asynchronous waits once, for the slot of its counter', async () => {
    const acceptor = open();
    const check = checkOf('a', { isAsync: true, cost: 3 });
    const later = acceptor.decide(check);
    const [entry] = acceptor.entries();
    expect(entry.kind).toBe(ENTRY_KIND.asyncNew);
    acceptor.reply(entry, true, 97);
    await later;
    acceptor.lend(check, 0, 90);
    expect(await acceptor.decide(check)).toMatchObject({ allowed: true, remaining: 7 });
    // It is much of what was left, so Redis is told, once.
    expect(acceptor.entries()).toMatchObject([{ kind: ENTRY_KIND.report }]);
    expect(await acceptor.decide(check)).toMatchObject({ allowed: true, remaining: 4 });
    expect(acceptor.entries()).toEqual([]);
  });
});

describe('a batch', () => {
  test('is decided at once where the leases suffice: all is counted, or nothing', async () => {
    const acceptor = open();
    const [a, b] = [checkOf('a', { cost: 4 }), checkOf('b', { cost: 6 })];
    acceptor.lend(a, 10);
    acceptor.lend(b, 10);
    expect(await acceptor.decideBatch([a, b])).toMatchObject({ allowed: true });
    expect(acceptor.tokens(a)).toEqual({ spent: 4, lease: 6, reserved: 0 });
    expect(acceptor.tokens(b)).toEqual({ spent: 6, lease: 4, reserved: 0 });
    const denied = checkOf('b', { cost: 6, limit: 6 });
    const batch = await acceptor.decideBatch([a, denied, a]);
    expect([batch.allowed, summary(batch)]).toEqual([
      false,
      [
        [true, 96],
        [false, 0],
        [true, 96],
      ],
    ]);
    expect(acceptor.tokens(a)).toEqual({ spent: 4, lease: 6, reserved: 0 });
  });

  test('holds reservations while its worker decides the rest, and commits or returns them', async () => {
    const acceptor = open();
    const [a, b] = [checkOf('a', { cost: 4 }), checkOf('b', { cost: 6 })];
    for (const isAllowed of [true, false]) {
      acceptor.lend(a, 10);
      const spent = acceptor.tokens(a).spent;
      const later = acceptor.decideBatch([a, b]);
      expect(acceptor.tokens(a)).toEqual({ spent, lease: 6, reserved: 4 });
      const [entry, ...more] = acceptor.entries();
      expect([entry.kind, entry.identity, more]).toEqual([ENTRY_KIND.reserve, b.identity, []]);
      acceptor.reply(entry, isAllowed, 50);
      const { allowed, decisions } = await later;
      expect([allowed, decisions[1].remaining]).toEqual([isAllowed, 50]);
      expect(acceptor.tokens(a)).toEqual(
        isAllowed ? { spent: spent + 4, lease: 6, reserved: 0 } : { spent, lease: 10, reserved: 0 },
      );
    }
  });

  test('sends all later checks of a counter after one that needs its worker, in order', async () => {
    const acceptor = open();
    const checks = [8, 1, 2].map((cost) => checkOf('a', { cost }));
    acceptor.lend(checks[0], 5);
    const later = acceptor.decideBatch(checks);
    const entries = acceptor.entries();
    expect(entries.map(({ parameters }) => parameters.cost)).toEqual([8, 1, 2]);
    acceptor.reply(entries[0], true, 92);
    acceptor.reply(entries[1], true, 91);
    acceptor.reply(entries[2], false, 91);
    expect(summary(await later)).toEqual([
      [true, 100],
      [true, 100],
      [false, 91],
    ]);
  });

  test('asks nothing of Redis for a denial that is known, and reads what remains elsewhere', async () => {
    const acceptor = open();
    const [full, other, small] = [checkOf('a'), checkOf('b'), checkOf('b', { cost: 60 })];
    acceptor.lend(full, 0, 100);
    acceptor.lend(other, 0, 50);
    expect(summary(await acceptor.decideBatch([full, other, small, small]))).toEqual([
      [false, 0],
      [true, 50],
      [false, 49],
      [false, 49],
    ]);
    expect(acceptor.entries()).toEqual([]);
    const unknown = checkOf('c', { cost: 7 });
    const later = acceptor.decideBatch([unknown, full]);
    const [entry] = acceptor.entries();
    expect([entry.kind, entry.parameters.cost]).toEqual([ENTRY_KIND.tokens, 0]);
    acceptor.reply(entry, true, 5);
    expect(summary(await later)).toEqual([
      [false, 5],
      [false, 0],
    ]);
  });

  test('says when a sliding window passes at the latest, where Redis has told what remains', async () => {
    const acceptor = open();
    const full = checkOf('a');
    acceptor.lend(full, 0, 100);
    const later = acceptor.decideBatch([full, checkOf('b', { cost: 50, rule: RULE.sliding })]);
    acceptor.reply(acceptor.entries()[0], true, 0);
    const [, { allowed, passesAt, reset }] = (await later).decisions;
    // At worst all 100 are used in this window, and 50 of them are carried over after half of the next.
    expect([allowed, passesAt - reset]).toEqual([
      false,
      DURATION_MS - DURATION_MS / 2 - (DURATION_MS / 100 - 1),
    ]);
  });

  test('takes back what was decided without Redis, if another check is denied', async () => {
    const acceptor = open();
    acceptor.state.setBreaker(0, BREAKER.open);
    const [a, b] = [checkOf('a', { cost: 4, limit: 5 }), checkOf('b', { cost: 6, limit: 5 })];
    expect(summary(await acceptor.decideBatch([a, a, b]))).toEqual([
      [true, 5],
      [false, 1],
      [false, 5],
    ]);
    expect(acceptor.tokens(a).spent).toBe(0);
    expect(await acceptor.decideBatch([a])).toMatchObject({ allowed: true });
    expect(acceptor.tokens(a).spent).toBe(4);
  });

  test('is decided without Redis where its worker is late, and reserves nothing after it', async () => {
    const acceptor = open();
    const [a, b] = [checkOf('a', { cost: 4 }), checkOf('b', { cost: 6 })];
    acceptor.lend(a, 10);
    const later = acceptor.decideBatch([a, b]);
    const [entry] = acceptor.entries();
    expect(summary(await later)).toEqual([
      [true, 96],
      [true, 94],
    ]);
    expect(acceptor.reply(entry, true, 0)).toBe(false);
    expect(acceptor.tokens(a)).toEqual({ spent: 4, lease: 6, reserved: 0 });
    expect(acceptor.tokens(b)).toEqual({ spent: 6, lease: 0, reserved: 0 });
  });

  test('refunds a GCRA check that Redis has counted, if another check is denied', async () => {
    const acceptor = open();
    const requests: WorkerRequest[] = [];
    acceptor.serve((request) => {
      requests.push(request);
      return { kind: 'refund', refunded: 2 };
    });
    const [bucket, full] = [checkOf('a', { cost: 2, rule: RULE.gcra }), checkOf('b')];
    const later = acceptor.decideBatch([bucket, full]);
    const [first, second] = acceptor.entries();
    acceptor.reply(first, true, 98);
    acceptor.reply(second, false, 0);
    expect(summary(await later)).toEqual([
      [true, 100],
      [false, 0],
    ]);
    await expect.poll(() => requests).toHaveLength(1);
    expect(requests[0]).toMatchObject({
      action: {
        kind: 'refund',
        identity: bucket.identity,
        rule: RULE.gcra,
        durationMs: DURATION_MS,
        cost: 2,
      },
    });
  });

  test('of which a check fails returns all that it holds, and fails', async () => {
    const acceptor = open();
    const [a, b] = [checkOf('a', { cost: 4 }), checkOf('b')];
    acceptor.lend(a, 10);
    const later = acceptor.decideBatch([a, b]);
    acceptor.claim(acceptor.entries()[0]);
    skipMonotonicTime(CHECK_DEADLINE_MS);
    await expect(later).rejects.toMatchObject({ code: 'SERVICE_UNAVAILABLE' });
    expect(acceptor.tokens(a)).toEqual({ spent: 0, lease: 10, reserved: 0 });
  });
});

describe('independent checks', () => {
  test('are decided each for itself, by leases and by their workers', async () => {
    const acceptor = open();
    const [a, b] = [checkOf('a', { cost: 4 }), checkOf('b', { cost: 6 })];
    acceptor.lend(a, 10);
    const later = acceptor.decideEach([a, b, a], false);
    const [entry, ...more] = acceptor.entries();
    expect([entry.kind, entry.identity, more]).toEqual([ENTRY_KIND.tokens, b.identity, []]);
    acceptor.reply(entry, false, 5);
    const decided = await later;
    expect([decided.allowed, summary(decided)]).toEqual([
      false,
      [
        [true, 96],
        [false, 5],
        [true, 92],
      ],
    ]);
    expect(acceptor.tokens(a)).toEqual({ spent: 8, lease: 2, reserved: 0 });
  });

  test('count their denied costs once, where they are denied', async () => {
    const acceptor = open();
    const [known, unknown] = [checkOf('a', { cost: 9 }), checkOf('b', { cost: 101 })];
    acceptor.lend(known, 0, 95);
    const later = acceptor.decideEach([known, unknown], true);
    expect(acceptor.tokens(known).spent).toBe(9);
    const [entry] = acceptor.entries();
    expect(entry.kind).toBe(ENTRY_KIND.countedTokens);
    acceptor.reply(entry, false, 0);
    expect(summary(await later)).toEqual([
      [false, 5],
      [false, 0],
    ]);
    expect(acceptor.tokens(unknown).spent).toBe(0);
  });
});

describe('a correction', () => {
  const refund = ({ engine }: TestAcceptor) => {
    const { identity } = checkOf('a');
    return engine.refund(identity, RULE.fixed, DURATION_MS, 1, 3, confirm);
  };

  test('is done by the worker of its counter', async () => {
    const acceptor = open();
    const requests: WorkerRequest[] = [];
    acceptor.serve((request) => {
      requests.push(request);
      expect(beginRequest(request)).toBe(true);
      return { kind: 'refund', refunded: 2 };
    });
    expect(await refund(acceptor)).toBe(2);
    const of = { rule: RULE.fixed, durationMs: DURATION_MS, window: 1, cost: 3 };
    const action = { kind: 'refund', identity: checkOf('a').identity, ...of };
    expect(requests).toMatchObject([{ action }]);
    expect([acceptor.count('refunds'), acceptor.count('refundedTokens')]).toEqual([1, 2]);
  });

  test('that no worker begins in time changes nothing, then or later, and says so', async () => {
    const acceptor = open();
    const requests: WorkerRequest[] = [];
    acceptor.serve((request) => {
      requests.push(request);
      return undefined;
    });
    vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout'] });
    const late = refund(acceptor);
    vi.advanceTimersByTime(CHECK_DEADLINE_MS);
    await expect(late).rejects.toMatchObject({
      code: 'SERVICE_UNAVAILABLE',
      message: `Redis did not answer within ${CHECK_DEADLINE_MS} ms; nothing was changed`,
    });
    vi.useRealTimers();
    await expect.poll(() => requests.map(beginRequest)).toEqual([false]);
  });

  test('that a worker has begun and not finished may have been done, and says so', async () => {
    const acceptor = open();
    vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout'] });
    const late = refund(acceptor);
    await new Promise<void>((resolve) => {
      acceptor.serve((request) => {
        beginRequest(request);
        resolve();
        return undefined;
      });
    });
    vi.advanceTimersByTime(CHECK_DEADLINE_MS);
    await expect(late).rejects.toMatchObject({
      code: 'SERVICE_UNAVAILABLE',
      message: expect.stringContaining('; it may have been done'),
    });
  });

  test('that a worker had not begun when it died is done by its successor', async () => {
    const acceptor = open();
    const refunded = refund(acceptor);
    acceptor.restartWorker();
    acceptor.serve((request) => {
      expect(beginRequest(request)).toBe(true);
      return { kind: 'refund', refunded: 3 };
    });
    expect(await refunded).toBe(3);
  });

  test('shows what its worker knows of the failure', async () => {
    const acceptor = open();
    acceptor.serve(() => ({ kind: 'failure', reason: 'Redis is down', isUnchanged: true }));
    await expect(refund(acceptor)).rejects.toMatchObject({
      message: 'Redis is down; nothing was changed',
    });
  });
});

test('the first checks of a process wait for Redis to accept it, for a second at most', async () => {
  const acceptor = new TestAcceptor({ onEngineDown: 'local', recovery: 'available' });
  acceptor.state.setJoined(0, false);
  acceptor.state.setBreaker(0, BREAKER.open);
  const startedMs = acceptor.clock.monotonicMs();
  expect((await acceptor.decide(checkOf('a'))).allowed).toBe(true);
  expect(acceptor.clock.monotonicMs() - startedMs).toBeGreaterThanOrEqual(1_000);
  // From then on the breaker decides, as at any other time.
  expect((await acceptor.decide(checkOf('a'))).allowed).toBe(true);
  expect([acceptor.count('queuedChecks'), acceptor.count('engineDownAllowed')]).toEqual([1, 2]);
  acceptor.close();
});
