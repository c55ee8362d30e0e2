/**
 * The namespaces that one acceptor knows. The first check in a new namespace is decided at once, by
 * name. The main thread registers the namespace after the response and sends its id to every
 * acceptor. No response contains the id before that. The acceptor's thread owns this state.
 */

import { DELETED_NAMESPACES_MAX, NAMESPACES_MAX } from '../core/constants.ts';
import type { NamespaceState } from '../core/hash.ts';
import { type Namespace, NO_PERIOD } from '../core/namespace.ts';
import { newNamespaceRow, OTHER_NAMESPACES_ROW } from '../shared-memory/stats.ts';

/** A durable namespace, as the main thread publishes it. */
export interface RegisteredNamespace {
  id: string;
  name: string;
  /** See `namespaceKey`. */
  key: string;
  /** Its row in each acceptor's stats block. */
  statsRow: number;
}

/** A namespace that is deleted, or was deleted before the start. */
export interface DeletedNamespace {
  name: string;
  key: string;
  /** The key of the next namespace with the name. */
  successorKey: string;
}

/** What a publication changes. */
export interface NamespaceChanges {
  /** Namespaces that have become durable. */
  registeredNamespaces?: readonly RegisteredNamespace[];
  deletedNamespaces?: readonly DeletedNamespace[];
  /** Names that exceed the maximum number of namespaces. */
  rejectedNamespaces?: readonly string[];
}

/**
 * A number for the first two words of a hash state, by which records of holds name a namespace. It
 * has 53 bits of them: two of 10 000 namespaces share it once in 10^8 servers.
 */
function fingerprintKey(h0: number, h1: number): number {
  return (h0 >>> 0) * 2 ** 21 + (h1 >>> 11);
}

const NO_ROOTS = new Int32Array(0);

export class KnownNamespaces {
  readonly #byName = new Map<string, Namespace>();
  readonly #byId = new Map<string, Namespace>();
  /** By `fingerprintKey`, as the next. */
  readonly #byFingerprint = new Map<number, Namespace>();
  /** Of deleted namespaces, the oldest first; as many as the registry remembers. */
  readonly #deletedFingerprints = new Set<number>();
  /** The keys of the next namespaces with these names, where they are not the names. */
  readonly #successorKeys = new Map<string, string>();
  readonly #hashStateOf: (key: string) => NamespaceState;
  readonly #statsRowOf: (row: number) => Float64Array;
  readonly #register: (name: string) => void;

  /** @param register sends the name of a new namespace to the main thread */
  constructor(
    hashStateOf: (key: string) => NamespaceState,
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

  /** @param h0 and `h1`: the first two words of its hash state */
  byFingerprint(h0: number, h1: number): Namespace | undefined {
    return this.#byFingerprint.get(fingerprintKey(h0, h1));
  }

  /** Whether it was deleted. A namespace that is not known here may also be a new one. */
  isDeleted(h0: number, h1: number): boolean {
    return this.#deletedFingerprints.has(fingerprintKey(h0, h1));
  }

  /** A namespace that is neither remembered here nor registered. */
  makeUnregistered(name: string): Namespace {
    const namespace = this.#makeNext(name, this.#statsRowOf(OTHER_NAMESPACES_ROW));
    namespace.isTransient = true;
    return namespace;
  }

  /** How many namespaces may still be created. */
  get freeCount(): number {
    return NAMESPACES_MAX - this.#byName.size;
  }

  /** @returns the new namespace; undefined if there are NAMESPACES_MAX already */
  create(name: string): Namespace | undefined {
    if (this.freeCount <= 0) return undefined;
    const namespace = this.#makeNext(name, newNamespaceRow());
    this.#add(namespace);
    this.#register(name);
    return namespace;
  }

  /**
   * A deletion makes room: a name that was rejected may be registered in the same publication.
   * @returns the deleted ones that this acceptor knew
   */
  apply({
    deletedNamespaces = [],
    rejectedNamespaces = [],
    registeredNamespaces = [],
  }: NamespaceChanges): Namespace[] {
    const deleted = this.#removeDeleted(deletedNamespaces);
    this.#removeRejected(rejectedNamespaces);
    this.#addRegistered(registeredNamespaces);
    return deleted;
  }

  /** Adds durable namespaces, which this acceptor, another one or an operation has created. */
  #addRegistered(records: readonly RegisteredNamespace[]): void {
    for (const { id, name, key, statsRow } of records) {
      const found = this.#byName.get(name);
      if (found !== undefined && found.key !== key) this.#remove(found);
      const known = this.#byName.get(name) ?? this.#make(id, name, key, this.#statsRowOf(statsRow));
      if (known.id !== undefined) this.#byId.delete(known.id);
      known.id = id;
      this.#moveCounts(known, statsRow);
      this.#add(known);
      this.#byId.set(id, known);
    }
  }

