/**
 * Keeps the replica of this machine and the registry in Redis the same, and commits the changes of
 * this machine there. All machines apply the same commits in the same order; a commit names the
 * version that it is made on top of, and Redis rejects it if that is not the last one.
 *
 * - Redis fails: changes fail, and the replica serves checks. A commit whose reply was lost is
 *   looked up by its id. If Redis does not have it, an empty commit of the same version makes sure
 *   that it cannot arrive later.
 * - Redis has lost the registry or its last versions: the machines that have more restore it.
 *   Nothing is committed until each of them had time to do so.
 * - Redis has another registry, or other changes under the same version: the replica is kept, or
 *   copied before it is replaced.
 */

import { randomBytes } from 'node:crypto';
import { setTimeout as sleep } from 'node:timers/promises';
import { RedisError } from '../../redis/errors.ts';
import type { Commit, Ledger } from '../ledger.ts';
import type { Registry } from '../registry.ts';
import type { Change, ReplicaMark } from '../store/store.ts';
import type { Grace, Head, LogEntry, ReadReply, SharedRegistryClient } from './client.ts';
import type { Replica, ReplicaLog } from './replica.ts';

/** The time in which all machines that run connect to a Redis that was restarted. */
const RECONNECT_MS = 4_000;
/** How often a machine reports its version. */
const REPORT_MS = 1_000;
/** The interval of log lines about a failure that lasts. */
const REMINDER_MS = 60_000;
/** A replica that is not up to date after so many steps is brought up to date by the next poll. */
const STEPS_MAX = 100;
/** How long, and in which interval, a commit without a reply is looked up. */
const LOOKUP_MS = 3_000;
const LOOKUP_INTERVAL_MS = 100;

/** `unreachable`: Redis failed. `diverged`: it has another registry, or one that is damaged. */
export type SharedRegistryState = 'current' | 'unreachable' | 'diverged';

/** How other machines see this one. */
export interface MachineSelf {
  /** The id of this process: 16 hexadecimal digits. */
  machine: string;
  /** @returns what `weir cluster status` shows besides the version */
  describe: () => object;
}

export interface ReplicatorOptions {
  client: SharedRegistryClient;
  replica: Replica;
  log: ReplicaLog;
  /** A change is active on all machines within this time. */
  syncMs: number;
  nowMs: () => number;
  /** The time in which all machines that run connect to a Redis that was restarted. */
  reconnectMs?: number;
}

/** The commits that a replica remembers, to recognize that Redis has others in their place. */
const EARLIER_MAX = 32;

const NO_REPLY = 'it sent no reply';

/** A registry in Redis that this replica must not follow, nor replace. */
class Divergence extends Error {}

export class Replicator implements Ledger {
  readonly #client: SharedRegistryClient;
  readonly #replica: Replica;
  readonly #log: ReplicaLog;
  readonly #pollMs: number;
  readonly #grace: Grace;
  #self: MachineSelf | undefined;
  /** Resolves when the last exchange with Redis has ended. They follow one after the other. */
  #last: Promise<unknown> = Promise.resolve();
  #state: SharedRegistryState = 'current';
  /** The last failure; undefined while the state is `current`. */
  #failure: string | undefined;
  readonly #nowMs: () => number;
  #upToDateMs: number;
  #polls = 0;
  #isStopped = false;
  #timer: NodeJS.Timeout | undefined;

  constructor(options: ReplicatorOptions) {
    const { client, replica, log, syncMs, nowMs } = options;
    this.#nowMs = nowMs;
    this.#upToDateMs = nowMs();
    this.#client = client;
    this.#replica = replica;
    this.#log = log;
    // Reading the log and activating it take a part of the time too.
    this.#pollMs = Math.max(5, Math.floor(syncMs / 2));
    this.#grace = { pollMs: 3 * syncMs, reconnectMs: options.reconnectMs ?? RECONNECT_MS };
  }

  get state(): SharedRegistryState {
    return this.#state;
  }

  get isFailing(): boolean {
    return this.#state !== 'current';
  }

  get failure(): string | undefined {
    return this.#failure;
  }

