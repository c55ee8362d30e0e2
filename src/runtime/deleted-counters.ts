/**
 * Has the engine free the memory of the counters of deleted namespaces, on the main thread. It
 * waits until no check that began before a deletion can be counted any more. Deletions in this time
 * are done together, and so are those while the engine reads its tables for earlier ones. A start
 * repeats them: the process may have ended before, or a checkpoint may have brought counters back.
 */

import { CHECK_DEADLINE_MS, DELETED_NAMESPACES_MAX } from '../core/constants.ts';
import { Hasher } from '../core/hash.ts';
import { namespaceKey } from '../core/namespace.ts';
import type { EngineHost } from '../engine/engine.ts';
import type { Registry } from '../registry/registry.ts';
import type { NamespaceRecord } from '../registry/store/schema.ts';

export class DeletedCounters {
  readonly #engine: Pick<EngineHost, 'removeNamespaces'>;
  readonly #registry: Registry;
  readonly #hasher: Hasher;
  /** Of namespaces whose counters are removed next. */
  #tags = new Set<number>();
  /** Until their removal has ended. */
  #timer: NodeJS.Timeout | undefined;

  constructor(
    engine: Pick<EngineHost, 'removeNamespaces'>,
    registry: Registry,
    hashKey: Uint8Array,
  ) {
    this.#engine = engine;
    this.#registry = registry;
    this.#hasher = new Hasher(hashKey);
    this.remove(registry.deletedNamespaces().map(keyOf));
  }

  /** @param keys of deleted namespaces, which no acceptor uses any more */
  remove(keys: readonly string[]): void {
    for (const key of keys) {
      // The counters of further ones stay until their windows end, or until they are evicted.
      if (this.#tags.size < DELETED_NAMESPACES_MAX) this.#tags.add(this.#tagOf(key));
    }
    if (this.#tags.size > 0) this.#timer ??= setTimeout(() => this.#run(), CHECK_DEADLINE_MS);
  }

  close(): void {
    clearTimeout(this.#timer);
    this.#tags.clear();
  }

  async #run(): Promise<void> {
    const tags = this.#tags;
    this.#tags = new Set();
    // One in 400 000 of 10 000 namespaces: those counters stay until their windows end.
    for (const namespace of this.#registry.namespaces()) tags.delete(this.#tagOf(keyOf(namespace)));
    await this.#engine.removeNamespaces(tags);
    this.#timer = undefined;
    this.remove([]);
  }

  #tagOf(key: string): number {
    return this.#hasher.namespace(key)[0];
  }
}

function keyOf({ name, predecessor }: NamespaceRecord): string {
  return namespaceKey(name, predecessor);
}
