/**
 * The analytics of the main thread: writes figures every second, identifiers and the use of
 * overrides every ten seconds, and answers queries. A query writes what it needs first, or adds it,
 * so that its answer includes every check that was answered before it. The main thread does this,
 * and no shard worker: a worker that waits for the disk would decide no check meanwhile.
 *
 * While the database cannot be written, figures wait in memory, and the log says so. What the
 * process has not written when it is killed is lost: a second of figures, ten of identifiers and
 * of the use of overrides.
 */

import {
  ANALYTICS_IDENTIFIERS_INTERVAL_MS,
  ANALYTICS_IDENTIFIERS_MAX,
  ANALYTICS_INTERVAL_MS,
  ANALYTICS_OVERRIDES_WRITTEN_MAX,
  USAGE_ROWS,
} from '../core/constants.ts';
import { storageErrorCause } from '../core/errno.ts';
import { FailureLog, type FileFault } from '../core/failure-log.ts';
import type { Figures } from '../core/figures.ts';
import type { Log } from '../core/log.ts';
import type { Clock } from '../shared-memory/clock.ts';
import { CONTROL, type Control } from '../shared-memory/control.ts';
import type { AnalyticsDatabase, IdentifiersEntry, MinuteDecisions, Run } from './database.ts';
import { GRANULARITY_MS, type Granularity } from './granularity.ts';
import { type IdentifierList, mergeLists } from './identifier-list.ts';
import { decodeLists, type IdentifierLists } from './identifier-record.ts';
import { type ListFilter, LiveSketches, READ_MAX } from './live-sketches.ts';
import { NamespaceFigures } from './namespace-figures.ts';
import type { SketchAnnouncement, SketchName } from './recorder.ts';
import type { OverrideUsage, UsageEntry, UsageRows } from './usage-rows.ts';

interface AnalyticsOptions {
  control: Control;
  clock: Clock;
  database: AnalyticsDatabase;
  /** The keys of namespaces by their row in the stats blocks; undefined for a free row. */
  keysByRow: () => readonly (string | undefined)[];
  usage: UsageRows;
  log: Log;
  /** How many minutes and hours are kept. */
  minutes: number;
  hours: number;
}

/** The true number is from `count` minus `error` to `count`. */
export interface CountWithError {
  count: number;
  error: number;
}

export interface RecentMinutes {
  /** When weir ran, the earliest first. The last one is this run, until now. */
  runs: Run[];
  /** Of each group: the minutes in which there were checks, in order. */
  decisions: MinuteDecisions[][];
}

/**
 * In how many parts the lists of all namespaces and the use of all overrides are written, one with
 * each write of figures.
 */
const LIST_PARTS = ANALYTICS_IDENTIFIERS_INTERVAL_MS / ANALYTICS_INTERVAL_MS;

export class Analytics {
  readonly #options: AnalyticsOptions;
  readonly #figures: NamespaceFigures;
  readonly #sketches = new LiveSketches();
  #timer: NodeJS.Timeout | undefined;
  #hour: number;
  #prunedMinute = 0;
  #failures = 0;
  readonly #failureLog: FailureLog;
  readonly #readFailureLog: FailureLog;
  readonly #usageSinceMs: number;