  /** How long ago the replica was up to date, by the clock of the options. */
  get ageMs(): number {
    return Math.max(0, this.#nowMs() - this.#upToDateMs);
  }

  /** The version of the replica. */
  get version(): number {
    return this.#replica.mark?.version ?? 0;
  }

  /** Brings the replica up to date. @throws if Redis failed, or has a registry not to follow */
  synchronize(): Promise<void> {
    return this.#exclusively(() => this.#synchronize());
  }

  /** Polls from now on, and reports this machine. */
  start(self: MachineSelf): void {
    this.#self = self;
    this.#schedulePoll();
  }

  /**
   * Reports that this machine has stopped. Resolves when no more is applied.
   * @param disconnect fails the exchanges that are under way
   */
  async stop(disconnect: () => void): Promise<void> {
    this.#isStopped = true;
    clearTimeout(this.#timer);
    // Without an answer, the machine looks like one that was killed.
    if (this.#self !== undefined) await this.#report(this.#self).catch(() => {});
    disconnect();
    await this.#last;
  }

  async commit(registry: Registry): Promise<Commit> {
    const changes = registry.takeJournal();
    if (changes.length === 0) return { status: 'committed', changes };
    const { mark } = this.#replica;
    return this.#exclusively(async () => {
      // The changes were made on top of this version.
      if (mark === undefined || mark !== this.#replica.mark) return { status: 'conflict' };
      try {
        return await this.#commit(changes, mark);
      } catch (error) {
        this.#noteFailure(error);
        const { message } = error as Error;
        const isUncertain = error instanceof RedisError && error.mayHaveRun;
        const outcome = isUncertain ? 'something may have been changed' : 'nothing was changed';
        const fault = `the registry in Redis cannot be changed at the moment: ${message}`;
        return { status: 'failed', message: `${fault}; ${outcome}`, error };
      }
    });
  }

  /** @throws RedisError if the changes were not made, or if that is uncertain */
  async #commit(changes: readonly Change[], mark: ReplicaMark): Promise<Commit> {
    const id = makeHexId();
    const reply = await this.#client
      .commit(mark, id, changes, this.#grace)
      .catch((error: unknown) => {
        if (isReplyLost(error)) return undefined;
        throw error;
      });
    if (reply === undefined) return this.#lookUp(id, changes, mark);
    if (reply.status === 'committed') {
      this.#replica.applyOwn(changes, nextMark(mark, id));
      return { status: 'committed', changes };
    }
    if (reply.status === 'settling') await sleep(reply.settlingMs + 1);
    else await this.#synchronize();
    return { status: 'conflict' };
  }

  /** Finds out whether a commit without a reply was made, and makes sure that it stays so. */
  async #lookUp(id: string, changes: readonly Change[], mark: ReplicaMark): Promise<Commit> {
    const emptyId = makeHexId();
    let isLate = false;
    const timer = setTimeout(() => {
      isLate = true;
    }, LOOKUP_MS);
    let first: Omit<LogEntry, 'version'> | 'unknown' | undefined;
    while (first === undefined && !isLate && !this.#isStopped) {
      await sleep(LOOKUP_INTERVAL_MS);
      first = await this.#firstCommitAfter(mark, emptyId).catch(() => undefined);
    }
    clearTimeout(timer);
    if (first === undefined || first === 'unknown') throw new RedisError('lost', NO_REPLY);
    const next = nextMark(mark, first.commit);
    if (first.commit === id) {
      this.#replica.applyOwn(changes, next);
      return { status: 'committed', changes };
    }
    this.#replica.applyRemote(first.changes, next);
    if (first.commit === emptyId) throw new RedisError('unreachable', NO_REPLY);
    return { status: 'conflict' };
  }

  /**
   * Looks up the commit on top of a version. If there is none, it makes an empty one, so that a
   * commit that is under way cannot succeed any more.
   * @returns `unknown` if Redis has lost it
   * @throws RedisError
   */
  async #firstCommitAfter(
    mark: ReplicaMark,
    emptyId: string,
  ): Promise<Omit<LogEntry, 'version'> | 'unknown'> {
    const { status } = await this.#client.commit(mark, emptyId, [], this.#grace);
    if (status === 'committed') return { commit: emptyId, changes: [] };
    if (status !== 'conflict') return 'unknown';
    const reply = await this.#client.read(mark);
    return reply.status === 'log' ? reply.entries[0] : 'unknown';
  }

  async #synchronize(): Promise<void> {
    for (let step = 0; step < STEPS_MAX; step++) {
      const { mark } = this.#replica;
      if (await this.#follow(await this.#client.read(mark), mark)) return;
    }
  }

  /** Does what a reply calls for. @returns whether the replica is up to date */
  async #follow(reply: ReadReply, mark: ReplicaMark | undefined): Promise<boolean> {
    if (mark === undefined) return this.#join(reply);
    switch (reply.status) {
      case 'same':
        if (this.#replica.isStoreBehind && this.#isEvery(REPORT_MS)) await this.#adopt();
        return true;
      case 'log':
        for (const { commit, changes } of reply.entries) {
          this.#replica.applyRemote(changes, nextMark(this.#replica.mark!, commit));
        }
        return this.version === reply.head.version;
      case 'snapshot':
        await this.#adopt();
        return false;
      case 'behind':
        if (isForked(mark, reply.head)) await this.#followFork(mark);
        else await this.#restore(mark, reply.status);
        return false;
      case 'empty':
      case 'damaged':
        await this.#restore(mark, reply.status);
        return false;
      case 'forked':
        await this.#followFork(mark);
        return false;
      case 'other':
        if (reply.head.version === 0 && reply.head.settlingMs > 0) {
          await this.#restore(mark, 'empty');
          return false;
        }
        throw new Divergence(
          'Redis has another registry than the store of this machine: to use that one, start with' +
            ' an empty data directory',
        );
      case 'lost':
        throw new Divergence(
          'Redis has lost records of the registry, and this machine has an older version:' +
            ' start a machine that has the last version',
        );
    }
  }

