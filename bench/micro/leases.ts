/**
 * Measures decisions from leases of the Redis engine beside those of the memory engine, on the same
 * identifiers. Each lease is as large as the limit, so no check needs Redis. Pairs of both are
 * measured in turn, in several rounds; ratios are computed within a round.
 */

import { SHARDS, SLOTS_PER_COUNTER } from '../../src/core/constants.ts';
import { newDecision } from '../../src/core/decision.ts';
import { Hasher, newIdentity } from '../../src/core/hash.ts';
import { NO_BURST, RULE, type RuleNumber } from '../../src/core/window-rules.ts';
import { newLeaseState } from '../../src/engine/redis/counter/lease-state.ts';
import { allocateEngineState, EngineState } from '../../src/engine/redis/engine-state.ts';
import { allocateLeaseTable } from '../../src/engine/redis/lease-memory.ts';
import { LeaseTable, VERDICT } from '../../src/engine/redis/lease-table.ts';
import { groupsPerShard, NO_SLOT } from '../../src/engine/table/layout.ts';
import { shardOf } from '../../src/engine/table/shard.ts';
import { HASH_KEY } from '../support/override-sets.ts';
import { median, type Range, rangeOf } from '../support/rounds.ts';
import {
  allocateTables,
  BATCH,
  type BenchSubject,
  decideSubject,
  EncodedTexts,
  identifiers,
  resultSink,
  slidingSubject,
} from './check-steps.ts';

const COUNTERS = 1_048_576;
const NOW_MS = 1_700_000_000_000;
const DURATION_MS = 60_000;
const WINDOW = Math.floor(NOW_MS / DURATION_MS);
const LEASE = Number.MAX_SAFE_INTEGER / 2;

function allocateLeaseTables(counters: number): SharedArrayBuffer[] {
  const groups = groupsPerShard(counters * SLOTS_PER_COUNTER, SHARDS);
  return Array.from({ length: SHARDS }, (_, shard) => allocateLeaseTable(shard, groups));
}

/**
 * Hashes and decides `count` identifiers, each with a lease.
 * @param cost above the lease: each check is denied by the usage that is known
 */
function leaseSubject(
  name: string,
  tables: SharedArrayBuffer[],
  count: number,
  rule: RuleNumber = RULE.fixed,
  cost = 1,
): BenchSubject {
  const state = new EngineState(allocateEngineState(1, 1));
  state.setClock(0, 0.5, 0);
  const attached = tables.map((buffer, shard) => new LeaseTable(buffer, shard, state, 1, () => {}));
  const hasher = new Hasher(HASH_KEY);
  const namespace = hasher.namespace('default');
  const texts = new EncodedTexts(identifiers(count, 0));
  const decision = newDecision();
  const id = newIdentity();
  const terms = { limit: LEASE, durationMs: DURATION_MS, cost, rule, burst: NO_BURST };
  for (let at = 0; at < count; at++) {
    hasher.hashBytes(namespace, texts.memory, texts.from(at), texts.to(at), id);
    lend(attached[shardOf(id)], id, namespace[0]);
  }
  let at = 0;
  const run = () => {
    let undecided = 0;
    for (let i = 0; i < BATCH; i++) {
      hasher.hashBytes(namespace, texts.memory, texts.from(at), texts.to(at), id);
      at = at + 1 === count ? 0 : at + 1;
      const table = attached[shardOf(id)];
      if (table.decide(id, NOW_MS, terms, decision) !== VERDICT.decided) undecided++;
    }
    if (undecided !== 0) throw new Error(`${undecided} checks had no lease`);
    resultSink.value = decision.remaining;
  };
  return { name, count: BATCH, run };
}

/** The same identifiers as those of the memory engine's subjects. */
export function leaseSubjects(): BenchSubject[] {
  const { fixed, sliding } = RULE;
  const tables = allocateLeaseTables(COUNTERS);
  return [
    leaseSubject('hash + lease, 1 identifier', tables, 1, fixed),
    leaseSubject('hash + lease, 10,000 identifiers', tables, 10_000, fixed),
    leaseSubject('hash + lease, denied', tables, 10_000, fixed, Number.MAX_SAFE_INTEGER),
    leaseSubject('hash + lease, sliding, 10,000 identifiers', tables, 10_000, sliding),
    leaseSubject('hash + lease, 1,000,000 identifiers', tables, 1_000_000, fixed),
  ];
}

