/** The tables of permissions: the forms of a permission, and what each operation requires. */

import { pathOf, type Requirement } from '../../src/api/common/operation.ts';
import { AUTH_REQUEST_PATH, CHECK_PATH } from '../../src/api/common/paths.ts';
import { DOCUMENTED } from '../../src/api/operations/documentation.ts';
import { limitV1 } from '../../src/api/operations/v1/limit.ts';
import {
  CREATE_NAMESPACE,
  GLOBAL_PERMISSIONS,
  NAMESPACE_ACTIONS,
} from '../../src/auth/permissions.ts';
import { ROLE_NAMES, ROLES } from '../../src/auth/roles.ts';
import { inlineCode, markdownTable } from './markdown.ts';

export function permissionsTables(): string {
  return [formsTable(), operationsTable()].join('\n\n');
}

export function rolesTable(): string {
  const rows = ROLE_NAMES.map((name) => {
    const { meaning, permissions } = ROLES[name];
    return [inlineCode(name), meaning, codeList(permissions)];
  });
  return markdownTable(['role', 'may', 'permissions'], rows);
}

function formsTable(): string {
  return markdownTable(
    ['permission', 'grants'],
    [
      [inlineCode('*'), 'Every operation in every namespace. A root key has this permission.'],
      [
        inlineCode('ratelimit.*.<action>'),
        'One action in all namespaces, also in those that are created later. A pattern of ' +
          `namespaces requires it. The actions are ${codeList(NAMESPACE_ACTIONS)}.`,
      ],
      [inlineCode('ratelimit.<namespaceId>.<action>'), 'One action in one namespace.'],
      [
        inlineCode(CREATE_NAMESPACE),
        'A check or an override with a new name creates the namespace.',
      ],
      ...GLOBAL_PERMISSIONS.map((permission) => {
        const operations = DOCUMENTED.filter(({ requires }) => {
          return 'permission' in requires && requires.permission === permission;
        });
        const names = operations.map(({ name }) => name);
        return [inlineCode(permission), `The operation ${codeList(names)}.`];
      }),
    ],
  );
}

function operationsTable(): string {
  const rows = DOCUMENTED.map((operation) => {
    const { method, summary, requires } = operation;
    return [inlineCode(`${method} ${pathOf(operation)}`), summary, requirementText(requires)];
  });
  const gatewayPaths = [CHECK_PATH, AUTH_REQUEST_PATH].map((path) => `${path}<namespace>`);
  return markdownTable(
    ['operation', 'what it does', 'requires'],
    [
      ...rows,
      [
        gatewayPaths.map(inlineCode).join('<br>'),
        'Check a request of a gateway',
        `${requirementText(limitV1.requires)}; no key on the listener for gateways`,
      ],
    ],
  );
}

/** For example "`limit` in the namespace". */
function requirementText(requires: Requirement): string {
  if ('permission' in requires) return inlineCode(requires.permission);
  const { action, and, in: where } = requires;
  const also = and === undefined ? '' : ` and ${inlineCode(and)}`;
  return `${inlineCode(action)}${also} in ${where}`;
}

function codeList(names: readonly string[]): string {
  return names.map(inlineCode).join(', ');
}
