import { describe, expect, test } from 'vitest';
import { Permissions, readPermission } from '../../src/auth/permissions.ts';
import { ROLE_NAMES, ROLES } from '../../src/auth/roles.ts';
import { rolesTable } from '../../tools/docs/permissions.ts';

describe('roles', () => {
  test('have valid permissions, and each has those of the role before it', () => {
    expect(ROLE_NAMES).toEqual(['viewer', 'operator', 'admin']);
    let before: readonly string[] = [];
    for (const name of ROLE_NAMES) {
      const { permissions } = ROLES[name];
      expect(permissions.map(readPermission)).toEqual(permissions.map(() => true));
      const role = new Permissions(permissions);
      expect([name, before.filter((one) => !role.grants(one))]).toEqual([name, []]);
      before = permissions;
    }
  });

  test('viewer changes nothing, and operator gives nobody permissions and deletes no namespace', () => {
    const reads = ROLES.viewer.permissions.every((one) => /(^|\.)read_\w+$/.test(one));
    expect(reads).toBe(true);
    const operator = new Permissions(ROLES.operator.permissions);
    for (const permission of [
      ...['keys.create', 'keys.read', 'keys.revoke', '*'],
      ...['ratelimit.*.delete_namespace', 'ratelimit.*.create_namespace'],
    ]) {
      expect([permission, operator.grants(permission)]).toEqual([permission, false]);
    }
  });

  test('are documented with all of their permissions', () => {
    const rows = rolesTable().split('\n').slice(2);
    const listed = rows.map((row) => [...row.matchAll(/`([^`]+)`/g)].map(([, name]) => name));
    expect(listed).toEqual(ROLE_NAMES.map((name) => [name, ...ROLES[name].permissions]));
  });
});
