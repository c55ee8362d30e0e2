/**
 * An engine as an acceptor has it, and the shard worker of its queues, on one thread. The worker
 * runs when the test says so.
 */

import { MessageChannel } from 'node:worker_threads';
import type { Check } from '../../src/core/check.ts';
import { SHARDS, SLOTS_PER_COUNTER } from '../../src/core/constants.ts';
import type { Decision, FullTablePolicy } from '../../src/core/decision.ts';
import { Hasher, newIdentity } from '../../src/core/hash.ts';
import { NO_BURST, RULE } from '../../src/core/window-rules.ts';
import type { BatchDecision, Engine } from '../../src/engine/engine.ts';
import { groupsPerShard } from '../../src/engine/memory/layout.ts';
import { shardOf } from '../../src/engine/memory/shard.ts';
import { CounterTable } from '../../src/engine/memory/table.ts';
import { allocateTable } from '../../src/engine/memory/table-memory.ts';
import type { MemoryEngineData } from '../../src/engine/worker/allocate.ts';
import { CheckQueueConsumer } from '../../src/engine/worker/check-queue-consumer.ts';
import { allocateChannel, attachChannel } from '../../src/engine/worker/queue.ts';
import { createEngine } from '../../src/server/create-engine.ts';
import { Clock, ClockPublisher } from '../../src/shared-memory/clock.ts';
import { allocateControl, Control } from '../../src/shared-memory/control.ts';
import { type ACCEPTOR_STAT, newNamespaceRow } from '../../src/shared-memory/stats.ts';

/** 30 days: the clock is the system's, and a test must not see the end of a window. */
export const DURATION_MS = 2_592_000_000;
const WORKER_LOCK_OWNER = 1_000;

export class TestEngine {
  readonly engine: Engine;
  readonly clock: Clock;
  readonly #control = new Control(allocateControl(1, 1));
  readonly #stats;
  readonly #hasher = new Hasher(Buffer.from('0123456789abcdef'));
  readonly #worker: CheckQueueConsumer;
  readonly #ports: MessageChannel;

  constructor(
    decide: MemoryEngineData['decide'],
    counters: number,
    fullTablePolicy: FullTablePolicy = 'deny',
  ) {
    const control = this.#control;
    new ClockPublisher(control);
    this.clock = new Clock(control);
    this.#stats = control.acceptorStats(0);
    const groups = groupsPerShard(counters * SLOTS_PER_COUNTER, SHARDS);
    const tables = Array.from({ length: SHARDS }, (_, shard) => allocateTable(shard, groups));
    const channel = allocateChannel(0, 0);
    const data: MemoryEngineData = {
      engine: 'memory',
      decide,
      fullTablePolicy,
      tables,
      channels: [[channel]],
    };
    this.engine = createEngine(data, 0, control, this.clock);
    const owned = tables.map((buffer, shard) => {
      return new CounterTable(buffer, shard, WORKER_LOCK_OWNER, fullTablePolicy, () => {});
    });
    this.#ports = new MessageChannel();
    this.engine.connectWorker(0, this.#ports.port1);
    this.#worker = new CheckQueueConsumer(
      attachChannel(channel, 0, 0),
      (id) => owned[shardOf(id)],
      this.clock,
      control.workerStats(0),
      decide === 'worker' ? this.#ports.port2 : undefined,
    );
  }

  close(): void {
    this.#ports.port2.close();
  }

  /** Runs one turn of the shard worker. @returns the number of entries that it processed */
  runWorker(): number {
    return this.#worker.processEntries(Number.POSITIVE_INFINITY);
  }

  /** Moves weir's time forward to a later time, from which it goes on. */
  moveClockTo(ms: number): void {
    new ClockPublisher(this.#control, ms);
  }

  count(stat: (typeof ACCEPTOR_STAT)[keyof typeof ACCEPTOR_STAT]): number {
    return this.#stats.get(stat);
  }

  check(identifier: string, terms: Partial<Check> = {}): Check {
    const identity = newIdentity();
    const name = 'engines';
    const hashState = this.#hasher.namespace(name);
    this.#hasher.hash(hashState, identifier, identity);
    const decisionCounts = newNamespaceRow();
    const trieRoots = new Int32Array(0);
    return {
      namespace: { name, id: undefined, hashState, decisionCounts, trieRoots, trieVersion: 0 },
      ...{ identity, limit: 10, durationMs: DURATION_MS, cost: 1 },
      ...{ rule: RULE.fixed, burst: NO_BURST },
      ...{ isAsync: false, overrideId: undefined, ...terms },
    };
  }

  /** Decides a check, at once or when the worker has decided it. */
  decide(identifier: string, terms: Partial<Check> = {}): Promise<Decision> {
    const check = this.check(identifier, terms);
    return new Promise((resolve, reject) => {
      const startedMs = this.clock.monotonicMs();
      const decision = this.engine.decide(check, startedMs, resolve, {
        complete: (done, _startedMs, _check, decided) => done({ ...decided }),
        fail: (_done, error) => reject(error),
      });
      if (decision !== undefined) resolve({ ...decision });
      else this.runWorker();
    });
  }

  decideBatch(checks: readonly Check[]): Promise<BatchDecision> {
    return this.#decideMany(checks, (completion) => {
      return this.engine.decideBatch(checks, this.clock.monotonicMs(), undefined, completion);
    });
  }

  decideEach(checks: readonly Check[], countsDenied: boolean): Promise<BatchDecision> {
    const startedMs = this.clock.monotonicMs();
    return this.#decideMany(checks, (completion) => {
      return this.engine.decideEach(checks, startedMs, undefined, completion, countsDenied);
    });
  }

  #decideMany(
    { length }: readonly Check[],
    decide: (completion: {
      complete: (context: undefined, startedMs: number, decision: BatchDecision) => void;
      fail: (context: undefined, error: unknown) => void;
    }) => BatchDecision | undefined,
  ): Promise<BatchDecision> {
    const copy = ({ allowed, decisions }: BatchDecision): BatchDecision => {
      return { allowed, decisions: decisions.slice(0, length).map((one) => ({ ...one })) };
    };
    return new Promise((resolve, reject) => {
      const decision = decide({
        complete: (_context, _startedMs, decided) => resolve(copy(decided)),
        fail: (_context, error) => reject(error),
      });
      if (decision !== undefined) resolve(copy(decision));
    });
  }
}
