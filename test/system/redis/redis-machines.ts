/**
 * Machines that share their limits through a real Redis, all on the thread of the test: each has
 * lease tables, a queue, and a shard worker with connections of its own.
 */

import { randomBytes } from 'node:crypto';
import { MessageChannel } from 'node:worker_threads';
import { afterEach, expect } from 'vitest';
import { SHARDS } from '../../../src/core/constants.ts';
import { type CheckParameters, type Decision, newDecision } from '../../../src/core/decision.ts';
import { Hasher, type Identity, newIdentity } from '../../../src/core/hash.ts';
import { NO_BURST, RULE } from '../../../src/core/window-rules.ts';
import { shardOf } from '../../../src/engine/memory/shard.ts';
import { allocateEngineState, EngineState } from '../../../src/engine/redis/engine-state.ts';
import { allocateLeaseTable } from '../../../src/engine/redis/lease-memory.ts';
import { LeaseTable, VERDICT } from '../../../src/engine/redis/lease-table.ts';
import { MemberScripts, type ScriptRunner } from '../../../src/engine/redis/member-scripts.ts';
import type { CounterAction, CounterResult } from '../../../src/engine/redis/port-messages.ts';
import { RedisQueueConsumer } from '../../../src/engine/redis/queue-consumer.ts';
import { KeySpace } from '../../../src/engine/redis/scripts/keys.ts';
import { decodeMemberMessage } from '../../../src/engine/redis/scripts/member-messages.ts';
import { RedisShardWorker } from '../../../src/engine/redis/shard-worker.ts';
import { CheckQueueProducer } from '../../../src/engine/worker/check-queue-producer.ts';
import { ENTRY_KIND, NOTIFICATION_FLAG, REPLY } from '../../../src/engine/worker/layout.ts';
import {
  allocateChannel,
  attachChannel,
  QueueConsumer,
  REPLY_QUEUE,
} from '../../../src/engine/worker/queue.ts';
import { requestNotification } from '../../../src/engine/worker/wake-up.ts';
import { Breaker } from '../../../src/redis/breaker.ts';
import { openRedis } from '../../../src/redis/connection.ts';
import type { RedisLink } from '../../../src/redis/link.ts';
import type { Script } from '../../../src/redis/script.ts';
import { parseRedisUrl } from '../../../src/redis/url.ts';
import { Clock, ClockPublisher, systemMs } from '../../../src/shared-memory/clock.ts';
import { allocateControl, Control } from '../../../src/shared-memory/control.ts';
import type { WORKER_STAT } from '../../../src/shared-memory/stats.ts';
import type { RedisServer } from '../../support/programs/redis.ts';
import { useEmptyRedis } from './use-redis.ts';

const ACCEPTOR = 1;
const WORKER_RUN = 1_000;
/** No call times out because the computer is busy. */
const PATIENT_MS = 2_000;

export interface MachineOptions {
  /** How long calls wait for Redis, if less than `PATIENT_MS`. */
  timeoutMs?: number;
  /** After which time a check is withdrawn, if earlier than after `PATIENT_MS`. */
  withdrawMs?: number;
  leases?: boolean;
  syncMs?: number;
  /** Whether a recovery ends after 10 s without all reports: WEIR_RECOVERY=available. */
  isAvailable?: boolean;
  /** By shard. */
  groups?: number;
}

/** Runs scripts as the connection of the product does. */
class TestRunner implements ScriptRunner {
  readonly #link: RedisLink;
  calls = 0;
  /** Called after each call; may delay the answer, or throw. */
  interceptAnswer: (() => Promise<void>) | undefined;

  constructor(link: RedisLink) {
    this.#link = link;
  }

  async call(
    script: Script,
    keys: readonly string[],
    args: readonly (string | Buffer)[],
    deadlineMs?: number,
  ): Promise<unknown> {
    this.calls++;
    const answer = await this.#link.call(script, keys, args, deadlineMs);
    await this.interceptAnswer?.();
    return answer;
  }
}

