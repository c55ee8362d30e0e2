/**
 * The queues from one acceptor to all shard workers, and the wait until a worker has emptied those
 * of all acceptors. An identity's work goes to the worker of its shard.
 */

import type { CheckParameters } from '../../core/decision.ts';
import type { Identity } from '../../core/hash.ts';
import type { Control } from '../../shared-memory/control.ts';
import { shardOf, workerOf } from '../table/shard.ts';
import { QueueBarrier } from './barrier.ts';
import { CheckQueueProducer } from './check-queue-producer.ts';
import { attachChannel } from './queue.ts';

export class WorkQueues {
  /** One for each worker. */
  readonly producers: readonly CheckQueueProducer[];
  readonly #barrier: QueueBarrier;

  /**
   * @param buffers the channels by acceptor and worker
   * @param acceptor the index of this thread
   * @param nowMs a monotonic clock
   * @throws MemoryError when a buffer is not the channel of its acceptor and worker
   */
  constructor(
    buffers: readonly (readonly SharedArrayBuffer[])[],
    acceptor: number,
    control: Control,
    nowMs: () => number,
  ) {
    const channels = buffers.map((row, from) => {
      return row.map((buffer, worker) => attachChannel(buffer, from, worker));
    });
    this.producers = channels[acceptor].map((channel, worker) => {
      return new CheckQueueProducer(channel, control.workerStats(worker));
    });
    this.#barrier = new QueueBarrier(channels, nowMs);
  }

  /** Whether there is room for one more entry about an identity. */
  hasRoom(id: Identity): boolean {
    return this.producers[this.workerFor(id)].hasRoom();
  }

  /** Enqueues an entry without a reply, as `CheckQueueProducer.enqueue` does. */
  enqueue(
    kind: number,
    id: Identity,
    namespaceTag: number,
    parameters: CheckParameters,
    burstOrWindow: number,
  ): void {
    const producer = this.producers[this.workerFor(id)];
    producer.enqueue(kind, id, namespaceTag, parameters, burstOrWindow);
    producer.wakeWorker();
  }

  /** Waits until the worker of an identity has emptied its queues: see `QueueBarrier.wait`. */
  wait(id: Identity): Promise<boolean> | undefined {
    return this.#barrier.wait(this.workerFor(id));
  }

  /** The index of the worker that has the shard of an identity. */
  workerFor(id: Identity): number {
    return workerOf(shardOf(id), this.producers.length);
  }
}
