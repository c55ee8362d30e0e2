/**
 * The namespaces of a list of checks. None is created unless the key has the permissions for all of
 * them, and there is room for those that are missing.
 */

import type { Key } from '../../auth/keyring.ts';
import { ApiError } from '../../core/errors.ts';
import type { Namespace } from '../../core/namespace.ts';
import type { CheckRequest } from './check-request.ts';
import type { NamespaceFinder } from './namespace-finder.ts';

/**
 * Sets the namespace of each check.
 * @param listName as in `ApiError.forListItem`
 * @param createsWithoutCost whether checks with a cost of 0 create namespaces too
 * @throws ApiError (403, 404), which names the check
 */
export function resolveNamespaces(
  namespaces: NamespaceFinder,
  key: Key,
  checks: readonly CheckRequest[],
  listName: string,
  createsWithoutCost: boolean,
): void {
  let index = 0;
  try {
    // A 403 for any check has precedence over a 404 for another.
    const mayAll = key.permissions.mayLimitAnywhere;
    for (index = 0; index < checks.length && !mayAll; index++) {
      namespaces.requirePermission(key, 'limit', checks[index].namespaceIdOrName);
    }
    const missing: number[] = [];
    const created = new Set<string>();
    let last: string | undefined;
    let namespace: Namespace | undefined;
    for (index = 0; index < checks.length; index++) {
      const check = checks[index];
      // Most checks of a batch name the same namespace, and comparing costs less than a look-up.
      if (check.namespaceIdOrName !== last)
        namespace = namespaces.find(key, 'limit', check.namespaceIdOrName);
      last = check.namespaceIdOrName;
      if (namespace !== undefined) {
        check.namespace = namespace;
        continue;
      }
      missing.push(index);
      if (check.cost === 0 && !createsWithoutCost) continue;
      created.add(check.namespaceIdOrName);
      namespaces.requireCapacity(created);
    }
    for (index of missing) {
      const check = checks[index];
      const { namespaceIdOrName: name } = check;
      // A check without a cost is one of the namespace that another check of the list creates.
      check.namespace = namespaces.getOrCreate(name, created.has(name));
    }
  } catch (error) {
    throw error instanceof ApiError ? error.forListItem(listName, index) : error;
  }
}
