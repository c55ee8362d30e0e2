/**
 * The registry holds the contents of the store, except the audit log, in memory with indexes. The
 * main thread owns it. A change is applied here first and appended to a journal, followed by its
 * audit entry. If the store cannot commit the journal, its changes are rolled back, so that the
 * registry never contains changes that the store does not have.
 */

import type { KeyRecord } from '../auth/keys.ts';
import { DELETED_NAMESPACES_MAX, NAMESPACE_ID_PREFIX, NAMESPACES_MAX } from '../core/constants.ts';
import { makeId } from '../core/ids.ts';
import { namespaceKey } from '../core/namespace.ts';
import { hasInfix, isPattern, STAR } from '../overrides/pattern.ts';
import { isExact, type OverrideEntry } from '../overrides/sets.ts';
import type { Policy } from '../policies/policy.ts';
import type {
  AuditEntry,
  NamespaceRecord,
  OverrideRecord,
  RecordTypes,
  TableName,
  WithRow,
} from './store/schema.ts';
import type { Change, Store } from './store/store.ts';

type StoredKey = WithRow<KeyRecord>;
export type StoredNamespace = WithRow<NamespaceRecord>;
export type Override = WithRow<OverrideRecord>;

/** What identifies an override in its scope: overrides of each kind may have the same text. */
export type OverrideSelector = Pick<OverrideRecord, 'identifier' | 'isCidr' | 'isBlocking'>;

/** Whether the end of an override has come. Its record is removed soon after. */
export function hasEnded({ expiresMs }: OverrideRecord, nowMs: number): boolean {
  return expiresMs !== undefined && expiresMs <= nowMs;
}

/** Lone surrogates, which no identifier contains. */
const CIDR_MARK = '\ud800';
const BLOCK_MARK = '\ud801';

function overrideKey({ identifier, isCidr, isBlocking }: OverrideSelector): string {
  if (isBlocking === true) return BLOCK_MARK + identifier;
  return isCidr === true ? CIDR_MARK + identifier : identifier;
}

/** The row of a record that is not stored. */
const NO_ROW = 0;

export class Registry {
  readonly #keys = new Map<string, StoredKey>();
  /** Of two keys with one digest, the one that was added last, as in the keyring. */
  readonly #keysByDigest = new Map<string, StoredKey>();
  /** Keys that are valid although they are not stored, by id. One of them may be stored later. */
  readonly #unstoredKeys = new Map<string, StoredKey>();
  /** The deleted ones included. */
  readonly #namespacesById = new Map<string, StoredNamespace>();
  readonly #namespacesByName = new Map<string, StoredNamespace>();
  /** The last one of each name that was deleted, by name. */
  readonly #deletedNamespaces = new Map<string, StoredNamespace>();
  /** By scope and `overrideKey`. */
  readonly #overrides = new Map<string, Map<string, Override>>();
  readonly #counts = { exact: 0, wildcard: 0, block: 0 };
  /** Of overrides with an infix in the identifier, by `infixOwner`. */
  readonly #infixCounts = new Map<string, number>();
  /** The namespace patterns with an infix that have overrides. */
  readonly #infixScopes = new Set<string>();
  /** The overrides that have an end, by row. */
  readonly #expiring = new Map<number, Override>();
  /** None of them ends before this time. */
  #firstEndMs = Number.POSITIVE_INFINITY;
  /** By namespace: the policies that were last recorded in the audit log. */
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

  /** Adds a key that is not stored: it is valid until the process ends, unless it is stored. */
  addConfiguredKey(record: KeyRecord): void {
    const key = { ...record, row: NO_ROW };
    this.#unstoredKeys.set(record.id, key);
    this.#setKey(key);
  }

  key(id: string): StoredKey | undefined {
    return this.#keys.get(id);
  }

  keyByDigest(digest: string): StoredKey | undefined {
    return this.#keysByDigest.get(digest);
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
    const namespace = this.#namespacesById.get(id);
    return namespace?.deletedMs === undefined ? namespace : undefined;
  }