  #add(namespace: Namespace): void {
    const [h0, h1] = namespace.hashState;
    this.#byName.set(namespace.name, namespace);
    this.#byFingerprint.set(fingerprintKey(h0, h1), namespace);
    this.#deletedFingerprints.delete(fingerprintKey(h0, h1));
  }

  #forget({ name, hashState: [h0, h1] }: Namespace): void {
    this.#byName.delete(name);
    this.#byFingerprint.delete(fingerprintKey(h0, h1));
  }

  /**
   * Removes deleted namespaces. A check that has begun before counts in no statistics any more: the
   * next namespace may have the row by then.
   * @returns those that this acceptor knew
   */
  #removeDeleted(records: readonly DeletedNamespace[]): Namespace[] {
    const removed: Namespace[] = [];
    for (const { name, key, successorKey } of records) {
      if (successorKey === name) this.#successorKeys.delete(name);
      else this.#successorKeys.set(name, successorKey);
      this.#rememberDeleted(key);
      const known = this.#byName.get(name);
      if (known?.key !== key) continue;
      this.#remove(known);
      removed.push(known);
    }
    return removed;
  }

  #rememberDeleted(key: string): void {
    const [h0, h1] = this.#hashStateOf(key);
    this.#deletedFingerprints.add(fingerprintKey(h0, h1));
    if (this.#deletedFingerprints.size <= DELETED_NAMESPACES_MAX) return;
    const [oldest] = this.#deletedFingerprints;
    this.#deletedFingerprints.delete(oldest);
  }

  #remove(namespace: Namespace): void {
    this.#forget(namespace);
    if (namespace.id !== undefined) this.#byId.delete(namespace.id);
    namespace.isTransient = true;
    namespace.decisionCounts = newNamespaceRow();
  }

  /**
   * Removes names that exceed NAMESPACES_MAX: several acceptors may have created the last one. That
   * of a policy stays in use, without figures of its own, until a deletion makes room for it.
   */
  #removeRejected(names: readonly string[]): void {
    for (const name of names) {
      const known = this.#byName.get(name);
      if (known === undefined) continue;
      this.#moveCounts(known, OTHER_NAMESPACES_ROW);
      known.isTransient = true;
      this.#forget(known);
    }
  }

  /** A namespace without an id, which is the next one with its name. */
  #makeNext(name: string, decisionCounts: Float64Array): Namespace {
    return this.#make(undefined, name, this.#successorKeys.get(name) ?? name, decisionCounts);
  }

  #make(
    id: string | undefined,
    name: string,
    key: string,
    decisionCounts: Float64Array,
  ): Namespace {
    return {
      name,
      id,
      hashState: this.#hashStateOf(key),
      decisionCounts,
      trieRoots: NO_ROOTS,
      trieVersion: 0,
      // UNRECORDED, written out: V8 stores spread fields in another object, so another cache line.
      sketchHour: 0,
      deniedSketch: undefined,
      spentSketch: undefined,
      sampledPeriod: NO_PERIOD,
      key,
      isTransient: false,
    };
  }

  /** Adds the counts so far to a row of the stats block, in which later checks are counted. */
  #moveCounts(namespace: Namespace, index: number): void {
    const row = this.#statsRowOf(index);
    const { buffer, byteOffset } = namespace.decisionCounts;
    if (buffer === row.buffer && byteOffset === row.byteOffset) return;
    namespace.decisionCounts.forEach((count, i) => {
      row[i] += count;
    });
    namespace.decisionCounts = row;
  }
}
