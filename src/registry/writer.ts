/**
 * Makes changes durable and activates them, on the main thread. The changes that arrive during a
 * group commit form the next one: they are applied in memory in order, written in one transaction
 * and sent to all acceptors in one publication. They are acknowledged when all acceptors have
 * activated it, so an acknowledged change is durable and applies to the next check on any acceptor.
 *
 * A change that fails is rolled back alone. If the changes cannot be made durable, all changes of
 * the group are rolled back and answered with a 503; checks go on. If another machine has changed
 * the registry meanwhile, the work of the group is repeated on top of that. After a failure the
 * writer tries again every second, so names of new namespaces from checks are written as soon as
 * possible.
 */

import {
  IMPORT_MAX_BYTES,
  NAMESPACES_MAX,
  PENDING_BYTES_MAX,
  PENDING_CHANGES_MAX,
} from '../core/constants.ts';
import { storageErrorCause } from '../core/errno.ts';
import { ApiError } from '../core/errors.ts';
import { FailureLog } from '../core/failure-log.ts';
import type { Log } from '../core/log.ts';
import { logAudit } from './audit-entries.ts';
import type { Ledger } from './ledger.ts';
import { removeEndedOverrides } from './override-expiry.ts';
import type { Registry } from './registry.ts';
import type { Change } from './store/store.ts';

/** A group commit takes no more changes when their requests have reached this size. */
const GROUP_COMMIT_MAX_BYTES = IMPORT_MAX_BYTES;
/** Time after a failure until the writer tries again. */
const RETRY_MS = 1_000;
/** How often the work of a group is repeated because other machines were faster. */
const CONFLICTS_MAX = 20;

interface PendingChange {
  work: () => object;
  bytes: number;
  resolve: (result: object) => void;
  reject: (error: unknown) => void;
}

const TOO_MANY_CONFLICTS =
  'other machines changed the registry at the same time, again and again; nothing was changed';

const FAILURE_EFFECT = '. Changes get a 503, and new namespaces are stored later; checks continue';

type Outcome = { result: object } | { error: unknown };

/** Publishes durable changes; resolves when all acceptors have activated them. */
export type Publisher = (changes: readonly Change[], rejected: string[]) => Promise<void>;

export class Writer {
  groupCommits = 0;
  /** Changes that were rejected because too many were pending. */
  shedChanges = 0;
  readonly #registry: Registry;
  readonly #ledger: Ledger;
  readonly #publish: Publisher;
  readonly #log: Log;
  readonly #nowMs: () => number;
  #pending: PendingChange[] = [];
  #pendingBytes = 0;
  /** Names of namespaces that checks have created. */
  readonly #newNamespaceNames = new Set<string>();
  /** Whether overrides have ended whose records are not removed. */
  #isRemovalDue = false;
  #retryTimer: NodeJS.Timeout | undefined;
  #isRetryDue = false;
  readonly #failures: FailureLog;
  #isRunning = false;

  constructor(
    registry: Registry,
    ledger: Ledger,
    publish: Publisher,
    log: Log,
    nowMs: () => number,
  ) {
    this.#registry = registry;
    this.#ledger = ledger;
    this.#publish = publish;
    this.#log = log;
    this.#failures = new FailureLog(log, 'warn', 'changes are written again');
    this.#nowMs = nowMs;
  }

