/**
 * A machine of the redis engine on one thread: the engine of an acceptor, and the shard worker of
 * its queues with a connection of its own. The worker follows answers and messages of Redis by
 * itself.
 */

import { MessageChannel, type MessagePort } from 'node:worker_threads';
import { HOLDS_DEFAULT } from '../../src/core/constants.ts';
import type { FullTablePolicy } from '../../src/core/decision.ts';
import type { Identity } from '../../src/core/hash.ts';
import type { Engine } from '../../src/engine/engine.ts';
import type { ExpiredHoldPolicy } from '../../src/engine/hold-engine.ts';
import { CheckQueueConsumer } from '../../src/engine/queue/check-queue-consumer.ts';
import { attachChannel } from '../../src/engine/queue/queue.ts';
import { allocateRedisEngine } from '../../src/engine/redis/allocate.ts';
import { createRedisEngine } from '../../src/engine/redis/create-redis-engine.ts';
import { EngineState } from '../../src/engine/redis/engine-state.ts';
import type { Predecessor } from '../../src/engine/redis/hand-over.ts';
import { LeaseTable } from '../../src/engine/redis/lease-table.ts';
import { MemberScripts, type ScriptRunner } from '../../src/engine/redis/member-scripts.ts';
import type {
  CounterTask,
  WorkerRequest,
  WorkerResult,
} from '../../src/engine/redis/port-messages.ts';
import { KeySpace } from '../../src/engine/redis/scripts/keys.ts';
import { decodeMemberMessage } from '../../src/engine/redis/scripts/member-messages.ts';
import { RedisShardWorker } from '../../src/engine/redis/shard-worker.ts';
import { Breaker } from '../../src/redis/breaker.ts';
import { openRedis } from '../../src/redis/connection.ts';
import type { RedisLink } from '../../src/redis/link.ts';
import type { EngineDownPolicy } from '../../src/redis/settings.ts';
import { parseRedisUrl } from '../../src/redis/url.ts';
import { Clock, ClockPublisher, systemMs } from '../../src/shared-memory/clock.ts';
import { allocateControl, Control } from '../../src/shared-memory/control.ts';
import { redisSettings } from './redis-settings.ts';

const WORKER_LOCK_OWNER = 1_000;

export interface RedisMachineOptions {
  prefix?: string;
  leases?: boolean;
  syncMs?: number;
  /** Whether a recovery does not wait for machines that are gone: WEIR_RECOVERY=available. */
  isAvailable?: boolean;
  /** How long a check waits for Redis. */
  timeoutMs: number;
  /** How long a call waits, if less. */
  callTimeoutMs?: number;
  /** How long an empty Redis waits for members that know others. */
  openGraceMs?: number;
  counters?: number;
  fullTablePolicy?: FullTablePolicy;
  onHoldExpiry?: ExpiredHoldPolicy;
  /** How many reservations and leases may be live. */
  holds?: number;
  /** What decides a check that Redis does not. Without it nothing is allowed. */
  onEngineDown?: EngineDownPolicy;
  /** The process before this one, which has handed over what it knew. */
  predecessor?: Predecessor;
  /** Whether it stops calling a Redis that fails. Otherwise a slow computer does not end its use. */
  hasBreaker?: boolean;
}

/** Instead of a breaker. */
const ALWAYS_CLOSED = {
  isOpen: false,
  allows: () => true,
  succeeded: () => {},
  failed: () => {},
  lost: () => {},
  msUntilProbe: () => undefined,
};

export class RedisMachine {
  readonly control: Control;
  readonly clock: Clock;
  readonly engine: Engine;
  readonly state: EngineState;
  readonly keys: KeySpace;
  readonly member: string;
  readonly link: RedisLink;
  worker: RedisShardWorker;
  /** Called after each call of a script; may delay the answer, or throw. */
  interceptAnswer: ((script: string) => Promise<void>) | undefined;
  /** How much the clock of the system is ahead. */
  systemOffsetMs = 0;
  readonly #newWorker: (port: MessagePort) => RedisShardWorker;
  #ports = new MessageChannel();

