/**
 * The pool of shard workers, on the main thread. While checks come in it counts the live counters
 * of every shard from time to time, and warns before the table is full and when a live counter had
 * to make room: then limits are no longer exact, and WEIR_COUNTERS is too small. A census that
 * fails is logged; the next one starts afresh.
 */

import { Piscina } from 'piscina';
import { COUNT, type Control } from '../control.ts';
import { SHARDS } from '../limits.ts';
import type { Log } from '../observe/log.ts';
import type { CensusTask, ShardWorkerData } from './worker.ts';

const CENSUS_MS = 5_000;
const NEARLY_FULL = 0.9;

interface Total {
  checks: number;
  /** Live counters that made room, and newcomers for whom there was none. */
  evicted: number;
  noRoom: number;
}

export class ShardPool {
  readonly #pool: Piscina;
  readonly #control: Control;
  readonly #capacity: number;
  readonly #nowMs: () => number;
  readonly #log: Log;
  readonly #timer: NodeJS.Timeout;
  /** What the last census had to say of: a failed one leaves it to the next. */
  #said: Total = { checks: 0, evicted: 0, noRoom: 0 };
  #closing = false;

  constructor(
    workers: number,
    capacity: number,
    tables: SharedArrayBuffer[],
    control: Control,
    nowMs: () => number,
    log: Log,
  ) {
    this.#control = control;
    this.#capacity = capacity;
    this.#nowMs = nowMs;
    this.#log = log;
    this.#pool = new Piscina({
      filename: new URL('./worker.js', import.meta.url).href,
      workerData: { tables } satisfies ShardWorkerData,
      minThreads: workers,
      maxThreads: workers,
      concurrentTasksPerWorker: 1,
      maxQueue: SHARDS,
      idleTimeout: Number.POSITIVE_INFINITY,
      recordTiming: false,
      atomics: 'disabled',
    });
    this.#pool.on('error', (error) => this.#log.error({ err: error }, 'a shard worker failed'));
    this.#timer = setInterval(() => this.#census(), CENSUS_MS);
  }

  async close(): Promise<void> {
    this.#closing = true;
    clearInterval(this.#timer);
    await this.#pool.destroy();
    this.#warn(this.#total(), {});
  }

  async #census(): Promise<void> {
    const total = this.#total();
    if (total.checks === this.#said.checks || this.#pool.queueSize > 0) return;
    const nowMs = this.#nowMs();
    try {
      const counts = await Promise.all(
        Array.from({ length: SHARDS }, (_, shard): Promise<number> => {
          return this.#pool.run({ shard, nowMs } satisfies CensusTask);
        }),
      );
      const live = counts.reduce((sum, count) => sum + count, 0);
      const facts = { live, capacity: this.#capacity };
      if (this.#warn(total, facts)) return;
      if (live > NEARLY_FULL * this.#capacity) this.#log.warn(facts, 'counters are nearly full');
      else this.#log.debug(facts, 'census');
    } catch (error) {
      if (!this.#closing) this.#log.error({ err: error }, 'a census failed');
    }
  }

  /** Says, once, how many counters were evicted and newcomers found no room, if any. */
  #warn(total: Total, facts: object): boolean {
    const evicted = total.evicted - this.#said.evicted;
    const noRoom = total.noRoom - this.#said.noRoom;
    this.#said = total;
    if (evicted + noRoom === 0) return false;
    this.#log.warn({ ...facts, evicted, noRoom }, 'the table is too small: raise WEIR_COUNTERS');
    return true;
  }

  #total(): Total {
    const total = { checks: 0, evicted: 0, noRoom: 0 };
    for (let i = 0; i < this.#control.lanes; i++) {
      const lane = this.#control.lane(i);
      total.checks += lane.counted(COUNT.admitted) + lane.counted(COUNT.refused);
      total.evicted += lane.counted(COUNT.liveEvictions);
      total.noRoom += lane.counted(COUNT.fullTable);
    }
    return total;
  }
}