  namespaceByName(name: string): StoredNamespace | undefined {
    return this.#namespacesByName.get(name);
  }

  /** The records that the store has too, by table; without the audit log. */
  stored(table: TableName): Iterable<WithRow<RecordTypes[TableName]>> {
    switch (table) {
      case 'keys':
        return this.keys().filter((key) => this.isStored(key));
      case 'namespaces':
        return this.#namespacesById.values();
      case 'overrides':
        return this.overrides();
      case 'policies':
        return this.policies();
      case 'audit':
        return [];
    }
  }

  /** In no order: `row` is that of their creation. */
  namespaces(): StoredNamespace[] {
    return [...this.#namespacesByName.values()];
  }

  get namespaceCount(): number {
    return this.#namespacesByName.size;
  }

  /** The last deleted namespace of each name, without those that are forgotten. */
  deletedNamespaces(): StoredNamespace[] {
    return [...this.#deletedNamespaces.values()];
  }

  /** The `predecessor` of the next namespace with a name. */
  predecessorOf(name: string): number | undefined {
    return this.#deletedNamespaces.get(name)?.row;
  }

  addNamespace(name: string, createdMs: number): StoredNamespace {
    const predecessor = this.predecessorOf(name);
    const successor = predecessor !== undefined && { predecessor };
    const record = { id: makeId(NAMESPACE_ID_PREFIX), name, createdMs, ...successor };
    const after = this.#withRow('namespaces', record);
    this.#change({ table: 'namespaces', before: undefined, after });
    return after;
  }

  /** Adds a missing namespace, unless there are NAMESPACES_MAX already. */
  ensureNamespace(name: string, nowMs: number): void {
    const exists = this.#namespacesByName.has(name);
    if (!exists && this.namespaceCount < NAMESPACES_MAX) this.addNamespace(name, nowMs);
  }

  /** Deletes a namespace and its overrides. @returns the number of these overrides */
  deleteNamespace(namespace: StoredNamespace, deletedMs: number): number {
    const overrides = [...this.overridesOf(namespace.id)];
    for (const override of overrides) this.removeOverride(override);
    const after = { ...namespace, deletedMs };
    const former = this.#deletedNamespaces.get(namespace.name);
    this.#change({ table: 'namespaces', before: namespace, after });
    if (former !== undefined) this.#forgetNamespace(former);
    else if (this.#deletedNamespaces.size > DELETED_NAMESPACES_MAX) {
      this.#forgetNamespace(this.deletedNamespaces().reduce(olderOf));
    }
    return overrides.length;
  }

  #forgetNamespace(deleted: StoredNamespace): void {
    this.#change({ table: 'namespaces', before: deleted, after: undefined });
  }

  // Overrides

  /** An override or a block. */
  override(scope: string, selector: OverrideSelector): Override | undefined {
    return this.#overrides.get(scope)?.get(overrideKey(selector));
  }

  /** With the blocks. @param scope the id of a namespace, or a pattern of names */
  overridesOf(scope: string): Iterable<Override> {
    return this.#overrides.get(scope)?.values() ?? [];
  }

  /** With the blocks. */
  *overrides(): Iterable<Override> {
    for (const scope of this.#overrides.values()) yield* scope.values();
  }

  /** The overrides whose end has come. While there is none, this compares one time. */
  endedOverrides(nowMs: number): Override[] {
    if (nowMs < this.#firstEndMs) return [];
    const ended: Override[] = [];
    this.#firstEndMs = Number.POSITIVE_INFINITY;
    for (const override of this.#expiring.values()) {
      this.#firstEndMs = Math.min(this.#firstEndMs, override.expiresMs!);
      if (hasEnded(override, nowMs)) ended.push(override);
    }
    return ended;
  }

  /** The numbers of overrides without and with a pattern or a CIDR block, and of blocks. */
  get overrideCounts(): Readonly<{ exact: number; wildcard: number; block: number }> {
    return this.#counts;
  }

  /** The overrides that count together with those of a scope, and have an infix: `hasInfix`. */
  infixCountOf(scope: string): number {
    return this.#infixCounts.get(infixOwner(scope)) ?? 0;
  }

  /** The number of namespace patterns that have an infix and overrides. */
  get infixScopeCount(): number {
    return this.#infixScopes.size;
  }

  /** The namespaces in which more than so many overrides have an infix, with their numbers. */
  namespacesOverInfixCount(most: number): { namespace: string; overrides: number }[] {
    return [...this.#infixCounts]
      .filter(([, overrides]) => overrides > most)
      .map(([scope, overrides]) => ({ namespace: this.namespaceOf({ scope }), overrides }));
  }

  /** Adds an override, or replaces the one with the same scope and identifier. */
  putOverride(record: OverrideRecord): Override {
    const before = this.override(record.scope, record);
    const after = { ...record, row: before?.row ?? this.#nextRow.overrides++ };
    this.#change({ table: 'overrides', before, after });
    return after;
  }

  removeOverride(override: Override): void {
    this.#change({ table: 'overrides', before: override, after: undefined });
  }

  /** The name of the namespace of an override, or the pattern of names. */
  namespaceOf({ scope }: Pick<OverrideRecord, 'scope'>): string {
    return isPattern(scope) ? scope : this.#namespacesById.get(scope)!.name;
  }

  /**
   * The override as the tables need it.
   * @param namespace of its scope, where the registry may have forgotten it
   */
  overrideEntry(override: Override, namespace?: NamespaceRecord): OverrideEntry {
    const { scope } = override;
    if (isPattern(scope)) return { ...override, namespace: scope, isNamespacePattern: true };
    const { name, predecessor } = namespace ?? this.#namespacesById.get(scope)!;
    const namespaceKeyed = { namespace: name, namespaceKey: namespaceKey(name, predecessor) };
    return { ...override, ...namespaceKeyed, isNamespacePattern: false };
  }

  // Policies, as last recorded in the audit log

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

  /** Adds the entry of a change to the journal, to be committed or rolled back with it. */
  audit(entry: AuditEntry): void {
    this.#change({ table: 'audit', before: undefined, after: this.#withRow('audit', entry) });
  }

  // The journal

  get journalLength(): number {
    return this.#journal.length;
  }

  /** Undoes the changes after the first `journalLength` ones. */
  rollBack(journalLength: number): void {
    const undone = this.#journal.slice(journalLength);
    this.#journal = this.#journal.slice(0, journalLength);
    for (const { table, before, after } of undone.reverse()) {
      this.#apply({ table, before: after, after: before } as Change);
    }
  }

  /**
   * Writes the journal to the store and empties it. If the last write has failed, it writes an
   * empty journal too, to find out whether the store can be written again.
   * @returns the changes, which are durable
   * @throws if the store fails; then the journal is unchanged
   */
  commit(store: Store): readonly Change[] {
    const journal = this.#journal;
    if (journal.length > 0 || store.writeError !== undefined) store.commit(journal);
    this.#journal = [];
    this.#noteStoredKeys(journal);
    return journal;
  }

  /**
   * Empties the journal and undoes its changes, for a store that is slow: until they are durable,
   * no reader sees them.
   */
  takeJournal(): readonly Change[] {
    const journal = this.#journal;
    this.rollBack(0);
    return journal;
  }

  /** Applies durable changes: those of a journal that was taken, or of another machine. */
  apply(changes: readonly Change[]): void {
    this.#noteStoredKeys(changes);
    for (const change of changes) {
      const { table, after } = change;
      // The store has the entries of the audit log.
      if (table !== 'audit') this.#apply(change);
      if (after !== undefined) this.#nextRow[table] = Math.max(this.#nextRow[table], after.row + 1);
    }
  }

  #noteStoredKeys(changes: readonly Change[]): void {
    for (const { table, after } of changes) {
      if (table === 'keys' && after !== undefined) this.#unstoredKeys.delete(after.id);
    }
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
      if (before !== undefined) this.#deleteKey(before);
      const current = after ?? this.#unstoredKeys.get(before!.id);
      if (current !== undefined) this.#setKey(current);
    } else if (change.table === 'namespaces') {
      this.#applyNamespace(change.before, change.after);
    } else if (change.table === 'overrides') {
      this.#applyOverride(change.before, change.after);
    } else if (change.table === 'policies') {
      const { before, after } = change;
      if (after !== undefined) this.#policies.set(after.namespace, after);
      else if (before !== undefined) this.#policies.delete(before.namespace);
    } else if (change.before !== undefined) {
      // An entry was rolled back. Its row is reused, so that a gap means missing entries.
      this.#nextRow.audit = change.before.row;
    }
  }

  #setKey(key: StoredKey): void {
    this.#keys.set(key.id, key);
    this.#keysByDigest.set(key.digest, key);
  }

  #deleteKey({ id, digest }: StoredKey): void {
    this.#keys.delete(id);
    if (this.#keysByDigest.get(digest)?.id === id) this.#keysByDigest.delete(digest);
  }

  #applyNamespace(before: StoredNamespace | undefined, after: StoredNamespace | undefined): void {
    if (before !== undefined) {
      this.#namespacesById.delete(before.id);
      const index = this.#indexOf(before);
      // Its successor under the same name may have been added first.
      if (index.get(before.name)?.id === before.id) index.delete(before.name);
    }
    if (after !== undefined) {
      this.#namespacesById.set(after.id, after);
      this.#indexOf(after).set(after.name, after);
    }
  }

  #indexOf({ deletedMs }: StoredNamespace): Map<string, StoredNamespace> {
    return deletedMs === undefined ? this.#namespacesByName : this.#deletedNamespaces;
  }

