/**
 * What `WEIR_ON_LOST_LEASES=wait` needs: after a crash, leases that were granted or renewed since
 * the last checkpoint are forgotten, and their jobs may still run. The horizon is a time at which
 * all of them have ended. It is in a file before a lease is granted that expires later. The file is
 * there until a stop has saved all leases. A start that finds it grants no lease before that time.
 *
 * The horizon covers all leases, also those in checkpoints, and never moves back. So it needs
 * nothing from the checkpoints, which are not fsynced and may be lost where the machine fails. The
 * price is that the longest `ttl` decides how long a start waits, also if its lease was released.
 *
 * It moves by LEASE_HORIZON_STEP_MS beyond the lease that needs it. So the disk is written once in
 * that time, while leases have the same `ttl`, or for a longer `ttl`. An acceptor does it, and its
 * other requests wait meanwhile. Its lock is taken last of all locks, and by acceptors only: where
 * one of them ends, the process ends. An acceptor that waits for the disk for longer than
 * DISK_UNRESPONSIVE_MS is unresponsive.
 */

import { getSystemErrorName } from 'node:util';
import {
  HOLD_TTL_MAX_MS,
  LEASE_HORIZON_RETRY_MS,
  LEASE_HORIZON_STEP_MS,
} from '../../core/constants.ts';
import { describeStorageError } from '../../core/errno.ts';
import { ApiError, StartError } from '../../core/errors.ts';
import { systemMs } from '../../shared-memory/clock.ts';
import type { HorizonFailures } from '../engine.ts';
import { acquire, release } from '../table/lock.ts';
import { horizonPath, readHorizon, removeHorizon, writeHorizon } from './horizon-file.ts';
import { allocateHorizon, HORIZON, HORIZON_DOUBLE, HORIZON_LOCK } from './layout.ts';

/** What all threads share. */
export interface LeaseHorizonData {
  memory: SharedArrayBuffer;
  directory: string;
  /** No lease is granted before this time: Unix time, ms. 0 after a stop. */
  waitUntilMs: number;
}

/** How a thread reports that it is alive, or that it may wait long for the disk. */
interface HeartbeatReporter {
  heartbeat(): void;
  setWaitingForDisk(isWaiting: boolean): void;
}

/**
 * Reads the horizon of the last run. A damaged one, or one that is too far ahead because the clock
 * was wrong, counts as the longest `ttl`: no lease of an earlier run lives longer than that.
 * @throws StartError if the file cannot be read
 */
export function openHorizon(directory: string, nowMs: number): LeaseHorizonData {
  try {
    const waitUntilMs = Math.min(readHorizon(directory), nowMs + HOLD_TTL_MAX_MS);
    return { memory: allocateHorizon(), directory, waitUntilMs };
  } catch (error) {
    const path = horizonPath(directory);
    throw new StartError(`${path} cannot be read: ${describeStorageError(error)}`);
  }
}

/** Ends a run whose leases are all saved. Those of a run before may still be live. */
export function closeHorizon({ directory, waitUntilMs }: LeaseHorizonData, nowMs: number): void {
  if (waitUntilMs > nowMs) writeHorizon(directory, waitUntilMs);
  else removeHorizon(directory);
}

/** Read without the lock: as of a moment ago. */
export function horizonFailures({ memory, directory }: LeaseHorizonData): HorizonFailures {
  const words = new Int32Array(memory);
  const errno = words[HORIZON.errno];
  const error = errno === 0 ? undefined : getSystemErrorName(errno);
  return { path: horizonPath(directory), failures: words[HORIZON.failures], error };
}

/** The horizon, as one acceptor uses it. */
export class LeaseHorizon {
  readonly waitUntilMs: number;
  readonly words: Int32Array;
  readonly doubles: Float64Array;
  readonly #directory: string;
  readonly #owner: number;
  readonly #heartbeats: HeartbeatReporter;
  readonly #write: typeof writeHorizon;

  /** @param owner of the locks that the calling thread takes: see `table/lock.ts` */
  constructor(
    { memory, directory, waitUntilMs }: LeaseHorizonData,
    owner: number,
    heartbeats: HeartbeatReporter,
    write = writeHorizon,
  ) {
    this.waitUntilMs = waitUntilMs;
    this.words = new Int32Array(memory);
    this.doubles = new Float64Array(memory);
    this.#directory = directory;
    this.#owner = owner;
    this.#heartbeats = heartbeats;
    this.#write = write;
  }

  /**
   * Whether a lease with this expiry may be granted. Needs no lock: the horizon only moves forward.
   * @param expiresAt Unix time, ms
   */
  covers(expiresAt: number): boolean {
    return expiresAt <= this.doubles[HORIZON_DOUBLE.ms];
  }

  /**
   * Moves the horizon beyond an expiry. The caller has no lock of counters or holds.
   * @throws ApiError (503) if the disk fails
   */
  extend(expiresAt: number): void {
    acquire(this.words, HORIZON_LOCK, this.#owner, () => this.#heartbeats.heartbeat());
    try {
      if (this.covers(expiresAt)) return;
      const ms = Math.max(this.waitUntilMs, expiresAt + LEASE_HORIZON_STEP_MS);
      this.#requireDisk();
      this.#store(ms);
      this.doubles[HORIZON_DOUBLE.ms] = ms;
    } finally {
      release(this.words, HORIZON_LOCK);
    }
  }

  /** @throws ApiError if a write has just failed: it may have taken long */
  #requireDisk(): void {
    const sinceMs = Math.abs(systemMs() - this.doubles[HORIZON_DOUBLE.failedMs]);
    if (sinceMs < LEASE_HORIZON_RETRY_MS) throw this.#unavailable();
  }

  #store(ms: number): void {
    this.#heartbeats.setWaitingForDisk(true);
    try {
      this.#write(this.#directory, ms);
      this.words[HORIZON.errno] = 0;
    } catch (error) {
      const { errno } = error as NodeJS.ErrnoException;
      if (errno === undefined) throw error;
      this.words[HORIZON.errno] = errno;
      this.words[HORIZON.failures]++;
      this.doubles[HORIZON_DOUBLE.failedMs] = systemMs();
      throw this.#unavailable();
    } finally {
      // The heartbeat first: after the flag is cleared, the wait must not count as unresponsive.
      this.#heartbeats.heartbeat();
      this.#heartbeats.setWaitingForDisk(false);
    }
  }

  #unavailable(): ApiError {
    const code = getSystemErrorName(this.words[HORIZON.errno]);
    return new ApiError(
      'SERVICE_UNAVAILABLE',
      `no lease can be granted or renewed: ${horizonPath(this.#directory)} cannot be written` +
        ` (${code}); nothing was changed`,
    );
  }
}
