/**
 * Warns in the log before the table is full and when a live counter had to make room: then limits
 * are no longer exact, and WEIR_COUNTERS is too small. Reads what the threads count; on the main
 * thread.
 */

import { SWEEP_INTERVAL_MS } from '../../core/constants.ts';
import type { Log } from '../../core/log.ts';
import type { Control } from '../../shared-memory/control.ts';
import {
  ACCEPTOR_STAT,
  type AcceptorStats,
  totalOf,
  WORKER_STAT,
  type WorkerStats,
} from '../../shared-memory/stats.ts';

const NEARLY_FULL = 0.9;

export class CapacityWatch {
  readonly #acceptors: AcceptorStats[];
  readonly #workers: WorkerStats[];
  readonly #capacity: number;
  readonly #log: Log;
  readonly #timer: NodeJS.Timeout;
  #evictions = 0;
  #fullTableCount = 0;
  #wasNearlyFull = false;

  constructor(control: Control, capacity: number, log: Log) {
    this.#acceptors = control.allAcceptorStats();
    this.#workers = control.allWorkerStats();
    this.#capacity = capacity;
    this.#log = log;
    this.#timer = setInterval(() => this.poll(), SWEEP_INTERVAL_MS);
  }

  close(): void {
    clearInterval(this.#timer);
    this.poll();
  }

  /** Says how many counters were evicted and newcomers found no room since the last look. */
  poll(): void {
    const sum = (count: number, work: number) => {
      return totalOf(this.#acceptors, count) + totalOf(this.#workers, work);
    };
    const evictedEver = sum(ACCEPTOR_STAT.liveEvictions, WORKER_STAT.liveEvictions);
    const noRoomEver = sum(ACCEPTOR_STAT.fullTableDecisions, WORKER_STAT.deductionsFull);
    const evicted = evictedEver - this.#evictions;
    const noRoom = noRoomEver - this.#fullTableCount;
    this.#evictions = evictedEver;
    this.#fullTableCount = noRoomEver;
    const live = totalOf(this.#workers, WORKER_STAT.liveCounters);
    const facts = { live, capacity: this.#capacity };
    const isNearlyFull = live > NEARLY_FULL * this.#capacity;
    if (evicted + noRoom > 0) {
      this.#log.warn({ ...facts, evicted, noRoom }, 'the table is too small: raise WEIR_COUNTERS');
    } else if (isNearlyFull && !this.#wasNearlyFull) {
      this.#log.warn(facts, 'counters are nearly full');
    }
    this.#wasNearlyFull = isNearlyFull;
  }
}