  /**
   * @param bytes the size of the request
   * @param work changes the registry and returns the result; if it throws, its changes are rolled
   *   back. May be called several times; only the changes and the result of the last call count.
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

  /** Called for a check in a new namespace. */
  registerNamespace(name: string): void {
    if (this.#registry.namespaceByName(name) !== undefined) return;
    this.#newNamespaceNames.add(name);
    if (this.#retryTimer === undefined) this.#start();
  }

  /** Called when overrides have ended. */
  removeEndedOverrides(): void {
    this.#isRemovalDue = true;
    if (this.#retryTimer === undefined) this.#start();
  }

  /** Writes the namespaces that checks have created, if they can be written at once. */
  async flush(): Promise<void> {
    clearTimeout(this.#retryTimer);
    // Acceptors have ended.
    await this.#commitGroup([], async () => {});
  }

  #start(): void {
    if (this.#isRunning) return;
    this.#isRunning = true;
    // Changes of the same turn of the event loop go into one group commit.
    setImmediate(() => void this.#run());
  }

  async #run(): Promise<void> {
    while (
      this.#pending.length > 0 ||
      this.#isRetryDue ||
      (this.#hasOwnChanges && this.#retryTimer === undefined)
    ) {
      await this.#runGroupCommit();
      // Give other work of this thread a turn.
      await new Promise(setImmediate);
    }
    this.#isRunning = false;
  }

  /** Whether there are changes that no client has sent. */
  get #hasOwnChanges(): boolean {
    return this.#newNamespaceNames.size > 0 || this.#isRemovalDue;
  }

  async #runGroupCommit(): Promise<void> {
    const group = this.#takePending();
    this.#isRetryDue = false;
    if (group.length > 0 || this.#hasOwnChanges) this.groupCommits++;
    this.#isRemovalDue = false;
    const outcomes = await this.#commitGroup(
      group.map(({ work }) => work),
      this.#publish,
    );
    group.forEach(({ resolve, reject }, i) => {
      const outcome = outcomes[i];
      if ('result' in outcome) resolve(outcome.result);
      else reject(outcome.error);
    });
  }

  /** Makes the changes of a group durable and activates them, or rolls them back. */
  async #commitGroup(group: readonly (() => object)[], publish: Publisher): Promise<Outcome[]> {
    for (let conflicts = 0; ; conflicts++) {
      const names = [...this.#newNamespaceNames];
      const rejected = this.#addNamespaces(names);
      // First, so that a change that sets one of them again makes another override. Other machines
      // remove the same ones: after a conflict, the changes of clients do not wait for that.
      if (conflicts === 0) removeEndedOverrides(this.#registry, this.#nowMs());
      const outcomes = group.map((work) => this.#attempt(work));
      const { journalLength: changes } = this.#registry;
      const commit = await this.#ledger.commit(this.#registry);
      if (commit.status === 'committed') {
        for (const name of names) this.#newNamespaceNames.delete(name);
        if (this.#ledger.isFailing) this.#scheduleRetry();
        else this.#failures.succeeded();
        logAudit(this.#log, commit.changes);
        await publish(commit.changes, rejected);
        return outcomes;
      }
      if (commit.status === 'conflict' && conflicts < CONFLICTS_MAX) continue;
      const { message, error, path } =
        commit.status === 'conflict'
          ? { message: TOO_MANY_CONFLICTS, error: new Error(TOO_MANY_CONFLICTS), path: undefined }
          : commit;
      const cause = storageErrorCause(error);
      this.#failures.failed({ error: cause, path, changes }, message + FAILURE_EFFECT);
      this.#scheduleRetry();
      return group.map((work) => this.#attemptReadOnly(work, message));
    }
  }

  #scheduleRetry(): void {
    this.#retryTimer ??= setTimeout(() => {
      this.#retryTimer = undefined;
      this.#isRetryDue = true;
      this.#start();
    }, RETRY_MS).unref();
  }

  /** Removes the next pending changes, up to the maximum size of a group commit. */
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
      return { result: work() };
    } catch (error) {
      this.#registry.rollBack(journalLength);
      return { error };
    }
  }

  /**
   * Repeats a change after a commit has failed, on the rolled back state. An error of the change
   * itself and a result without changes are valid; any other outcome becomes a 503.
   */
  #attemptReadOnly(work: () => object, message: string): Outcome {
    const { journalLength } = this.#registry;
    const outcome = this.#attempt(work);
    if ('error' in outcome || this.#registry.journalLength === journalLength) return outcome;
    this.#registry.rollBack(journalLength);
    return { error: new ApiError('SERVICE_UNAVAILABLE', message) };
  }

  /** @returns the names that exceed NAMESPACES_MAX */
  #addNamespaces(names: readonly string[]): string[] {
    const missing = names.filter((name) => this.#registry.namespaceByName(name) === undefined);
    const free = NAMESPACES_MAX - this.#registry.namespaceCount;
    for (const name of missing.slice(0, free)) this.#registry.addNamespace(name, this.#nowMs());
    return missing.slice(free);
  }
}
