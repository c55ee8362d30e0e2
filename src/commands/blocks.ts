/** `weir blocks`: denies the checks of an identifier for a time, on a running server. */

import type { ResponseOf } from '../api/operations/documentation.ts';
import { isoTime } from '../shared-memory/clock.ts';
import { CLIENT_EXIT_CODES, type Command, subcommand } from './command.ts';
import {
  EXPIRES_OPTION,
  parseExpiry,
  parseNamespace,
  required,
  requireIdentifier,
} from './options.ts';
import { formatCell, quoted } from './output.ts';

const NAMESPACE_OPTIONS = {
  namespace: { type: 'string', value: '<name>', help: 'a name or an id' },
  'namespace-id': { type: 'string', value: '<id>', help: 'the same, for ids only' },
} as const;

const EMPTY_OPTION = {
  'empty-identifier': { type: 'boolean', help: 'allow "" as the identifier' },
} as const;

type Block = ResponseOf<'ratelimits.listBlocks'>['blocks'][number];

const HEADER = ['NAMESPACE', 'IDENTIFIER', 'CREATED', 'EXPIRES', 'DENIED', 'REASON', 'ID'];
const blockRow = ({ namespaceName, identifier, created, expires, reason, usage, id }: Block) => [
  formatCell(namespaceName),
  formatCell(identifier),
  ...[isoTime(created), isoTime(expires)],
  usage === undefined ? 'unknown' : `${usage.applied}`,
  reason === undefined ? '-' : formatCell(reason),
  id,
];

const set = subcommand({
  usage: '<identifier> --namespace <name> --expires <when>',
  argumentNames: ['identifier'],
  options: {
    ...NAMESPACE_OPTIONS,
    expires: EXPIRES_OPTION,
    reason: { type: 'string', value: '<text>', help: 'why: the audit log and explain show it' },
    ...EMPTY_OPTION,
  },
  run: async (call) => {
    const { values, positionals } = call;
    const namespace = parseNamespace(values);
    const identifier = requireIdentifier(positionals[0], values['empty-identifier']);
    const expires = parseExpiry('expires', required('expires', values.expires));
    const response = await call.server().post<object>('ratelimits.setBlock', {
      ...namespace.fields,
      identifier,
      expires,
      ...(values.reason !== undefined && { reason: values.reason }),
    });
    call.print(response, () => {
      const place = `in the namespace ${quoted(namespace.text)}`;
      return `${quoted(identifier)} is blocked ${place} until ${isoTime(expires)}.`;
    });
    return undefined;
  },
});

const list = subcommand({
  usage: '[--namespace <name>]',
  options: NAMESPACE_OPTIONS,
  run: async (call) => {
    const { values } = call;
    const isOfAll = values.namespace === undefined && values['namespace-id'] === undefined;
    const fields = isOfAll ? {} : parseNamespace(values).fields;
    const items = call.server().listItems('ratelimits.listBlocks', 'blocks', fields);
    await call.printList(items, HEADER, blockRow);
    return undefined;
  },
});

const remove = subcommand({
  usage: '<identifier> --namespace <name>',
  argumentNames: ['identifier'],
  options: { ...NAMESPACE_OPTIONS, ...EMPTY_OPTION },
  run: async (call) => {
    const { values, positionals } = call;
    const namespace = parseNamespace(values);
    const identifier = requireIdentifier(positionals[0], values['empty-identifier']);
    const fields = { ...namespace.fields, identifier };
    const response = await call.server().post<object>('ratelimits.deleteBlock', fields);
    call.print(response, () => {
      const place = `in the namespace ${quoted(namespace.text)}`;
      return `${quoted(identifier)} is not blocked any more ${place}.`;
    });
    return undefined;
  },
});

export const blocks: Command = {
  subcommands: { set, list, delete: remove },
  notes: `
A block denies every check and every lease of one identifier in one namespace, until its end. * is
a character in the identifier. A block replaces no override: what applied before applies again. A
set of a blocked identifier changes the end and the reason.

DENIED counts the checks and acquires that the server that answers has denied.
`,
  examples: [
    'weir blocks set user_8241 --namespace email.send --expires 1h --reason "ticket 5512"',
    'weir blocks list',
    'weir blocks delete user_8241 --namespace email.send',
  ],
  exitCodes: CLIENT_EXIT_CODES,
};
