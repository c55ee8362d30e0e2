/**
 * The registry in Redis: the names of its keys, and its scripts as functions. A reply that does not
 * validate is a failure after which the script may have been executed.
 */

import { AUDIT_ENTRIES_MAX } from '../../core/constants.ts';
import { RedisError } from '../../redis/errors.ts';
import type { RedisLink } from '../../redis/link.ts';
import type { Script } from '../../redis/script.ts';
import { TABLE_NAMES as SHARED_TABLES, type TableName } from '../store/schema.ts';
import type { Change, ReplicaMark } from '../store/store.ts';
import {
  CLAIM_FIRST_KEY,
  COMMIT,
  CREATE,
  FIRST_TABLE_INDEX,
  FORGET,
  INSTALL,
  MACHINES,
  READ,
  REPORT,
  SCAN,
  STAGE,
} from './scripts.ts';
import { decodeChanges, decodeRecord, encodeChanges, encodeRecord, Snapshot } from './snapshot.ts';

/** A machine that fell behind by more bytes than this reads all records instead of the log. */
const LOG_MAX_BYTES = 4_194_304;
/** Longer than for checks: a group of changes may be large. */
const DEADLINE_MS = 1_000;
const SCAN_COUNT = '500';
const STAGED_RECORDS_PER_CALL = 500;
const STAGED_S = '60';
/** Machines that were silent for a day are removed from the list. */
const SILENT_MACHINE_MS = '86400000';
const FIRST_KEY_CLAIM_MS = '60000';

/** The state of the registry in Redis. */
export interface Head extends ReplicaMark {
  /** How long nothing is committed yet, so that machines with a newer replica can restore it. */
  settlingMs: number;
}

export interface LogEntry {
  version: number;
  commit: string;
  changes: readonly Change[];
}

export type ReadReply =
  | { status: 'empty' }
  /**
   * `same`: the replica is up to date. `log`: it lacks the entries. `snapshot`: it lacks entries
   * that the log no longer has. `other`: another registry. `behind`: the replica is newer.
   * `forked`: both have the replica's version, with different changes. `damaged`: records were
   * lost in Redis, and the replica has them. `lost`: the same, and the replica is older.
   */
  | {
      status: 'same' | 'snapshot' | 'other' | 'behind' | 'forked' | 'damaged' | 'lost';
      head: Head;
    }
  | { status: 'log'; head: Head; entries: LogEntry[] };

export type CommitReply =
  | { status: 'committed' | 'conflict' | 'empty' | 'other' | 'damaged' }
  | { status: 'settling'; settlingMs: number };

/**
 * How long nothing is committed to a registry that was just written, so that machines with a newer
 * replica can restore theirs.
 */
export interface Grace {
  /** Machines that are connected notice within this time. */
  pollMs: number;
  /** Machines connect within this time after a start of Redis. */
  reconnectMs: number;
}

export interface MachineReport {
  machine: string;
  /** How long ago the machine reported. */
  silentMs: number;
  text: string;
}

/** The id of a commit or of a history, or a hash key. */
const HEX_ID = /^[0-9a-f]{32}$/;

const READ_STATUSES = ['same', 'snapshot', 'other', 'behind', 'forked', 'damaged', 'lost'] as const;
const COMMIT_STATUSES = ['committed', 'conflict', 'empty', 'other', 'damaged'] as const;

export class SharedRegistryClient {
  readonly #link: Pick<RedisLink, 'call'>;
  readonly #deadlineMs: number;
  readonly #base: string;
  readonly #keys: readonly string[];

  /** @param prefix begins all names in Redis */
  constructor(link: Pick<RedisLink, 'call'>, prefix: string, deadlineMs = DEADLINE_MS) {
    this.#link = link;
    this.#deadlineMs = deadlineMs;
    this.#base = `${prefix}:{registry}:`;
    this.#keys = ['head', 'log', ...SHARED_TABLES].map((name) => this.#base + name);
  }

