/**
 * The subjects of the benchmarks: the steps of a check, with the code of the server. One call runs
 * BATCH steps, so that the cost of reading the clock is negligible.
 */

import { BodyScanner } from '../../src/api/common/body-scanner.ts';
import { parseBody } from '../../src/api/common/input.ts';
import { NamespaceFinder } from '../../src/api/common/namespace-finder.ts';
import { RequestIds } from '../../src/api/common/request-ids.ts';
import { CheckReaderV1, limitV1, writeResponseV1 } from '../../src/api/operations/v1/limit.ts';
import { Keyring } from '../../src/auth/keyring.ts';
import { rootKeyRecord } from '../../src/auth/keys.ts';
import { Bytes } from '../../src/core/bytes.ts';
import { HOLDS_DEFAULT, SHARDS, SLOTS_PER_COUNTER } from '../../src/core/constants.ts';
import { newDecision, OUTCOME } from '../../src/core/decision.ts';
import { Hasher, newIdentity } from '../../src/core/hash.ts';
import { makeId } from '../../src/core/ids.ts';
import { NO_BURST, RULE } from '../../src/core/window-rules.ts';
import { HoldTable } from '../../src/engine/holds/hold-table.ts';
import { allocateHolds as allocateShardHolds } from '../../src/engine/holds/layout.ts';
import { Counters } from '../../src/engine/memory/counters.ts';
import { MemoryEngine } from '../../src/engine/memory/memory-engine.ts';
import { MemoryHolds } from '../../src/engine/memory/memory-holds.ts';
import { CounterTable } from '../../src/engine/memory/table.ts';
import { groupsPerShard } from '../../src/engine/table/layout.ts';
import { shardOf } from '../../src/engine/table/shard.ts';
import { allocateTable, attachTable } from '../../src/engine/table/table-memory.ts';
import {
  ActiveOverrides,
  type OverridableCheck,
  type PublishedTables,
} from '../../src/overrides/active.ts';
import { KnownNamespaces } from '../../src/registry/known-namespaces.ts';
import { Clock, ClockPublisher } from '../../src/shared-memory/clock.ts';
import { allocateControl, Control } from '../../src/shared-memory/control.ts';
import { countDecision } from '../../src/shared-memory/stats.ts';
import {
  exactOverrides,
  HASH_KEY,
  NAMESPACE,
  NO_OVERRIDES,
  publishedTables,
  wildcardOverrides,
} from '../support/override-sets.ts';

export const BATCH = 1_000;

export interface BenchSubject {
  name: string;
  /** The number of measured operations per run. */
  count: number;
  /** May return the duration of the measured part in ms. */
  run: (() => void) | (() => { overriddenDuration: number });
}

const COUNTERS = 1_048_576;
const LIMIT = Number.MAX_SAFE_INTEGER;
const DURATION_MS = 60_000;

/** The checks of the benchmarks are synchronous, and decided immediately. */
const NO_DEFERRED_WORK = { hasRoom: () => false, enqueue: () => {}, wait: () => undefined };
const NO_COMPLETION = { complete: () => {}, fail: () => {} };

/** Receives results, so that the compiler cannot remove a step as unused. */
export const resultSink = { value: 0 as unknown };

export function allocateTables(): SharedArrayBuffer[] {
  const groups = groupsPerShard(COUNTERS * SLOTS_PER_COUNTER, SHARDS);
  return Array.from({ length: SHARDS }, (_, shard) => allocateTable(shard, groups));
}

/** @param tables the counter tables of the same shards */
export function allocateHolds(tables: readonly SharedArrayBuffer[]): SharedArrayBuffer[] {
  return tables.map((buffer, shard) => {
    return allocateShardHolds(shard, HOLDS_DEFAULT, attachTable(buffer, shard).groups);
  });
}