  constructor(
    url: string,
    options: RedisMachineOptions,
    control = new Control(allocateControl(1, 1)),
  ) {
    const { prefix = 'weir', leases = true, syncMs = 100, timeoutMs, counters = 4_096 } = options;
    const { callTimeoutMs = timeoutMs, fullTablePolicy = 'deny', isAvailable = false } = options;
    const { onEngineDown = 'deny', onHoldExpiry = 'release', holds = HOLDS_DEFAULT } = options;
    const settings = redisSettings(url, {
      ...{ redisPrefix: prefix, leases: leases ? 'on' : 'off', syncMs, redisTimeoutMs: timeoutMs },
      ...{ onEngineDown, recovery: isAvailable ? 'available' : 'exact' },
    });
    this.control = control;
    new ClockPublisher(control);
    this.clock = new Clock(control);
    const holdPolicies = { whenFull: fullTablePolicy, onExpiry: onHoldExpiry } as const;
    const parts = { settings, holdPolicies, holds };
    const data = allocateRedisEngine(control, counters, parts, this.clock);
    this.engine = createRedisEngine(data, 0, control, this.clock);
    this.state = new EngineState(data.state);
    this.keys = new KeySpace(prefix, parseRedisUrl(url).kind === 'cluster');
    this.member = `${data.processId}.0`;
    this.link = openRedis(settings, {
      onConnected: () => this.worker.probe(),
      onFailure: () => this.worker.onConnectionLost(),
    });
    const runner: ScriptRunner = {
      call: async (...call) => {
        const answer = await this.link.call(...call);
        await this.interceptAnswer?.(call[0].name);
        return answer;
      },
    };
    const context = { keys: this.keys, isAvailable };
    const scripts = new MemberScripts(runner, context, callTimeoutMs, options.openGraceMs);
    let owner = WORKER_LOCK_OWNER;
    this.#newWorker = (port) => {
      const { state, member, clock } = this;
      const stats = control.workerStats(0);
      owner++;
      return new RedisShardWorker({
        ...{ index: 0, member, state, settings, stats, scripts, holds },
        predecessor: options.predecessor,
        tables: data.tables.map((buffer, shard) => {
          return new LeaseTable(buffer, shard, state, owner, () => {});
        }),
        consumers: [new CheckQueueConsumer(attachChannel(data.channels[0][0], 0, 0), stats, port)],
        newBreaker: () => (options.hasBreaker ? new Breaker() : ALWAYS_CLOSED),
        nowMs: () => clock.monotonicMs(),
        systemMs: () => systemMs() + this.systemOffsetMs,
      });
    };
    this.worker = this.#connectWorker();
    this.link.subscribe(
      Array.from({ length: this.keys.bucketCount }, (_, bucket) => {
        return this.keys.channel(bucket, this.member);
      }),
      (bucket, text) => {
        const message = decodeMemberMessage(text);
        if (message !== undefined) this.worker.receive(bucket, message);
      },
      () => this.worker.onSubscribed(),
    );
    this.worker.start();
  }

  /** Ends the run of the worker at once, and starts another one. */
  replaceWorker(): void {
    this.worker.close();
    this.#ports.port2.close();
    this.#ports = new MessageChannel();
    this.worker = this.#connectWorker();
    this.worker.start();
  }

  /** Corrects or inspects counters, without an acceptor. */
  request(identity: Identity, action: CounterTask): Promise<WorkerResult> {
    const state = new Int32Array(new SharedArrayBuffer(4));
    return new Promise((resolve) => {
      const request = { number: 1, state, action: { ...action, identity } };
      void this.worker.answer(request, ({ result }) => resolve(result));
    });
  }

  /** Ends its connections without a word, as the death of the process does. */
  close(): void {
    this.worker.close();
    this.link.close();
    this.#ports.port2.close();
  }

  #connectWorker(): RedisShardWorker {
    const { port1, port2 } = this.#ports;
    this.engine.connectWorker(0, port1);
    port2.on('message', (request: WorkerRequest) => {
      void this.worker.answer(request, (response) => port2.postMessage(response));
    });
    return this.#newWorker(port2);
  }
}