  /** Acceptors count identifiers from now on. */
  constructor(options: AnalyticsOptions) {
    const { control, clock, database, keysByRow } = options;
    const nowMs = clock.nowMs();
    this.#options = options;
    this.#failureLog = new FailureLog(options.log, 'error', 'analytics are written again');
    this.#readFailureLog = new FailureLog(options.log, 'error', 'the analytics are read again');
    this.#figures = new NamespaceFigures(control.allAcceptorStats(), keysByRow, nowMs);
    this.#usageSinceMs = database.usageSinceMs;
    this.#hour = hourOf(nowMs);
    Atomics.store(control.words, CONTROL.analyticsHour, this.#hour);
    this.#schedule(nowMs);
  }

  /** An acceptor has begun to count the identifiers of a namespace. */
  addSketches(announcement: SketchAnnouncement): void {
    this.#sketches.add(announcement);
  }

  /** Failed writes. */
  get failures(): number {
    return this.#failures;
  }

  /** The file that cannot be written at the moment. */
  get fault(): FileFault | undefined {
    return this.#failureLog.fault(this.#options.database.path, 'analytics wait in memory');
  }

  /**
   * The figures of all namespaces that have some, by key. Hours since the Unix epoch, `to` is
   * exclusive.
   */
  totals(fromHour: number, toHour: number): Map<string, Figures> {
    this.#write([]);
    return this.#options.database.totals(fromHour, toHour);
  }

  /** The minutes or hours since the Unix epoch in which there were checks. */
  timeline(key: string, granularity: Granularity, from: number, to: number) {
    this.#write([]);
    return this.#options.database.timeline(key, granularity, from, to);
  }

  /**
   * The decisions of several groups of namespaces by minute, and when weir ran. Minutes since the
   * Unix epoch, `to` is exclusive.
   * @param groups the keys of the namespaces of each group, which are added up
   * @returns undefined if the database cannot be read
   */
  minutes(
    groups: readonly (readonly string[])[],
    from: number,
    to: number,
  ): RecentMinutes | undefined {
    this.#write([]);
    const { database, clock } = this.#options;
    try {
      const decisions = groups.map((keys) => database.minuteDecisions(keys, from, to));
      const unitMs = GRANULARITY_MS.minute;
      const earlier = database.runs(from * unitMs, to * unitMs).filter(({ start }) => {
        return start < database.startedMs;
      });
      this.#readFailureLog.succeeded();
      const current = { start: database.startedMs, until: clock.nowMs() };
      return { runs: [...earlier, current], decisions };
    } catch (error) {
      this.#logReadFailure(error, 'the analytics cannot be read');
      return undefined;
    }
  }

  /** What is not written yet is added, and not written: that would take longer. */
  identifiers(key: string, fromHour: number, toHour: number): IdentifierLists {
    const { lists } = this.#listsOf(key, fromHour, toHour);
    return mergeAll(lists, ANALYTICS_IDENTIFIERS_MAX);
  }

  /**
   * The identifiers that begin with a text: of the hours that are not over, also those that are in
   * no list of `identifiers`. A text is known up to TEXT_BYTES.
   * @returns with the number of texts that were compared, about
   */
  search(
    prefix: string,
    key: string,
    fromHour: number,
    toHour: number,
  ): IdentifierLists & { texts: number } {
    const filter = { prefix, max: READ_MAX };
    const { lists, texts } = this.#listsOf(key, fromHour, toHour, filter);
    const matching = lists.map(({ denied, spent, isComplete }): IdentifierLists => {
      const matchesOf = ({ items, floor }: IdentifierList) => {
        return { items: items.filter(({ text }) => text.startsWith(prefix)), floor };
      };
      return { denied: matchesOf(denied), spent: matchesOf(spent), isComplete };
    });
    return { ...mergeAll(matching, READ_MAX), texts };
  }

  /** @param filter of the lists that are not stored */
  #listsOf(key: string, fromHour: number, toHour: number, filter?: ListFilter) {
    const live = this.#sketches.of(key, fromHour, toHour, filter);
    const liveHours = live.map(({ hour }) => hour);
    const records = this.#options.database.identifiers(key, fromHour, toHour, liveHours);
    const stored = records.map(decodeLists);
    const storedTexts = stored.map(({ denied, spent }) => denied.items.length + spent.items.length);
    const texts = [...storedTexts, ...live.map((one) => one.texts)];
    return {
      lists: [...stored, ...live.map((one) => one.lists)],
      texts: texts.reduce((sum, count) => sum + count, 0),
    };
  }

  /**
   * How often an identifier was denied in an hour.
   * @returns undefined if that is not known: it is not among the most denied ones of its
   *   namespace, or the database cannot be read
   */
  deniedOf(key: string, identifier: string, hour: number): CountWithError | undefined {
    try {
      const { denied } = this.identifiers(key, hour, hour + 1);
      this.#readFailureLog.succeeded();
      const found = denied.items.find(({ text, isCutOff }) => text === identifier && !isCutOff);
      return found && { count: found.count, error: found.error };
    } catch (error) {
      this.#logReadFailure(error, 'the identifiers of an hour cannot be read');
      return undefined;
    }
  }

  /** Unix time in ms from which on the use of overrides was counted. */
  get sinceMs(): number {
    return this.#usageSinceMs;
  }

  /** The use of an override; undefined if the database cannot be read. */
  usageOf(id: string): OverrideUsage | undefined {
    const { database, usage } = this.#options;
    try {
      const written = database.usageOf(id);
      this.#readFailureLog.succeeded();
      const { applied, lastAppliedMs } = usage.usageOf(id);
      return {
        applied: written.applied + applied,
        lastAppliedMs: Math.max(written.lastAppliedMs, lastAppliedMs),
      };
    } catch (error) {
      this.#logReadFailure(error, 'the use of overrides cannot be read');
      return undefined;
    }
  }