export class TestMachine {
  readonly member: string;
  readonly state: EngineState;
  readonly control = new Control(allocateControl(1, 1));
  readonly clock: Clock;
  readonly runner: TestRunner;
  readonly keys: KeySpace;
  worker: RedisShardWorker;
  /** How much the clock of the system is ahead. */
  systemOffsetMs = 0;
  /** Checks that were withdrawn. */
  withdrawn = 0;
  readonly #buffers: readonly SharedArrayBuffer[];
  readonly #tables: readonly LeaseTable[];
  readonly #channel = attachChannel(allocateChannel(0, 0), 0, 0);
  readonly #producer: CheckQueueProducer;
  readonly #replies: QueueConsumer;
  readonly #options: MachineOptions;
  readonly link: RedisLink;
  readonly #ports = new MessageChannel();
  readonly #pending = new Map<number, (decision: Decision) => void>();
  #wakeUp: NodeJS.Immediate | undefined;

  constructor(url: string, options: MachineOptions = {}) {
    this.#options = options;
    this.member = `${randomBytes(8).toString('hex')}.0`;
    this.keys = new KeySpace('weir', parseRedisUrl(url).kind === 'cluster');
    this.state = new EngineState(allocateEngineState(1, this.keys.bucketCount));
    const tls = { ca: undefined, cert: undefined, key: undefined };
    this.link = openRedis(
      { url, password: undefined, tls, waitForReplicas: 0 },
      {
        onConnected: () => this.worker.probe(),
        onFailure: () => this.worker.onConnectionLost(),
      },
    );
    this.runner = new TestRunner(this.link);
    new ClockPublisher(this.control);
    this.clock = new Clock(this.control);
    this.state.setLocalClock(this.clock.nowMs(), this.clock.monotonicMs());
    this.#buffers = Array.from({ length: SHARDS }, (_, shard) => {
      return allocateLeaseTable(shard, options.groups ?? 4);
    });
    this.#tables = this.#newTables(ACCEPTOR);
    this.#producer = new CheckQueueProducer(this.#channel, this.control.workerStats(0));
    this.#replies = new QueueConsumer(this.#channel, REPLY_QUEUE);
    this.#ports.port1.on('message', () => this.#drainReplies());
    requestNotification(this.#channel.words, NOTIFICATION_FLAG);
    this.worker = this.#newWorker(WORKER_RUN);
    const buckets = Array.from({ length: this.keys.bucketCount }, (_, bucket) => bucket);
    this.link.subscribe(
      buckets.map((bucket) => this.keys.channel(bucket, this.member)),
      (bucket, message) => this.worker.receive(bucket, decodeMemberMessage(message)),
      () => this.worker.onSubscribed(),
    );
    this.worker.start();
  }

  /** Ends the run of the worker at once, and starts another one. */
  replaceWorker(): void {
    this.worker.close();
    this.worker = this.#newWorker(WORKER_RUN + 1);
    this.worker.start();
  }

  count(stat: (typeof WORKER_STAT)[keyof typeof WORKER_STAT]): number {
    return this.control.workerStats(0).get(stat);
  }

  /**
   * Decides a check as an acceptor does. One that Redis does not answer is withdrawn, and denied
   * here. Acceptors withdraw earlier, and decide themselves.
   */
  decide(identity: Identity, terms: Partial<CheckParameters>, kind: number = ENTRY_KIND.tokens) {
    const check: CheckParameters = {
      ...{ limit: 100, durationMs: 1_000, cost: 1, rule: RULE.fixed, burst: NO_BURST },
      ...terms,
    };
    const decision = newDecision();
    const table = this.#tables[shardOf(identity)];
    const nowMs = this.clock.monotonicMs();
    if (this.#options.leases !== false && kind === ENTRY_KIND.tokens) {
      const verdict = table.decide(identity, nowMs, check, decision);
      if (verdict === VERDICT.decidedPrefetch) this.#enqueue(ENTRY_KIND.prefetch, identity, check);
      if (verdict !== VERDICT.needsTokens) return Promise.resolve<Decision>(decision);
    }
    if (kind === ENTRY_KIND.asyncNew) {
      const verdict = table.decideAsync(identity, nowMs, check, decision);
      if (verdict === VERDICT.decidedReport) this.#enqueue(ENTRY_KIND.report, identity, check);
      if (verdict !== VERDICT.needsTokens) return Promise.resolve<Decision>(decision);
    }
    return new Promise<Decision>((resolve) => {
      const number = this.#enqueue(kind, identity, check);
      const timer = setTimeout(() => {
        if (!this.#producer.withdraw(number)) return;
        this.withdrawn++;
        this.#pending.delete(number);
        resolve({ ...decision, allowed: false });
      }, this.#options.withdrawMs ?? PATIENT_MS);
      this.#pending.set(number, (decided) => {
        clearTimeout(timer);
        resolve(decided);
      });
    });
  }

  /** Corrects or inspects counters as an acceptor does. */
  request(identity: Identity, action: CounterAction): Promise<CounterResult> {
    const state = new Int32Array(new SharedArrayBuffer(4));
    const request = { number: 1, state, identity, action };
    return new Promise((resolve) => {
      void this.worker.answer(request, ({ result }) => resolve(result));
    });
  }

  table(identity: Identity): LeaseTable {
    return this.#tables[shardOf(identity)];
  }

  close(): void {
    this.worker.close();
    clearImmediate(this.#wakeUp);
    this.#ports.port1.close();
    this.link.close();
  }

  /** Ends its connections without a word, as the death of the process does. */
  kill(): void {
    this.close();
  }

  #enqueue(kind: number, identity: Identity, check: CheckParameters): number {
    if (!this.#producer.hasRoom()) throw new Error('the queue is full');
    const number = this.#producer.nextNumber;
    this.#producer.enqueue(kind, identity, 7, check);
    this.#wakeUp ??= setImmediate(() => {
      this.#wakeUp = undefined;
      this.worker.processEntries();
    });
    return number;
  }

  #drainReplies(): void {
    const { words, doubles } = this.#channel;
    requestNotification(words, NOTIFICATION_FLAG);
    for (; !this.#replies.isEmpty(); this.#replies.releaseFirst()) {
      const at = this.#replies.firstItem();
      const number = words[at + REPLY.number];
      const resolve = this.#pending.get(number);
      this.#pending.delete(number);
      const reset = doubles[at / 2 + REPLY.reset];
      resolve?.({
        allowed: words[at + REPLY.allowed] === 1,
        remaining: doubles[at / 2 + REPLY.remaining],
        reset,
        window: 0,
      });
    }
  }

  #newTables(owner: number): LeaseTable[] {
    return this.#buffers.map((buffer, shard) => {
      return new LeaseTable(buffer, shard, this.state, owner, () => {});
    });
  }

  #newWorker(incarnation: number): RedisShardWorker {
    const { control, clock, state, member } = this;
    const { timeoutMs = PATIENT_MS, leases = true, syncMs = 100 } = this.#options;
    const { isAvailable = false } = this.#options;
    const stats = control.workerStats(0);
    return new RedisShardWorker({
      index: 0,
      member,
      tables: this.#newTables(incarnation),
      consumers: [new RedisQueueConsumer(this.#channel, stats, this.#ports.port2)],
      state,
      scripts: new MemberScripts(this.runner, { keys: this.keys, isAvailable }, timeoutMs, 0),
      newBreaker: () => new Breaker(),
      settings: { leases, syncMs },
      stats,
      nowMs: () => clock.monotonicMs(),
      systemMs: () => systemMs() + this.systemOffsetMs,
    });
  }
}

const hasher = new Hasher(Buffer.from('0123456789abcdef'));
const state = hasher.namespace('machines');

export function identityOf(identifier: string): Identity {
  const identity = newIdentity();
  hasher.hash(state, identifier, identity);
  return identity;
}

/** The machines of a test, and their Redis. */
interface MachineGroup {
  readonly redis: RedisServer;
  /** Those that the test has started. */
  readonly machines: TestMachine[];
  /** Starts machines one after the other, and waits until they are members. */
  start: (count: number, options?: MachineOptions) => Promise<TestMachine[]>;
}

/**
 * Gives each test of a file an empty Redis, and closes its machines after the test.
 * @param defaults options of all machines
 */
export function machineGroup(defaults: MachineOptions = {}): MachineGroup {
  const machines: TestMachine[] = [];
  const redis = useEmptyRedis();
  afterEach(() => {
    for (const machine of machines.splice(0)) machine.close();
  });
  return {
    redis,
    machines,
    start: async (count, options) => {
      for (let n = 0; n < count; n++) {
        const machine = new TestMachine(redis.url, { ...defaults, ...options });
        machines.push(machine);
        await expect.poll(() => machine.state.hasJoined(0)).toBe(true);
      }
      return machines;
    },
  };
}
