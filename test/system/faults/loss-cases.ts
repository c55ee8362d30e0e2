/**
 * What a loss of data in Redis, a restart and a partition cost three machines that have all
 * defaults, as an outside client counts it from HTTP answers. The test asserts the expectations of
 * this table, and `npm run bench -- cluster-faults` prints it for docs/guarantees.md.
 */

import { execFile } from 'node:child_process';
import { setTimeout as sleep } from 'node:timers/promises';
import { promisify } from 'node:util';
import type { RedisServer } from '../../support/programs/redis.ts';
import { CLI_PATH, cleanEnvironment, waitUntil } from '../../support/server.ts';
import type { Machine } from './cluster-machines.ts';
import {
  ALGORITHMS,
  COUNTER_KEY,
  type Environment,
  INDEX_KEY,
  type LossFigures,
  MACHINES,
  NORMAL_MAX_MS,
  newCounter,
  ObservedCluster,
  SHARES,
} from './observed-cluster.ts';
import type { Counter } from './outside-client.ts';

interface Expectation {
  /** Tokens above limits. Undefined: `WEIR_ON_ENGINE_DOWN` decides how many. */
  over: number | undefined;
  /** Denials of checks that fit: of new counters, and of counters that lost nothing. */
  deniedFalsely: number | undefined;
  /** Until all answers are right again. It is generous, because the computer may be busy. */
  secondsMax: number;
}

export interface LossCase {
  fault: string;
  expected: Expectation;
  /** @returns when all answers were right, in s after the fault; undefined if they never were */
  act: (cluster: ObservedCluster) => Promise<number | undefined>;
  env?: Environment;
  /** Whether `act` starts the machines. */
  startsItself?: boolean;
  /** Only in the long form. */
  isLong?: boolean;
}

const EXACT: Expectation = { over: 0, deniedFalsely: 0, secondsMax: NORMAL_MAX_MS / 1_000 };
/** Without any key Redis knows no counter, so that all wait for the reports of the machines. */
const ALL_WAIT: Expectation = { ...EXACT, deniedFalsely: undefined };
const LOCAL: Expectation = { ...ALL_WAIT, over: undefined };
/** Only the machine that is forgotten knew what it had used, with its lease. */
const USE_OF_ONE: Expectation = { ...EXACT, over: 100 * (SHARES.beforeFault / MACHINES + 0.05) };

/** With SIGTERM, one machine after the other. */
const RESTARTS = [
  { restarted: 0, after: 'no restart' },
  { restarted: 1, after: 'a restart of one machine' },
  { restarted: MACHINES, after: 'restarts of all machines' },
];
const WAIT = { WEIR_RECOVERY: 'exact' };
const DENY = { WEIR_ON_ENGINE_DOWN: 'deny' };
const PARTITION_MS = 3_000;
/** A machine that was killed is waited for: it is joining for so long. */
const SILENT_MS = 4_000;

const CASES: readonly LossCase[] = [
  ...afterRestarts([MACHINES], {
    ...{ fault: 'one counter loses its key', expected: EXACT },
    act: lose((cluster) => deleteKeys(cluster, [cluster.shared[1]], COUNTER_KEY)),
  }),
  ...afterRestarts([1], {
    ...{ fault: 'a used-up counter of an idle machine loses its key', expected: EXACT },
    act: lose((cluster) => deleteKeys(cluster, [cluster.idle[1]], COUNTER_KEY)),
  }),
  ...afterRestarts([], {
    ...{ fault: 'half of all keys of counters are lost', expected: EXACT },
    act: lose(deleteHalf),
  }),
  ...afterRestarts([MACHINES], {
    ...{ fault: 'all keys are lost (`FLUSHALL`)', expected: ALL_WAIT },
    act: lose(async ({ redis, shared, idle }) => {
      await redis.command('FLUSHALL');
      return [...shared, ...idle];
    }),
  }),
  ...(['volatile-lru', 'volatile-ttl'] as const).map((policy) => ({
    ...{ fault: `Redis evicts used-up counters of an idle machine (\`${policy}\`)` },
    ...{ expected: EXACT, isLong: policy !== 'volatile-lru' },
    act: (cluster: ObservedCluster) => evict(cluster, policy),
  })),
  {
    ...{ fault: 'a machine is restarted with SIGTERM, and asked at once', expected: EXACT },
    act: (cluster) => restartAndAsk(cluster, (machine) => machine.stop(), 1_500),
  },
  {
    ...{ fault: 'a machine gets `kill -9`, starts again, and is asked at once', expected: EXACT },
    act: (cluster) => restartAndAsk(cluster, (machine) => machine.kill(), SILENT_MS),
  },
  {
    ...{ fault: 'three machines start, and are asked as soon as they are ready', expected: EXACT },
    ...{ act: askWhenReady, startsItself: true },
  },
  ...[{ env: {} }, { env: DENY }].map(({ env }) => ({
    fault: `a machine is cut off from Redis for ${PARTITION_MS / 1_000} s`,
    ...{ expected: env === DENY ? ALL_WAIT : LOCAL, act: cutOff, env, isLong: env === DENY },
  })),
  {
    ...{ fault: 'one counter loses its key, after restarts of all machines', env: WAIT },
    ...{ expected: EXACT, isLong: true },
    act: lose((cluster) => deleteKeys(cluster, [cluster.shared[1]], COUNTER_KEY))(MACHINES),
  },
  {
    fault: 'a machine gets `kill -9`, a counter loses its key, and the machine is forgotten',
    ...{ expected: USE_OF_ONE, env: WAIT, act: loseAndForget },
  },
  // The last ones: they restart Redis, which lets machines wait in its first seconds.
  ...afterRestarts([1], {
    ...{ fault: 'Redis is killed, and restarted empty', expected: ALL_WAIT },
    act: lose(async ({ redis, shared, idle }) => {
      await redis.kill();
      await redis.restart({ isEmpty: true });
      return [...shared, ...idle];
    }),
  }),
];

