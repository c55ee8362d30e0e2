/**
 * The permissions of a key or a role. `*` grants everything. `ratelimit.*.<action>` grants an
 * action in all namespaces, `ratelimit.<namespaceId>.<action>` in one. Operations on keys and
 * reading the audit log have global permissions.
 */

import { NAMESPACE_ID_PREFIX } from '../core/constants.ts';
import { ApiError } from '../core/errors.ts';
import { nearestName } from '../core/nearest.ts';

/** Concerns a namespace without an id, so it can be granted only for all namespaces. */
export const CREATE_ACTION = 'create_namespace';
export const CREATE_NAMESPACE = `ratelimit.*.${CREATE_ACTION}`;

/** Actions that can be granted for one namespace. */
export const NAMESPACE_ACTIONS = [
  'limit',
  'read_namespace',
  'delete_namespace',
  'set_override',
  'read_override',
  'delete_override',
  'refund',
  'reset',
  'read_analytics',
] as const;
export type NamespaceAction = (typeof NAMESPACE_ACTIONS)[number];

/** Permissions that do not concern a namespace. */
export const GLOBAL_PERMISSIONS = [
  'keys.create',
  'keys.read',
  'keys.revoke',
  'read_audit',
] as const;
export type GlobalPermission = (typeof GLOBAL_PERMISSIONS)[number];

export class Permissions {
  /** These two are computed once, because checks read them. */
  readonly mayLimitAnywhere: boolean;
  readonly mayCreateNamespace: boolean;
  readonly #granted: ReadonlySet<string>;
  readonly #grantsAll: boolean;
  readonly #holder: string;

  /** @param holder who has them, for messages */
  constructor(granted: readonly string[], holder = 'the API key') {
    this.#holder = holder;
    this.#granted = new Set(granted);
    this.#grantsAll = this.#granted.has('*');
    this.mayLimitAnywhere = this.may('limit', undefined);
    this.mayCreateNamespace = this.#has(CREATE_NAMESPACE);
  }

  /** @param namespaceId undefined if the namespace has no id that the client could know */
  may(action: NamespaceAction, namespaceId: string | undefined): boolean {
    if (this.#has(`ratelimit.*.${action}`)) return true;
    return namespaceId !== undefined && this.#granted.has(`ratelimit.${namespaceId}.${action}`);
  }

  /** Whether an action is granted in at least one namespace. */
  mayInSomeNamespace(action: NamespaceAction): boolean {
    if (this.may(action, undefined)) return true;
    return [...this.#granted].some((permission) => permission.endsWith(`.${action}`));
  }

  /** Whether these permissions include another one. */
  grants(permission: string): boolean {
    const namespace = NAMESPACE_PERMISSION.exec(permission);
    if (namespace === null) return this.#has(permission);
    return this.#has(permission) || this.#has(`ratelimit.*.${namespace[2]}`);
  }

  /**
   * @param namespaceId undefined for all namespaces
   * @throws ApiError (403) that names the permissions, one of which is sufficient
   */
  require(action: NamespaceAction, namespaceId: string | undefined): void {
    if (this.may(action, namespaceId)) return;
    const everywhere = `ratelimit.*.${action}`;
    throw this.missing(
      namespaceId === undefined ? [everywhere] : [everywhere, `ratelimit.${namespaceId}.${action}`],
    );
  }

  /**
   * The same for a namespace that the request names. Unless the key may read the namespace, the
   * error reveals neither its id nor whether it exists.
   * @param namespaceId undefined if the namespace does not exist
   */
  requireNamed(action: NamespaceAction, namespaceId: string | undefined): void {
    if (this.may(action, namespaceId)) return;
    const isKnown = namespaceId !== undefined && this.may('read_namespace', namespaceId);
    this.require(action, isKnown ? namespaceId : '<namespaceId>');
  }

  /** @throws ApiError (403) that names the permission */
  requireGlobal(permission: GlobalPermission): void {
    if (!this.#has(permission)) throw this.missing([permission]);
  }

  /** The error (403) that names the permissions, one of which is sufficient. */
  missing(permissions: readonly string[]): ApiError {
    const names = permissions.map((permission) => `"${permission}"`).join(' or ');
    return new ApiError('FORBIDDEN', `${this.#holder} lacks the permission ${names}`);
  }

  #has(permission: string): boolean {
    return this.#grantsAll || this.#granted.has(permission);
  }
}

const NAMESPACE_PERMISSION = /^ratelimit\.([^.]+)\.([a-z_]+)$/;

/**
 * Parses a permission.
 * @returns false for an invalid text; the id of the namespace, or true if it names none
 */
export function readPermission(text: string): boolean | { namespaceId: string } {
  if (text === '*' || text === CREATE_NAMESPACE) return true;
  if (GLOBAL_PERMISSIONS.some((permission) => permission === text)) return true;
  const [, namespaceId, action] = NAMESPACE_PERMISSION.exec(text) ?? [];
  if (!NAMESPACE_ACTIONS.some((known) => known === action)) return false;
  if (namespaceId === '*') return true;
  return namespaceId.startsWith(NAMESPACE_ID_PREFIX) && { namespaceId };
}

/** A suggestion for an invalid permission: the nearest action, or the nearest permission. */
export function nearestPermission(text: string): string | undefined {
  const [, namespace, action] = /^ratelimit\.(.+)\.([^.]*)$/s.exec(text) ?? [];
  if (action === undefined) return nearestName(text, GLOBAL_PERMISSIONS);
  return nearestName(
    action,
    namespace === '*' ? [...NAMESPACE_ACTIONS, CREATE_ACTION] : NAMESPACE_ACTIONS,
  );
}

/** The namespace in a text that is a permission except that it has a name instead of an id. */
export function namespaceNameIn(text: string): string | undefined {
  const [, name, action] = /^ratelimit\.(.+)\.([a-z_]+)$/s.exec(text) ?? [];
  if (name === undefined || name === '*' || name.startsWith(NAMESPACE_ID_PREFIX)) return undefined;
  return NAMESPACE_ACTIONS.some((known) => known === action) ? name : undefined;
}
