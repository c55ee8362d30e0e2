/**
 * The engine of the process, on the main thread, for every engine: keeps its shard workers running,
 * and reads how busy they are. `supervisor.ts` says what happens when a worker dies.
 */

import type { MessagePort } from 'node:worker_threads';
import type { Log } from '../../core/log.ts';
import type { Control } from '../../shared-memory/control.ts';
import type { EngineHost, EngineStats, HostedEngine } from '../engine.ts';
import { QueueDepths } from '../queue/queue-depths.ts';
import { ShardWorkerSupervisor } from './supervisor.ts';

export class ShardWorkerHost implements EngineHost {
  readonly #engine: HostedEngine;
  readonly #queueDepths: QueueDepths;
  readonly #supervisor: ShardWorkerSupervisor;
  readonly #log: Log;

  /**
   * Starts the shard workers.
   * @param connectWorker passes one end of a channel from a worker to each acceptor, and returns
   *   the other ends
   */
  constructor(
    engine: HostedEngine,
    control: Control,
    connectWorker: (worker: number) => MessagePort[],
    log: Log,
  ) {
    this.#engine = engine;
    this.#queueDepths = new QueueDepths(engine.channels);
    const openPorts = engine.notifiesAcceptors ? connectWorker : () => [];
    this.#supervisor = new ShardWorkerSupervisor(engine, control, openPorts, log);
    this.#log = log;
  }

  stats(): EngineStats {
    const queueDepths = this.#queueDepths.byWorker();
    const { runningCount: running, replacementCount: replaced } = this.#supervisor;
    const cluster = this.#engine.clusterStats?.();
    const holds = this.#engine.holdStats?.();
    return {
      queueDepths,
      workers: { configured: queueDepths.length, running, replaced },
      ...(cluster && { cluster }),
      ...(holds && { holds }),
    };
  }

  async removeNamespaces(tags: ReadonlySet<number>): Promise<void> {
    await this.#engine.removeNamespaces?.(tags);
  }

  async drain(): Promise<void> {
    const isComplete = await this.#supervisor.drain();
    this.#engine.afterDrain?.(isComplete, this.#log);
  }

  async stop(): Promise<void> {
    this.#engine.close?.();
    await this.#supervisor.stop();
  }
}
