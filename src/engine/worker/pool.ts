/**
 * The piscina pool whose threads run the shard workers, and which thread is which: piscina replaces
 * a thread that ends, but says nothing of when it has, and a run can be rejected before. Belongs to
 * the main thread.
 */

import type { MessagePort, Worker } from 'node:worker_threads';
import { Piscina } from 'piscina';
import type { ShardWorkerData, WorkerRun } from './worker.ts';

/** A worker keeps next to nothing on its heap: what grows beyond this is a fault of its own. */
const HEAP_MB = 64;

interface PoolThread {
  worker: Worker;
  /** Whether it has loaded its file, or has ended. */
  hasBooted: boolean;
  booted: Promise<void>;
  ended: Promise<void>;
}

export class ShardPool {
  readonly #pool: Piscina;
  /** Every thread there was since the start, while it lives, by its id. */
  readonly #threads = new Map<number, PoolThread>();

  /** @param onThreadFailure called when a thread fails without a run, as in its bootstrap */
  constructor(
    workerCount: number,
    workerData: ShardWorkerData,
    onThreadFailure: (error: Error) => void,
  ) {
    this.#pool = new Piscina({
      filename: new URL('./worker.js', import.meta.url).href,
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
    // piscina says so of the first threads at once, of all others when they have loaded their file.
    this.#pool.on('workerCreate', ({ id }: { id: number }) => this.#trackBooted(id));
    this.#trackNewThreads();
  }

  /**
   * Starts a run. Resolves when it was told to stop, or with what damage it found in shared memory;
   * rejects when it failed, or its thread did.
   */
  run(run: WorkerRun, signal: AbortSignal): Promise<string | undefined> {
    return this.#pool.run(run, { signal, transferList: run.notificationPorts as MessagePort[] });
  }

  /** How many threads there are; fewer than wanted when one failed in its bootstrap. */
  get size(): number {
    return this.#pool.threads.length;
  }

  /** Resolves when a thread has ended; at once when the pool goes on with it. */
  async waitForEnd(id: number): Promise<void> {
    if (this.#pool.threads.some(({ threadId }) => threadId === id)) return;
    await this.#threads.get(id)?.ended;
  }

  /** Ends a thread, whatever it does. */
  async terminate(id: number): Promise<void> {
    await this.#threads.get(id)?.worker.terminate();
  }

  /** Ends all threads but those, and but those that are booting unless `endsBooting`. */
  async terminateOthers(keptIds: readonly number[], includesBooting: boolean): Promise<void> {
    this.#trackNewThreads();
    const others = [...this.#threads].filter(([id, { hasBooted }]) => {
      return !keptIds.includes(id) && (hasBooted || includesBooting);
    });
    await Promise.all(others.map(([id]) => this.terminate(id)));
  }

  /**
   * Resolves when no thread is booting, that is, loading its file. Node can abort the process when
   * such a thread is ended: piscina loads the file by require(), and Node does not expect that the
   * linking of an ES module is interrupted there.
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

  /** A thread that was not known has loaded its file. */
  #trackBooted(id: number): void {
    const worker = this.#pool.threads.find(({ threadId }) => threadId === id);
    if (worker !== undefined) this.#track(worker, true);
  }

  /** All threads that are not known yet are loading their file. */
  #trackNewThreads(): void {
    for (const worker of this.#pool.threads) this.#track(worker, false);
  }

  #track(worker: Worker, hasBooted: boolean): void {
    const id = worker.threadId;
    if (id < 0 || this.#threads.has(id)) return;
    const ended = new Promise<void>((resolve) => worker.once('exit', () => resolve()));
    // The first message of a thread to piscina says that it has loaded its file.
    const loaded = new Promise<void>((resolve) => worker.once('message', () => resolve()));
    const thread = { worker, hasBooted, booted: Promise.race([loaded, ended]), ended };
    thread.booted.then(() => {
      thread.hasBooted = true;
    });
    this.#threads.set(id, thread);
    ended.then(() => this.#threads.delete(id));
  }
}
