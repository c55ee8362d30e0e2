/**
 * The namespaces that one acceptor knows. The first check in a new one is decided at once, by name;
 * the main thread registers it behind the answer and tells every acceptor its id, which is
 * disclosed to nobody before. Belongs to its acceptor's thread.
 */

import type { NamespaceState } from '../counters/hash.ts';
import { NAMESPACES_MAX } from '../limits.ts';
import type { NamespaceRecord } from '../store/store.ts';

export interface Namespace {
  /** Undefined until it is durable. */
  id: string | undefined;
  state: NamespaceState;
}

export class KnownNamespaces {
  readonly #byName = new Map<string, Namespace>();
  readonly #stateOf: (name: string) => NamespaceState;
  readonly #register: (name: string) => void;

  /** @param register hands the name of a new namespace to the main thread */
  constructor(stateOf: (name: string) => NamespaceState, register: (name: string) => void) {
    this.#stateOf = stateOf;
    this.#register = register;
  }

  get(name: string): Namespace | undefined {
    return this.#byName.get(name);
  }

  /** A namespace for one look at it, which is not created. */
  unregistered(name: string): Namespace {
    return { id: undefined, state: this.#stateOf(name) };
  }

  /** Creates a namespace; undefined when there are as many as there may be. */
  create(name: string): Namespace | undefined {
    if (this.#byName.size >= NAMESPACES_MAX) return undefined;
    const namespace = this.unregistered(name);
    this.#byName.set(name, namespace);
    this.#register(name);
    return namespace;
  }

  /** Namespaces that are durable now, created here or elsewhere. */
  registered(records: readonly Pick<NamespaceRecord, 'id' | 'name'>[]): void {
    for (const { id, name } of records) {
      const known = this.#byName.get(name);
      if (known !== undefined) known.id = id;
      else this.#byName.set(name, { id, state: this.#stateOf(name) });
    }
  }

  /** Names for which there was no room: acceptors that each saw the last place free. */
  rejected(names: readonly string[]): void {
    for (const name of names) this.#byName.delete(name);
  }
}
