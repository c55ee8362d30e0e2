/** Random leases under WEIR_ON_LOST_LEASES=wait, with crashes, stops and failures of the disk. */

import { constants } from 'node:os';
import fc from 'fast-check';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import {
  CACHE_LINE_BYTES,
  HOLD_TTL_MAX_MS,
  LEASE_HORIZON_RETRY_MS,
  LEASE_HORIZON_STEP_MS,
} from '../../../src/core/constants.ts';
import { ApiError } from '../../../src/core/errors.ts';
import type { Lease } from '../../../src/engine/hold-engine.ts';
import type { HoldId } from '../../../src/engine/hold-id.ts';
import type { HoldTable } from '../../../src/engine/holds/hold-table.ts';
import {
  horizonPath,
  readHorizon,
  removeHorizon,
  writeHorizon,
} from '../../../src/engine/holds/horizon-file.ts';
import {
  allocateHorizon,
  HORIZON,
  HORIZON_DOUBLE,
  HORIZON_LOCK,
} from '../../../src/engine/holds/layout.ts';
import {
  closeHorizon,
  horizonFailures,
  LeaseHorizon,
  type LeaseHorizonData,
  openHorizon,
} from '../../../src/engine/holds/lease-horizon.ts';
import { Leases } from '../../../src/engine/holds/leases.ts';
import { checkOf } from '../../support/engines.ts';
import { trialCount } from '../../support/guarantees.ts';
import { copyHoldTable, holdIdentity, newHoldTable } from '../../support/hold-tables.ts';
import { START_MS } from '../../support/limiter-model.ts';
import { removeDirectory, temporaryDirectory } from '../../support/server.ts';

const IDENTITIES = [1, 2].map((h3) => holdIdentity(0, 1, 0, h3));
const { namespace } = checkOf('x');
const LIMIT = 3;
const NO_SPACE = Object.assign(new Error('ENOSPC: no space left on device'), {
  ...{ code: 'ENOSPC', errno: -constants.errno.ENOSPC },
});

let directory: string;
beforeEach(() => {
  directory = temporaryDirectory();
});
afterEach(() => removeDirectory(directory));

test('the layout of the lease horizon is the one that its drawing shows', () => {
  expect([HORIZON_LOCK, HORIZON, HORIZON_DOUBLE]).toEqual([
    ...[0, { errno: 1, failures: 2 }],
    { ms: 2, failedMs: 3 },
  ]);
  expect(allocateHorizon().byteLength).toBe(CACHE_LINE_BYTES);
});

/** When the disk fails in a write: before it is done, or after. */
type DiskFault = 'before' | 'after' | undefined;

/** A run of two acceptors, with the leases of one shard. */
class Run {
  readonly table: HoldTable;
  readonly data: LeaseHorizonData;
  readonly leases: Leases[];
  fault: DiskFault;
  writes = 0;
  heartbeats = 0;
  waitsForDisk = false;

  constructor(table: HoldTable, nowMs: number) {
    this.table = copyHoldTable(table);
    this.data = openHorizon(directory, nowMs);
    const reporter = {
      heartbeat: () => this.heartbeats++,
      setWaitingForDisk: (isWaiting: boolean) => {
        this.waitsForDisk = isWaiting;
      },
    };
    const write: typeof writeHorizon = (...args) => {
      expect(this.waitsForDisk).toBe(true);
      if (this.fault === 'before') throw NO_SPACE;
      writeHorizon(...args);
      this.writes++;
      if (this.fault === 'after') throw NO_SPACE;
    };
    this.leases = [1, 2].map((owner) => {
      return new Leases(this.table, 'deny', new LeaseHorizon(this.data, owner, reporter, write));
    });
  }

  /** Forgets that the disk has just failed. */
  passRetryTime(): void {
    new Float64Array(this.data.memory)[HORIZON_DOUBLE.failedMs] -= LEASE_HORIZON_RETRY_MS;
  }

  acquire(acceptor: number, identity: number, cost: number, ttlMs: number, nowMs: number): Lease {
    const request = { namespace, identity: IDENTITIES[identity], limit: LIMIT, cost, ttlMs };
    return answer((into) => this.leases[acceptor].acquire(request, nowMs, into));
  }

  renew(acceptor: number, id: HoldId, ttlMs: number, nowMs: number): Lease {
    return answer((into) => this.leases[acceptor].renew(id, ttlMs, nowMs, into));
  }
}