/** Identifiers as in a server: strings from parsed JSON, in random heap order. */
export function identifiers(count: number, first: number): string[] {
  const texts: string[] = JSON.parse(
    JSON.stringify(Array.from({ length: count }, (_, i) => `user_${first + i}`)),
  );
  for (let i = texts.length - 1; i > 0; i--) {
    const j = (i * 48_271) % (i + 1);
    [texts[i], texts[j]] = [texts[j], texts[i]];
  }
  return texts;
}

/** Consecutive texts as bytes, as the hasher reads them. */
export class EncodedTexts {
  readonly memory: Bytes;
  readonly #ends: Uint32Array;

  constructor(texts: readonly string[]) {
    this.memory = new Bytes(texts.reduce((sum, { length }) => sum + length, 0));
    let end = 0;
    this.#ends = Uint32Array.from(texts, (text) => {
      end = this.memory.write(text, end);
      return end;
    });
  }

  from(at: number): number {
    return at === 0 ? 0 : this.#ends[at - 1];
  }

  to(at: number): number {
    return this.#ends[at];
  }
}

/**
 * Hashes and decides `count` identifiers from number `first` on, whose counters exist.
 * @param cost the cost of each check; LIMIT makes each check denied
 */
export function decideSubject(
  name: string,
  tables: SharedArrayBuffer[],
  count: number,
  first = 0,
  owner = 1,
  cost = 1,
): BenchSubject {
  const hasher = new Hasher(HASH_KEY);
  const state = hasher.namespace('default');
  const attached = tables.map((buffer, shard) => {
    return new CounterTable(buffer, shard, owner, 'deny', () => {});
  });
  const texts = new EncodedTexts(identifiers(count, first));
  const decision = newDecision();
  const id = newIdentity();
  const nowMs = 1_700_000_000_000;
  const terms = {
    limit: LIMIT,
    durationMs: DURATION_MS,
    cost: 1,
    rule: RULE.fixed,
    burst: NO_BURST,
  };
  let at = 0;
  const run = () => {
    for (let i = 0; i < BATCH; i++) {
      hasher.hashBytes(state, texts.memory, texts.from(at), texts.to(at), id);
      at = at + 1 === count ? 0 : at + 1;
      const table = attached[shardOf(id)];
      table.decide(id, state[0], nowMs, terms, true, decision);
    }
    resultSink.value = decision.remaining;
  };
  // Insert the counters first. Otherwise the inserts and page faults would be measured.
  for (let inserted = 0; inserted < count; inserted += BATCH) run();
  terms.cost = cost;
  return { name, count: BATCH, run };
}

/** Like decideSubject with the sliding window, and with usage in the previous window. */
export function slidingSubject(tables: SharedArrayBuffer[], count: number): BenchSubject {
  const counters = new Counters(tables, 1, 'deny', () => {});
  const hasher = new Hasher(HASH_KEY);
  const state = hasher.namespace('sliding');
  const texts = new EncodedTexts(identifiers(count, 0));
  const decision = newDecision();
  const id = newIdentity();
  const nowMs = 1_700_000_000_000;
  const terms = {
    limit: LIMIT,
    durationMs: DURATION_MS,
    cost: 1,
    rule: RULE.sliding,
    burst: NO_BURST,
  };
  const decide = (at: number, atMs: number) => {
    hasher.hashBytes(state, texts.memory, texts.from(at), texts.to(at), id);
    counters.tableOf(id).decide(id, state[0], atMs, terms, true, decision);
    return decision;
  };
  for (let i = 0; i < count; i++) decide(i, nowMs - DURATION_MS);
  let at = 0;
  return repeatedSubject(
    `hash + decide, sliding, ${count.toLocaleString('en')} identifiers`,
    () => {
      at = at + 1 === count ? 0 : at + 1;
      return decide(at, nowMs).remaining;
    },
  );
}

