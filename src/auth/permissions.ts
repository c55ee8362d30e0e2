/**
 * What a key may do. `*` grants all; an action on namespaces is granted everywhere by
 * `ratelimit.*.<action>` and in one by `ratelimit.<namespaceId>.<action>`; what is done to keys,
 * and reading the audit log, have permissions of their own.
 */

import { NAMESPACE_ID_PREFIX } from '../core/constants.ts';
import { ApiError } from '../core/errors.ts';
import { nearestName } from '../core/nearest.ts';

/** Of no namespace that there is: allowed in all of them, or not at all. */
export const CREATE_ACTION = 'create_namespace';
export const CREATE_NAMESPACE = `ratelimit.*.${CREATE_ACTION}`;

/** What can be allowed in a namespace. */
export const NAMESPACE_ACTIONS = [
  'limit',
  'read_namespace',
  'set_override',
  'read_override',
  'delete_override',
  'refund',
  'reset',
  'read_analytics',
] as const;
export type NamespaceAction = (typeof NAMESPACE_ACTIONS)[number];

/** Of no namespace. */
export const GLOBAL_PERMISSIONS = [
  'keys.create',
  'keys.read',
  'keys.revoke',
  'read_audit',
] as const;
export type GlobalPermission = (typeof GLOBAL_PERMISSIONS)[number];

export class Permissions {
  /** May check in every namespace, and create one by checking in it: asked on each check. */
  readonly mayLimitAnywhere: boolean;
  readonly mayCreateNamespace: boolean;
  readonly #granted: ReadonlySet<string>;
  readonly #grantsAll: boolean;

  constructor(granted: readonly string[]) {
    this.#granted = new Set(granted);
    this.#grantsAll = this.#granted.has('*');
    this.mayLimitAnywhere = this.may('limit', undefined);
    this.mayCreateNamespace = this.#has(CREATE_NAMESPACE);
  }

  /** @param namespaceId undefined where the namespace has none that the caller could know */
  may(action: NamespaceAction, namespaceId: string | undefined): boolean {
    if (this.#has(`ratelimit.*.${action}`)) return true;
    return namespaceId !== undefined && this.#granted.has(`ratelimit.${namespaceId}.${action}`);
  }

  /** Whether an action is granted in any namespace at all. */
  mayInSomeNamespace(action: NamespaceAction): boolean {
    if (this.may(action, undefined)) return true;
    return [...this.#granted].some((permission) => permission.endsWith(`.${action}`));
  }

  /** Whether it grants all that a permission does. */
  grants(permission: string): boolean {
    const namespace = NAMESPACE_PERMISSION.exec(permission);
    if (namespace === null) return this.#has(permission);
    return this.#has(permission) || this.#has(`ratelimit.*.${namespace[2]}`);
  }

  /**
   * @param namespaceId undefined for all namespaces
   * @throws ApiError (403) that names what would do
   */
  require(action: NamespaceAction, namespaceId: string | undefined): void {
    if (this.may(action, namespaceId)) return;
    const everywhere = `ratelimit.*.${action}`;
    throw missingPermissionError(
      namespaceId === undefined ? [everywhere] : [everywhere, `ratelimit.${namespaceId}.${action}`],
    );
  }

  /**
   * The same where the caller knows a name: nobody else is told the id of the namespace, nor
   * whether there is one.
   * @param namespaceId undefined where there is none
   */
  requireNamed(action: NamespaceAction, namespaceId: string | undefined): void {
    if (this.may(action, namespaceId)) return;
    const isKnown = namespaceId !== undefined && this.may('read_namespace', namespaceId);
    this.require(action, isKnown ? namespaceId : '<namespaceId>');
  }

  /** @throws ApiError (403) that names it */
  requireGlobal(permission: GlobalPermission): void {
    if (!this.#has(permission)) throw missingPermissionError([permission]);
  }

  #has(permission: string): boolean {
    return this.#grantsAll || this.#granted.has(permission);
  }
}

export function missingPermissionError(permissions: readonly string[]): ApiError {
  const names = permissions.map((permission) => `"${permission}"`).join(' or ');
  return new ApiError('FORBIDDEN', `the API key lacks the permission ${names}`);
}

const NAMESPACE_PERMISSION = /^ratelimit\.([^.]+)\.([a-z_]+)$/;

/**
 * Whether a text is a permission.
 * @returns false, or the id of the namespace that it names, or true where it names none
 */
export function readPermission(text: string): boolean | { namespaceId: string } {
  if (text === '*' || text === CREATE_NAMESPACE) return true;
  if (GLOBAL_PERMISSIONS.some((permission) => permission === text)) return true;
  const [, namespaceId, action] = NAMESPACE_PERMISSION.exec(text) ?? [];
  if (!NAMESPACE_ACTIONS.some((known) => known === action)) return false;
  if (namespaceId === '*') return true;
  return namespaceId.startsWith(NAMESPACE_ID_PREFIX) && { namespaceId };
}

/** What a text that is no permission was probably meant to have: an action, or all of it. */
export function nearestPermission(text: string): string | undefined {
  const [, place, action] = /^ratelimit\.(.+)\.([^.]*)$/s.exec(text) ?? [];
  if (action === undefined) return nearestName(text, GLOBAL_PERMISSIONS);
  return nearestName(
    action,
    place === '*' ? [...NAMESPACE_ACTIONS, CREATE_ACTION] : NAMESPACE_ACTIONS,
  );
}

/** The name of a namespace in a text that would be a permission if its id were there instead. */
export function namespaceNameIn(text: string): string | undefined {
  const [, name, action] = /^ratelimit\.(.+)\.([a-z_]+)$/s.exec(text) ?? [];
  if (name === undefined || name === '*' || name.startsWith(NAMESPACE_ID_PREFIX)) return undefined;
  return NAMESPACE_ACTIONS.some((known) => known === action) ? name : undefined;
}
