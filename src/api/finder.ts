/**
 * From how a check names its namespace to the namespace, for a key that may do there what it asks:
 * on an acceptor. Failures are ApiErrors, in the order 400, 403, 404.
 */

import type { Key } from '../auth/keyring.ts';
import type { NamespaceAction } from '../auth/permissions.ts';
import type { KnownNamespaces, Namespace } from '../namespaces/known.ts';
import { isId, noNamespace, requireName, tooManyNamespaces, unknownNamespace } from './named.ts';

/** What is done to counters. */
export type CounterAction = Extract<NamespaceAction, 'limit' | 'refund' | 'reset'>;

export class NamespaceFinder {
  readonly #known: KnownNamespaces;

  constructor(known: KnownNamespaces) {
    this.#known = known;
  }

  /**
   * @param takesId else the text has to be a name, as v1 has it
   * @returns undefined where it is not there yet, and may be created
   */
  find(key: Key, action: CounterAction, text: string, takesId = true): Namespace | undefined {
    const known = this.#known.get(text);
    if (known !== undefined && action === 'limit' && key.permissions.mayLimitAnywhere) return known;
    if (!takesId) requireName('namespace', text);
    this.require(key, action, text);
    if (isId(text)) {
      const byId = this.#known.byId(text);
      if (byId === undefined) throw noNamespace({ id: text });
      return byId;
    }
    // What corrects counters makes none: one that another acceptor has just made is found by name.
    if (known !== undefined || action !== 'limit') return known;
    if (!key.permissions.mayCreateNamespace) throw unknownNamespace(text);
    return undefined;
  }

  /** Whether or not there is such a namespace. @throws ApiError (403) */
  require(key: Key, action: CounterAction, text: string): void {
    if (isId(text)) key.permissions.require(action, text);
    else key.permissions.requireNamed(action, this.#known.get(text)?.id);
  }

  /** @throws ApiError (400) where not all of so many names could be created */
  requireRoom(names: ReadonlySet<string>): void {
    if (names.size > 0 && names.size > this.#known.room) throw tooManyNamespaces();
  }

  /** What `find` has not found. Only what is used is created. */
  toUse(name: string, isUsed: boolean): Namespace {
    const known = this.#known.get(name);
    if (known !== undefined) return known;
    if (!isUsed) return this.#known.unregistered(name);
    const created = this.#known.create(name);
    if (created === undefined) throw tooManyNamespaces();
    return created;
  }
}
