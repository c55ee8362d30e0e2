/** The tables of permissions: the forms of a permission, and what each operation requires. */

import {
  COUNTER_OPERATIONS,
  type CounterOperationName,
  OPERATIONS,
} from '../../src/api/common/operations.ts';
import { AUTH_REQUEST_PATH, CHECK_PATH } from '../../src/api/common/paths.ts';
import {
  CREATE_NAMESPACE,
  GLOBAL_PERMISSIONS,
  NAMESPACE_ACTIONS,
} from '../../src/auth/permissions.ts';
import { inlineCode, markdownTable } from './markdown.ts';
import { type ApiOperation, OPERATION_DOCS } from './operations.ts';

const SPECS = { ...COUNTER_OPERATIONS, ...OPERATIONS } satisfies Record<ApiOperation, unknown>;
const OPERATION_NAMES = Object.keys(OPERATION_DOCS) as ApiOperation[];
/** The operation whose permission gateway checks require. */
const CHECK: CounterOperationName = 'ratelimits.limit';
/** Operations that list what the key may read in each namespace. */
const LISTS: readonly ApiOperation[] = ['ratelimits.listNamespaces', 'ratelimits.listPolicies'];

export function permissionsTables(): string {
  return [formsTable(), operationsTable()].join('\n\n');
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
        const names = OPERATION_NAMES.filter((name) => actionsOf(name).includes(permission));
        return [inlineCode(permission), `The operation ${codeList(names)}.`];
      }),
    ],
  );
}

function operationsTable(): string {
  const rows = OPERATION_NAMES.map((name) => {
    const { method, version } = SPECS[name];
    return [
      inlineCode(`${method} /${version}/${name}`),
      OPERATION_DOCS[name].summary,
      requirementOf(name),
    ];
  });
  const gatewayPaths = [CHECK_PATH, AUTH_REQUEST_PATH].map((path) => `${path}<namespace>`);
  return markdownTable(
    ['operation', 'what it does', 'requires'],
    [
      ...rows,
      [
        gatewayPaths.map(inlineCode).join('<br>'),
        'Check a request of a gateway',
        `${requirementOf(CHECK)}; no key on the listener for gateways`,
      ],
    ],
  );
}

/** For example "`limit` in the namespace". */
function requirementOf(name: ApiOperation): string {
  const { permissions, alsoRequires } = OPERATION_DOCS[name];
  const [action] = actionsOf(name);
  if (action === permissions[0]) return inlineCode(action);
  if (permissions.length === 1) return `${inlineCode(action)} in all namespaces`;
  if (alsoRequires !== undefined) {
    const also = inlineCode(actionOf(alsoRequires[0]));
    return `${inlineCode(action)} and ${also} in the namespace`;
  }
  return `${inlineCode(action)} in ${LISTS.includes(name) ? 'each listed' : 'the'} namespace`;
}

/** The actions or global permissions that an operation requires. */
function actionsOf(name: ApiOperation): string[] {
  return OPERATION_DOCS[name].permissions.map(actionOf);
}

function actionOf(permission: string): string {
  return permission.replace(/^ratelimit\.[^.]*\./, '');
}

function codeList(names: readonly string[]): string {
  return names.map(inlineCode).join(', ');
}