  /** @param replica undefined for none */
  async read(replica: ReplicaMark | undefined): Promise<ReadReply> {
    const { history = '', version = 0, commit = '' } = replica ?? {};
    const [status, ...fields] = await this.#run(READ, [history, String(version), commit]);
    if (status === 'empty') return { status };
    const [ofHistory, ofVersion, lastCommit, hashKey, settling, ...log] = fields;
    const head: Head = {
      history: match(ofHistory, HEX_ID),
      version: number(ofVersion),
      commit: match(lastCommit, /^([0-9a-f]{32})?$/),
      earlier: [],
      hashKey: Buffer.from(match(hashKey, HEX_ID), 'hex'),
      settlingMs: number(settling),
    };
    const known = READ_STATUSES.find((name) => name === status);
    if (known !== undefined) return { status: known, head };
    if (status !== 'log') throw nonsense(`the status ${status}`);
    const entries: LogEntry[] = [];
    for (let i = 0; i < log.length; i += 3) {
      const entry = { version: number(log[i]), commit: match(log[i + 1], HEX_ID) };
      if (entry.version !== version + 1 + entries.length) throw nonsense('a log with a gap');
      entries.push({ ...entry, changes: validated(() => decodeChanges(log[i + 2])) });
    }
    return { status, head, entries };
  }

  /**
   * @param commit the id that the commit gets in the log
   * @param grace nothing is committed while machines with a newer replica may still connect
   */
  async commit(
    { history, version }: ReplicaMark,
    commit: string,
    changes: readonly Change[],
    { reconnectMs }: Grace,
  ): Promise<CommitReply> {
    const args = [history, String(version), commit, encodeChanges(changes)];
    args.push(String(LOG_MAX_BYTES), String(AUDIT_ENTRIES_MAX), String(reconnectMs));
    for (const { table, before, after } of changes) {
      const index = FIRST_TABLE_INDEX + SHARED_TABLES.indexOf(table);
      const record = after === undefined ? '' : encodeRecord(after);
      args.push(String(index), String((after ?? before)!.row), record);
    }
    const [status, detail] = await this.#run(COMMIT, args);
    if (status === 'settling') return { status, settlingMs: number(detail) };
    const known = COMMIT_STATUSES.find((name) => name === status);
    if (known === undefined) throw nonsense(`the status ${status}`);
    if (known === 'committed' && number(detail) !== version + 1) throw nonsense('a wrong version');
    return { status: known };
  }

  /**
   * All records, of one version. They are read page by page, so that no call blocks Redis for long;
   * what changed meanwhile is taken from the log.
   * @returns undefined if that failed: records are lost, the log was trimmed, or the registry was
   *   replaced
   */
  async readAll(): Promise<{ head: Head; snapshot: Snapshot } | undefined> {
    const start = await this.read(undefined);
    if (start.status === 'empty') return undefined;
    const snapshot = new Snapshot();
    for (const table of SHARED_TABLES) await this.#scan(table, snapshot);
    let { head } = start;
    for (;;) {
      const reply = await this.read(head);
      if (reply.status === 'same') return { head: reply.head, snapshot };
      if (reply.status !== 'log') return undefined;
      for (const { version, commit, changes } of reply.entries) {
        snapshot.apply(changes);
        head = { ...reply.head, version, commit };
      }
    }
  }