/** Hashes and decides batches of `batchSize` checks; the count is of checks. */
function batchSubject(tables: SharedArrayBuffer[], count: number, batchSize: number): BenchSubject {
  const counters = new Counters(tables, 1, 'deny', () => {});
  const { batch } = counters;
  const hasher = new Hasher(HASH_KEY);
  const state = hasher.namespace('together');
  const texts = new EncodedTexts(identifiers(count, 0));
  const id = newIdentity();
  const terms = {
    limit: LIMIT,
    durationMs: DURATION_MS,
    cost: 1,
    rule: RULE.sliding,
    burst: NO_BURST,
  };
  let at = 0;
  return {
    name: `the same, ${batchSize} at once`,
    count: BATCH,
    run: () => {
      for (let request = 0; request < BATCH / batchSize; request++) {
        batch.begin();
        for (let i = 0; i < batchSize; i++) {
          hasher.hashBytes(state, texts.memory, texts.from(at), texts.to(at), id);
          batch.add(id, state[0], terms);
          at = at + 1 === count ? 0 : at + 1;
        }
        resultSink.value = batch.decide(1_700_000_000_000);
      }
    },
  };
}

function hashSubject(count: number): BenchSubject {
  const hasher = new Hasher(HASH_KEY);
  const state = hasher.namespace('default');
  const texts = new EncodedTexts(identifiers(count, 0));
  const id = newIdentity();
  let at = 0;
  return {
    name: `hash, ${count.toLocaleString('en')} identifiers`,
    count: BATCH,
    run: () => {
      for (let i = 0; i < BATCH; i++) {
        hasher.hashBytes(state, texts.memory, texts.from(at), texts.to(at), id);
        at = at + 1 === count ? 0 : at + 1;
      }
      resultSink.value = id.h0;
    },
  };
}

/** Resolves overrides for one identifier after another, with precomputed hashes. */
function overrideSubject(name: string, tables: PublishedTables): BenchSubject {
  const overrides = new ActiveOverrides();
  overrides.activate(tables);
  const hasher = new Hasher(HASH_KEY);
  const namespaces = new KnownNamespaces(
    (namespace) => hasher.namespace(namespace),
    () => new Float64Array(4),
    () => {},
  );
  const namespace = namespaces.makeUnregistered(NAMESPACE);
  const checks = identifiers(10_000, 0).map((identifier) => {
    const identity = newIdentity();
    hasher.hash(namespace.hashState, identifier, identity);
    const check: OverridableCheck = {
      ...{ namespace, identity, identifier, limit: LIMIT, durationMs: DURATION_MS, cost: 1 },
      ...{ rule: RULE.fixed, burst: NO_BURST, isAsync: false },
      ...{ overrideId: undefined, needsOverrideId: false },
    };
    return check;
  });
  let at = 0;
  return {
    name: `override, ${name}`,
    count: BATCH,
    run: () => {
      for (let i = 0; i < BATCH; i++) {
        const check = checks[at];
        at = at + 1 === checks.length ? 0 : at + 1;
        resultSink.value = overrides.resolve(check, check.identity);
      }
    },
  };
}

function repeatedSubject(name: string, step: (i: number) => unknown): BenchSubject {
  return {
    name,
    count: BATCH,
    run: () => {
      for (let i = 0; i < BATCH; i++) resultSink.value = step(i);
    },
  };
}

