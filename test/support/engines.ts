/**
 * An engine as an acceptor has it, and the shard worker of its queues, on one thread. The worker
 * reads its queues when the test says so.
 */

import { MessageChannel } from 'node:worker_threads';
import { vi } from 'vitest';
import type { Check } from '../../src/core/check.ts';
import { HOLDS_MIN } from '../../src/core/constants.ts';
import type { Decision, FullTablePolicy } from '../../src/core/decision.ts';
import { Hasher, newIdentity } from '../../src/core/hash.ts';
import { NO_BURST, RULE } from '../../src/core/window-rules.ts';
import { createEngine } from '../../src/decision-thread/create-engine.ts';
import type { BatchDecision, Engine, ExplainedChecks } from '../../src/engine/engine.ts';
import { allocateMemoryEngine, type MemoryEngineData } from '../../src/engine/memory/allocate.ts';
import { EntryProcessor } from '../../src/engine/memory/shard-worker/entry-processor.ts';
import { CounterTable } from '../../src/engine/memory/table.ts';
import { CheckQueueConsumer } from '../../src/engine/queue/check-queue-consumer.ts';
import { attachChannel } from '../../src/engine/queue/queue.ts';
import { shardOf } from '../../src/engine/table/shard.ts';
import { Clock, ClockPublisher } from '../../src/shared-memory/clock.ts';
import { allocateControl, Control } from '../../src/shared-memory/control.ts';
import type { ACCEPTOR_STAT } from '../../src/shared-memory/stats.ts';
import { testNamespace } from './namespace.ts';
import type { RedisServer } from './programs/redis.ts';
import { RedisMachine } from './redis-machine.ts';
import { waitUntil } from './server.ts';

/** 30 days: the clock is the system's, and a test must not see the end of a window. */
export const DURATION_MS = 2_592_000_000;
const WORKER_LOCK_OWNER = 1_000;
/** No check of a test is decided without Redis, however slow the machine is. */
const DEADLINE_MS = 60_000;

const hasher = new Hasher(Buffer.from('0123456789abcdef'));
const hashState = hasher.namespace('engines');

/** A check of one namespace, with a limit of 10 unless the terms say otherwise. */
export function checkOf(identifier: string, terms: Partial<Check> = {}): Check {
  const identity = newIdentity();
  hasher.hash(hashState, identifier, identity);
  return {
    namespace: testNamespace('engines'),
    ...{ identity, identifier, limit: 10, durationMs: DURATION_MS, cost: 1 },
    ...{ rule: RULE.fixed, burst: NO_BURST },
    ...{ isAsync: false, overrideId: undefined, ...terms },
  };
}

/** What `explain` predicts: these checks, decided as one. */
export function batchOf(checks: readonly Check[]): () => ExplainedChecks {
  return () => ({ checks, isBatch: true });
}

/** Moves the monotonic clock of this process forward, until `vi.restoreAllMocks`. */
export function skipMonotonicTime(ms: number): void {
  const now = performance.now.bind(performance);
  vi.spyOn(performance, 'now').mockImplementation(() => now() + ms);
}

/** What runs an engine and the worker of its queues. */
interface EngineDriver {
  engine: Engine;
  /** Reads the queues once. @returns how many entries */
  runWorker: () => number;
  moveClockTo: (ms: number) => Promise<void>;
  /** Resolves when the engine uses its counters. */
  ready: () => Promise<void>;
  close: () => void;
}

function memoryDriver(
  decide: MemoryEngineData['decide'],
  counters: number,
  fullTablePolicy: FullTablePolicy,
  control: Control,
  clock: Clock,
): EngineDriver {
  const data = allocateMemoryEngine(control, {
    counters,
    holds: HOLDS_MIN,
    decide,
    fullTablePolicy,
    holdPolicies: { whenFull: fullTablePolicy, onExpiry: 'release' },
  });
  const [[channel]] = data.channels;
  const engine = createEngine(data, 0, control, clock);
  const owned = data.tables.map((buffer, shard) => {
    return new CounterTable(buffer, shard, WORKER_LOCK_OWNER, fullTablePolicy, () => {});
  });
  const { port1, port2 } = new MessageChannel();
  engine.connectWorker(0, port1);
  const stats = control.workerStats(0);
  const port = decide === 'worker' ? port2 : undefined;
  const queue = new CheckQueueConsumer(attachChannel(channel, 0, 0), stats, port);
  const worker = new EntryProcessor(queue, (id) => owned[shardOf(id)], clock, stats);
  return {
    engine,
    runWorker: () => worker.processEntries(Number.POSITIVE_INFINITY),
    moveClockTo: async (ms) => {
      new ClockPublisher(control, ms);
    },
    ready: async () => {},
    close: () => port2.close(),
  };
}

/** How an engine uses a Redis. */
export interface RedisUse {
  redis: RedisServer;
  /** Engines with the same one share their counters. Its own, if it is left out. */
  prefix?: string;
  leases?: boolean;
}

let prefixes = 0;