export const LOSS_CASES = CASES.map((one) => {
  return { ...one, fault: `${one.fault}${describeEnvironment(one.env)}` };
});

export async function runLossCase(redis: RedisServer, one: LossCase): Promise<LossFigures> {
  const cluster = await ObservedCluster.create(redis, one.env);
  try {
    if (!one.startsItself) await cluster.start();
    return await cluster.figures(await one.act(cluster));
  } finally {
    await cluster.close();
  }
}

function describeEnvironment(env: Environment = {}): string {
  return Object.entries(env)
    .map(([name, value]) => ` (\`${name}=${value}\`)`)
    .join('');
}

interface LossAfterRestarts extends Omit<LossCase, 'act'> {
  act: (restarted: number) => LossCase['act'];
}

/** @param quick numbers of restarts, after which the loss is also in the short form */
function afterRestarts(quick: readonly number[], loss: LossAfterRestarts): LossCase[] {
  return RESTARTS.map(({ restarted, after }) => ({
    ...loss,
    fault: `${loss.fault}, after ${after}`,
    isLong: !quick.includes(restarted),
    act: loss.act(restarted),
  }));
}

/**
 * Loses keys of counters that all machines have used, also after the restarts, and of counters that
 * the first machine has used up. It gets no check from then on.
 * @param loseKeys returns the counters that have lost keys
 */
function lose(loseKeys: (cluster: ObservedCluster) => Promise<readonly Counter[]>) {
  return (restarted: number) => async (cluster: ObservedCluster) => {
    await cluster.use();
    for (const machine of cluster.machines.slice(0, restarted)) {
      await machine.stop();
      await machine.start();
    }
    await cluster.useUpTo(SHARES.beforeFault, cluster.shared);
    await cluster.beginFault();
    return observe(cluster, await loseKeys(cluster));
  };
}

/** All machines but the idle one are asked until they are right. Then the counters are used up. */
async function observe(
  cluster: ObservedCluster,
  lost: readonly Counter[],
): Promise<number | undefined> {
  const all = [...cluster.shared, ...cluster.idle];
  const affected = { lost, others: all.filter((counter) => !lost.includes(counter)) };
  const normalS = await cluster.untilNormal(affected, { ports: cluster.ports.slice(1) });
  if (normalS !== undefined) await cluster.useUp(affected);
  return normalS;
}

async function deleteKeys(
  cluster: ObservedCluster,
  counters: readonly Counter[],
  kinds?: RegExp,
): Promise<readonly Counter[]> {
  await cluster.redis.command('DEL', ...(await cluster.keysOf(counters, kinds)));
  return counters;
}

/** Of four counters, one loses all keys, one that of its window, and one the list of its keys. */
async function deleteHalf(cluster: ObservedCluster): Promise<readonly Counter[]> {
  const all = [...cluster.shared, ...cluster.idle];
  const every = (n: number) => all.filter((_, i) => i % 4 === n);
  return [
    ...(await deleteKeys(cluster, every(0))),
    ...(await deleteKeys(cluster, every(1), COUNTER_KEY)),
    ...(await deleteKeys(cluster, every(2), INDEX_KEY)),
  ];
}

const FILLERS_MAX = 100;
/** A script writes keys that live longer than all counters. */
const FILL =
  "for i = 1, 10 do redis.call('SET', ARGV[1] .. i, string.rep('x', 5000), 'PX', 86400000) end";

/** The policy is set at runtime, because weir may refuse to start with it. */
async function evict(cluster: ObservedCluster, policy: string): Promise<number | undefined> {
  const { redis } = cluster;
  await cluster.use(Array<number>(28).fill(100));
  const count = async () => (await cluster.keysOf(cluster.idle, COUNTER_KEY)).length;
  await cluster.beginFault();
  const used = /used_memory:(\d+)/.exec(String(await redis.command('INFO', 'memory')))?.[1];
  await redis.command('CONFIG', 'SET', 'maxmemory-policy', policy, 'maxmemory', String(used));
  for (let i = 0; i < FILLERS_MAX && (await count()) > cluster.idle.length / 2; i++) {
    await redis.command('EVAL', FILL, '0', `filler${i}:`);
  }
  // Nothing is evicted any longer.
  await redis.command('CONFIG', 'SET', 'maxmemory', '0');
  const lost: Counter[] = [];
  for (const counter of [...cluster.idle, ...cluster.shared]) {
    if ((await cluster.keysOf([counter], COUNTER_KEY)).length === 0) lost.push(counter);
  }
  if (lost.length === 0) throw new Error('Redis has evicted no counter');
  return observe(cluster, lost);
}

