/**
 * Makes new namespaces durable, on the main thread. Names arrive one by one from the acceptors and
 * are written in batches, a transaction each; when the store cannot write, checks go on, a warning
 * is logged and the same names are tried again.
 */

import { makeId } from '../auth/keys.ts';
import { NAMESPACE_ID_PREFIX, NAMESPACES_MAX } from '../limits.ts';
import type { Log } from '../observe/log.ts';
import type { NamespaceRecord, Store } from '../store/store.ts';

const BATCH_MS = 5;
const RETRY_MS = 1_000;

export class NamespaceRegistrar {
  readonly #store: Store;
  readonly #log: Log;
  readonly #tell: (registered: NamespaceRecord[], rejected: string[]) => void;
  readonly #nowMs: () => number;
  readonly #names: Set<string>;
  readonly #waiting = new Set<string>();
  #timer: NodeJS.Timeout | undefined;

  /** @param tell hands every outcome to all acceptors */
  constructor(
    store: Store,
    log: Log,
    nowMs: () => number,
    tell: (registered: NamespaceRecord[], rejected: string[]) => void,
  ) {
    this.#store = store;
    this.#log = log;
    this.#nowMs = nowMs;
    this.#tell = tell;
    this.#names = new Set(store.namespaces().map(({ name }) => name));
  }

  register(name: string): void {
    if (this.#names.has(name)) return;
    this.#waiting.add(name);
    this.#timer ??= setTimeout(() => this.flush(), BATCH_MS);
  }

  /** Writes what waits, now. */
  flush(): void {
    clearTimeout(this.#timer);
    this.#timer = undefined;
    const room = NAMESPACES_MAX - this.#names.size;
    const names = [...this.#waiting];
    if (names.length === 0) return;
    const createdMs = this.#nowMs();
    const records = names
      .slice(0, room)
      .map((name) => ({ id: makeId(NAMESPACE_ID_PREFIX), name, createdMs }));
    try {
      this.#store.addNamespaces(records);
    } catch (error) {
      this.#log.warn(
        { err: error, namespaces: names.length },
        'namespaces could not be stored yet',
      );
      this.#timer = setTimeout(() => this.flush(), RETRY_MS);
      return;
    }
    this.#waiting.clear();
    for (const { name } of records) this.#names.add(name);
    this.#tell(records, names.slice(room));
  }
}
