/**
 * The goals for machines that share their counters, each with its figure: five machines, a round
 * trip of 0.5 to 2 ms to a real Redis, and the redis engine as in a weir, without HTTP. So rates
 * can be measured that a client on the same processor could not send.
 *
 * Every decision is recorded, and replayed: see `test/support/replay.ts`. A command is a script
 * call that carries a message about a counter. Heartbeats are calls without one.
 */

import { once } from 'node:events';
import { cpus } from 'node:os';
import { setTimeout as sleep } from 'node:timers/promises';
import { MessageChannel, Worker } from 'node:worker_threads';
import { openLog } from '../../src/core/log.ts';
import { RULE, type RuleNumber } from '../../src/core/window-rules.ts';
import { allocateRedisEngine } from '../../src/engine/redis/allocate.ts';
import { EngineState } from '../../src/engine/redis/engine-state.ts';
import { HostedRedisEngine } from '../../src/engine/redis/hosted-engine.ts';
import { ShardWorkerHost } from '../../src/engine/worker/host.ts';
import type { RedisSettings } from '../../src/redis/settings.ts';
import { Clock, ClockPublisher } from '../../src/shared-memory/clock.ts';
import { allocateControl, Control } from '../../src/shared-memory/control.ts';
import { ACCEPTOR_STAT, WORKER_STAT } from '../../src/shared-memory/stats.ts';
import { redisSettings } from '../../test/support/redis-settings.ts';
import { quantile, replay } from '../../test/support/replay.ts';
import { startDelayProxy } from '../../test/system/redis/delay-proxy.ts';
import { type RedisServer, startRedis } from '../peers/redis-server.ts';
import { cpuSeconds } from '../support/servers.ts';
import type {
  MachineData,
  MachineLoad,
  MachineRequest,
  MachineResult,
} from './cluster-machine.thread.ts';

const MACHINES = 5;
/** A round trip of 0.5 to 2 ms. */
const NETWORK = { delayMs: 0.25, jitterMs: 0.75 };
const COUNTERS = 262_144;
/** Above the default of 20 ms: a pause of this machine shall not decide without Redis. */
const TIMEOUT_MS = 200;
export const GOALS_SECONDS = 2;
const WARM_UP_SECONDS = 2;
const START_MS = 50;
const ALIGNED_MAX_MS = 3_000;
const JOIN_MS = 10_000;
const BURST = 10;
/** Shares of the checks by machine. */
const EVEN = Array.from({ length: MACHINES }, () => 1 / MACHINES);
const SKEWED = [0.8, 0.05, 0.05, 0.05, 0.05];

interface Workload {
  name: string;
  /** By identifier. */
  limits: readonly number[];
  /** How often an identifier is checked, by identifier: in any unit. */
  weights: readonly number[];
  durationMs: number;
  /** Checks per second, of all machines. */
  rate: number;
  /** In parts of what the limits allow. Undefined: each identifier has another. */
  load: number | undefined;
  arrivals: 'even' | 'skewed' | 'bursty';
  seconds: number;
  goal: Goal;
}

interface Goal {
  /** Commands per check. */
  commands: number;
  /** Share of the checks that wait. Undefined: there is no goal. */
  waited: number | undefined;
  /** p99 of the checks that wait. */
  p99Ms: number;
}

export interface GoalRow extends Pick<Workload, 'name' | 'load' | 'arrivals' | 'goal'> {
  decisions: number;
  overAdmission: number;
  denials: number;
  certainlyFalse: number;
  unproven: number;
  withoutRedis: number;
  /** Leases of machines that answered no recall: Redis denies as if their tokens were used. */
  writtenOff: number;
  /** Windows that denied a token. */
  exhausted: number;
  leastUtilisation: number;
  /** By check: calls that carry messages, and all calls. */
  commands: number;
  calls: number;
  waited: number;
  p50Ms: number;
  p99Ms: number;
  /** Cores that this measurement used, and that other programs used meanwhile. */
  cores: number;
  otherCores: number;
  /** What was missed. */
  missed: string[];
}

const UTILISATION_GOAL = 0.999;
const ARRIVALS = ['even', 'skewed', 'bursty'] as const;