/** Asks a machine about used-up and new counters from its first answer on. */
async function restartAndAsk(
  cluster: ObservedCluster,
  end: (machine: Machine) => Promise<unknown>,
  leastMs: number,
): Promise<number | undefined> {
  const [machine] = cluster.machines;
  const others = Array.from({ length: 10 }, () => newCounter(30, 'fixed'));
  await cluster.useUpTo(1, others);
  await end(machine);
  await cluster.beginFault();
  await machine.launch();
  await waitUntil(
    'it answers',
    async () => (await cluster.ask(machine.port, others[0], 1)).isDecided,
  );
  // Nothing listens before that, but for a moment in which the server tries its port.
  cluster.client.seen.failed = 0;
  const normalS = await cluster.untilNormal({ others }, { ports: [machine.port], leastMs });
  await machine.waitUntilReady();
  machine.isServing = true;
  return normalS;
}

/** More checks than the limit arrive at new machines, at each from the moment that it is ready. */
async function askWhenReady(cluster: ObservedCluster): Promise<number | undefined> {
  const others = [...ALGORITHMS, ...ALGORITHMS].map((algorithm) => newCounter(100, algorithm));
  await Promise.all(
    cluster.machines.map(async (machine) => {
      await machine.start();
      const askOne = async (counter: Counter) => {
        for (let i = 0; i < 50; i++) await cluster.ask(machine.port, counter, 1);
      };
      await Promise.all(others.map(askOne));
    }),
  );
  const normalS = await cluster.untilNormal({});
  await cluster.useUp({ others });
  return normalS;
}

/** Under a load that uses counters up meanwhile. */
async function cutOff(cluster: ObservedCluster): Promise<number | undefined> {
  const [victim] = cluster.machines;
  const lost = ALGORITHMS.map((algorithm) => newCounter(1_000, algorithm));
  const all = [...lost, newCounter(50, 'fixed', 1_000)];
  await cluster.useUpTo(SHARES.beforeFault, lost);
  await cluster.beginFault();
  victim.proxy.set({ isBlackhole: true });
  const endMs = performance.now() + PARTITION_MS;
  await Promise.all(
    cluster.ports.map(async (port) => {
      for (let n = 0; performance.now() < endMs; n++) {
        await cluster.ask(port, all[n % all.length], 1 + (n % 3), 'lost');
        await sleep(5);
      }
    }),
  );
  victim.proxy.heal();
  const normalS = await cluster.untilNormal({ lost });
  if (normalS !== undefined) await cluster.useUp({ lost });
  return normalS;
}

/** Longer than a recovery that waits for no machine. */
const CLOSED_MS = 3_000;

/** With `exact` a counter stays closed until the machine that was killed is forgotten. */
async function loseAndForget(cluster: ObservedCluster): Promise<number | undefined> {
  const [victim] = cluster.machines;
  await cluster.use();
  await cluster.useUpTo(SHARES.beforeFault, cluster.shared);
  const status = await runWeir(cluster, 'status');
  const { machine } = status.find(({ pid }) => pid === victim.server.child.pid) ?? {};
  await victim.kill();
  cluster.concedeLeases(cluster.shared);
  await cluster.beginFault();
  const lost = await deleteKeys(cluster, [cluster.shared[1]], COUNTER_KEY);
  const others = [...cluster.shared, ...cluster.idle].filter((counter) => !lost.includes(counter));
  if ((await cluster.untilNormal({ lost, others }, { mostMs: CLOSED_MS })) !== undefined) {
    throw new Error('the counter is open, although a machine that used it is gone');
  }
  await runWeir(cluster, 'forget', String(machine));
  const normalS = await cluster.untilNormal({ lost, others });
  if (normalS !== undefined) await cluster.useUp({ lost, others });
  return normalS;
}

/** Runs `weir cluster`. @returns the lines that it printed */
async function runWeir(
  { redis, prefix }: ObservedCluster,
  ...args: string[]
): Promise<Record<string, unknown>[]> {
  const settings = { WEIR_ENGINE: 'redis', WEIR_REDIS_URL: redis.url, WEIR_REDIS_PREFIX: prefix };
  const env = { ...(cleanEnvironment() as NodeJS.ProcessEnv), ...settings };
  const command = [CLI_PATH, 'cluster', ...args, '--json'];
  const { stdout } = await promisify(execFile)(process.execPath, command, { env });
  return stdout
    .trim()
    .split('\n')
    .map((line) => JSON.parse(line));
}
