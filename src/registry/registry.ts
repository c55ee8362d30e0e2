/**
 * Everything that the store keeps but the audit log, in memory, with the indexes that questions
 * about it need. On the main thread. What changes is changed here first and noted in a journal,
 * beside its entry in the audit log; when the journal could not be made durable it is taken back,
 * so that nothing stands here that the store does not have.
 */

import type { KeyRecord } from '../auth/keys.ts';
import { NAMESPACE_ID_PREFIX, NAMESPACES_MAX } from '../core/constants.ts';
import { makeId } from '../core/ids.ts';
import { isPattern } from '../overrides/pattern.ts';
import { isExact, type OverrideEntry } from '../overrides/sets.ts';
import type { Policy } from '../policies/policy.ts';
import { OTHER_NAMESPACES_ROW } from '../shared-memory/stats.ts';
import type { RegisteredNamespace } from './known-namespaces.ts';
import type {
  AuditEntry,
  Change,
  NamespaceRecord,
  OverrideRecord,
  RecordTypes,
  Store,
  TableName,
  WithRow,
} from './store/store.ts';

type StoredKey = WithRow<KeyRecord>;
type StoredNamespace = WithRow<NamespaceRecord>;
export type Override = WithRow<OverrideRecord>;

/** The row of what is not stored. */
const NO_ROW = 0;

