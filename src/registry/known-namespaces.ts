/**
 * The namespaces that one acceptor knows. The first check in a new namespace is decided at once, by
 * name. The main thread registers the namespace after the response and sends its id to every
 * acceptor. No response contains the id before that. The acceptor's thread owns this state.
 */

import { NAMESPACES_MAX } from '../core/constants.ts';
import type { NamespaceState } from '../core/hash.ts';
import type { Namespace } from '../core/namespace.ts';
import { newNamespaceRow, OTHER_NAMESPACES_ROW } from '../shared-memory/stats.ts';

/** A durable namespace, as the main thread publishes it. */
export interface RegisteredNamespace {
  id: string;
  name: string;
  /** Its row in each acceptor's stats block. */
  statsRow: number;
}

const NO_ROOTS = new Int32Array(0);

export class KnownNamespaces {
  readonly #byName = new Map<string, Namespace>();
  readonly #byId = new Map<string, Namespace>();
  readonly #hashStateOf: (name: string) => NamespaceState;
  readonly #statsRowOf: (row: number) => Float64Array;
  readonly #register: (name: string) => void;

  /** @param register sends the name of a new namespace to the main thread */
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

  /** A namespace that is neither remembered here nor registered. */
  makeUnregistered(name: string): Namespace {
    return this.#make(undefined, name, this.#statsRowOf(OTHER_NAMESPACES_ROW));
  }

  /** How many namespaces may still be created. */
  get freeCount(): number {
    return NAMESPACES_MAX - this.#byName.size;
  }

  /** @returns the new namespace; undefined if there are NAMESPACES_MAX already */
  create(name: string): Namespace | undefined {
    if (this.freeCount <= 0) return undefined;
    const namespace = this.#make(undefined, name, newNamespaceRow());
    this.#byName.set(name, namespace);
    this.#register(name);
    return namespace;
  }

  /** Adds durable namespaces, which this acceptor, another one or an operation has created. */
  addRegistered(records: readonly RegisteredNamespace[]): void {
    for (const { id, name, statsRow } of records) {
      const known = this.#byName.get(name) ?? this.#make(id, name, this.#statsRowOf(statsRow));
      known.id = id;
      this.#moveCounts(known, statsRow);
      this.#byName.set(name, known);
      this.#byId.set(id, known);
    }
  }

  /** Removes names that exceed NAMESPACES_MAX: several acceptors may have created the last one. */
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
      // NO_SKETCHES, written out: V8 stores spread fields in another object, so another cache line.
      sketchHour: 0,
      deniedSketch: undefined,
      spentSketch: undefined,
    };
  }

  /** Adds the counts so far to a row of the stats block, in which later checks are counted. */
  #moveCounts(namespace: Namespace, index: number): void {
    const row = this.#statsRowOf(index);
    if (namespace.decisionCounts === row) return;
    namespace.decisionCounts.forEach((count, i) => {
      row[i] += count;
    });
    namespace.decisionCounts = row;
  }
}
