/** Reads how many entries wait in the queues to each shard worker, on the main thread. */

import { CHECK_QUEUE, queueDepth } from './queue.ts';

export class QueueDepths {
  /** By acceptor and worker. */
  readonly #channels: readonly (readonly Int32Array[])[];

  /** @param channels by acceptor and worker */
  constructor(channels: readonly (readonly SharedArrayBuffer[])[]) {
    this.#channels = channels.map((row) => row.map((buffer) => new Int32Array(buffer)));
  }

  byWorker(): number[] {
    const [first = []] = this.#channels;
    return first.map((_, worker) => {
      return this.#channels.reduce((sum, row) => sum + queueDepth(row[worker], CHECK_QUEUE), 0);
    });
  }
}
