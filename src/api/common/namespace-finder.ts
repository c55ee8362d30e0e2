/**
 * From how a check names its namespace to the namespace, for a key that may do there what it asks:
 * on an acceptor. Failures are ApiErrors, in the order 400, 403, 404.
 */

import type { Key } from '../../auth/keyring.ts';
import type { NamespaceAction } from '../../auth/permissions.ts';
import type { Namespace } from '../../core/namespace.ts';
import type { KnownNamespaces } from '../../registry/known-namespaces.ts';
import {
  isNamespaceId,
  namespaceNotCreatable,
  namespaceNotFound,
  requireNamespaceName,
  tooManyNamespaces,
} from './namespace-reference.ts';

/** The permission for an operation on counters. */
export type CounterAction = Extract<
  NamespaceAction,
  'limit' | 'refund' | 'reset' | 'read_namespace'
>;

export class NamespaceFinder {
  readonly #known: KnownNamespaces;

  constructor(known: KnownNamespaces) {
    this.#known = known;
  }

  /**
   * @param acceptsId else the text has to be a name, as v1 has it
   * @returns undefined where it is not there yet, and may be created
   */
  find(key: Key, action: CounterAction, idOrName: string, acceptsId = true): Namespace | undefined {
    const known = this.#known.get(idOrName);
    if (known !== undefined && action === 'limit' && key.permissions.mayLimitAnywhere) return known;
    if (!acceptsId) requireNamespaceName('namespace', idOrName);
    this.requirePermission(key, action, idOrName);
    if (isNamespaceId(idOrName)) {
      const byId = this.#known.byId(idOrName);
      if (byId === undefined) throw namespaceNotFound({ id: idOrName });
      return byId;
    }
    // What corrects counters makes none: one that another acceptor has just made is found by name.
    if (known !== undefined || action !== 'limit') return known;
    if (!key.permissions.mayCreateNamespace) throw namespaceNotCreatable(idOrName);
    return undefined;
  }

  /** Whether or not there is such a namespace. @throws ApiError (403) */
  requirePermission(key: Key, action: CounterAction, idOrName: string): void {
    if (isNamespaceId(idOrName)) key.permissions.require(action, idOrName);
    else key.permissions.requireNamed(action, this.#known.get(idOrName)?.id);
  }

  /** @throws ApiError (400) where not all of so many names could be created */
  requireCapacity(names: ReadonlySet<string>): void {
    if (names.size > 0 && names.size > this.#known.freeCount) throw tooManyNamespaces();
  }

  /** What `find` has not found. Only what is used is created. */
  getOrCreate(name: string, isUsed: boolean): Namespace {
    const known = this.#known.get(name);
    if (known !== undefined) return known;
    if (!isUsed) return this.#known.makeUnregistered(name);
    const created = this.#known.create(name);
    if (created === undefined) throw tooManyNamespaces();
    return created;
  }
}
