/**
 * Makes new namespaces durable, on the main thread. Names arrive one by one from the acceptors and
 * are written in batches, a transaction each; when the store cannot write, checks go on, a warning
 * is logged and the same names are tried again.
 */

import { makeId } from '../auth/keys.ts';
import { OTHER_ROW } from '../lanes.ts';
import { NAMESPACE_ID_PREFIX, NAMESPACES_MAX } from '../limits.ts';
import type { Log } from '../observe/log.ts';
import type { Store } from '../store/store.ts';
import type { RegisteredNamespace } from './known.ts';

const BATCH_MS = 5;
const RETRY_MS = 1_000;

export class NamespaceRegistrar {
  readonly #store: Store;
  readonly #log: Log;
  readonly #tell: (registered: RegisteredNamespace[], rejected: string[]) => void;
  readonly #nowMs: () => number;
  /** Names and their rows in the lanes: the first that came have one of their own. */
  readonly #rows = new Map<string, number>();
  readonly #waiting = new Set<string>();
  #timer: NodeJS.Timeout | undefined;

  /** @param tell hands every outcome to all acceptors */
  constructor(
    store: Store,
    log: Log,
    nowMs: () => number,
    tell: (registered: RegisteredNamespace[], rejected: string[]) => void,
  ) {
    this.#store = store;
    this.#log = log;
    this.#nowMs = nowMs;
    this.#tell = tell;
    for (const { name } of store.namespaces()) this.#add(name);
  }

  register(name: string): void {
    if (this.#rows.has(name)) return;
    this.#waiting.add(name);
    this.#timer ??= setTimeout(() => this.flush(), BATCH_MS);
  }

  /** Writes what waits, now. */
  flush(): void {
    clearTimeout(this.#timer);
    this.#timer = undefined;
    const room = NAMESPACES_MAX - this.#rows.size;
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
    const registered = records.map(({ id, name }) => ({ id, name, row: this.#add(name) }));
    this.#tell(registered, names.slice(room));
  }

  /** Everything that is registered. */
  registered(): RegisteredNamespace[] {
    return this.#store.namespaces().map(({ id, name }) => {
      return { id, name, row: this.#rows.get(name) ?? OTHER_ROW };
    });
  }

  /** The names of the namespaces that have a row of their own, by row. */
  rowNames(): string[] {
    return [...this.#rows].filter(([, row]) => row !== OTHER_ROW).map(([name]) => name);
  }

  #add(name: string): number {
    const row = Math.min(this.#rows.size, OTHER_ROW);
    this.#rows.set(name, row);
    return row;
  }
}
