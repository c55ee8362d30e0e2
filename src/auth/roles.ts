/**
 * Roles: named sets of permissions for people. The command line and the dashboard replace a role by
 * its permissions when they create a key, so a later change of a set does not change keys. The
 * dashboard loads this file, so it imports types only.
 */

import type { CREATE_NAMESPACE, GlobalPermission, NamespaceAction } from './permissions.ts';

type RolePermission =
  | '*'
  | `ratelimit.*.${NamespaceAction}`
  | typeof CREATE_NAMESPACE
  | GlobalPermission;

interface RoleDeclaration {
  /** Completes "may", for people. */
  meaning: string;
  permissions: readonly RolePermission[];
}

/** What the dashboard shows, except for keys: these concern only those who manage them. */
const VIEWER = [
  'ratelimit.*.read_namespace',
  'ratelimit.*.read_override',
  'ratelimit.*.read_analytics',
  'read_audit',
] as const;

/** No change of this role removes a namespace or its figures, or gives anyone more permissions. */
const OPERATOR = [
  'ratelimit.*.limit',
  'ratelimit.*.set_override',
  'ratelimit.*.delete_override',
  'ratelimit.*.refund',
  'ratelimit.*.reset',
] as const;

/** From the fewest permissions to the most. */
export const ROLES = {
  viewer: {
    meaning: 'see namespaces, counters, overrides, policies, figures and the audit log',
    permissions: VIEWER,
  },
  operator: {
    meaning: 'do what a viewer may, change overrides and blocks, send checks, refund and reset',
    permissions: [...VIEWER, ...OPERATOR],
  },
  admin: { meaning: 'do everything', permissions: ['*'] },
} as const satisfies Record<string, RoleDeclaration>;

export type Role = keyof typeof ROLES;

export const ROLE_NAMES = Object.keys(ROLES) as Role[];

export function isRole(name: string): name is Role {
  return Object.hasOwn(ROLES, name);
}