function workloadsOf(seconds: number): Workload[] {
  return [
    ...loads(100, 1_000, seconds, [0.9, 1, 2], 0.4, false),
    ...loads(100, 1_000, seconds, [10], 0.05, false),
    ...loads(1_000, 1_000, seconds, [0.9, 1, 2], 0.1, true),
    ...loads(1_000, 1_000, seconds, [10], 0.01, true),
    // The next with a twentieth of the duration, and twenty times the rate.
    ...loads(10_000, 3_000, Math.max(3, seconds), [0.9, 1, 2], 0.01, true),
    minuteWorkload(),
    ...loads(100_000, 1_000, seconds, [0.9, 1, 2], 0.005, true),
    ...zipfWorkloads(Math.max(seconds, 6)),
  ];
}

/** One identifier, by load and arrivals. */
function loads(
  limit: number,
  durationMs: number,
  seconds: number,
  factors: readonly number[],
  commands: number,
  hasWaitGoal: boolean,
): Workload[] {
  const name = `${limit.toLocaleString('en')} / ${durationMs / 1_000} s`;
  return factors.flatMap((load) =>
    ARRIVALS.map((arrivals) => ({
      ...{ name, limits: [limit], weights: [1], durationMs, load, arrivals, seconds },
      rate: (load * limit * 1_000) / durationMs,
      goal: { commands, waited: hasWaitGoal ? 0.1 : undefined, p99Ms: p99Goal(arrivals) },
    })),
  );
}

/** Identifiers at 0.9, 1 and 2 times their limit, together, for more than a whole minute. */
function minuteWorkload(): Workload {
  const weights = [0.9, 1, 2];
  return {
    ...{ name: '10,000 / 60 s, three', limits: weights.map(() => 10_000), weights },
    ...{ durationMs: 60_000, load: undefined, arrivals: 'even', seconds: 65 },
    rate: (3.9 * 10_000) / 60,
    goal: { commands: 0.01, waited: 0.1, p99Ms: p99Goal('even') },
  };
}

function zipfWorkloads(seconds: number): Workload[] {
  const weights = Array.from({ length: 100_000 }, (_, i) => 1 / (i + 1));
  return (['even', 'bursty'] as const).map((arrivals) => ({
    ...{ name: '100 / 60 s, Zipf', limits: weights.map(() => 100), weights },
    ...{ durationMs: 60_000, load: undefined, arrivals, seconds, rate: 10_000 },
    goal: { commands: 0.35, waited: undefined, p99Ms: p99Goal(arrivals) },
  }));
}

function p99Goal(arrivals: Workload['arrivals']): number {
  return arrivals === 'bursty' ? 10 : 5;
}

/** A weir without HTTP: an acceptor's thread, and the thread of a shard worker. */
export class Machine {
  readonly control: Control;
  readonly #thread: Worker;
  readonly #host: ShardWorkerHost;
  readonly #state: EngineState;

  constructor(settings: RedisSettings) {
    const controlBuffer = allocateControl(1, 1);
    this.control = new Control(controlBuffer);
    new ClockPublisher(this.control);
    const clock = new Clock(this.control);
    const holdPolicies = { whenFull: 'deny', onExpiry: 'release' } as const;
    const options = { settings, holdPolicies, holds: 1 };
    const engine = allocateRedisEngine(this.control, COUNTERS, options, clock);
    this.#state = new EngineState(engine.state);
    const workerData: MachineData = { control: controlBuffer, engine };
    const file = new URL('./cluster-machine.thread.js', import.meta.url);
    this.#thread = new Worker(file, { workerData });
    this.#host = new ShardWorkerHost(
      new HostedRedisEngine(engine, controlBuffer),
      this.control,
      (worker) => {
        const { port1, port2 } = new MessageChannel();
        this.#thread.postMessage(request({ kind: 'connect', worker, port: port1 }), [port1]);
        return [port2];
      },
      openLog('warn', 'text'),
    );
  }

  get hasJoined(): boolean {
    return this.#state.hasJoined(0);
  }

  async run(load: MachineLoad): Promise<MachineResult> {
    const result = once(this.#thread, 'message');
    this.#thread.postMessage(request({ kind: 'run', load }));
    return (await result)[0] as MachineResult;
  }

  async stop(): Promise<void> {
    await this.#host.drain();
    await this.#host.stop();
    await this.#thread.terminate();
  }
}

