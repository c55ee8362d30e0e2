/**
 * Logs a warning when the table is nearly full, and when it was too small: live counters were
 * evicted, so limits are not exact, or checks were decided by the full table policy. It polls the
 * statistics of all threads on the main thread.
 */

import { SWEEP_INTERVAL_MS } from '../core/constants.ts';
import type { Log } from '../core/log.ts';
import type { Control } from '../shared-memory/control.ts';
import {
  ACCEPTOR_STAT,
  type AcceptorStats,
  totalOf,
  WORKER_STAT,
  type WorkerStats,
} from '../shared-memory/stats.ts';
import { isNearlyFull } from './faults.ts';

export class CapacityWatch {
  readonly #acceptors: AcceptorStats[];
  readonly #workers: WorkerStats[];
  readonly #capacity: number;
  readonly #log: Log;
  readonly #timer: NodeJS.Timeout;
  /** The totals at the last poll. */
  #evictions = 0;
  #fullTable = 0;
  #wasNearlyFull = false;

  constructor(control: Control, capacity: number, log: Log) {
    this.#acceptors = control.allAcceptorStats();
    this.#workers = control.allWorkerStats();
    this.#capacity = capacity;
    this.#log = log;
    this.#timer = setInterval(() => this.#poll(), SWEEP_INTERVAL_MS);
  }

  /** Stops, after a last poll. */
  close(): void {
    clearInterval(this.#timer);
    this.#poll();
  }

  /** Logs how many evictions and full table decisions there were since the last poll. */
  #poll(): void {
    const acceptors = this.#acceptors;
    const workers = this.#workers;
    const allEvictions =
      totalOf(acceptors, ACCEPTOR_STAT.liveEvictions) + totalOf(workers, WORKER_STAT.liveEvictions);
    const allFullTable =
      totalOf(acceptors, ACCEPTOR_STAT.fullTableDecisions) +
      totalOf(workers, WORKER_STAT.deductionsFull);
    const evictions = allEvictions - this.#evictions;
    const fullTable = allFullTable - this.#fullTable;
    this.#evictions = allEvictions;
    this.#fullTable = allFullTable;
    const live = totalOf(workers, WORKER_STAT.liveCounters);
    const usage = { live, capacity: this.#capacity };
    const isFull = isNearlyFull(live, this.#capacity);
    if (evictions + fullTable > 0) {
      const fields = { ...usage, evictions, fullTable };
      this.#log.warn(fields, 'the table is too small: raise WEIR_COUNTERS');
    } else if (isFull && !this.#wasNearlyFull) {
      this.#log.warn(usage, 'counters are nearly full');
    }
    this.#wasNearlyFull = isFull;
  }
}