/** The steps of a check in order, and the whole check. */
export function stepSubjects(): BenchSubject[] {
  const control = new Control(allocateControl(1, 1));
  new ClockPublisher(control);
  const clock = new Clock(control);
  const tables = allocateTables();
  const stats = control.acceptorStats(0);
  const counters = new Counters(tables, 1, 'deny', () => {});
  const hasher = new Hasher(HASH_KEY);
  const namespaces = new KnownNamespaces(
    (name) => hasher.namespace(name),
    (row) => stats.namespaceRow(row),
    () => {},
  );
  const scan = new BodyScanner();
  const reader = new CheckReaderV1(scan, new NamespaceFinder(namespaces), () => {}, false);
  const overrides = new ActiveOverrides();
  const holds = allocateHolds(tables).map((buffer, shard) => {
    return new HoldTable(buffer, shard, 1, () => {});
  });
  const policies = { whenFull: 'deny', onExpiry: 'release' } as const;
  const memoryHolds = new MemoryHolds(counters, holds, policies, clock, stats);
  const engine = new MemoryEngine(counters, memoryHolds, [], NO_DEFERRED_WORK, clock, stats);
  /** The check path of the acceptor, without HTTP. */
  const wholeCheck = (bytes: Uint8Array) => {
    const startedMs = clock.monotonicMs();
    const check = reader.read(key, bytes);
    const { namespace, identity, memory, identifierFrom, identifierTo } = check;
    hasher.hashBytes(namespace.hashState, memory, identifierFrom, identifierTo, identity);
    overrides.resolve(check, identity);
    const decision = engine.decide(check, startedMs, undefined, NO_COMPLETION)!;
    countDecision(namespace.decisionCounts, check.cost, decision.allowed);
    const response = writeResponseV1(check, decision);
    stats.recordLatency(clock.monotonicMs() - startedMs);
    return response;
  };
  const keyring = new Keyring(clock);
  keyring.apply({ added: [rootKeyRecord('bench', 'bench', 0)], removed: [] });
  const bodies = identifiers(BATCH, 0).map((identifier) => {
    const body = {
      namespace: NAMESPACE,
      identifier,
      limit: 1_000_000,
      duration: DURATION_MS,
      cost: 1,
    };
    return new TextEncoder().encode(JSON.stringify(body));
  });
  const decoder = new TextDecoder('utf-8', { fatal: true, ignoreBOM: true });
  const texts = bodies.map((bytes) => decoder.decode(bytes));
  const parsed = texts.map((text) => JSON.parse(text));
  const decisions = Array.from({ length: BATCH }, (_, i) => {
    return {
      allowed: i % 2 === 0,
      remaining: 900_000 + i,
      reset: 1_700_000_000_000 + i * 60_000,
      window: 0,
      passesAt: 0,
      outcome: OUTCOME.decided,
    };
  });
  const ids = new RequestIds();
  const header = 'Bearer bench';
  const key = keyring.verify(header);
  const checked = reader.read(key, bodies[0]);
  return [
    repeatedSubject('key, seen before', () => keyring.verify(header)),
    repeatedSubject('decode UTF-8, strictly', (i) => decoder.decode(bodies[i])),
    repeatedSubject('JSON.parse', (i) => JSON.parse(texts[i])),
    repeatedSubject('decode, parse', (i) => parseBody(bodies[i])),
    repeatedSubject('schema', (i) => limitV1.validator.validate(parsed[i])),
    repeatedSubject('scan instead of these', (i) => scan.scanBody(bodies[i])),
    repeatedSubject('read the check', (i) => reader.read(key, bodies[i])),
    repeatedSubject('clock', () => clock.nowMs()),
    repeatedSubject('id of a request', () => ids.next()),
    repeatedSubject('the same of random bytes', () => makeId('req_')),
    hashSubject(10_000),
    decideSubject('hash + decide, 1 identifier', tables, 1),
    decideSubject('hash + decide, 10,000 identifiers', tables, 10_000),
    decideSubject('the same, denied', tables, 10_000, 0, 1, LIMIT),
    decideSubject('hash + decide, 1,000,000 identifiers', tables, 1_000_000),
    slidingSubject(tables, 10_000),
    batchSubject(tables, 10_000, 100),
    overrideSubject('there are none', NO_OVERRIDES),
    overrideSubject('1,000 exact', publishedTables(exactOverrides(1_000))),
    overrideSubject('100,000 exact', publishedTables(exactOverrides(100_000))),
    overrideSubject('10,000 with a wildcard', publishedTables(wildcardOverrides(10_000))),
    repeatedSubject('response', (i) => writeResponseV1(checked, decisions[i])),
    repeatedSubject('the whole check, from bytes to response', (i) => wholeCheck(bodies[i])),
  ];
}