const request = (message: MachineRequest) => message;

/** @param seconds of most workloads */
export async function measureGoals(
  seconds: number,
  progress: (what: string) => void,
): Promise<GoalRow[]> {
  return withMachines(async (redis, machines) => {
    const workloads = workloadsOf(seconds);
    progress('cluster-goals: warm up');
    await measure(redis, machines, { ...workloads[0], seconds: WARM_UP_SECONDS }, 0);
    const rows: GoalRow[] = [];
    for (const [i, workload] of workloads.entries()) {
      const { name, load, arrivals } = workload;
      progress(`cluster-goals: ${name}, ${load ?? 'several'} x, ${arrivals}`);
      rows.push(await measure(redis, machines, workload, i + 1));
    }
    return rows;
  });
}

/** Runs with MACHINES machines and their Redis, which are then stopped. */
export async function withMachines<T>(
  work: (redis: RedisServer, machines: readonly Machine[]) => Promise<T>,
): Promise<T> {
  const redis = await startRedis();
  // One thread delays the connections of all machines, each on its own.
  const proxy = await startDelayProxy(redis.port, NETWORK);
  const machines: Machine[] = [];
  try {
    for (let i = 0; i < MACHINES; i++) machines.push(new Machine(settingsFor(proxy.port)));
    await waitUntilJoined(machines);
    return await work(redis, machines);
  } finally {
    await Promise.all(machines.map((machine) => machine.stop()));
    await proxy.close();
    await redis.stop();
  }
}

function settingsFor(port: number): RedisSettings {
  return redisSettings(`redis://127.0.0.1:${port}`, {
    ...{ redisPrefix: 'goals', redisTimeoutMs: TIMEOUT_MS, onEngineDown: 'deny' },
    recovery: 'exact',
  });
}

async function waitUntilJoined(machines: readonly Machine[]): Promise<void> {
  const endMs = performance.now() + JOIN_MS;
  while (!machines.every(({ hasJoined }) => hasJoined)) {
    if (performance.now() > endMs) throw new Error(`not all machines joined in ${JOIN_MS} ms`);
    await sleep(10);
  }
}

async function measure(
  redis: RedisServer,
  machines: readonly Machine[],
  workload: Workload,
  number: number,
): Promise<GoalRow> {
  const { name, limits, load, arrivals, goal } = workload;
  const cpuBefore = readCpu(redis.pid);
  const { logs, counted } = await runWorkload(machines, workload, RULE.fixed, number);
  const cpu = readCpu(redis.pid);
  const replayed = replay(logs, (id) => limits[id]);
  const { decisions, waitsMs, leastUtilisation } = replayed;
  const row = {
    ...{ name, load, arrivals, goal, decisions, leastUtilisation },
    overAdmission: replayed.overAdmission,
    denials: replayed.denials,
    certainlyFalse: replayed.certainlyFalse,
    exhausted: replayed.exhausted,
    unproven: counted.unproven,
    withoutRedis: counted.withoutRedis,
    writtenOff: counted.writtenOff,
    // A call carries one message or more, or it is a heartbeat.
    commands: Math.min(counted.messages, counted.calls) / decisions,
    calls: counted.calls / decisions,
    waited: waitsMs.length / decisions,
    p50Ms: quantile(waitsMs, 0.5),
    p99Ms: quantile(waitsMs, 0.99),
    ...coresBetween(cpuBefore, cpu),
  };
  return { ...row, missed: missedGoals(row) };
}

/**
 * Runs a workload on all machines.
 * @param number gives the workload its own counters
 * @returns the log of each machine, and what they counted meanwhile
 */
