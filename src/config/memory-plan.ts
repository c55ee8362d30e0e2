/**
 * How many threads and counters fit into the memory limit, and what weir takes when all counters
 * are in use. A table takes memory when counters are put into it, so a table that is too large for
 * the limit ends the process under load, long after the start. Therefore the default is chosen so
 * that full use leaves a quarter of the limit free, and a setting that cannot fit is refused at the
 * start.
 */

import {
  COUNTERS_DEFAULT_MAX,
  COUNTERS_DEFAULT_MIN,
  SHARDS,
  SLOTS_PER_COUNTER,
} from '../core/constants.ts';
import { StartError } from '../core/errors.ts';
import { groupsPerShard, tableBytes } from '../engine/memory/layout.ts';
import { CHANNEL_BYTES } from '../engine/worker/layout.ts';
import type { MemoryLimit } from './memory-limit.ts';
import type { SettingValue } from './setting-value.ts';

const MIB = 2 ** 20;
const NODE_MAJOR = Number.parseInt(process.versions.node, 10);

/**
 * Memory of the process beside its table. After a flood of checks on 64 connections its anonymous
 * and kernel memory were, with acceptors + workers of 1 + 1, 4 + 2 and 8 + 4: 60, 134 and 238 MiB
 * on Node 20; 74, 151 and 257 MiB on Node 22. The rest is code of Node's, which the kernel can
 * reclaim, but then reads again without end, all the more as checkpoints take page cache too. In a
 * limit of 128 MiB Node 22 had 114 major page faults with 32 768 counters, and 5 900 with 61 440,
 * so that a shard worker counted as unresponsive; Node 20 had 23 with 61 440.
 * `test/outside/memory-limit.test.ts` shows that the sum fits.
 */
const FIXED_MIB = { process: NODE_MAJOR < 22 ? 50 : 60, acceptor: 24, worker: 8 } as const;

/** The part of the limit that the default number of counters may use. */
const DEFAULT_SHARE = 0.75;

export interface ThreadCounts {
  acceptors: number;
  workers: number;
}

/** The part of the limit that threads whose numbers were not set may use, with the process. */
const THREADS_SHARE = 0.5;

/**
 * The threads that are started: fewer than the cores suggest where the limit is low for them, as in
 * a container with a limit of memory and none of CPU time.
 * @param isSet whether the number was set, and so has to stay
 */
export function fitThreads(
  { acceptors, workers }: ThreadCounts,
  isSet: (name: keyof ThreadCounts) => boolean,
  limit: MemoryLimit,
): ThreadCounts {
  const threads = { acceptors, workers };
  const fewer = (name: keyof ThreadCounts) => {
    if (isSet(name) || threads[name] === 1) return false;
    threads[name]--;
    return true;
  };
  while (fixedBytes(threads) > THREADS_SHARE * limit.bytes) {
    // There are half as many workers as acceptors.
    const [first, second] =
      threads.workers > threads.acceptors / 2
        ? (['workers', 'acceptors'] as const)
        : (['acceptors', 'workers'] as const);
    if (!fewer(first) && !fewer(second)) break;
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
 * @param given the number of counters that was set, if one was
 * @throws StartError when that number of counters cannot fit
 */
export function planMemory(
  given: SettingValue | undefined,
  threads: ThreadCounts,
  limit: MemoryLimit,
): MemoryPlan {
  const fixed = fixedBytes(threads);
  const most = DEFAULT_SHARE * limit.bytes;
  const fitting = fitCounters(most - fixed);
  const counters = given === undefined ? fitting : (given.value as number);
  const fullUseBytes = fixed + tablesBytes(counters);
  if (given !== undefined && fullUseBytes > limit.bytes && counters > COUNTERS_DEFAULT_MIN) {
    throw new StartError(
      `${given.source} is ${counters}, which takes ${toMiB(tablesBytes(counters))} MiB beside` +
        ` ${toMiB(fixed)} MiB for the process, and the memory limit is ${toMiB(limit.bytes)} MiB` +
        ` (${limit.source}): set at most ${fitting}, or raise the limit`,
    );
  }
  return { counters, limit, fullUseBytes, isNearLimit: fullUseBytes > most };
}

/** What the log says of a plan. */
export function memoryLogFields({ limit, fullUseBytes }: MemoryPlan) {
  return { memoryLimitMiB: toMiB(limit.bytes), memoryAtFullUseMiB: toMiB(fullUseBytes) };
}

/** Rounded up. */
function toMiB(bytes: number): number {
  return Math.ceil(bytes / MIB);
}

/** All that does not depend on the number of counters. */
function fixedBytes({ acceptors, workers }: ThreadCounts): number {
  const ofThreads = acceptors * FIXED_MIB.acceptor + workers * FIXED_MIB.worker;
  return (FIXED_MIB.process + ofThreads) * MIB + acceptors * workers * CHANNEL_BYTES;
}

/** Of the tables of all shards. */
function tablesBytes(counters: number): number {
  return SHARDS * tableBytes(groupsPerShard(counters * SLOTS_PER_COUNTER, SHARDS));
}

/** The most counters whose tables fit, by steps of one group in each shard. */
function fitCounters(bytes: number): number {
  const step = COUNTERS_DEFAULT_MIN;
  let counters = COUNTERS_DEFAULT_MAX;
  while (counters > step && tablesBytes(counters) > bytes) counters -= step;
  return counters;
}
