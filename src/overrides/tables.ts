/**
 * The tables of overrides on the main thread. A task in another thread writes the changed tables
 * into buffers that no acceptor reads any more. If the task fails or takes too long, the main
 * thread does the work. Each kind of table has two buffers that are reused in turn, because a
 * buffer that all threads have dropped stays allocated for a long time. A buffer that is too small
 * is replaced by one of twice the required size.
 */

import type { Piscina } from 'piscina';
import { COMPILE_TIMEOUT_MS, THREAD_BOOT_MS } from '../core/constants.ts';
import { requirePackage } from '../core/packages.ts';
import { afterProcessMs, completesWithin } from '../shared-memory/heartbeat-watch.ts';
import type { PublishedTables } from './active.ts';
import compile, { type CompileJob, type CompileResult } from './compile.ts';
import { BLOCK_PRECEDENCE, explainPrecedence, type PrecedenceReason } from './precedence.ts';
import {
  ExactOverrideSet,
  isExact,
  type LosingOverride,
  type OverrideEntry,
  type OverrideMatch,
  type OverrideMatches,
  precedenceOf,
  WildcardOverrideSet,
} from './sets.ts';

/**
 * A task that times out delays its change by the timeout and costs a buffer. After so many
 * consecutive failures the next PAUSE_CHANGES changes do not use the task.
 */
const FAILURES_MAX = 3;
const PAUSE_CHANGES = 100;

/** The interval at which the time of a task is looked at. */
const POLL_MS = 100;

export class OverrideTables {
  readonly #exact: ExactOverrideSet;
  readonly #wildcards = new WildcardOverrideSet();
  readonly #exactBuffers = new BufferPair();
  readonly #trieBuffers = new BufferPair();
  /** The rows of overrides that have ended: the store still has them, the tables do not. */
  readonly #endedRows = new Set<number>();
  readonly #taskFile: URL;
  #pool: Piscina | undefined;
  /** Resolves when the last task has ended, whether or not it failed. */
  #lastRun: Promise<unknown> = Promise.resolve();
  readonly #onTaskError: (error: Error) => void;
  #consecutiveFailures = 0;
  /** How many more changes do not use the task. */
  #pausedChanges = 0;
  #isClosed = false;
  /** Called when a thread of the pool fails: piscina may not reject the job that runs on it. */
  #onThreadError = (_error: Error) => {};

  /**
   * @param taskFile the built `compile.ts`
   * @param onTaskError called when the task failed and the main thread did its job
   */
  constructor(hashKey: Uint8Array, taskFile: URL, onTaskError: (error: Error) => void) {
    this.#exact = new ExactOverrideSet(hashKey);
    this.#onTaskError = onTaskError;
    this.#taskFile = taskFile;
  }

  /** Loads piscina on first use: a start without changes does not need it. */
  #openPool(): Piscina {
    const { Piscina } = requirePackage('piscina');
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