export async function runWorkload(
  machines: readonly Machine[],
  workload: Omit<Workload, 'load' | 'goal'>,
  rule: RuleNumber,
  number: number,
): Promise<{ logs: Float64Array[]; counted: Counts; startMs: number; startWallMs: number }> {
  const { name, limits, weights, durationMs, rate, arrivals, seconds } = workload;
  const before = countsOf(machines);
  const startMs = startOf(machines[0], durationMs);
  const shares = arrivals === 'skewed' ? SKEWED : EVEN;
  const results = await Promise.all(
    machines.map((machine, i) =>
      machine.run({
        ...{ name: `${number}`, limits, durationMs, rule, cumulated: cumulate(weights) },
        ...{ rate: rate * shares[i], burst: arrivals === 'bursty' ? BURST : 1 },
        ...{ startMs, endMs: startMs + 1_000 * seconds, seed: 1_000 * number + i },
      }),
    ),
  );
  const after = countsOf(machines);
  const failures = results.reduce((sum, result) => sum + result.failures, 0);
  if (failures > 0) throw new Error(`${name}: ${failures} checks without a decision`);
  const counted = { ...after };
  for (const of of Object.keys(counted) as (keyof Counts)[]) counted[of] -= before[of];
  const startWallMs = Math.round(new Clock(machines[0].control).wallMs(startMs));
  return { logs: results.map((result) => result.rows), counted, startMs, startWallMs };
}

interface CpuReading {
  atMs: number;
  /** Seconds of CPU of this process and of Redis, and of all programs. */
  ownS: number;
  allS: number;
}

function readCpu(redisPid: number): CpuReading {
  const { user, system } = process.cpuUsage();
  const ownS = (user + system) / 1e6 + (cpuSeconds(redisPid) ?? 0);
  const busy = cpus().map(({ times }) => times.user + times.nice + times.sys + times.irq);
  return { atMs: performance.now(), ownS, allS: busy.reduce((sum, ms) => sum + ms, 0) / 1e3 };
}

function coresBetween(from: CpuReading, to: CpuReading) {
  const seconds = (to.atMs - from.atMs) / 1e3;
  const cores = (to.ownS - from.ownS) / seconds;
  return { cores, otherCores: Math.max(0, (to.allS - from.allS) / seconds - cores) };
}

/** @returns when a window begins, so that whole windows are measured; soon if they are long */
function startOf({ control }: Machine, durationMs: number): number {
  const clock = new Clock(control);
  const startMs = clock.monotonicMs() + START_MS;
  if (durationMs > ALIGNED_MAX_MS) return startMs;
  return startMs + durationMs - (clock.wallMs(startMs) % durationMs);
}

function missedGoals(row: Omit<GoalRow, 'missed'>): string[] {
  const { overAdmission, certainlyFalse, leastUtilisation, commands, waited, p99Ms, goal } = row;
  return [
    ...(overAdmission > 0 ? ['over-admission'] : []),
    ...(certainlyFalse > 0 ? ['false denials'] : []),
    ...(leastUtilisation < UTILISATION_GOAL ? ['utilisation'] : []),
    ...(commands > goal.commands ? ['commands'] : []),
    ...(goal.waited !== undefined && waited > goal.waited ? ['waiting'] : []),
    ...(p99Ms > goal.p99Ms ? ['p99'] : []),
  ];
}

interface Counts {
  messages: number;
  calls: number;
  unproven: number;
  withoutRedis: number;
  writtenOff: number;
  shared: number;
}

function countsOf(machines: readonly Machine[]): Counts {
  const counts = { messages: 0, calls: 0, unproven: 0, withoutRedis: 0, writtenOff: 0, shared: 0 };
  for (const { control } of machines) {
    const [worker, acceptor] = [control.workerStats(0), control.acceptorStats(0)];
    counts.messages += worker.get(WORKER_STAT.tokenRequests);
    counts.calls += worker.get(WORKER_STAT.redisCalls);
    counts.unproven += worker.get(WORKER_STAT.unprovenDenials);
    counts.writtenOff += worker.get(WORKER_STAT.leasesWrittenOff);
    counts.withoutRedis += acceptor.get(ACCEPTOR_STAT.engineDownDenied);
    counts.shared += acceptor.get(ACCEPTOR_STAT.sharedDenials);
  }
  return counts;
}

/** @returns ascending, with 1 as the last */
function cumulate(weights: readonly number[]): Float64Array {
  const sum = weights.reduce((all, weight) => all + weight, 0);
  const cumulated = new Float64Array(weights.length);
  let before = 0;
  for (const [i, weight] of weights.entries()) {
    before += weight / sum;
    cumulated[i] = before;
  }
  return cumulated;
}