  #logReadFailure(error: unknown, message: string): void {
    const details = { error: storageErrorCause(error), path: this.#options.database.path };
    this.#readFailureLog.failed(details, message);
  }

  /**
   * Deletes the use of deleted overrides, which no acceptor counts any more. What cannot be deleted
   * now is deleted at the next start.
   */
  deleteOverrides(ids: readonly string[]): void {
    // A transaction that deletes nothing succeeds on a full disk, too.
    if (ids.length === 0 || this.fault !== undefined) return;
    this.#try(() => this.#options.database.deleteUsage(ids));
  }

  /**
   * Deletes the figures of deleted namespaces, in which no acceptor counts any more. What cannot be
   * deleted now is deleted at the next start.
   */
  deleteNamespaces(keys: readonly string[]): void {
    this.#figures.read(this.#options.clock.nowMs());
    for (const key of keys) {
      this.#figures.delete(key);
      this.#sketches.delete(key);
    }
    this.#try(() => this.#options.database.deleteNamespaces(keys));
  }

  /** Writes all that was counted. Called when no acceptor decides any more. */
  close(): void {
    clearTimeout(this.#timer);
    this.#write(this.#sketches.all(), this.#options.usage.newEntries(USAGE_ROWS, USAGE_ROWS));
    this.#try(() => this.#options.database.close());
  }

  /** The next write: after the interval, and at the end of each minute. */
  #schedule(nowMs: number): void {
    const toNextMinute = GRANULARITY_MS.minute - (nowMs % GRANULARITY_MS.minute);
    const delayMs = Math.min(ANALYTICS_INTERVAL_MS, toNextMinute);
    this.#timer = setTimeout(() => this.#tick(), delayMs);
  }

  #tick(): void {
    const nowMs = this.#options.clock.nowMs();
    const hour = hourOf(nowMs);
    // Acceptors have seen this hour since the last tick at least, and write to newer sketches.
    const ended = this.#sketches.before(this.#hour);
    const { usage } = this.#options;
    const rows = Math.ceil(usage.count / LIST_PARTS);
    const isWritten = this.#write(
      [...ended, ...this.#sketches.nextPart(LIST_PARTS)],
      usage.newEntries(rows, ANALYTICS_OVERRIDES_WRITTEN_MAX),
    );
    // Memory is bounded also while the database cannot be written.
    this.#sketches.remove(isWritten ? this.#hour : this.#hour - 1);
    if (hour !== this.#hour) {
      this.#hour = hour;
      Atomics.store(this.#options.control.words, CONTROL.analyticsHour, hour);
    }
    this.#prune(nowMs);
    this.#schedule(nowMs);
  }

  /** @returns whether it was written */
  #write(identifiers: readonly IdentifiersEntry[], entries: readonly UsageEntry[] = []): boolean {
    const { clock, database, usage } = this.#options;
    const nowMs = clock.nowMs();
    this.#figures.read(nowMs);
    return this.#try(() => {
      database.write(this.#figures.pending, identifiers, entries, nowMs);
      this.#figures.clear();
      usage.addWritten(entries);
    });
  }

  /** Once a minute: deletes what is older than the settings say. */
  #prune(nowMs: number): void {
    const minute = Math.floor(nowMs / GRANULARITY_MS.minute);
    // A transaction that deletes nothing succeeds on a full disk, too.
    if (minute === this.#prunedMinute || this.fault !== undefined) return;
    this.#prunedMinute = minute;
    const { minutes, hours, database } = this.#options;
    // The current minute and hour are among those that are kept.
    const retention = { minute: minute + 1 - minutes, hour: hourOf(nowMs) + 1 - hours };
    this.#try(() => database.prune(retention));
  }

  #try(work: () => void): boolean {
    try {
      work();
      this.#failureLog.succeeded();
      return true;
    } catch (error) {
      this.#failures++;
      const { path } = this.#options.database;
      const message = 'analytics cannot be written; they wait in memory';
      this.#failureLog.failed({ error: storageErrorCause(error), path }, message);
      return false;
    }
  }
}

function mergeAll(lists: readonly IdentifierLists[], max: number): IdentifierLists {
  const merge = (name: SketchName) => {
    return mergeLists(
      lists.map((one) => one[name]),
      max,
    );
  };
  const isComplete = lists.every((one) => one.isComplete);
  return { denied: merge('denied'), spent: merge('spent'), isComplete };
}

function hourOf(ms: number): number {
  return Math.floor(ms / GRANULARITY_MS.hour);
}
