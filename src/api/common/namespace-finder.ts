/**
 * Finds the namespace of a request on an acceptor, and requires the permission of its key there.
 * Failures are ApiErrors, in the order 400, 403, 404.
 */

import type { Key } from '../../auth/keyring.ts';
import type { NamespaceAction } from '../../auth/permissions.ts';
import type { Namespace } from '../../core/namespace.ts';
import type { NamespaceFingerprint } from '../../engine/hold-engine.ts';
import type { KnownNamespaces } from '../../registry/known-namespaces.ts';
import {
  isNamespaceId,
  namespaceNotCreatable,
  namespaceNotFound,
  requireNamespaceName,
  tooManyNamespaces,
} from './namespace-reference.ts';

/** The actions on counters. */
type CounterAction = Extract<
  NamespaceAction,
  'limit' | 'refund' | 'reset' | 'read_namespace' | 'read_override'
>;

export class NamespaceFinder {
  readonly #known: KnownNamespaces;

  constructor(known: KnownNamespaces) {
    this.#known = known;
  }

  /**
   * @param acceptsId whether the text may be an id; checks of v1 accept only names
   * @returns undefined for an unknown name; for `limit` only if the key may create the namespace
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
    // Refund and reset create no namespace; by name they find one that another acceptor created.
    if (known !== undefined || action !== 'limit') return known;
    if (!key.permissions.mayCreateNamespace) throw namespaceNotCreatable(idOrName);
    return undefined;
  }

  /**
   * Whether a key may end or renew a hold of a namespace. An acceptor may not know a new namespace
   * yet. Then only a key that limits in all of them can have the hold.
   */
  mayUseHold({ permissions }: Key, [h0, h1]: NamespaceFingerprint): boolean {
    if (permissions.mayLimitAnywhere) return !this.#known.isDeleted(h0, h1);
    const namespace = this.#known.byFingerprint(h0, h1);
    return namespace !== undefined && permissions.may('limit', namespace.id);
  }

  /** The namespace need not exist. @throws ApiError (403) */
  requirePermission(key: Key, action: CounterAction, idOrName: string): void {
    if (isNamespaceId(idOrName)) key.permissions.require(action, idOrName);
    else key.permissions.requireNamed(action, this.#known.get(idOrName)?.id);
  }

  /** @throws ApiError (400) when not all of these namespaces could be created */
  requireCapacity(names: ReadonlySet<string>): void {
    if (names.size > 0 && names.size > this.#known.freeCount) throw tooManyNamespaces();
  }

  /**
   * A namespace that `find` has not found.
   * @param isUsed whether a counter is written in it; otherwise it is not created
   */
  getOrCreate(name: string, isUsed: boolean): Namespace {
    const known = this.#known.get(name);
    if (known !== undefined) return known;
    if (!isUsed) return this.#known.makeUnregistered(name);
    const created = this.#known.create(name);
    if (created === undefined) throw tooManyNamespaces();
    return created;
  }
}
