/**
 * This machine's replica of the registry in Redis: the store and, once the server runs, the
 * registry in memory and the acceptors. Each version is applied as a whole and in order.
 *
 * If the store cannot be written, the registry in memory goes on without it, and the store is
 * completed later. Before the server runs there is only the store, and its failure ends the start.
 */

import { storageErrorCause } from '../../core/errno.ts';
import { FailureLog } from '../../core/failure-log.ts';
import type { Log } from '../../core/log.ts';
import { isPattern } from '../../overrides/pattern.ts';
import type { Registry } from '../registry.ts';
import type { Change, ReplicaMark, Store } from '../store/store.ts';
import type { Publisher } from '../writer.ts';
import { Snapshot } from './snapshot.ts';

export type ReplicaLog = Pick<Log, 'info' | 'warn' | 'error'>;

export class Replica {
  readonly #store: Store;
  #mark: ReplicaMark | undefined;
  #registry: Registry | undefined;
  #publish: Publisher | undefined;
  #isStoreBehind = false;
  readonly #failures: FailureLog;

  constructor(store: Store, log: ReplicaLog) {
    this.#store = store;
    this.#failures = new FailureLog(log, 'warn', 'the store is written again');
    this.#mark = store.replica;
  }

  /** The version that it has; undefined if it is no replica yet. */
  get mark(): ReplicaMark | undefined {
    return this.#mark;
  }

  /** The hash key of the store. */
  get hashKey(): Uint8Array {
    return this.#store.hashKey;
  }

  /** Whether the store lacks changes that the registry in memory has. */
  get isStoreBehind(): boolean {
    return this.#isStoreBehind;
  }

  /** From now on, changes are applied to the registry too. @param registry loaded from the store */
  attach(registry: Registry): void {
    this.#registry = registry;
  }

  /** From now on, changes of other machines are published to the acceptors. */
  publishWith(publish: Publisher): void {
    this.#publish = publish;
  }

  /** Applies the changes of the next version that another machine has made. */
  applyRemote(changes: readonly Change[], mark: ReplicaMark): void {
    this.applyOwn(changes, mark);
    this.#publishChanges(changes);
  }

  /** Applies the changes of the next version that this machine has made. Its writer publishes. */
  applyOwn(changes: readonly Change[], mark: ReplicaMark): void {
    this.#requireKnownNamespaces(changes);
    this.#registry?.apply(changes);
    this.#mark = mark;
    if (!this.#isStoreBehind) this.#commit(() => changes, mark);
  }

  /** Replaces all records by those of a version. */
  adopt(snapshot: Snapshot, mark: ReplicaMark): void {
    const registry = this.#registry;
    if (registry !== undefined) {
      const before = Snapshot.of((table) => registry.stored(table));
      const changes = snapshot.changesFrom(before);
      const isRemovedNamespace = ({ table, after }: Change) => {
        return table === 'namespaces' && after === undefined;
      };
      const others = changes.filter((change) => !isRemovedNamespace(change));
      registry.apply(others);
      this.#publishChanges(others);
      const removed = changes.filter(isRemovedNamespace);
      registry.apply(removed);
      this.#publishChanges(removed);
    }
    this.#mark = mark;
    this.#commit(() => storeOrder(snapshot.changesFrom(this.#storeSnapshot())), mark);
  }

  /** What it has now. */
  snapshot(): Snapshot {
    const registry = this.#registry;
    if (registry === undefined) return this.#storeSnapshot();
    return Snapshot.of((table) =>
      table === 'audit' ? this.#store.read(table) : registry.stored(table),
    );
  }

  /** Copies the store to a file beside it. @returns the path. @throws if it cannot be copied */
  saveCopy(): string {
    return this.#store.saveCopy(`store-version-${this.#mark?.version ?? 0}`);
  }

  #storeSnapshot(): Snapshot {
    return Snapshot.of((table) => this.#store.read(table));
  }

  #publishChanges(changes: readonly Change[]): void {
    // If this fails, the process ends, as for own changes: acceptors would lack them from then on.
    void this.#publish?.(changes, []);
  }

  #commit(changes: () => readonly Change[], mark: ReplicaMark): void {
    try {
      this.#store.commit(changes(), mark);
      this.#isStoreBehind = false;
      this.#failures.succeeded();
    } catch (error) {
      if (this.#registry === undefined) throw error;
      const { path } = this.#store;
      this.#failures.failed(
        { error: storageErrorCause(error), path },
        'the store cannot be written to; it will be completed from Redis',
      );
      this.#isStoreBehind = true;
    }
  }

  /** @throws if an override names a namespace that does not exist: then nothing is applied */
  #requireKnownNamespaces(changes: readonly Change[]): void {
    const registry = this.#registry;
    if (registry === undefined) return;
    const added = new Set<string>();
    for (const { table, after } of changes) {
      if (table === 'namespaces' && after !== undefined) added.add(after.id);
      if (table !== 'overrides' || after === undefined) continue;
      const { scope } = after;
      if (isPattern(scope) || added.has(scope) || registry.namespaceById(scope)) continue;
      throw new Error(`the override ${after.id} in Redis names an unknown namespace`);
    }
  }
}

/** A row must be free before another record is added in it. */
function storeOrder(changes: readonly Change[]): Change[] {
  const isRemoval = ({ after }: Change) => after === undefined;
  return [...changes.filter(isRemoval), ...changes.filter((change) => !isRemoval(change))];
}
