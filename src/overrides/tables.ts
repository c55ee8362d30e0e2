/**
 * The tables of overrides on the main thread: keeps what they are made from, and has the ones that
 * changed written into buffers that no acceptor reads any more. Of each kind there are two buffers,
 * written in turn and for ever, since one that all threads have dropped is not freed for long; one
 * that has become too small is left for another of twice the size.
 */

import { setTimeout as after } from 'node:timers/promises';
import type { Piscina } from 'piscina';
import { COMPILE_MAX_MS, THREAD_BOOT_MS } from '../limits.ts';
import compile, { type Compiled, type CompileJob } from './compile.ts';
import type { PublishedTables } from './in-force.ts';
import { ExactRegister, isExact, type PlacedOverride, WildcardRegister } from './registers.ts';

/**
 * A thread that does not do it in time costs a change that time, and a buffer. After so many
 * failures in a row it is left alone for so many changes.
 */
const FAILURES_MAX = 3;
const PAUSE_CHANGES = 100;

export class OverrideTables {
  readonly #exact: ExactRegister;
  readonly #wildcards = new WildcardRegister();
  readonly #exactBuffers = new Buffers();
  readonly #trieBuffers = new Buffers();
  readonly #task: URL;
  #pool: Promise<Piscina> | undefined;
  /** Resolves however it ends. */
  #lastRun: Promise<unknown> = Promise.resolve();
  readonly #taskFailed: (error: Error) => void;
  /** How often the task failed in a row, and how many changes it is not tried for. */
  #failures = 0;
  #pause = 0;
  #closed = false;
  /** Called when a thread of the pool fails: piscina may not tell the job that waits for it. */
  #threadFailed = (_error: Error) => {};

  /**
   * @param task the built `compile.ts`
   * @param taskFailed hears of a job that had to be done on the main thread
   */
  constructor(hashKey: Uint8Array, task: URL, taskFailed: (error: Error) => void) {
    this.#exact = new ExactRegister(hashKey);
    this.#taskFailed = taskFailed;
    this.#task = task;
  }

  /** Not needed, and not loaded, until the first change is near. */
  async #open(): Promise<Piscina> {
    const { Piscina } = await import('piscina');
    const pool = new Piscina({
      filename: this.#task.href,
      minThreads: 0,
      maxThreads: 1,
      concurrentTasksPerWorker: 1,
      maxQueue: 1,
      idleTimeout: Number.POSITIVE_INFINITY,
      recordTiming: false,
      atomics: 'disabled',
    });
    pool.on('error', (error) => this.#threadFailed(error));
    return pool;
  }

  #run(job: CompileJob, signal?: AbortSignal): Promise<Compiled> {
    this.#pool ??= this.#open();
    const run = this.#pool.then((pool) => pool.run(job, { ...(signal && { signal }) }));
    this.#lastRun = run.catch(() => {});
    return run;
  }

  /** Starts the thread of the task, so that the first change does not wait for it. */
  warmUp(): void {
    this.#run({}).catch((error) => {
      if (!this.#closed) this.#taskFailed(error);
    });
  }

  /** An override comes, changes or goes. Not while a compilation runs, which reads them. */
  apply(before: PlacedOverride | undefined, after: PlacedOverride | undefined): void {
    const register = isExact((after ?? before)!) ? this.#exact : this.#wildcards;
    if (after === undefined) register.remove(before!);
    else register.put(after);
  }

  /** Writes the tables that changed since the last time, in a task. @returns those */
  async compile(): Promise<Partial<PublishedTables>> {
    const job = this.#job();
    if (this.#pause === 0) return this.#finish(job, await this.#compileInTask(job));
    this.#pause--;
    return this.#finish(job, compile(job));
  }

  async #compileInTask(job: CompileJob): Promise<Compiled> {
    const abort = new AbortController();
    const failure = new Promise<never>((_, reject) => {
      this.#threadFailed = reject;
    });
    const late = setTimeout(() => {
      this.#threadFailed(new Error(`it took more than ${COMPILE_MAX_MS} ms`));
    }, COMPILE_MAX_MS);
    try {
      const compiled = await Promise.race([this.#run(job, abort.signal), failure]);
      this.#failures = 0;
      return compiled;
    } catch (error) {
      // The same function does it here, into buffers that no late thread can still write to.
      abort.abort();
      // Nobody waits for it any more.
      if (this.#closed) return new Promise(() => {});
      this.#taskFailed(error as Error);
      if (++this.#failures % FAILURES_MAX === 0) this.#pause = PAUSE_CHANGES;
      return compile({
        ...(job.exact && { exact: { ...job.exact, spare: undefined } }),
        ...(job.trie && { trie: { ...job.trie, spare: undefined } }),
      });
    } finally {
      clearTimeout(late);
    }
  }

  /** The same on this thread, while the service starts. @returns all tables */
  compileNow(): PublishedTables {
    const job = this.#job();
    return { exact: null, trie: null, ...this.#finish(job, compile(job)) };
  }

  /** Node aborts the process when a thread is ended that is still loading its file. */
  async close(): Promise<void> {
    this.#closed = true;
    await Promise.race([this.#lastRun, after(THREAD_BOOT_MS, undefined, { ref: false })]);
    await (await this.#pool)?.destroy();
  }

  #job(): CompileJob {
    const job: CompileJob = {};
    const { records, buffer: table } = this.#exact.table;
    if (this.#exact.changed && records > 0) {
      job.exact = { table, records, spare: this.#exactBuffers.spare };
    }
    if (this.#wildcards.changed && this.#wildcards.count > 0) {
      job.trie = { wildcards: this.#wildcards.toWrite(), spare: this.#trieBuffers.spare };
    }
    return job;
  }

  #finish(job: CompileJob, { exact, trie }: Compiled): Partial<PublishedTables> {
    const tables: Partial<PublishedTables> = {};
    if (this.#exact.changed) tables.exact = this.#exactBuffers.turn(job.exact, exact);
    if (this.#wildcards.changed) tables.trie = this.#trieBuffers.turn(job.trie, trie);
    this.#exact.changed = false;
    this.#wildcards.changed = false;
    return tables;
  }
}

/** The two buffers of one kind of table. */
class Buffers {
  /** The one that was written last, and the one before it. */
  #last: SharedArrayBuffer | undefined;
  spare: SharedArrayBuffer | undefined;

  /**
   * @param job what was to be written; undefined where nothing is left to write
   * @param written the buffer that was written into, as the task handed it back
   * @returns the buffer to publish; null where there is nothing in force
   */
  turn(job: object | undefined, written: SharedArrayBuffer | undefined): SharedArrayBuffer | null {
    if (job === undefined) return null;
    if (written === undefined) throw new Error('a table of overrides was not written');
    this.spare = this.#last;
    this.#last = written;
    return written;
  }
}
