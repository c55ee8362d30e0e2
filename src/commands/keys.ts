/**
 * `weir keys`: manages API keys on a running server. With --offline it creates a key in the data
 * directory of a stopped server: the recovery if every key is lost.
 */

import { CREATE_ACTION, GLOBAL_PERMISSIONS, NAMESPACE_ACTIONS } from '../auth/permissions.ts';
import { isRole, ROLE_NAMES, ROLES } from '../auth/roles.ts';
import { formatValue } from '../core/describe.ts';
import { StartError } from '../core/errors.ts';
import { isoTime } from '../shared-memory/clock.ts';
import { CLIENT_EXIT_CODES, type Command, subcommand } from './command.ts';
import { EXPIRES_OPTION, expiresFieldOf, required } from './options.ts';
import { formatCell, formatEnd } from './output.ts';

const DEFAULT_DATA_DIR = './weir-data';

interface NewKey {
  keyId: string;
  key: string;
}

const create = subcommand({
  usage: '--name <name> [--role <role>] [--permission <permission> ...] [options]',
  options: {
    name: { type: 'string', value: '<name>', help: 'a name for the key, shown in lists' },
    role: {
      type: 'string',
      value: '<role>',
      choices: ROLE_NAMES,
      help: `the permissions of a role: ${ROLE_NAMES.join(', ')}`,
    },
    permission: {
      type: 'string',
      multiple: true,
      value: '<permission>',
      choices: [
        '*',
        ...GLOBAL_PERMISSIONS,
        ...[...NAMESPACE_ACTIONS, CREATE_ACTION].map((action) => `ratelimit.*.${action}`),
      ],
      help: 'may be repeated, adds to --role: "*" for all, "keys.create", ...',
    },
    expires: EXPIRES_OPTION,
    offline: { type: 'boolean', help: 'write to the data directory of a stopped server' },
    'data-dir': {
      type: 'string',
      value: '<path>',
      help: `with --offline; default: WEIR_DATA_DIR, else ${DEFAULT_DATA_DIR}`,
    },
  },
  run: async (call) => {
    const { values } = call;
    const name = required('name', values.name);
    const permissions = permissionsOf(values.role, values.permission);
    const fields = { name, permissions, ...expiresFieldOf(values.expires) };
    let created: NewKey;
    if (values.offline) {
      const path = values['data-dir'] ?? process.env.WEIR_DATA_DIR ?? DEFAULT_DATA_DIR;
      created = (await import('./offline.ts')).createKeyOffline(path, fields);
    } else {
      if (values['data-dir'] !== undefined) throw new StartError('--data-dir requires --offline');
      const server = call.server();
      created = await server.post<NewKey>('keys.create', fields);
      if (typeof created.keyId !== 'string' || typeof created.key !== 'string') {
        throw server.unexpectedResponseError(200);
      }
    }
    call.print(created, () => {
      const { keyId, key } = created;
      return `key id: ${keyId}\nkey:    ${key}\nThe key is shown only now: store it safely.`;
    });
    return undefined;
  },
});

/** The permissions of a role, and those that are named. @throws StartError */
function permissionsOf(role: string | undefined, named: string[] | undefined): readonly string[] {
  if (role === undefined && named === undefined) {
    throw new StartError('--role or --permission is required');
  }
  if (role === undefined) return named!;
  if (!isRole(role)) {
    throw new StartError(
      `--role must be one of ${ROLE_NAMES.join(', ')}; got ${formatValue(role)}`,
    );
  }
  return [...new Set([...ROLES[role].permissions, ...(named ?? [])])];
}

interface ListedKey {
  keyId: string;
  name: string;
  permissions: string[];
  createdAt: number;
  expires?: number;
}

const list = subcommand({
  usage: '',
  run: async (call) => {
    const header = ['KEY ID', 'NAME', 'CREATED', 'EXPIRES', 'PERMISSIONS'];
    const row = ({ keyId, name, createdAt, expires, permissions }: ListedKey) => {
      return [
        keyId,
        formatCell(name),
        isoTime(createdAt),
        formatEnd(expires),
        permissions.map(formatCell).join(' '),
      ];
    };
    await call.printList(call.server().listItems('keys.list', 'keys'), header, row);
    return undefined;
  },
});

const revoke = subcommand({
  usage: '<keyId>',
  argumentNames: ['keyId'],
  run: async (call) => {
    const [keyId] = call.positionals;
    const response = await call.server().post<object>('keys.revoke', { keyId });
    call.print(response, () => `Key ${formatCell(keyId)} is revoked.`);
    return undefined;
  },
});

const indented = (text: string) => `  ${text}`;
const roleLines = ROLE_NAMES.map((name) => `${name.padEnd(8)}  ${ROLES[name].meaning}`);

export const keys: Command = {
  subcommands: { create, list, revoke },
  notes: `
A role stands for several permissions, in all namespaces:

${roleLines.map(indented).join('\n')}

The key gets the permissions that the role has now, and keeps them. --permission adds others.
The permission * grants all. Others are ${GLOBAL_PERMISSIONS.join(', ')},
ratelimit.*.<action> for every namespace and ratelimit.<namespaceId>.<action> for one namespace;
weir namespaces list shows the ids. Each <action> is one of

${[...NAMESPACE_ACTIONS, `${CREATE_ACTION} (with ratelimit.* only)`].map(indented).join('\n')}

The key itself is printed once: the server stores only its digest.
`,
  examples: [
    "weir keys create --name gateway --permission 'ratelimit.*.limit' --expires 30d",
    'weir keys create --name ann --role operator',
    'weir keys revoke key_...',
    'weir keys create --name root --role admin --offline --data-dir ./weir-data',
  ],
  exitCodes: CLIENT_EXIT_CODES,
};
