/**
 * A machine of `cluster-goals.ts`: the redis engine of an acceptor, as a weir has it behind HTTP.
 * It decides the checks of a workload as they arrive, and records each of them with its times.
 *
 * It looks for arrivals every ms, because timers have no better resolution, and a thread that never
 * sleeps would take the processor from the others. Up to 1 ms of arrivals are checked together.
 */

import { type MessagePort, parentPort, workerData } from 'node:worker_threads';
import type { Check } from '../../src/core/check.ts';
import type { Decision } from '../../src/core/decision.ts';
import { Hasher, newIdentity } from '../../src/core/hash.ts';
import { type Namespace, UNRECORDED } from '../../src/core/namespace.ts';
import { NO_BURST, type RuleNumber } from '../../src/core/window-rules.ts';
import type { RedisEngineData } from '../../src/engine/redis/allocate.ts';
import { createRedisEngine } from '../../src/engine/redis/create-redis-engine.ts';
import { Clock } from '../../src/shared-memory/clock.ts';
import { Control } from '../../src/shared-memory/control.ts';
import { CheckLog } from '../../test/support/replay.ts';
import { seededRandom } from '../../test/support/seeded-random.ts';
import { HASH_KEY } from '../support/override-sets.ts';

export interface MachineData {
  control: SharedArrayBuffer;
  engine: RedisEngineData;
}

/** The part of a workload that arrives at this machine. */
export interface MachineLoad {
  name: string;
  /** By identifier. */
  limits: readonly number[];
  durationMs: number;
  rule: RuleNumber;
  /** Ascending from 0 to 1: the probability of an identifier up to this one. */
  cumulated: Float64Array;
  /** Checks per second, and the mean of how many arrive at once. */
  rate: number;
  burst: number;
  startMs: number;
  endMs: number;
  seed: number;
}

export type MachineRequest =
  | { kind: 'connect'; worker: number; port: MessagePort }
  | { kind: 'run'; load: MachineLoad };

export interface MachineResult {
  rows: Float64Array;
  /** Checks that got no decision at all. */
  failures: number;
}

const TICK_MS = 1;
/** So long a thread may sleep if nothing arrives. */
const SLEEP_MAX_MS = 100;

const { control: controlBuffer, engine: data } = workerData as MachineData;
const control = new Control(controlBuffer);
const clock = new Clock(control);
const engine = createRedisEngine(data, 0, control, clock);
const hasher = new Hasher(HASH_KEY);
const namespace: Namespace = {
  ...{ name: 'goals', id: undefined, hashState: hasher.namespace('goals') },
  ...{ decisionCounts: new Float64Array(8), trieRoots: new Int32Array(0), trieVersion: 0 },
  ...{ ...UNRECORDED, key: 'goals', isTransient: false },
};

parentPort!.on('message', (request: MachineRequest) => {
  if (request.kind === 'connect') engine.connectWorker(request.worker, request.port);
  else void run(request.load).then(reply);
});

function reply(result: MachineResult): void {
  parentPort!.postMessage(result, [result.rows.buffer as ArrayBuffer]);
}

interface PendingCheck {
  id: number;
  sentMs: number;
}

function run(load: MachineLoad): Promise<MachineResult> {
  const { limits, durationMs, rule, cumulated, burst, startMs, endMs } = load;
  const log = new CheckLog();
  const below = seededRandom(load.seed);
  const random = () => below(2 ** 24) / 2 ** 24;
  const checks = limits.map((limit, id): Check => {
    const identifier = `${load.name}_${id}`;
    const identity = hasher.hash(namespace.hashState, identifier, newIdentity());
    const terms = { limit, durationMs, cost: 1, rule, burst: NO_BURST };
    return { ...terms, namespace, identity, identifier, isAsync: false, overrideId: undefined };
  });
  let pending = 0;
  let failures = 0;
  const completion = {
    complete: ({ id, sentMs }: PendingCheck, _: number, __: Check, decision: Decision) => {
      pending--;
      log.add(id, decision.reset, 1, decision.allowed, sentMs, clock.monotonicMs(), true);
    },
    fail: () => {
      pending--;
      failures++;
    },
  };
  const decide = () => {
    const id = indexOf(cumulated, random());
    const sentMs = clock.monotonicMs();
    const decision = engine.decide(checks[id], sentMs, { id, sentMs }, completion);
    if (decision === undefined) pending++;
    else log.add(id, decision.reset, 1, decision.allowed, sentMs, clock.monotonicMs());
  };
  const meanGapMs = (1_000 / load.rate) * burst;
  const nextGapMs = () => -meanGapMs * Math.log(1 - random());
  let nextMs = startMs + nextGapMs();
  return new Promise((resolve) => {
    const step = () => {
      const nowMs = clock.monotonicMs();
      for (; nextMs <= nowMs && nextMs < endMs; nextMs += nextGapMs()) {
        do decide();
        while (random() >= 1 / burst);
      }
      if (nextMs >= endMs && pending === 0) {
        resolve({ rows: log.rows(), failures });
        return;
      }
      const leftMs = Math.min(nextMs - nowMs, SLEEP_MAX_MS);
      setTimeout(step, Math.max(TICK_MS, nextMs >= endMs ? TICK_MS : leftMs));
    };
    step();
  });
}

/** @returns the first index whose value is above a value */
function indexOf(ascending: Float64Array, value: number): number {
  let low = 0;
  let high = ascending.length - 1;
  while (low < high) {
    const middle = (low + high) >>> 1;
    if (ascending[middle] > value) high = middle;
    else low = middle + 1;
  }
  return low;
}