export interface LeasePair {
  name: string;
  /** ns by check, in batches of BATCH checks: medians of the rounds. */
  memoryNs: number;
  leaseNs: number;
  /** The lease by the memory engine. */
  p50Ratio: Range;
  p99Ratio: Range;
}

const PAIR_ROUNDS = 15;
const ROUND_MS = 150;

/** @param progress called with a description of the next step */
export function measureLeasePairs(progress: (what: string) => void): LeasePair[] {
  const { fixed, sliding } = RULE;
  const counters = allocateTables();
  const leases = allocateLeaseTables(COUNTERS);
  const pair = (name: string, memory: BenchSubject, lease: BenchSubject) => {
    progress(`lease and memory, ${name}`);
    return measurePair(name, memory, lease);
  };
  const large = Number.MAX_SAFE_INTEGER;
  return [
    pair('1 identifier', decideSubject('', counters, 1), leaseSubject('', leases, 1)),
    pair(
      '10,000 identifiers',
      decideSubject('', counters, 10_000),
      leaseSubject('', leases, 10_000),
    ),
    pair(
      '10,000 identifiers, denied',
      decideSubject('', counters, 10_000, 0, 1, large),
      leaseSubject('', leases, 10_000, fixed, large),
    ),
    pair(
      '10,000 identifiers, sliding',
      slidingSubject(counters, 10_000),
      leaseSubject('', leases, 10_000, sliding),
    ),
    pair(
      '1,000,000 identifiers',
      decideSubject('', counters, 1_000_000),
      leaseSubject('', leases, 1_000_000),
    ),
  ];
}

function measurePair(name: string, memory: BenchSubject, lease: BenchSubject): LeasePair {
  const subjects = [memory, lease];
  for (const subject of subjects) measureRound(subject);
  const rounds = Array.from({ length: PAIR_ROUNDS }, (_, round) => {
    // Each of them is the first in every other round.
    if (round % 2 === 0) return subjects.map(measureRound);
    return subjects.toReversed().map(measureRound).toReversed();
  });
  const ratio = (of: (figures: RoundFigures) => number) => {
    return rangeOf(rounds.map(([memory, lease]) => of(lease) / of(memory)));
  };
  const medianOf = (subject: number) => median(rounds.map((round) => round[subject].p50));
  return {
    ...{ name, memoryNs: medianOf(0), leaseNs: medianOf(1) },
    ...{ p50Ratio: ratio(({ p50 }) => p50), p99Ratio: ratio(({ p99 }) => p99) },
  };
}

/** ns by check. */
interface RoundFigures {
  p50: number;
  p99: number;
}

function measureRound({ run, count }: BenchSubject): RoundFigures {
  const times: number[] = [];
  const endMs = performance.now() + ROUND_MS;
  for (let fromMs = performance.now(); fromMs < endMs; ) {
    run();
    const toMs = performance.now();
    times.push(((toMs - fromMs) * 1e6) / count);
    fromMs = toMs;
  }
  times.sort((a, b) => a - b);
  const at = (share: number) => times[Math.floor(share * times.length)];
  return { p50: at(0.5), p99: at(0.99) };
}

function lend(table: LeaseTable, id: ReturnType<typeof newIdentity>, namespaceTag: number): void {
  const lock = table.lockFor(id);
  table.acquire(lock);
  const found = table.find(id, DURATION_MS);
  const slot = found === NO_SLOT ? table.insert(id, namespaceTag, DURATION_MS, NOW_MS) : found;
  const lease = newLeaseState();
  table.read(slot, lease);
  Object.assign(lease, { window: WINDOW, lease: LEASE, lentLimit: LEASE, lastLimit: LEASE });
  Object.assign(lease, { coversSliding: true, previousUsage: 1_000, previousKnownUsage: 1_000 });
  Object.assign(lease, { deadlineMs: NOW_MS + 1, boundUntilMs: NOW_MS + 1 });
  table.write(slot, lease);
  table.release(lock);
}