  #applyOverride(before: Override | undefined, after: Override | undefined): void {
    this.#updateCounts(before, -1);
    this.#updateCounts(after, 1);
    if (before !== undefined) this.#expiring.delete(before.row);
    if (after?.expiresMs !== undefined) {
      this.#expiring.set(after.row, after);
      this.#firstEndMs = Math.min(this.#firstEndMs, after.expiresMs);
    }
    if (after !== undefined) this.#overridesInScope(after.scope).set(overrideKey(after), after);
    else if (before !== undefined) {
      const scope = this.#overridesInScope(before.scope);
      scope.delete(overrideKey(before));
      if (scope.size === 0) {
        this.#overrides.delete(before.scope);
        this.#infixScopes.delete(before.scope);
      }
    }
  }

  #updateCounts(override: Override | undefined, change: number): void {
    if (override === undefined) return;
    const { scope, identifier } = override;
    this.#counts[kindOf(override)] += change;
    if (override.isBlocking === true || !hasInfix(identifier)) return;
    const count = this.infixCountOf(scope) + change;
    if (count > 0) this.#infixCounts.set(infixOwner(scope), count);
    else this.#infixCounts.delete(infixOwner(scope));
  }

  #overridesInScope(scope: string): Map<string, Override> {
    let overrides = this.#overrides.get(scope);
    if (overrides === undefined) {
      overrides = new Map();
      this.#overrides.set(scope, overrides);
      if (hasInfix(scope)) this.#infixScopes.add(scope);
    }
    return overrides;
  }
}

export function kindOf(
  override: OverrideSelector & Pick<OverrideRecord, 'scope'>,
): 'exact' | 'wildcard' | 'block' {
  if (override.isBlocking === true) return 'block';
  const isNamespacePattern = isPattern(override.scope);
  return isExact({ ...override, isNamespacePattern }) ? 'exact' : 'wildcard';
}

/** All namespace patterns together are one owner: a check is matched with all of them. */
function infixOwner(scope: string): string {
  return isPattern(scope) ? STAR : scope;
}

/** The one of two deleted namespaces that was deleted first. */
function olderOf(a: StoredNamespace, b: StoredNamespace): StoredNamespace {
  const age = a.deletedMs! - b.deletedMs! || a.row - b.row;
  return age <= 0 ? a : b;
}
