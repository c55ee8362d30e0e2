/**
 * `weir audit`: prints the audit log of a running server, newest entry first. Fields that this
 * version does not know, for example those of a later server, are printed as key=value.
 */

import { formatDuration } from '../core/duration.ts';
import { AUDIT_ACTIONS } from '../registry/store/schema.ts';
import { isoTime, systemMs } from '../shared-memory/clock.ts';
import { CLIENT_EXIT_CODES, type Command, subcommand } from './command.ts';
import { parseDuration, parseInteger } from './options.ts';
import { formatCell, formatCount, quoted } from './output.ts';
import type { RequestFields, ServerClient } from './server-client.ts';

const DEFAULT_LIMIT = 100;
/** The largest page that the server accepts. */
const PAGE_SIZE = 100;
const HEADER = ['TIME', 'ID', 'ACTION', 'BY', 'TARGET', 'CHANGE'];
const EMPTY_CELL = '-';

type Fields = Readonly<Record<string, unknown>>;

const list = subcommand({
  usage: '[options]',
  options: {
    action: {
      type: 'string',
      value: '<action>',
      choices: AUDIT_ACTIONS,
      help: 'only this one, such as override.update',
    },
    by: {
      type: 'string',
      value: '<author>',
      help: 'only changes by this key (its id or name), user or source',
    },
    namespace: { type: 'string', value: '<namespace>', help: 'only this one: a name or an id' },
    target: { type: 'string', value: '<text>', help: 'only targets that contain it' },
    last: {
      type: 'string',
      value: '<duration>',
      help: 'how far to look back, such as 3h or 7d; default: the whole log',
    },
    limit: { type: 'string', value: '<n>', help: `the newest n; default: ${DEFAULT_LIMIT}` },
  },
  run: async (call) => {
    const { limit = String(DEFAULT_LIMIT), last, action, by, namespace, target } = call.values;
    const count = parseInteger('limit', limit, 1);
    const start = last === undefined ? undefined : systemMs() - parseDuration('last', last);
    const filter = { action, by, namespace, target, start };
    await call.printList(newestEntries(call.server(), filter, count), HEADER, entryRow);
    return undefined;
  },
});

async function* newestEntries(
  server: ServerClient,
  filter: RequestFields,
  limit: number,
): AsyncGenerator<object> {
  let remaining = limit;
  for await (const entry of server.listItems('audit.list', 'entries', {
    ...filter,
    limit: Math.min(remaining, PAGE_SIZE),
  })) {
    yield entry;
    if (--remaining === 0) return;
  }
}

function entryRow({ at, id, action, target, ...rest }: Fields): string[] {
  const { keyId, keyName, by, user, ...others } = rest;
  const time = typeof at === 'number' ? isoTime(at) : valueCell(at);
  return [
    time,
    valueCell(id),
    valueCell(action),
    authorText({ keyId, keyName, by, user }),
    targetText(action, target),
    changeText(others),
  ];
}

/** The source and its user, or the key: its name and its id. */
function authorText({ keyId, keyName, by, user }: Fields): string {
  const source = typeof by === 'string' && /^[\w ]+$/.test(by) ? by : valueCell(keyId ?? by);
  if (user !== undefined) return `${source} ${valueCell(user)}`;
  return keyName === undefined ? source : `${valueCell(keyName)} ${source}`;
}