export class Registry {
  readonly #keys = new Map<string, StoredKey>();
  readonly #namespacesById = new Map<string, StoredNamespace>();
  readonly #namespacesByName = new Map<string, StoredNamespace>();
  /** By scope and identifier. */
  readonly #overrides = new Map<string, Map<string, Override>>();
  /** The rows of the lanes that namespaces are counted in: the first that came have their own. */
  readonly #statsRows = new Map<string, number>();
  readonly #counts = { exact: 0, wildcard: 0 };
  /** By namespace: those that the audit log knows of. */
  readonly #policies = new Map<string, WithRow<Policy>>();
  readonly #nextRow: Record<TableName, number> = {
    keys: 1,
    namespaces: 1,
    overrides: 1,
    audit: 1,
    policies: 1,
  };
  #journal: Change[] = [];

  constructor(store: Store) {
    for (const table of ['keys', 'namespaces', 'overrides', 'policies'] as const) {
      for (const after of store.read(table)) {
        this.#load({ table, before: undefined, after } as Change);
      }
    }
    this.#nextRow.audit = store.newestAuditRow + 1;
  }

  // Keys

  /** A key that is accepted as long as the process runs, and is not stored. */
  addConfiguredKey(record: KeyRecord): void {
    this.#keys.set(record.id, { ...record, row: NO_ROW });
  }

  key(id: string): StoredKey | undefined {
    return this.#keys.get(id);
  }

  keys(): StoredKey[] {
    return [...this.#keys.values()];
  }

  isStored({ row }: StoredKey): boolean {
    return row !== NO_ROW;
  }

  addKey(record: KeyRecord): void {
    this.#change({ table: 'keys', before: undefined, after: this.#withRow('keys', record) });
  }

  removeKey(key: StoredKey): void {
    this.#change({ table: 'keys', before: key, after: undefined });
  }

  // Namespaces

  namespaceById(id: string): StoredNamespace | undefined {
    return this.#namespacesById.get(id);
  }

  namespaceByName(name: string): StoredNamespace | undefined {
    return this.#namespacesByName.get(name);
  }

  namespaces(): StoredNamespace[] {
    return [...this.#namespacesById.values()];
  }

  get namespaceCount(): number {
    return this.#namespacesById.size;
  }

  addNamespace(name: string, createdMs: number): StoredNamespace {
    const record = { id: makeId(NAMESPACE_ID_PREFIX), name, createdMs };
    const after = this.#withRow('namespaces', record);
    this.#change({ table: 'namespaces', before: undefined, after });
    return after;
  }

  /** Makes one that is not there, unless there are as many as there may be. */
  ensureNamespace(name: string, nowMs: number): void {
    const isThere = this.#namespacesByName.has(name);
    if (!isThere && this.namespaceCount < NAMESPACES_MAX) this.addNamespace(name, nowMs);
  }

  /** As acceptors know it. */
  registeredNamespace({ id, name }: NamespaceRecord): RegisteredNamespace {
    return { id, name, statsRow: this.#statsRows.get(name) ?? OTHER_NAMESPACES_ROW };
  }

  /** The names of the namespaces that have a row of their own in the lanes, by row. */
  statsRowNames(): string[] {
    return [...this.#statsRows.keys()];
  }

  // Overrides

  override(scope: string, identifier: string): Override | undefined {
    return this.#overrides.get(scope)?.get(identifier);
  }

  /** Those of a namespace, by its id, or of a pattern of names. */
  overridesOf(scope: string): Iterable<Override> {
    return this.#overrides.get(scope)?.values() ?? [];
  }

  *overrides(): Iterable<Override> {
    for (const scope of this.#overrides.values()) yield* scope.values();
  }

  /** How many overrides there are: without a star, and with one. */
  get overrideCounts(): Readonly<{ exact: number; wildcard: number }> {
    return this.#counts;
  }

  /** A new override, or another limit, duration or mode for one. */
  putOverride(record: OverrideRecord): Override {
    const before = this.override(record.scope, record.identifier);
    const after = { ...record, row: before?.row ?? this.#nextRow.overrides++ };
    this.#change({ table: 'overrides', before, after });
    return after;
  }

  removeOverride(override: Override): void {
    this.#change({ table: 'overrides', before: override, after: undefined });
  }

  /** The name of the namespace of an override, or the pattern of names. */
  namespaceOf({ scope }: OverrideRecord): string {
    return isPattern(scope) ? scope : this.#namespacesById.get(scope)!.name;
  }

  /** As the tables hold it. */
  overrideEntry(override: Override): OverrideEntry {
    const isNamespacePattern = isPattern(override.scope);
    return { ...override, namespace: this.namespaceOf(override), isNamespacePattern };
  }

  // Policies, as the audit log knows them

  policy(namespace: string): WithRow<Policy> | undefined {
    return this.#policies.get(namespace);
  }

  policies(): WithRow<Policy>[] {
    return [...this.#policies.values()];
  }

  putPolicy(policy: Policy): void {
    const before = this.policy(policy.namespace);
    const row = before?.row ?? this.#nextRow.policies++;
    this.#change({ table: 'policies', before, after: { ...policy, row } });
  }

  removePolicy(policy: WithRow<Policy>): void {
    this.#change({ table: 'policies', before: policy, after: undefined });
  }

  // The audit log

  /** Notes what a change was, to be made durable, or taken back, together with it. */
  audit(entry: AuditEntry): void {
    this.#change({ table: 'audit', before: undefined, after: this.#withRow('audit', entry) });
  }

  // The journal

  /** How much is in the journal. */
  get journalLength(): number {
    return this.#journal.length;
  }

  /** Takes back what was noted since a mark. */
  rollBack(journalLength: number): void {
    while (this.#journal.length > journalLength) {
      const { table, before, after } = this.#journal.pop()!;
      this.#apply({ table, before: after, after: before } as Change);
    }
  }

  /**
   * Makes what was noted durable, and begins another journal.
   * @returns what it was. Throws where it could not be made durable, and then changes nothing.
   */
  commit(store: Store): readonly Change[] {
    const journal = this.#journal;
    if (journal.length > 0) store.commit(journal);
    this.#journal = [];
    return journal;
  }

  #withRow<T extends TableName>(table: T, record: RecordTypes[T]): WithRow<RecordTypes[T]> {
    return { ...record, row: this.#nextRow[table]++ };
  }

  #load(change: Change): void {
    this.#nextRow[change.table] = change.after!.row + 1;
    this.#apply(change);
  }

  #change(change: Change): void {
    this.#apply(change);
    this.#journal.push(change);
  }

  #apply(change: Change): void {
    if (change.table === 'keys') {
      const { before, after } = change;
      if (before !== undefined) this.#keys.delete(before.id);
      if (after !== undefined) this.#keys.set(after.id, after);
    } else if (change.table === 'namespaces') {
      this.#applyNamespace(change.before, change.after);
    } else if (change.table === 'overrides') {
      this.#applyOverride(change.before, change.after);
    } else if (change.table === 'policies') {
      const { before, after } = change;
      if (after !== undefined) this.#policies.set(after.namespace, after);
      else if (before !== undefined) this.#policies.delete(before.namespace);
    } else if (change.before !== undefined) {
      // Taken back: the next entry has its row, so that a gap means that entries are missing.
      this.#nextRow.audit = change.before.row;
    }
  }

  #applyNamespace(before: StoredNamespace | undefined, after: StoredNamespace | undefined): void {
    if (before !== undefined) {
      this.#namespacesById.delete(before.id);
      this.#namespacesByName.delete(before.name);
      this.#statsRows.delete(before.name);
    }
    if (after !== undefined) {
      this.#namespacesById.set(after.id, after);
      this.#namespacesByName.set(after.name, after);
      const { size } = this.#statsRows;
      if (size < OTHER_NAMESPACES_ROW) this.#statsRows.set(after.name, size);
    }
  }

  #applyOverride(before: Override | undefined, after: Override | undefined): void {
    this.#updateCount(before, -1);
    this.#updateCount(after, 1);
    if (after !== undefined) this.#overridesInScope(after.scope).set(after.identifier, after);
    else if (before !== undefined) {
      const scope = this.#overridesInScope(before.scope);
      scope.delete(before.identifier);
      if (scope.size === 0) this.#overrides.delete(before.scope);
    }
  }

  #updateCount(override: Override | undefined, change: number): void {
    if (override === undefined) return;
    this.#counts[isExact(this.overrideEntry(override)) ? 'exact' : 'wildcard'] += change;
  }

  #overridesInScope(scope: string): Map<string, Override> {
    let overrides = this.#overrides.get(scope);
    if (overrides === undefined) {
      overrides = new Map();
      this.#overrides.set(scope, overrides);
    }
    return overrides;
  }
}
