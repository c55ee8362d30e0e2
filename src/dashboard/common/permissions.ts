/**
 * What a key may do, by its permissions. It decides only which views and buttons are shown: the
 * server checks every operation. `src/auth/permissions.ts` has the rules.
 */

import type {
  GLOBAL_PERMISSIONS,
  NAMESPACE_ACTIONS,
  NamespaceAction,
} from '../../auth/permissions.ts';

type GlobalPermission = (typeof GLOBAL_PERMISSIONS)[number];

/** All actions with what they permit, for the form that creates a key. */
export const ACTIONS: Record<(typeof NAMESPACE_ACTIONS)[number], string> = {
  limit: 'send checks',
  read_namespace: 'see the namespace, its policy and counters',
  delete_namespace: 'delete the namespace, with its overrides and figures',
  set_override: 'add and change overrides and blocks',
  read_override: 'see overrides and blocks',
  delete_override: 'delete overrides and blocks',
  refund: 'return tokens',
  reset: 'reset counters',
  read_analytics: 'see figures',
};
export const GLOBALS: Record<GlobalPermission, string> = {
  'keys.create': 'create keys',
  'keys.read': 'list keys',
  'keys.revoke': 'revoke keys',
  read_audit: 'read the audit log',
};
export const CREATE_NAMESPACE = 'ratelimit.*.create_namespace';

export class Grant {
  readonly #permissions: readonly string[];

  constructor(permissions: readonly string[]) {
    this.#permissions = permissions;
  }

  has(permission: GlobalPermission | typeof CREATE_NAMESPACE | '*'): boolean {
    return this.#permissions.includes('*') || this.#permissions.includes(permission);
  }

  /** Whether a new key may have these permissions, each for all namespaces. */
  mayGrant(permissions: readonly string[]): boolean {
    const all = this.#permissions;
    return all.includes('*') || permissions.every((permission) => all.includes(permission));
  }

  /** @param namespaceId undefined for all namespaces */
  may(action: NamespaceAction, namespaceId?: string): boolean {
    const accepted = ['*', `ratelimit.*.${action}`];
    if (namespaceId !== undefined) accepted.push(`ratelimit.${namespaceId}.${action}`);
    return accepted.some((permission) => this.#permissions.includes(permission));
  }

  /** Whether an action is permitted in at least one namespace. */
  mayInSome(action: NamespaceAction): boolean {
    return (
      this.may(action) || this.#permissions.some((permission) => permission.endsWith(`.${action}`))
    );
  }
}
