/**
 * Makes changes durable and puts them in force, on the main thread. What has come while the last
 * round went on is one round: each change is made in memory, in its order; all are written in
 * one transaction; one publication tells every acceptor; and when all of them have switched, all
 * are answered. So what is acknowledged is on disk and holds for the next check, wherever it comes.
 *
 * A change that is refused changes nothing, and does not touch those beside it. When the store
 * cannot write, every change of the round is taken back and answered with a 503; checks go on.
 * Names of new namespaces that checks have brought are tried again until they are written.
 */

import {
  IMPORT_MAX_BYTES,
  NAMESPACES_MAX,
  PENDING_BYTES_MAX,
  PENDING_CHANGES_MAX,
} from '../core/constants.ts';
import { ApiError } from '../core/errors.ts';
import type { Log } from '../core/log.ts';
import { logAudit } from './audit-entries.ts';
import type { Registry } from './registry.ts';
import type { Change, Store } from './store/store.ts';

/** A round takes no more requests when they are so large together. */
const GROUP_COMMIT_MAX_BYTES = IMPORT_MAX_BYTES;
/** After a failure, when names that checks have brought are tried again. */
const RETRY_MS = 1_000;

interface PendingChange {
  work: () => object;
  bytes: number;
  resolve: (answer: object) => void;
  reject: (error: unknown) => void;
}

type Outcome = { answer: object } | { error: unknown };

/** Puts durable changes in force; resolves when they are, on every acceptor. */
export type Publisher = (changes: readonly Change[], rejected: string[]) => Promise<void>;

export class Writer {
  groupCommits = 0;
  /** Changes that were not taken, since too many waited. */
  shedChanges = 0;
  readonly #registry: Registry;
  readonly #store: Store;
  readonly #publish: Publisher;
  readonly #log: Log;
  readonly #nowMs: () => number;
  #pending: PendingChange[] = [];
  #pendingBytes = 0;
  /** Names of namespaces that checks have brought. */
  readonly #newNamespaceNames = new Set<string>();
  #retryTimer: NodeJS.Timeout | undefined;
  #isRunning = false;

  constructor(registry: Registry, store: Store, publish: Publisher, log: Log, nowMs: () => number) {
    this.#registry = registry;
    this.#store = store;
    this.#publish = publish;
    this.#log = log;
    this.#nowMs = nowMs;
  }

  /**
   * @param bytes how large the request is
   * @param work changes the registry, and returns the answer; what it throws is the answer, and
   *   what it had changed is taken back. May be called twice.
   */
  submit(bytes: number, work: () => object): Promise<object> {
    const full =
      this.#pending.length >= PENDING_CHANGES_MAX || this.#pendingBytes + bytes > PENDING_BYTES_MAX;
    if (full) {
      this.shedChanges++;
      const message = 'too many changes wait to be written; nothing was changed';
      return Promise.reject(new ApiError('SERVICE_UNAVAILABLE', message));
    }
    return new Promise((resolve, reject) => {
      this.#pending.push({ work, bytes, resolve, reject });
      this.#pendingBytes += bytes;
      this.#start();
    });
  }

  /** A check came in a namespace that is not known yet. */
  registerNamespace(name: string): void {
    if (this.#registry.namespaceByName(name) !== undefined) return;
    this.#newNamespaceNames.add(name);
    if (this.#retryTimer === undefined) this.#start();
  }

  /** Writes what checks have brought, now. */
  flush(): void {
    clearTimeout(this.#retryTimer);
    this.#addNamespaces();
    this.#commit();
  }

  #start(): void {
    if (this.#isRunning) return;
    this.#isRunning = true;
    // What comes in the same turn is in the same round.
    setImmediate(() => void this.#run());
  }

  async #run(): Promise<void> {
    while (
      this.#pending.length > 0 ||
      (this.#newNamespaceNames.size > 0 && this.#retryTimer === undefined)
    ) {
      await this.#runGroupCommit();
      // Whatever else this thread has to do comes in between.
      await new Promise(setImmediate);
    }
    this.#isRunning = false;
  }

  async #runGroupCommit(): Promise<void> {
    const round = this.#takePending();
    this.groupCommits++;
    const rejected = this.#addNamespaces();
    let outcomes = round.map(({ work }) => this.#attempt(work));
    const changes = this.#commit();
    if (changes !== undefined) await this.#publish(changes, rejected);
    else outcomes = round.map(({ work }) => this.#attemptReadOnly(work));
    round.forEach(({ resolve, reject }, i) => {
      const outcome = outcomes[i];
      if ('answer' in outcome) resolve(outcome.answer);
      else reject(outcome.error);
    });
  }

  /** What waits, in its order, but no more than this thread does at a time. */
  #takePending(): PendingChange[] {
    let count = 0;
    let bytes = 0;
    while (count < this.#pending.length && bytes < GROUP_COMMIT_MAX_BYTES)
      bytes += this.#pending[count++].bytes;
    this.#pendingBytes -= bytes;
    return this.#pending.splice(0, count);
  }

  #attempt(work: () => object): Outcome {
    const { journalLength } = this.#registry;
    try {
      return { answer: work() };
    } catch (error) {
      this.#registry.rollBack(journalLength);
      return { error };
    }
  }

  /** The store cannot write: an error of a request's own stands, on what there is now. */
  #attemptReadOnly(work: () => object): Outcome {
    const { journalLength } = this.#registry;
    const outcome = this.#attempt(work);
    if ('error' in outcome || this.#registry.journalLength === journalLength) return outcome;
    this.#registry.rollBack(journalLength);
    const message = 'the store cannot be written to just now; nothing was changed';
    return { error: new ApiError('SERVICE_UNAVAILABLE', message) };
  }

  /** @returns the names for which there is no room */
  #addNamespaces(): string[] {
    const names = [...this.#newNamespaceNames].filter((name) => {
      return this.#registry.namespaceByName(name) === undefined;
    });
    const room = NAMESPACES_MAX - this.#registry.namespaceCount;
    for (const name of names.slice(0, room)) this.#registry.addNamespace(name, this.#nowMs());
    return names.slice(room);
  }

  /** @returns what is durable now; undefined where the store failed, and all was taken back */
  #commit(): readonly Change[] | undefined {
    const { journalLength: changes } = this.#registry;
    try {
      const settled = this.#registry.commit(this.#store);
      this.#newNamespaceNames.clear();
      logAudit(this.#log, settled);
      return settled;
    } catch (error) {
      this.#registry.rollBack(0);
      this.#log.warn({ err: error, changes }, 'the store cannot be written to');
      this.#retryTimer ??= setTimeout(() => {
        this.#retryTimer = undefined;
        if (this.#newNamespaceNames.size > 0) this.#start();
      }, RETRY_MS);
      return undefined;
    }
  }
}