  /** Makes a registry, or takes over the one that there is, on a machine that has none. */
  async #join(reply: ReadReply): Promise<boolean> {
    if (reply.status === 'empty') {
      const { hashKey } = this.#replica;
      const mark = { history: makeHexId(), version: 0, commit: '', earlier: [], hashKey };
      await this.#client.create(mark, this.#grace);
      return false;
    }
    // Other machines may have a registry that Redis has lost.
    if (reply.head.settlingMs > 0) await sleep(reply.head.settlingMs + 1);
    else await this.#adopt();
    return false;
  }

  async #adopt(): Promise<void> {
    const all = await this.#client.readAll();
    if (all === undefined) return;
    const { settlingMs: _, ...mark } = all.head;
    this.#replica.adopt(all.snapshot, mark);
  }

  /** Follows a Redis that has lost changes and has got others since. */
  async #followFork({ version }: ReplicaMark): Promise<void> {
    this.#log.error(
      { version, copy: this.#replica.saveCopy() },
      'Redis has lost changes that were acknowledged, and has others in their place:' +
        ' the store was copied, and follows Redis now',
    );
    await this.#adopt();
  }

  async #restore(mark: ReplicaMark, reason: 'empty' | 'behind' | 'damaged'): Promise<void> {
    const snapshot = this.#replica.snapshot();
    const isInstalled = await this.#client.install(mark, snapshot, makeHexId(), this.#grace);
    if (!isInstalled) return;
    this.#log.error(
      { version: mark.version, reason },
      'Redis had lost the registry or a part of it; it was restored from the store of this machine',
    );
  }

  #schedulePoll(): void {
    this.#timer = setTimeout(() => void this.#poll(), this.#pollMs);
  }

  async #poll(): Promise<void> {
    try {
      await this.#exclusively(async () => {
        if (this.#isStopped) return;
        await this.#synchronize();
        // The last report is that of the stop.
        if (this.#isEvery(REPORT_MS) && !this.#isStopped) await this.#report(this.#self!);
      });
      this.#noteSuccess();
    } catch (error) {
      this.#noteFailure(error);
    }
    this.#polls++;
    if (!this.#isStopped) this.#schedulePoll();
  }

  async #report({ machine, describe }: MachineSelf): Promise<void> {
    const report = { ...describe(), version: this.version, isStopped: this.#isStopped };
    await this.#client.report(machine, JSON.stringify(report));
  }

  #noteSuccess(): void {
    this.#upToDateMs = this.#nowMs();
    if (this.#state === 'current') return;
    this.#state = 'current';
    this.#failure = undefined;
    this.#log.info({ version: this.version }, 'the registry is up to date with Redis again');
  }

  #noteFailure(error: unknown): void {
    if (this.#isStopped) return;
    const state = error instanceof RedisError ? 'unreachable' : 'diverged';
    const isReminder = this.#isEvery(REMINDER_MS);
    const { message } = error as Error;
    if (state !== this.#state || isReminder) {
      const fields = { version: this.version };
      if (state === 'diverged') this.#log.error(fields, message);
      else this.#log.warn(fields, `the registry in Redis cannot be read or changed: ${message}`);
    }
    this.#state = state;
    this.#failure = message;
  }

  /** Whether this poll is one of those at an interval. */
  #isEvery(ms: number): boolean {
    return this.#polls % Math.ceil(ms / this.#pollMs) === 0;
  }

  #exclusively<T>(work: () => Promise<T>): Promise<T> {
    const result = this.#last.then(work);
    this.#last = result.catch(() => {});
    return result;
  }
}

/** Whether a script may have run. Where too few replicas have its changes, it has run. */
function isReplyLost(error: unknown): boolean {
  return error instanceof RedisError && error.mayHaveRun && error.kind !== 'notReplicated';
}

function nextMark(mark: ReplicaMark, commit: string): ReplicaMark {
  const earlier = [mark.commit, ...mark.earlier].slice(0, EARLIER_MAX);
  return { ...mark, version: mark.version + 1, commit, earlier };
}

/** Whether a newer replica is known to have another commit under the version in Redis. */
function isForked(mark: ReplicaMark, head: Head): boolean {
  const commit = mark.earlier[mark.version - head.version - 1];
  return commit !== undefined && commit !== head.commit;
}

function makeHexId(): string {
  return randomBytes(16).toString('hex');
}
