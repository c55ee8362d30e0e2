/**
 * The namespaces that one acceptor knows. The first check in a new one is decided at once, by name;
 * the main thread registers it behind the answer and tells every acceptor its id, which is
 * disclosed to nobody before. Belongs to its acceptor's thread.
 */

import { NAMESPACES_MAX } from '../core/constants.ts';
import type { NamespaceState } from '../core/hash.ts';
import type { Namespace } from '../core/namespace.ts';
import { newNamespaceRow, OTHER_NAMESPACES_ROW } from '../shared-memory/stats.ts';

/** What the main thread tells of a namespace that is durable. */
export interface RegisteredNamespace {
  id: string;
  name: string;
  /** Its row in every acceptor's lane, which may be that of all others. */
  statsRow: number;
}

const NO_ROOTS = new Int32Array(0);

export class KnownNamespaces {
  readonly #byName = new Map<string, Namespace>();
  readonly #byId = new Map<string, Namespace>();
  readonly #hashStateOf: (name: string) => NamespaceState;
  readonly #statsRowOf: (row: number) => Float64Array;
  readonly #register: (name: string) => void;

  /** @param register hands the name of a new namespace to the main thread */
  constructor(
    hashStateOf: (name: string) => NamespaceState,
    statsRowOf: (row: number) => Float64Array,
    register: (name: string) => void,
  ) {
    this.#hashStateOf = hashStateOf;
    this.#statsRowOf = statsRowOf;
    this.#register = register;
  }

  get(name: string): Namespace | undefined {
    return this.#byName.get(name);
  }

  byId(id: string): Namespace | undefined {
    return this.#byId.get(id);
  }

  /** A namespace for one look at it, which is not created. */
  makeUnregistered(name: string): Namespace {
    return this.#make(undefined, name, this.#statsRowOf(OTHER_NAMESPACES_ROW));
  }

  /** How many namespaces there may still be. */
  get freeCount(): number {
    return NAMESPACES_MAX - this.#byName.size;
  }

  /** Creates a namespace; undefined when there are as many as there may be. */
  create(name: string): Namespace | undefined {
    if (this.freeCount <= 0) return undefined;
    const namespace = this.#make(undefined, name, newNamespaceRow());
    this.#byName.set(name, namespace);
    this.#register(name);
    return namespace;
  }

  /** Namespaces that are durable now, created here or elsewhere. */
  addRegistered(records: readonly RegisteredNamespace[]): void {
    for (const { id, name, statsRow } of records) {
      const known = this.#byName.get(name) ?? this.#make(id, name, this.#statsRowOf(statsRow));
      known.id = id;
      this.#moveCounts(known, statsRow);
      this.#byName.set(name, known);
      this.#byId.set(id, known);
    }
  }

  /** Names for which there was no room: acceptors that each saw the last place free. */
  removeRejected(names: readonly string[]): void {
    for (const name of names) {
      const known = this.#byName.get(name);
      if (known !== undefined) this.#moveCounts(known, OTHER_NAMESPACES_ROW);
      this.#byName.delete(name);
    }
  }

  #make(id: string | undefined, name: string, decisionCounts: Float64Array): Namespace {
    return {
      name,
      id,
      hashState: this.#hashStateOf(name),
      decisionCounts,
      trieRoots: NO_ROOTS,
      trieVersion: 0,
    };
  }

  /** Adds what was counted so far to a row of the lane, and counts there from now on. */
  #moveCounts(namespace: Namespace, index: number): void {
    const row = this.#statsRowOf(index);
    if (namespace.decisionCounts === row) return;
    namespace.decisionCounts.forEach((count, i) => {
      row[i] += count;
    });
    namespace.decisionCounts = row;
  }
}
