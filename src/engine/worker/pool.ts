/**
 * The piscina pool whose threads run the shard workers. It tracks the threads, because piscina
 * replaces a thread that ends without reporting when it has ended, and may reject its run before
 * that. Belongs to the main thread.
 */

import type { MessagePort, Worker } from 'node:worker_threads';
import type { Piscina } from 'piscina';
import { requirePackage } from '../../core/packages.ts';
import type { HostedEngine, WorkerRun } from '../engine.ts';

/** A worker has almost nothing on its heap: more than this is a fault. */
const HEAP_MB = 64;

interface PoolThread {
  worker: Worker;
  /** Whether the thread has loaded its file, or has ended. */
  hasBooted: boolean;
  booted: Promise<void>;
  ended: Promise<void>;
}

export class ShardPool {
  readonly #pool: Piscina;
  /** All live threads, by id. */
  readonly #threads = new Map<number, PoolThread>();

  /** @param onThreadFailure called when a thread fails without a run, as in its bootstrap */
  constructor(
    workerCount: number,
    { file, workerData }: HostedEngine,
    onThreadFailure: (error: Error) => void,
  ) {
    const { Piscina } = requirePackage('piscina');
    this.#pool = new Piscina({
      filename: file.href,
      workerData,
      minThreads: workerCount,
      maxThreads: workerCount,
      concurrentTasksPerWorker: 1,
      maxQueue: workerCount,
      idleTimeout: Number.POSITIVE_INFINITY,
      recordTiming: false,
      atomics: 'disabled',
      resourceLimits: { maxOldGenerationSizeMb: HEAP_MB },
    });
    this.#pool.on('error', onThreadFailure);
    // piscina emits this for the first threads at once, for later ones after they loaded their
    // file.
    this.#pool.on('workerCreate', ({ id }: { id: number }) => this.#trackBooted(id));
    this.#trackNewThreads();
  }

  /**
   * Starts a run. Resolves after a requested stop, or with a description of damaged shared memory;
   * rejects when the run or its thread fails.
   */
  run(run: WorkerRun, signal: AbortSignal): Promise<string | undefined> {
    return this.#pool.run(run, { signal, transferList: run.notificationPorts as MessagePort[] });
  }

  /** The number of threads; fewer than configured when one failed in its bootstrap. */
  get size(): number {
    return this.#pool.threads.length;
  }

  /** Resolves when a thread has ended; at once when it is still in the pool. */
  async waitForEnd(id: number): Promise<void> {
    if (this.#pool.threads.some(({ threadId }) => threadId === id)) return;
    await this.#threads.get(id)?.ended;
  }

  /** Ends a thread at any point. */
  async terminate(id: number): Promise<void> {
    await this.#threads.get(id)?.worker.terminate();
  }

  /** Ends all threads except `keptIds`, and except those that boot unless `includesBooting`. */
  async terminateOthers(keptIds: readonly number[], includesBooting: boolean): Promise<void> {
    this.#trackNewThreads();
    const others = [...this.#threads].filter(([id, { hasBooted }]) => {
      return !keptIds.includes(id) && (hasBooted || includesBooting);
    });
    await Promise.all(others.map(([id]) => this.terminate(id)));
  }

  /**
   * Resolves when no thread is booting, that is, loading its file. Node may abort the process when
   * such a thread is ended: piscina loads the file by require(), and Node does not expect an
   * interruption while it links an ES module there.
   */
  async waitForBoot(): Promise<void> {
    for (;;) {
      this.#trackNewThreads();
      const booting = [...this.#threads.values()].filter(({ hasBooted }) => !hasBooted);
      if (booting.length === 0) return;
      await Promise.all(booting.map(({ booted }) => booted));
    }
  }

  async destroy(): Promise<void> {
    await this.#pool.destroy();
  }

  /** Tracks a thread that has loaded its file. */
  #trackBooted(id: number): void {
    const worker = this.#pool.threads.find(({ threadId }) => threadId === id);
    if (worker !== undefined) this.#track(worker, true);
  }

  /** Tracks new threads, which are loading their file. */
  #trackNewThreads(): void {
    for (const worker of this.#pool.threads) this.#track(worker, false);
  }

  #track(worker: Worker, hasBooted: boolean): void {
    const id = worker.threadId;
    if (id < 0 || this.#threads.has(id)) return;
    const ended = new Promise<void>((resolve) => worker.once('exit', () => resolve()));
    // A thread sends its first message to piscina after it has loaded its file.
    const loaded = new Promise<void>((resolve) => worker.once('message', () => resolve()));
    const thread = { worker, hasBooted, booted: Promise.race([loaded, ended]), ended };
    thread.booted.then(() => {
      thread.hasBooted = true;
    });
    this.#threads.set(id, thread);
    ended.then(() => this.#threads.delete(id));
  }
}