/** Formatters of targets, by the first word of the action (before the dot). */
const TARGET_FORMATTERS: Readonly<Record<string, (target: Fields) => string | undefined>> = {
  key: ({ name, keyId }) => {
    return areStrings(name, keyId) ? `${valueCell(name)} ${valueCell(keyId)}` : undefined;
  },
  block: ({ namespace, identifier }) => {
    return areStrings(namespace, identifier)
      ? `${valueCell(namespace)} ${quoted(identifier as string)}`
      : undefined;
  },
  override: ({ namespace, identifier, cidr }) => {
    return areStrings(namespace, identifier)
      ? `${valueCell(namespace)} ${quoted(identifier as string)}${cidr === true ? ' (CIDR)' : ''}`
      : undefined;
  },
  overrides: ({ namespaceCount }) => {
    return typeof namespaceCount === 'number'
      ? formatCount(namespaceCount, 'namespace')
      : undefined;
  },
  hold: ({ namespace, identifier, kind, handle }) => {
    return areStrings(namespace, identifier, kind, handle)
      ? [valueCell(namespace), quoted(identifier as string), kind, valueCell(handle)].join(' ')
      : undefined;
  },
  policy: ({ namespace }) => (areStrings(namespace) ? valueCell(namespace) : undefined),
  namespace: ({ namespace, namespaceId }) => {
    return areStrings(namespace, namespaceId)
      ? `${valueCell(namespace)} ${valueCell(namespaceId)}`
      : undefined;
  },
};

function targetText(action: unknown, target: unknown): string {
  if (!isFields(target)) return valueCell(target);
  const kind = String(action).split('.')[0];
  const known = Object.hasOwn(TARGET_FORMATTERS, kind)
    ? TARGET_FORMATTERS[kind](target)
    : undefined;
  return known ?? (fieldsText(target) || EMPTY_CELL);
}

/** The fields of a created or deleted target; of an updated one, the fields that differ. */
function changeText({ before, after, counts, ...unknown }: Fields): string {
  const isUpdate = isFields(before) && isFields(after);
  const texts = isUpdate ? [differenceText(before, after)] : [before, after].map(fieldsOrValueText);
  return (
    [...texts, fieldsOrValueText(counts), fieldsText(unknown)].filter(Boolean).join(' ') ||
    EMPTY_CELL
  );
}

function fieldsOrValueText(value: unknown): string {
  if (value === undefined) return '';
  return isFields(value) ? fieldsText(value) : valueCell(value);
}

function differenceText(before: Fields, after: Fields): string {
  return Object.keys({ ...before, ...after })
    .map((name) => [name, ...[before, after].map((fields) => valueText(name, fields[name]))])
    .filter(([, old, updated]) => old !== updated)
    .map(([name, old, updated]) => `${formatCell(name)}: ${old} -> ${updated}`)
    .join(', ');
}

function fieldsText(fields: Fields): string {
  const { permissions, permissionCount } = fields;
  const isComplete = Array.isArray(permissions) && permissions.length === permissionCount;
  return Object.entries(fields)
    .filter(([name]) => name !== 'permissionCount' || !isComplete)
    .map(([name, value]) => `${formatCell(name)}=${valueText(name, value)}`)
    .join(' ');
}

function valueText(name: string, value: unknown): string {
  if (name === 'duration' && typeof value === 'number') return formatDuration(value);
  if (name === 'expires' && (value ?? null) === null) return 'never';
  if (name === 'expires' && typeof value === 'number') return isoTime(value);
  if (typeof value === 'boolean') return value ? 'yes' : 'no';
  if (Array.isArray(value)) return `[${value.map((item) => valueText('', item)).join(', ')}]`;
  return isFields(value) ? `{${fieldsText(value)}}` : valueCell(value);
}

function isFields(value: unknown): value is Fields {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

function areStrings(...values: unknown[]): boolean {
  return values.every((value) => typeof value === 'string');
}

/** A string as it is; any other value as JSON. */
function valueCell(value: unknown): string {
  if (value === undefined || value === null) return EMPTY_CELL;
  return formatCell(typeof value === 'string' ? value : JSON.stringify(value));
}

export const audit: Command = {
  subcommands: { list },
  notes: `
BY is the id of the API key that made the change, or the source of a change without a key. For a
user whom a proxy in front of the dashboard has signed in, it is "user" and the name. CHANGE shows
the fields of a created or deleted target, and the fields that an update changed. --json prints the
entries as the API returns them. An entry must match all filters.
`,
  examples: [
    'weir audit list --limit 20',
    'weir audit list --action override.update --namespace email.send --last 7d',
    'weir audit list --json',
  ],
  exitCodes: CLIENT_EXIT_CODES,
};