function redisDriver(
  { redis, prefix = `engine${prefixes++}`, leases = true }: RedisUse,
  counters: number,
  fullTablePolicy: FullTablePolicy,
  control: Control,
): EngineDriver {
  const options = { prefix, leases, counters, fullTablePolicy, timeoutMs: DEADLINE_MS };
  const machine = new RedisMachine(redis.url, options, control);
  return {
    engine: machine.engine,
    runWorker: () => machine.worker.processEntries(),
    moveClockTo: async (ms) => {
      await redis.command('EVAL', MOVE_CLOCK, '1', machine.keys.members(0), String(ms));
    },
    ready: () => waitUntil('the worker has joined', () => machine.state.hasJoined(0)),
    close: () => machine.close(),
  };
}

/** Moves the clock of a bucket forward: the first double of its first field, in µs. */
const MOVE_CLOCK = `
local stored = redis.call('HGET', KEYS[1], 'a')
local clock = struct.pack('<d', ARGV[1] * 1000)
return redis.call('HSET', KEYS[1], 'a', clock .. stored:sub(9))
`;

export class TestEngine {
  readonly engine: Engine;
  readonly clock: Clock;
  readonly #control = new Control(allocateControl(1, 1));
  readonly #stats;
  readonly #driver: EngineDriver;

  /** Opens an engine that is ready to decide. */
  static async open(...args: ConstructorParameters<typeof TestEngine>): Promise<TestEngine> {
    const engine = new TestEngine(...args);
    await engine.#driver.ready();
    return engine;
  }

  /** @param kind the mode of the memory engine, or the use of Redis */
  constructor(
    kind: MemoryEngineData['decide'] | RedisUse,
    counters: number,
    fullTablePolicy: FullTablePolicy = 'deny',
  ) {
    const control = this.#control;
    new ClockPublisher(control);
    this.clock = new Clock(control);
    this.#stats = control.acceptorStats(0);
    this.#driver =
      typeof kind === 'string'
        ? memoryDriver(kind, counters, fullTablePolicy, control, this.clock)
        : redisDriver(kind, counters, fullTablePolicy, control);
    this.engine = this.#driver.engine;
  }

  close(): void {
    this.#driver.close();
  }

  /** Runs one turn of the shard worker. @returns the number of entries that it processed */
  runWorker(): number {
    return this.#driver.runWorker();
  }

  /** Moves weir's time forward to a later time, from which it goes on. */
  moveClockTo(ms: number): Promise<void> {
    return this.#driver.moveClockTo(ms);
  }

  count(stat: (typeof ACCEPTOR_STAT)[keyof typeof ACCEPTOR_STAT]): number {
    return this.#stats.get(stat);
  }

  check(identifier: string, terms: Partial<Check> = {}): Check {
    return checkOf(identifier, terms);
  }

  /** Decides a check, at once or when the worker has decided it. */
  decide(identifier: string, terms: Partial<Check> = {}): Promise<Decision> {
    const check = this.check(identifier, terms);
    return decideOne(this.engine, check, this.clock, () => this.runWorker());
  }

  decideBatch(checks: readonly Check[]): Promise<BatchDecision> {
    const decide: DecideMany = (completion) => {
      return this.engine.decideBatch(checks, this.clock.monotonicMs(), undefined, completion);
    };
    return decideMany(checks, decide, () => this.runWorker());
  }

  decideEach(checks: readonly Check[], countsDenied: boolean): Promise<BatchDecision> {
    const startedMs = this.clock.monotonicMs();
    const decide: DecideMany = (completion) => {
      return this.engine.decideEach(checks, startedMs, undefined, completion, countsDenied);
    };
    return decideMany(checks, decide, () => this.runWorker());
  }
}

/** @param whenDeferred called where the check is decided later */
export function decideOne(
  engine: Engine,
  check: Check,
  clock: Clock,
  whenDeferred: () => void,
): Promise<Decision> {
  return new Promise((resolve, reject) => {
    const decision = engine.decide(check, clock.monotonicMs(), resolve, {
      complete: (done, _startedMs, _check, decided) => done({ ...decided }),
      fail: (_done, error) => reject(error),
    });
    if (decision !== undefined) resolve({ ...decision });
    else whenDeferred();
  });
}

type DecideMany = (completion: {
  complete: (
    context: undefined,
    startedMs: number,
    checks: readonly Check[],
    decision: BatchDecision,
  ) => void;
  fail: (context: undefined, error: unknown) => void;
}) => BatchDecision | undefined;

/** @param decide decides several checks. @param whenDeferred called where that happens later */
export function decideMany(
  checks: readonly Check[],
  decide: DecideMany,
  whenDeferred = () => {},
): Promise<BatchDecision> {
  const copy = ({ allowed, decisions }: BatchDecision): BatchDecision => {
    return { allowed, decisions: decisions.slice(0, checks.length).map((one) => ({ ...one })) };
  };
  return new Promise((resolve, reject) => {
    const decision = decide({
      complete: (_context, _startedMs, _checks, decided) => resolve(copy(decided)),
      fail: (_context, error) => reject(error),
    });
    if (decision !== undefined) resolve(copy(decision));
    else whenDeferred();
  });
}
