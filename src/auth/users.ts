/**
 * Users of the dashboard whom a proxy in front of it has signed in, and their roles. A user has no
 * key. Where operations take the id of a key, they also take the id of a user.
 */

import { USER_NAME_MAX_CHARACTERS } from '../core/constants.ts';
import { formatValue } from '../core/describe.ts';
import { Permissions } from './permissions.ts';
import { isRole, ROLES, type Role } from './roles.ts';

/** The id of a key begins with `key_`. */
const USER_ID_PREFIX = 'user:';
/** In the setting of the roles it stands for all users that are not named. */
const EVERYBODY_ELSE = '*';
const DEFAULT_ROLE: Role = 'viewer';

/** Names in ASCII cannot look like each other by other letters or invisible characters. */
const USER_NAME = new RegExp(`^(?! )[\\x20-\\x7e]{1,${USER_NAME_MAX_CHARACTERS}}(?<! )$`);
export const USER_NAME_RULE =
  `1 to ${USER_NAME_MAX_CHARACTERS} printable ASCII characters ` +
  'without spaces at the beginning and the end';

export function isUserName(name: string): boolean {
  return USER_NAME.test(name);
}

export function userId(name: string): string {
  return USER_ID_PREFIX + name;
}

/** @returns undefined for the id of a key */
export function userNameOf(id: string): string | undefined {
  return id.startsWith(USER_ID_PREFIX) ? id.slice(USER_ID_PREFIX.length) : undefined;
}

export function permissionsOfRole(role: Role): Permissions {
  return new Permissions(ROLES[role].permissions, `the role "${role}"`);
}

export class UserRoles {
  readonly #roles: ReadonlyMap<string, Role>;

  /** @param text the valid setting; undefined where it is not set */
  constructor(text: string | undefined) {
    this.#roles = new Map(text?.split(',').map((pair) => readPair(pair) as [string, Role]));
  }

  roleOf(name: string): Role {
    return this.#roles.get(name) ?? this.#roles.get(EVERYBODY_ELSE) ?? DEFAULT_ROLE;
  }
}

/** @returns the first invalid pair of the setting, as a message shows it */
export function describeInvalidRoles(text: string): string | undefined {
  const names = new Set<string>();
  for (const pair of text.split(',')) {
    const [name, role] = readPair(pair);
    if (!isUserName(name) || !isRole(role)) return `${formatValue(pair)} in ${formatValue(text)}`;
    if (names.has(name)) return `two roles for ${formatValue(name)}`;
    names.add(name);
  }
  return undefined;
}

/** A name may contain a `=`. */
function readPair(pair: string): [name: string, role: string] {
  const at = Math.max(0, pair.lastIndexOf('='));
  return [pair.slice(0, at).trim(), pair.slice(at + 1).trim()];
}