  /** Makes an empty registry. @returns whether there was none */
  async create({ history, hashKey }: ReplicaMark, grace: Grace): Promise<boolean> {
    const args = [...graceArguments(grace), history, hex(hashKey)];
    return (await this.#status(CREATE, args, ['created', 'exists'])) === 'created';
  }

  /**
   * Writes all records, where Redis has lost them or has older ones.
   * @param id of the staged records: 32 hexadecimal digits
   * @returns whether it did; otherwise the registry in Redis is newer, or another one
   */
  async install(mark: ReplicaMark, snapshot: Snapshot, id: string, grace: Grace): Promise<boolean> {
    const staged = SHARED_TABLES.map((table) => `${this.#base}staged:${id}:${table}`);
    const counts: string[] = [];
    for (const [i, table] of SHARED_TABLES.entries()) {
      const records = [...snapshot.records(table).values()];
      counts.push(String(records.length));
      for (let first = 0; first < records.length; first += STAGED_RECORDS_PER_CALL) {
        const page = records.slice(first, first + STAGED_RECORDS_PER_CALL);
        const fields = page.flatMap((record) => [String(record.row), encodeRecord(record)]);
        await this.#call(STAGE, [staged[i]], [STAGED_S, ...fields]);
      }
    }
    const { history, version, commit, hashKey } = mark;
    const registry = [history, String(version), commit, hex(hashKey)];
    const args = [...graceArguments(grace), ...registry, ...counts];
    const keys = [...this.#keys, ...staged];
    const [status] = texts(await this.#call(INSTALL, keys, args));
    if (status === 'incomplete')
      throw new RedisError('outOfMemory', 'Redis has lost staged records');
    return requireOneOf(['installed', 'refused'], status) === 'installed';
  }

  /** Lets one machine make the first key, for a minute. */
  claimFirstKey(machine: string): Promise<'claimed' | 'taken' | 'exists'> {
    const args = [machine, FIRST_KEY_CLAIM_MS];
    return this.#status(CLAIM_FIRST_KEY, args, ['claimed', 'taken', 'exists']);
  }

  async report(machine: string, text: string): Promise<void> {
    const keys = [...this.#keys, this.#machinesKey];
    await this.#call(REPORT, keys, [machine, text, SILENT_MACHINE_MS]);
  }

  async machines(): Promise<MachineReport[]> {
    const reply = await this.#call(MACHINES, [...this.#keys, this.#machinesKey], []);
    const [now, ...fields] = texts(reply);
    const machines: MachineReport[] = [];
    for (let i = 0; i + 1 < fields.length; i += 2) {
      const [machine, report] = [fields[i], fields[i + 1]];
      const end = report.indexOf(' ');
      const silentMs = number(now) - number(report.slice(0, end));
      machines.push({ machine, silentMs, text: report.slice(end + 1) });
    }
    return machines;
  }

  /** @returns whether the machine was in the list */
  async forget(machine: string): Promise<boolean> {
    const reply = await this.#call(FORGET, [...this.#keys, this.#machinesKey], [machine]);
    return requireOneOf(['forgotten', 'unknown'], texts(reply)[0]) === 'forgotten';
  }

  get #machinesKey(): string {
    return `${this.#base}machines`;
  }

  async #scan(table: TableName, into: Snapshot): Promise<void> {
    const index = String(FIRST_TABLE_INDEX + SHARED_TABLES.indexOf(table));
    let cursor = '0';
    do {
      const [next, ...fields] = await this.#run(SCAN, [index, cursor, SCAN_COUNT]);
      for (let i = 0; i + 1 < fields.length; i += 2) {
        into.put(
          table,
          validated(() => decodeRecord(table, fields[i], fields[i + 1])),
        );
      }
      cursor = match(next, /^\d+$/);
    } while (cursor !== '0');
  }

  #call(script: Script, keys: readonly string[], args: readonly string[]): Promise<unknown> {
    return this.#link.call(script, keys, args, this.#deadlineMs);
  }

  async #run(script: Script, args: readonly string[]): Promise<string[]> {
    return texts(await this.#call(script, this.#keys, args));
  }

  async #status<S extends string>(script: Script, args: string[], known: readonly S[]): Promise<S> {
    return requireOneOf(known, (await this.#run(script, args))[0]);
  }
}

function graceArguments({ pollMs, reconnectMs }: Grace): string[] {
  return [String(pollMs), String(reconnectMs)];
}

function hex(bytes: Uint8Array): string {
  return Buffer.from(bytes).toString('hex');
}

function nonsense(what: string): RedisError {
  return new RedisError('unexpectedReply', `Redis sent an unexpected reply: ${what}`);
}

/** @throws RedisError */
function validated<T>(decode: () => T): T {
  try {
    return decode();
  } catch (error) {
    throw nonsense((error as Error).message);
  }
}

function texts(reply: unknown): string[] {
  const isList = Array.isArray(reply) && reply.every((field) => typeof field === 'string');
  if (!isList) throw nonsense('not a list of texts');
  return reply;
}

function match(field: string | undefined, pattern: RegExp): string {
  if (field === undefined || !pattern.test(field)) throw nonsense('an invalid field');
  return field;
}

function number(field: string | undefined): number {
  const value = Number(match(field, /^\d{1,16}$/));
  if (!Number.isSafeInteger(value)) throw nonsense('a number out of range');
  return value;
}

function requireOneOf<S extends string>(known: readonly S[], status: string | undefined): S {
  const found = known.find((name) => name === status);
  if (found === undefined) throw nonsense('an unknown status');
  return found;
}
