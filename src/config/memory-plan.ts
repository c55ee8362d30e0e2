/**
 * Plans threads and counters for the memory limit. A table uses memory only as counters are
 * inserted, so a table that is too large ends the process under load, long after the start.
 * Therefore the default number of counters leaves a quarter of the limit free at full use, and a
 * number that cannot fit stops the start with a StartError.
 */

import { COUNTERS_DEFAULT_MAX, COUNTERS_DEFAULT_MIN } from '../core/constants.ts';
import { StartError } from '../core/errors.ts';
import { channelsBytes } from '../engine/queue/layout.ts';
import { tablesBytes } from '../engine/table/size.ts';
import { type EngineName, TABLE_BYTES } from './engines.ts';
import type { MemoryLimit } from './resources.ts';
import type { SettingValue } from './setting-value.ts';

const MIB = 2 ** 20;
const NODE_MAJOR = Number.parseInt(process.versions.node, 10);

/**
 * Memory of the process without its table. After a load of checks on 64 connections, anonymous and
 * kernel memory were, with acceptors + workers of 1 + 1, 4 + 2 and 8 + 4: 60, 134 and 238 MiB on
 * Node 20; 74, 151 and 257 MiB on Node 22. The rest is the code of Node. The kernel can reclaim it,
 * but must then read it again and again, and checkpoints need page cache too. With a limit of
 * 128 MiB, Node 22 had 114 major page faults with 32 768 counters. With 61 440 it had 5 900, and a
 * shard worker became unresponsive; Node 20 had 23. `test/long/memory-limit.test.ts` shows that
 * the sum fits. Of the figures of acceptors and threads of the rate limit service, 2 MiB are added
 * for their recent decisions, which came later.
 */
const FIXED_MIB = {
  process: NODE_MAJOR < 22 ? 50 : 60,
  ...{ acceptor: 26, worker: 8, rlsThread: 26 },
} as const;

/**
 * The memory of a thread's connection to Redis, mostly the code of TLS and of the client: after
 * 2 000 calls 16 MiB on Node 20, and 14 MiB on Node 22. The main thread has one for the registry.
 */
const CONNECTION_MIB = { process: 16, worker: 16 } as const;

/** The part of the limit that the default number of counters may use. */
const DEFAULT_SHARE = 0.75;

interface ThreadCounts {
  acceptors: number;
  workers: number;
  /** Of the rate limit service, where it is on. */
  rlsThreads?: number;
}

/** The part of the limit that the process and its default number of threads may use. */
const THREADS_SHARE = 0.5;

/**
 * Reduces the default numbers of threads to fit the memory limit. They follow the number of cores,
 * which is too high in a container with a memory limit and no CPU limit.
 * @param isSet whether a number was configured, so that it must not change
 */
export function fitThreads(
  { acceptors, workers }: ThreadCounts,
  isSet: (name: 'acceptors' | 'workers') => boolean,
  limit: MemoryLimit,
  engine: EngineName = 'memory',
): ThreadCounts {
  const threads = { acceptors, workers };
  const reduce = (name: 'acceptors' | 'workers') => {
    if (isSet(name) || threads[name] === 1) return false;
    threads[name]--;
    return true;
  };
  while (fixedBytes(threads, engine) > THREADS_SHARE * limit.bytes) {
    // Keep half as many workers as acceptors.
    const [first, second] =
      threads.workers > threads.acceptors / 2
        ? (['workers', 'acceptors'] as const)
        : (['acceptors', 'workers'] as const);
    if (!reduce(first) && !reduce(second)) break;
  }
  return threads;
}

export interface MemoryPlan {
  counters: number;
  limit: MemoryLimit;
  /** Expected when every counter is in use. */
  fullUseBytes: number;
  /** Whether full use leaves less of the limit free than the default does. */
  isNearLimit: boolean;
}

/**
 * @param configured the configured number of counters; undefined for the default
 * @throws StartError if this number of counters cannot fit
 */
export function planMemory(
  configured: SettingValue | undefined,
  threads: ThreadCounts,
  limit: MemoryLimit,
  engine: EngineName = 'memory',
): MemoryPlan {
  const bytesOf = (counters: number) => tablesBytes(counters, TABLE_BYTES[engine]);
  const fixed = fixedBytes(threads, engine);
  const share = DEFAULT_SHARE * limit.bytes;
  const fitting = fitCounters(share - fixed, bytesOf);
  const counters = configured === undefined ? fitting : (configured.value as number);
  const fullUseBytes = fixed + bytesOf(counters);
  if (configured !== undefined && fullUseBytes > limit.bytes && counters > COUNTERS_DEFAULT_MIN) {
    throw new StartError(
      `${configured.source} is ${counters}, which takes ${toMiB(bytesOf(counters))} MiB` +
        ` beside ${toMiB(fixed)} MiB for the process, and the memory limit is` +
        ` ${toMiB(limit.bytes)} MiB (${limit.source}): set at most ${fitting}, or raise the limit`,
    );
  }
  return { counters, limit, fullUseBytes, isNearLimit: fullUseBytes > share };
}

/** The log fields of a plan. */
export function memoryLogFields({ limit, fullUseBytes }: MemoryPlan) {
  return { memoryLimitMiB: toMiB(limit.bytes), memoryAtFullUseMiB: toMiB(fullUseBytes) };
}

/** Rounded up. */
function toMiB(bytes: number): number {
  return Math.ceil(bytes / MIB);
}

/** The memory that does not depend on the number of counters. */
function fixedBytes(
  { acceptors, workers, rlsThreads = 0 }: ThreadCounts,
  engine: EngineName,
): number {
  const connections = engine === 'redis' ? CONNECTION_MIB : { process: 0, worker: 0 };
  const processMiB = FIXED_MIB.process + connections.process;
  const workersMiB = workers * (FIXED_MIB.worker + connections.worker);
  const decidingMiB = acceptors * FIXED_MIB.acceptor + rlsThreads * FIXED_MIB.rlsThread;
  const threadsMiB = decidingMiB + workersMiB;
  return (processMiB + threadsMiB) * MIB + channelsBytes(acceptors + rlsThreads, workers);
}

/** The largest number of counters whose tables fit, in steps of one group in each shard. */
function fitCounters(bytes: number, bytesOf: (counters: number) => number): number {
  const step = COUNTERS_DEFAULT_MIN;
  let counters = COUNTERS_DEFAULT_MAX;
  while (counters > step && bytesOf(counters) > bytes) counters -= step;
  return counters;
}
