/**
 * Warns in the log before the table is full and when a live counter had to make room: then limits
 * are no longer exact, and WEIR_COUNTERS is too small. Reads what the threads count; on the main
 * thread.
 */

import type { Control } from '../control.ts';
import { COUNT, WORK } from '../lanes.ts';
import { SWEEP_MS } from '../limits.ts';
import type { Log } from '../observe/log.ts';

const NEARLY_FULL = 0.9;

export class CapacityWatch {
  readonly #control: Control;
  readonly #capacity: number;
  readonly #log: Log;
  readonly #timer: NodeJS.Timeout;
  #evicted = 0;
  #noRoom = 0;
  #wasNearlyFull = false;

  constructor(control: Control, capacity: number, log: Log) {
    this.#control = control;
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
    const total = totals(this.#control);
    const evicted = total.evicted - this.#evicted;
    const noRoom = total.noRoom - this.#noRoom;
    this.#evicted = total.evicted;
    this.#noRoom = total.noRoom;
    const facts = { live: total.live, capacity: this.#capacity };
    const isNearlyFull = total.live > NEARLY_FULL * this.#capacity;
    if (evicted + noRoom > 0) {
      this.#log.warn({ ...facts, evicted, noRoom }, 'the table is too small: raise WEIR_COUNTERS');
    } else if (isNearlyFull && !this.#wasNearlyFull) {
      this.#log.warn(facts, 'counters are nearly full');
    }
    this.#wasNearlyFull = isNearlyFull;
  }
}

function totals(control: Control): { live: number; evicted: number; noRoom: number } {
  const total = { live: 0, evicted: 0, noRoom: 0 };
  for (const lane of control.acceptorLanes()) {
    total.evicted += lane.counted(COUNT.liveEvictions);
    total.noRoom += lane.counted(COUNT.fullTable);
  }
  for (const lane of control.workerLanes()) {
    total.live += lane.counted(WORK.live);
    total.evicted += lane.counted(WORK.liveEvictions);
    total.noRoom += lane.counted(WORK.noRoom);
  }
  return total;
}
