/**
 * Warns in the log before the table is full and when a live counter had to make room: then limits
 * are no longer exact, and WEIR_COUNTERS is too small. Reads what the threads count; on the main
 * thread.
 */

import type { Control } from '../control.ts';
import { type AcceptorLane, COUNT, totalOf, WORK, type WorkerLane } from '../lanes.ts';
import { SWEEP_MS } from '../limits.ts';
import type { Log } from '../observe/log.ts';

const NEARLY_FULL = 0.9;

export class CapacityWatch {
  readonly #acceptors: AcceptorLane[];
  readonly #workers: WorkerLane[];
  readonly #capacity: number;
  readonly #log: Log;
  readonly #timer: NodeJS.Timeout;
  #evicted = 0;
  #noRoom = 0;
  #wasNearlyFull = false;

  constructor(control: Control, capacity: number, log: Log) {
    this.#acceptors = control.acceptorLanes();
    this.#workers = control.workerLanes();
    this.#capacity = capacity;
    this.#log = log;
    this.#timer = setInterval(() => this.look(), SWEEP_MS);
  }

  close(): void {
    clearInterval(this.#timer);
    this.look();
  }

  /** Says how many counters were evicted and newcomers found no room since the last look. */
  look(): void {
    const sum = (count: number, work: number) => {
      return totalOf(this.#acceptors, count) + totalOf(this.#workers, work);
    };
    const evictedEver = sum(COUNT.liveEvictions, WORK.liveEvictions);
    const noRoomEver = sum(COUNT.fullTable, WORK.noRoom);
    const evicted = evictedEver - this.#evicted;
    const noRoom = noRoomEver - this.#noRoom;
    this.#evicted = evictedEver;
    this.#noRoom = noRoomEver;
    const live = totalOf(this.#workers, WORK.live);
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