function answer(ask: (into: Lease) => unknown): Lease {
  const into: Lease = { granted: true, id: undefined, inUse: -1, limit: -1, expiresAt: -1 };
  ask(into);
  return into;
}

/** @returns undefined if it was a 503 */
function orUnavailable<T>(work: () => T): T | undefined {
  try {
    return work();
  } catch (error) {
    expect(error).toBeInstanceOf(ApiError);
    expect((error as ApiError).code).toBe('SERVICE_UNAVAILABLE');
    return undefined;
  }
}

/** A lease that its job believes in. */
interface RunningJob {
  id: HoldId;
  identity: number;
  cost: number;
  expiresAt: number;
}

const command = fc.record({
  kind: fc.constantFrom(
    ...(['acquire', 'acquire', 'acquire', 'acquire', 'renew', 'renew', 'release'] as const),
    ...(['checkpoint', 'checkpoint', 'crash', 'crash', 'stop', 'fault', 'mend'] as const),
  ),
  acceptor: fc.nat(1),
  identity: fc.nat(IDENTITIES.length - 1),
  which: fc.nat(1_000),
  cost: fc.constantFrom(1, 1, 2),
  ttlMs: fc.constantFrom(1_000, 3_000, 30_000, 60_000),
  passedMs: fc.constantFrom(0, 0, 1, 900, 2_500, 12_000, 40_000),
  fault: fc.constantFrom('before' as const, 'after' as const),
});

