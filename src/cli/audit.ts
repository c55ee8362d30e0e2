/**
 * `weir audit`: the audit log of a running server, newest entry first. What an entry has that is
 * not known here, as that of a later server, is printed as key=value.
 */

import { isoTime } from '../time.ts';
import { CODES, type Command, part } from './command.ts';
import { durationText, integerOf } from './options.ts';
import { cell, counted, quoted } from './output.ts';
import type { Server } from './server.ts';

const DEFAULT_LIMIT = 100;
/** Entries of a page of the server. */
const PAGE = 100;
const HEADER = ['TIME', 'ID', 'ACTION', 'BY', 'TARGET', 'CHANGE'];
/** In a cell where there is nothing to say. */
const NOTHING = '-';

type Fields = Readonly<Record<string, unknown>>;

const list = part({
  usage: '[--limit <n>]',
  options: {
    limit: { type: 'string', value: '<n>', help: `the newest n; default: ${DEFAULT_LIMIT}` },
  },
  run: async (call) => {
    const limit = integerOf('limit', call.values.limit ?? String(DEFAULT_LIMIT), 1);
    await call.printList(newest(call.server(), limit), HEADER, row);
    return undefined;
  },
});

async function* newest(server: Server, limit: number): AsyncGenerator<object> {
  let left = limit;
  for await (const entry of server.items('audit.list', 'entries', {
    limit: Math.min(left, PAGE),
  })) {
    yield entry;
    if (--left === 0) return;
  }
}

function row({ at, id, action, keyId, by, target, ...rest }: Fields): string[] {
  const time = typeof at === 'number' ? isoTime(at) : shown(at);
  const who = typeof by === 'string' && /^[\w ]+$/.test(by) ? by : shown(keyId ?? by);
  return [time, shown(id), shown(action), who, targetText(action, target), changeText(rest)];
}

/** The target in short words, by the first word of the action. */
const TARGETS: Readonly<Record<string, (target: Fields) => string | undefined>> = {
  key: ({ name, keyId }) => {
    return areTexts(name, keyId) ? `${shown(name)} ${shown(keyId)}` : undefined;
  },
  override: ({ namespace, identifier }) => {
    return areTexts(namespace, identifier)
      ? `${shown(namespace)} ${quoted(identifier as string)}`
      : undefined;
  },
  overrides: ({ namespaceCount }) => {
    return typeof namespaceCount === 'number' ? counted(namespaceCount, 'namespace') : undefined;
  },
  policy: ({ namespace }) => (areTexts(namespace) ? shown(namespace) : undefined),
  namespace: ({ namespace, namespaceId }) => {
    return areTexts(namespace, namespaceId)
      ? `${shown(namespace)} ${shown(namespaceId)}`
      : undefined;
  },
};

function targetText(action: unknown, target: unknown): string {
  if (!isFields(target)) return shown(target);
  const kind = String(action).split('.')[0];
  const known = Object.hasOwn(TARGETS, kind) ? TARGETS[kind](target) : undefined;
  return known ?? (fieldsText(target) || NOTHING);
}

/** What a new target has, a removed one had, and how a changed one differs. */
function changeText({ before, after, counts, ...unknown }: Fields): string {
  const isUpdate = isFields(before) && isFields(after);
  const texts = isUpdate ? [differenceText(before, after)] : [before, after].map(partText);
  return [...texts, partText(counts), fieldsText(unknown)].filter(Boolean).join(' ') || NOTHING;
}

function partText(part: unknown): string {
  if (part === undefined) return '';
  return isFields(part) ? fieldsText(part) : shown(part);
}

function differenceText(before: Fields, after: Fields): string {
  return Object.keys({ ...before, ...after })
    .map((name) => [name, ...[before, after].map((fields) => valueText(name, fields[name]))])
    .filter(([, was, is]) => was !== is)
    .map(([name, was, is]) => `${cell(name)}: ${was} -> ${is}`)
    .join(', ');
}

function fieldsText(fields: Fields): string {
  const { permissions, permissionCount } = fields;
  const isWhole = Array.isArray(permissions) && permissions.length === permissionCount;
  return Object.entries(fields)
    .filter(([name]) => name !== 'permissionCount' || !isWhole)
    .map(([name, value]) => `${cell(name)}=${valueText(name, value)}`)
    .join(' ');
}

function valueText(name: string, value: unknown): string {
  if (name === 'duration' && typeof value === 'number') return durationText(value);
  if (name === 'expires' && value === null) return 'never';
  if (name === 'expires' && typeof value === 'number') return isoTime(value);
  if (typeof value === 'boolean') return value ? 'yes' : 'no';
  if (Array.isArray(value)) return `[${value.map((item) => valueText('', item)).join(', ')}]`;
  return isFields(value) ? `{${fieldsText(value)}}` : shown(value);
}

function isFields(value: unknown): value is Fields {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

function areTexts(...values: unknown[]): boolean {
  return values.every((value) => typeof value === 'string');
}

/** A text, or what JSON has for another value. */
function shown(value: unknown): string {
  if (value === undefined || value === null) return NOTHING;
  return cell(typeof value === 'string' ? value : JSON.stringify(value));
}

export const audit: Command = {
  parts: { list },
  notes: `
BY is the id of the API key, or what made the change without one. CHANGE has the fields of a created
or deleted target, and those that an update changed. --json prints the entries as the server has
them.
`,
  examples: ['weir audit list --limit 20', 'weir audit list --json'],
  codes: CODES,
};