  async #runTask(job: CompileJob, signal?: AbortSignal): Promise<CompileResult> {
    this.#pool ??= this.#openPool();
    const run = this.#pool.run(job, { ...(signal && { signal }) });
    this.#lastRun = run.catch(() => {});
    return run;
  }

  /** Starts the task's thread, so that the first change does not wait for it. */
  warmUp(): void {
    this.#runTask({}).catch((error) => {
      if (!this.#isClosed) this.#onTaskError(error);
    });
  }

  /**
   * Adds, replaces or removes an override. Must not be called while `compile` runs, which reads
   * the overrides.
   * @returns whether the tables have changed
   */
  apply(before: OverrideEntry | undefined, after: OverrideEntry | undefined): boolean {
    const overrides = isExact((after ?? before)!) ? this.#exact : this.#wildcards;
    const isOut = before !== undefined && this.#endedRows.delete(before.row);
    if (after !== undefined) overrides.put(after);
    else if (isOut) return false;
    else overrides.remove(before!);
    return true;
  }

  /**
   * Takes out an override that has ended, before its record is removed, or set again. Must not be
   * called while `compile` runs.
   * @returns whether it was in the tables
   */
  end(override: OverrideEntry): boolean {
    if (this.#endedRows.has(override.row)) return false;
    this.apply(override, undefined);
    this.#endedRows.add(override.row);
    return true;
  }

  /**
   * All overrides that match a check, from the overrides that are published, or are being
   * published.
   * @param losersMax how many of those that do not apply are returned
   * @param namespaceKey see `namespaceKey`
   */
  match(
    namespace: string,
    identifier: string,
    losersMax: number,
    namespaceKey = namespace,
  ): OverrideMatches {
    let winner: OverrideMatch | undefined;
    let count = 0;
    const losers: LosingOverride[] = [];
    const add = (override: OverrideMatch) => {
      count++;
      if (winner === undefined) winner = override;
      else if (losers.length < losersMax) {
        losers.push({ ...override, precedence: precedenceOver(winner, override) });
      }
    };
    // Exact overrides take precedence over all patterns.
    for (const override of this.#exact.matches(namespace, namespaceKey, identifier)) add(override);
    for (const override of this.#wildcards.matches(namespace, identifier)) add(override);
    return { winner, losers, count };
  }

  /** Writes the tables that have changed since the last call. @returns these tables */
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
    // A thread without a CPU is waited for: Node may abort if it is ended while it starts.
    const stopWaiting = afterProcessMs(COMPILE_TIMEOUT_MS, POLL_MS, () => {
      this.#onThreadError(new Error(`it took more than ${COMPILE_TIMEOUT_MS} ms`));
    });
    try {
      const result = await Promise.race([this.#runTask(job, abort.signal), failure]);
      this.#consecutiveFailures = 0;
      return result;
    } catch (error) {
      abort.abort();
      // The pool was closed under the task, and no caller waits for the result.
      if (this.#isClosed) return new Promise(() => {});
      this.#onTaskError(error as Error);
      if (++this.#consecutiveFailures % FAILURES_MAX === 0) this.#pausedChanges = PAUSE_CHANGES;
      // Into new buffers: the failed thread may still write to the spare ones.
      return compile({
        ...(job.exact && { exact: { ...job.exact, spare: undefined } }),
        ...(job.trie && { trie: { ...job.trie, spare: undefined } }),
      });
    } finally {
      stopWaiting();
    }
  }

  /** Writes the tables on this thread, for the start of the service. @returns all tables */
  compileSync(): PublishedTables {
    const job = this.#makeJob();
    return { exact: null, trie: null, ...this.#swapTables(job, compile(job)) };
  }

  /**
   * Waits until the thread has loaded its file: Node aborts the process if a thread is terminated
   * earlier.
   */
  async close(): Promise<void> {
    this.#isClosed = true;
    await completesWithin(THREAD_BOOT_MS, POLL_MS, this.#lastRun);
    await this.#pool?.destroy();
  }

  #makeJob(): CompileJob {
    const job: CompileJob = {};
    const { records, buffer: table } = this.#exact.table;
    if (this.#exact.isChanged && records > 0) {
      job.exact = { table, spare: this.#exactBuffers.spare };
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

function precedenceOver(winner: OverrideMatch, loser: OverrideMatch): PrecedenceReason {
  if (winner.isBlocking === true) return BLOCK_PRECEDENCE;
  return explainPrecedence(precedenceOf(winner), precedenceOf(loser));
}

/** The two buffers of one kind of table. */
class BufferPair {
  #lastWritten: SharedArrayBuffer | undefined;
  /** The buffer that was written before the last one. No acceptor reads it any more. */
  spare: SharedArrayBuffer | undefined;

  /**
   * @param job undefined if no override of this kind is left
   * @param written the buffer that the job has written
   * @returns the buffer to publish; null if no override of this kind is left
   */
  swap(job: object | undefined, written: SharedArrayBuffer | undefined): SharedArrayBuffer | null {
    if (job === undefined) return null;
    if (written === undefined) throw new Error('a table of overrides was not written');
    this.spare = this.#lastWritten;
    this.#lastWritten = written;
    return written;
  }
}
