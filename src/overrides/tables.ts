/**
 * The tables of overrides on the main thread: keeps what they are made from, and has the ones that
 * changed written into buffers that no acceptor reads any more. Of each kind there are two buffers,
 * written in turn and for ever, since one that all threads have dropped is not freed for long; one
 * that has become too small is left for another of twice the size.
 */

import { setTimeout as after } from 'node:timers/promises';
import type { Piscina } from 'piscina';
import { COMPILE_TIMEOUT_MS, THREAD_BOOT_MS } from '../core/constants.ts';
import type { PublishedTables } from './active.ts';
import compile, { type CompileJob, type CompileResult } from './compile.ts';
import { ExactOverrideSet, isExact, type OverrideEntry, WildcardOverrideSet } from './sets.ts';

/**
 * A thread that does not do it in time costs a change that time, and a buffer. After so many
 * failures in a row it is left alone for so many changes.
 */
const FAILURES_MAX = 3;
const PAUSE_CHANGES = 100;

export class OverrideTables {
  readonly #exact: ExactOverrideSet;
  readonly #wildcards = new WildcardOverrideSet();
  readonly #exactBuffers = new BufferPair();
  readonly #trieBuffers = new BufferPair();
  readonly #taskFile: URL;
  #pool: Promise<Piscina> | undefined;
  /** Resolves however it ends. */
  #lastRun: Promise<unknown> = Promise.resolve();
  readonly #onTaskError: (error: Error) => void;
  /** How often the task failed in a row, and how many changes it is not tried for. */
  #consecutiveFailures = 0;
  #pausedChanges = 0;
  #isClosed = false;
  /** Called when a thread of the pool fails: piscina may not tell the job that waits for it. */
  #onThreadError = (_error: Error) => {};

  /**
   * @param taskFile the built `compile.ts`
   * @param onTaskError hears of a job that had to be done on the main thread
   */
  constructor(hashKey: Uint8Array, taskFile: URL, onTaskError: (error: Error) => void) {
    this.#exact = new ExactOverrideSet(hashKey);
    this.#onTaskError = onTaskError;
    this.#taskFile = taskFile;
  }

  /** Not needed, and not loaded, until the first change is near. */
  async #openPool(): Promise<Piscina> {
    const { Piscina } = await import('piscina');
    const pool = new Piscina({
      filename: this.#taskFile.href,
      minThreads: 0,
      maxThreads: 1,
      concurrentTasksPerWorker: 1,
      maxQueue: 1,
      idleTimeout: Number.POSITIVE_INFINITY,
      recordTiming: false,
      atomics: 'disabled',
    });
    pool.on('error', (error) => this.#onThreadError(error));
    return pool;
  }

  #runTask(job: CompileJob, signal?: AbortSignal): Promise<CompileResult> {
    this.#pool ??= this.#openPool();
    const run = this.#pool.then((pool) => pool.run(job, { ...(signal && { signal }) }));
    this.#lastRun = run.catch(() => {});
    return run;
  }

  /** Starts the thread of the task, so that the first change does not wait for it. */
  warmUp(): void {
    this.#runTask({}).catch((error) => {
      if (!this.#isClosed) this.#onTaskError(error);
    });
  }

  /** An override comes, changes or goes. Not while a compilation runs, which reads them. */
  apply(before: OverrideEntry | undefined, after: OverrideEntry | undefined): void {
    const register = isExact((after ?? before)!) ? this.#exact : this.#wildcards;
    if (after === undefined) register.remove(before!);
    else register.put(after);
  }

  /** Writes the tables that changed since the last time, in a task. @returns those */
  async compile(): Promise<Partial<PublishedTables>> {
    const job = this.#makeJob();
    if (this.#pausedChanges === 0) return this.#swapTables(job, await this.#compileInTask(job));
    this.#pausedChanges--;
    return this.#swapTables(job, compile(job));
  }

  async #compileInTask(job: CompileJob): Promise<CompileResult> {
    const abort = new AbortController();
    const failure = new Promise<never>((_, reject) => {
      this.#onThreadError = reject;
    });
    const late = setTimeout(() => {
      this.#onThreadError(new Error(`it took more than ${COMPILE_TIMEOUT_MS} ms`));
    }, COMPILE_TIMEOUT_MS);
    try {
      const compiled = await Promise.race([this.#runTask(job, abort.signal), failure]);
      this.#consecutiveFailures = 0;
      return compiled;
    } catch (error) {
      // The same function does it here, into buffers that no late thread can still write to.
      abort.abort();
      // Nobody waits for it any more.
      if (this.#isClosed) return new Promise(() => {});
      this.#onTaskError(error as Error);
      if (++this.#consecutiveFailures % FAILURES_MAX === 0) this.#pausedChanges = PAUSE_CHANGES;
      return compile({
        ...(job.exact && { exact: { ...job.exact, spare: undefined } }),
        ...(job.trie && { trie: { ...job.trie, spare: undefined } }),
      });
    } finally {
      clearTimeout(late);
    }
  }

  /** The same on this thread, while the service starts. @returns all tables */
  compileSync(): PublishedTables {
    const job = this.#makeJob();
    return { exact: null, trie: null, ...this.#swapTables(job, compile(job)) };
  }

  /** Node aborts the process when a thread is ended that is still loading its file. */
  async close(): Promise<void> {
    this.#isClosed = true;
    await Promise.race([this.#lastRun, after(THREAD_BOOT_MS, undefined, { ref: false })]);
    await (await this.#pool)?.destroy();
  }

  #makeJob(): CompileJob {
    const job: CompileJob = {};
    const { records, buffer: table } = this.#exact.table;
    if (this.#exact.isChanged && records > 0) {
      job.exact = { table, records, spare: this.#exactBuffers.spare };
    }
    if (this.#wildcards.isChanged && this.#wildcards.count > 0) {
      job.trie = { wildcards: this.#wildcards.serialize(), spare: this.#trieBuffers.spare };
    }
    return job;
  }

  #swapTables(job: CompileJob, { exact, trie }: CompileResult): Partial<PublishedTables> {
    const tables: Partial<PublishedTables> = {};
    if (this.#exact.isChanged) tables.exact = this.#exactBuffers.swap(job.exact, exact);
    if (this.#wildcards.isChanged) tables.trie = this.#trieBuffers.swap(job.trie, trie);
    this.#exact.isChanged = false;
    this.#wildcards.isChanged = false;
    return tables;
  }
}

/** The two buffers of one kind of table. */
class BufferPair {
  /** The one that was written last, and the one before it. */
  #lastWritten: SharedArrayBuffer | undefined;
  spare: SharedArrayBuffer | undefined;

  /**
   * @param job what was to be written; undefined where nothing is left to write
   * @param written the buffer that was written into, as the task handed it back
   * @returns the buffer to publish; null where there is nothing in force
   */
  swap(job: object | undefined, written: SharedArrayBuffer | undefined): SharedArrayBuffer | null {
    if (job === undefined) return null;
    if (written === undefined) throw new Error('a table of overrides was not written');
    this.spare = this.#lastWritten;
    this.#lastWritten = written;
    return written;
  }
}