describe('under WEIR_ON_LOST_LEASES=wait', () => {
  test('jobs that run never exceed the limit, over any crashes, stops and disk failures', () => {
    const seen = { granted: 0, waited: 0, renewed: 0, renewedInWait: 0, unavailable: 0, lost: 0 };
    const property = fc.property(fc.array(command, { maxLength: 60, size: 'max' }), (commands) => {
      let nowMs = START_MS;
      /** Of all leases, also those whose horizon was written though the disk failed. */
      let latestExpiry = 0;
      removeHorizon(directory);
      let run = new Run(newHoldTable(64, 1), nowMs);
      let saved = copyHoldTable(run.table);
      let jobs: RunningJob[] = [];
      for (const { kind, acceptor, identity, which, cost, ttlMs, passedMs, fault } of commands) {
        nowMs += passedMs;
        jobs = jobs.filter(({ expiresAt }) => expiresAt > nowMs);
        const job = jobs[which % jobs.length];
        const { waitUntilMs } = run.data;
        const isUnavailable = (lease: Lease | undefined) => {
          if (lease !== undefined) return false;
          seen.unavailable++;
          latestExpiry = Math.max(latestExpiry, nowMs + ttlMs);
          return true;
        };
        expect(waitUntilMs).toBeLessThanOrEqual(latestExpiry + LEASE_HORIZON_STEP_MS);
        if (kind === 'acquire') {
          const lease = orUnavailable(() => run.acquire(acceptor, identity, cost, ttlMs, nowMs));
          if (isUnavailable(lease)) continue;
          const { granted, id, inUse, expiresAt } = lease!;
          if (nowMs < waitUntilMs) {
            expect([granted, id, expiresAt]).toEqual([false, undefined, 0]);
            seen.waited++;
          } else if (!granted && run.table.room > 0) {
            expect(inUse + cost).toBeGreaterThan(LIMIT);
          }
          if (id === undefined) continue;
          jobs.push({ id, identity, cost, expiresAt });
          latestExpiry = Math.max(latestExpiry, expiresAt);
          seen.granted++;
          const running = jobs.filter((other) => other.identity === identity);
          expect(running.reduce((sum, { cost }) => sum + cost, 0)).toBeLessThanOrEqual(LIMIT);
        } else if (kind === 'renew' && job !== undefined) {
          const lease = orUnavailable(() => run.renew(acceptor, job.id, ttlMs, nowMs));
          if (isUnavailable(lease) || !lease!.granted) continue;
          job.expiresAt = lease!.expiresAt;
          latestExpiry = Math.max(latestExpiry, job.expiresAt);
          seen[nowMs < waitUntilMs ? 'renewedInWait' : 'renewed']++;
        } else if (kind === 'release' && job !== undefined) {
          run.leases[acceptor].release(job.id, nowMs);
          jobs = jobs.filter((other) => other !== job);
        } else if (kind === 'checkpoint') {
          saved = copyHoldTable(run.table);
        } else if (kind === 'crash') {
          seen.lost += jobs.filter(({ id }) => saved.find(id, nowMs) === 0).length;
          run = new Run(saved, nowMs);
        } else if (kind === 'stop') {
          closeHorizon(run.data, nowMs);
          run = new Run(run.table, nowMs);
          saved = copyHoldTable(run.table);
        } else if (kind === 'fault') {
          run.fault = fault;
        } else if (kind === 'mend') {
          run.fault = undefined;
          run.passRetryTime();
        }
      }
    });
    fc.assert(property, { numRuns: trialCount(100, 5_000) });
    for (const times of Object.values(seen)) expect(times).toBeGreaterThan(0);
  });

  test('the disk is written once in a step, for any number of leases, and not for denials', () => {
    const run = new Run(newHoldTable(640, 1), START_MS);
    const acquireIn = (fromMs: number, untilMs: number) => {
      for (let at = fromMs; at < untilMs; at += 500) {
        const lease = run.acquire(at % 2, 0, LIMIT, 1_000, START_MS + at);
        const other = run.acquire(at % 2, 0, LIMIT, HOLD_TTL_MAX_MS, START_MS + at);
        expect(other.granted).toBe(false);
        expect(lease.granted).toBe(at % 1_000 === 0);
      }
    };
    acquireIn(0, LEASE_HORIZON_STEP_MS + 1_000);
    expect(run.writes).toBe(1);
    acquireIn(LEASE_HORIZON_STEP_MS + 1_000, 2 * LEASE_HORIZON_STEP_MS + 2_000);
    expect(run.writes).toBe(2);
    expect(run.heartbeats).toBeGreaterThan(0);
    expect(run.waitsForDisk).toBe(false);
  });

  test('a stop lets the next run grant at once; in a wait it leaves the rest of the wait', () => {
    const first = new Run(newHoldTable(64, 1), START_MS);
    first.acquire(0, 0, 1, 5_000, START_MS);
    const untilMs = START_MS + 5_000 + LEASE_HORIZON_STEP_MS;
    const crashed = new Run(first.table, START_MS + 1);
    expect(crashed.data.waitUntilMs).toBe(untilMs);
    closeHorizon(crashed.data, START_MS + 2);
    const stopped = new Run(first.table, START_MS + 3);
    expect(stopped.acquire(0, 1, 1, 1_000, untilMs - 1).granted).toBe(false);
    expect(stopped.acquire(0, 1, 1, 1_000, untilMs).granted).toBe(true);
    closeHorizon(stopped.data, untilMs);
    expect(new Run(first.table, untilMs).data.waitUntilMs).toBe(0);
  });

  test('a damaged horizon, and one that is too far ahead, wait for the longest ttl', () => {
    writeHorizon(directory, START_MS + 3 * HOLD_TTL_MAX_MS);
    expect(openHorizon(directory, START_MS).waitUntilMs).toBe(START_MS + HOLD_TTL_MAX_MS);
    writeHorizon(directory, Number('9'.repeat(17)));
    expect(openHorizon(directory, START_MS).waitUntilMs).toBe(START_MS + HOLD_TTL_MAX_MS);
  });

  test('a disk that fails gets one write a second, and all leases in between get a 503', () => {
    const run = new Run(newHoldTable(64, 1), START_MS);
    const { id } = run.acquire(0, 0, 1, 1_000, START_MS);
    const atMs = START_MS + 500;
    run.fault = 'before';
    const path = horizonPath(directory);
    const message =
      `no lease can be granted or renewed: ${path} cannot be written (ENOSPC);` +
      ' nothing was changed';
    for (const acceptor of [0, 1]) {
      expect(() => run.acquire(acceptor, 0, 1, 60_000, atMs)).toThrow(message);
      expect(() => run.renew(acceptor, id!, 60_000, atMs)).toThrow(message);
    }
    expect(horizonFailures(run.data)).toEqual({ path, failures: 1, error: 'ENOSPC' });
    expect(readHorizon(directory)).toBe(START_MS + 1_000 + LEASE_HORIZON_STEP_MS);
    // Leases below the horizon need no disk.
    expect(run.renew(0, id!, 2_000, atMs)).toMatchObject({ granted: true, inUse: 1 });
    run.passRetryTime();
    run.fault = undefined;
    expect(run.renew(0, id!, 60_000, atMs)).toMatchObject({ granted: true, inUse: 1 });
    expect(horizonFailures(run.data)).toEqual({ path, failures: 1, error: undefined });
  });
});
