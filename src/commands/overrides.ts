/** `weir overrides`: manages overrides on a running server, imports and exports them. */

import { isUtf8 } from 'node:buffer';
import { readFileSync } from 'node:fs';
import { IMPORT_MAX_BYTES } from '../core/constants.ts';
import { formatDuration } from '../core/duration.ts';
import { describeFileError } from '../core/errno.ts';
import { StartError } from '../core/errors.ts';
import { findJsonSyntaxError } from '../core/json-text.ts';
import { isoTime } from '../shared-memory/clock.ts';
import { CLIENT_EXIT_CODES, type Command, printLines, subcommand } from './command.ts';
import {
  EXPIRES_OPTION,
  expiresFieldOf,
  parseDuration,
  parseInteger,
  parseNamespace,
  required,
  WINDOW_OPTION,
} from './options.ts';
import { formatCell, formatCount, formatEnd, quoted } from './output.ts';
import { ServerError } from './server-client.ts';

const NAMESPACE_OPTIONS = {
  namespace: { type: 'string', value: '<name>', help: 'a name, a pattern with *, or an id' },
  'namespace-id': { type: 'string', value: '<id>', help: 'the same, for ids only' },
} as const;

const CIDR_OPTION = {
  cidr: { type: 'boolean', help: '<identifier> is a CIDR block, such as 203.0.113.0/24' },
} as const;

/** With `namespaceName` or `namespaceId` in a list of all namespaces. */
interface Override {
  id: string;
  namespaceName?: string;
  namespaceId?: string;
  identifier: string;
  cidr?: boolean;
  limit: number;
  duration: number;
  concurrency?: number;
  async: boolean;
  expires?: number;
  /** Absent from servers that do not know it. */
  usage?: { applied: number; lastAppliedAt?: number };
}

const USAGE = { usage: true };
const HEADER = [
  'IDENTIFIER',
  'CIDR',
  'LIMIT',
  'DURATION',
  'CONCURRENCY',
  'ASYNC',
  'EXPIRES',
  'LAST APPLIED',
  'APPLIED',
  'ID',
];
const yesOrNo = (flag: boolean) => (flag ? 'yes' : 'no');
const usageCells = (usage: Override['usage']) => {
  if (usage === undefined) return ['unknown', 'unknown'];
  const { applied, lastAppliedAt } = usage;
  return [lastAppliedAt === undefined ? 'never' : isoTime(lastAppliedAt), `${applied}`];
};
const overrideRow = (override: Override) => {
  const { identifier, cidr = false, limit, duration, concurrency, async } = override;
  const { expires, usage, id } = override;
  const flags = { cidr: yesOrNo(cidr), async: yesOrNo(async) };
  const end = formatEnd(expires);
  const leases = concurrency === undefined ? '-' : `${concurrency}`;
  const terms = [`${limit}`, formatDuration(duration), leases];
  return [formatCell(identifier), flags.cidr, ...terms, flags.async, end, ...usageCells(usage), id];
};

/** @param cidr left out of a request if it is not given, for servers that do not know it */
function selectorOf(identifier: string, cidr: boolean | undefined) {
  return { identifier: requireNonEmpty(identifier), ...(cidr && { cidr }) };
}

/** An override as a sentence names it. */
function describeSelector({ identifier, cidr }: Pick<Override, 'identifier' | 'cidr'>): string {
  return `${cidr ? 'the CIDR block ' : ''}${quoted(identifier)}`;
}

const set = subcommand({
  usage: '<identifier> --namespace <name> --limit <tokens> --duration <duration>',
  argumentNames: ['identifier'],
  options: {
    ...NAMESPACE_OPTIONS,
    ...CIDR_OPTION,
    limit: { type: 'string', value: '<tokens>', help: 'tokens in a window; 0 denies every check' },
    duration: WINDOW_OPTION,
    concurrency: {
      type: 'string',
      value: '<tokens>',
      help: 'tokens that leases may use at once; default: as each acquire says',
    },
    expires: {
      ...EXPIRES_OPTION,
      help: 'when it ends: 7d, 2030-01-31 or 2030-01-31T12:00:00Z; default: never',
    },
    async: { type: 'boolean', help: 'decide the matching checks asynchronously' },
  },
  run: async (call) => {
    const { values, positionals } = call;
    const namespace = parseNamespace(values);
    const override = {
      ...selectorOf(positionals[0], values.cidr),
      limit: parseInteger('limit', required('limit', values.limit)),
      duration: parseDuration('duration', required('duration', values.duration)),
      ...(values.concurrency !== undefined && {
        concurrency: parseInteger('concurrency', values.concurrency),
      }),
      ...expiresFieldOf(values.expires),
    };
    const server = call.server();
    const response = await server.postV2<{ overrideId: string }>('ratelimit.setOverride', {
      namespace: namespace.text,
      ...override,
    });
    const { overrideId } = response;
    if (typeof overrideId !== 'string') throw server.unexpectedResponseError(200);
    if (values.async) {
      // Only an import accepts both `async` and the ranges of v2. The override keeps its id.
      const overrides = [{ ...namespace.fields, ...override, async: true }];
      await server.post('ratelimits.importOverrides', { overrides });
    }
    const tokens = formatCount(override.limit, 'token');
    call.print(response, () => {
      const limit = `${tokens} per ${formatDuration(override.duration)}`;
      const what = `${limit} for ${describeSelector(override)}`;
      const place = `in the namespace ${quoted(namespace.text)}`;
      const leases =
        override.concurrency === undefined ? '' : `, concurrency ${override.concurrency}`;
      const mode = values.async ? ', asynchronous' : '';
      const end = override.expires === undefined ? '' : `, until ${isoTime(override.expires)}`;
      return `Override ${overrideId} is set ${place}: ${what}${leases}${mode}${end}.`;
    });
    return undefined;
  },
});

const get = subcommand({
  usage: '<identifier> --namespace <name>',
  argumentNames: ['identifier'],
  options: { ...NAMESPACE_OPTIONS, ...CIDR_OPTION },
  run: async (call) => {
    const fields = {
      ...parseNamespace(call.values).fields,
      ...selectorOf(call.positionals[0], call.values.cidr),
      ...USAGE,
    };
    const server = call.server();
    const items = async function* () {
      yield await server.get<object>('ratelimits.getOverride', fields);
    };
    await call.printList(items(), HEADER, overrideRow);
    return undefined;
  },
});

const list = subcommand({
  usage: '[--namespace <name>]',
  options: NAMESPACE_OPTIONS,
  run: async (call) => {
    const { values } = call;
    const isOfAll = values.namespace === undefined && values['namespace-id'] === undefined;
    const fields = { ...(isOfAll ? {} : parseNamespace(values).fields), ...USAGE };
    const items = call.server().listItems('ratelimits.listOverrides', 'overrides', fields);
    if (isOfAll) await call.printList(items, ['NAMESPACE', ...HEADER], rowWithNamespace);
    else await call.printList(items, HEADER, overrideRow);
    return undefined;
  },
});

const rowWithNamespace = (override: Override) => {
  const { namespaceName, namespaceId } = override;
  return [formatCell((namespaceName ?? namespaceId)!), ...overrideRow(override)];
};

const remove = subcommand({
  usage: '<identifier> --namespace <name>',
  argumentNames: ['identifier'],
  options: { ...NAMESPACE_OPTIONS, ...CIDR_OPTION },
  run: async (call) => {
    const selector = selectorOf(call.positionals[0], call.values.cidr);
    const namespace = parseNamespace(call.values);
    const fields = { ...namespace.fields, ...selector };
    const response = await call.server().post<object>('ratelimits.deleteOverride', fields);
    call.print(response, () => {
      const place = `in the namespace ${quoted(namespace.text)}`;
      return `The override of ${describeSelector(selector)} ${place} is deleted.`;
    });
    return undefined;
  },
});

interface ImportCounts {
  created: number;
  updated: number;
  unchanged: number;
}

const importOverrides = subcommand({
  usage: '<file, or - for standard input> [--dry-run]',
  argumentNames: ['file'],
  options: { 'dry-run': { type: 'boolean', help: 'print what an import would change' } },
  run: async (call) => {
    const dryRun = call.values['dry-run'] ?? false;
    const { items, lines } = readJsonLines(call.positionals[0]);
    const fields = { overrides: items, dryRun };
    const bytes = Buffer.byteLength(JSON.stringify(fields));
    if (bytes > IMPORT_MAX_BYTES) {
      throw new StartError(
        `an import must have at most ${IMPORT_MAX_BYTES} bytes; got ${bytes} bytes: split the file`,
      );
    }
    const server = call.server();
    let response: ImportCounts;
    try {
      response = await server.post<ImportCounts>('ratelimits.importOverrides', fields);
    } catch (error) {
      if (!(error instanceof ServerError)) throw error;
      // The server names the index in the list; the user needs the line of the file.
      const { code, message } = error;
      const index = /^overrides\[(\d+)\]/;
      throw new ServerError(
        code,
        message.replace(index, (_, i) => `line ${lines[Number(i)]}`),
      );
    }
    const { created, updated, unchanged } = response;
    if (!Number.isInteger(created + updated + unchanged)) throw server.unexpectedResponseError(200);
    call.print(response, () => {
      const counts = `${created} created, ${updated} updated, ${unchanged} unchanged`;
      return dryRun ? `An import would result in: ${counts}.` : `Imported: ${counts}.`;
    });
    return undefined;
  },
});

/**
 * Reads a file with one JSON value per line.
 * @param path `-` is standard input
 * @returns the values, and the line number of each; empty lines are skipped
 * @throws StartError with the line and column of a syntax error
 */
function readJsonLines(path: string): { items: unknown[]; lines: number[] } {
  const name = path === '-' ? 'standard input' : path;
  let bytes: Buffer;
  try {
    bytes = readFileSync(path === '-' ? 0 : path);
  } catch (error) {
    throw new StartError(`${name} cannot be read: ${describeFileError(error)}`);
  }
  if (!isUtf8(bytes)) throw new StartError(`${name} must be UTF-8; got bytes that are not`);
  const items: unknown[] = [];
  const lines: number[] = [];
  const text = bytes.toString().replace(/^\ufeff/, '');
  for (const [i, line] of text.split('\n').entries()) {
    if (line.trim() === '') continue;
    try {
      items.push(JSON.parse(line));
    } catch {
      const { column, reason } = findJsonSyntaxError(line) ?? {
        column: 1,
        reason: 'nested too deeply',
      };
      throw new StartError(`${name}, line ${i + 1}, column ${column}: not JSON: ${reason}`);
    }
    lines.push(i + 1);
  }
  return { items, lines };
}

const exportOverrides = subcommand({
  usage: '[--usage] > <file>',
  options: {
    usage: { type: 'boolean', help: 'also print when each override last applied, and how often' },
  },
  run: async (call) => {
    const fields = call.values.usage ? USAGE : {};
    await printLines(call.server().listItems('ratelimits.exportOverrides', 'overrides', fields));
    return undefined;
  },
});

/** No override has an empty identifier. */
function requireNonEmpty(identifier: string): string {
  if (identifier !== '') return identifier;
  throw new StartError('<identifier> must have 1 to 512 characters; got ""');
}

export const overrides: Command = {
  subcommands: { set, get, list, delete: remove, import: importOverrides, export: exportOverrides },
  notes: `
An identifier may be a pattern: * matches any sequence of characters. With --cidr it is a CIDR
block, and the override applies to all addresses inside of it.

list without --namespace shows the overrides of all namespaces that the key may read. export prints
one override per line, as JSON, for all namespaces. import reads the same format:

  {"namespaceName":"default","identifier":"user_*","limit":100,"duration":60000,"async":false}

An import sets all of its overrides in one transaction, or none. It changes no other override.

With --concurrency an override also replaces the limit of leases (weir acquire, weir run). 0 denies
every new lease.

With --expires an override ends by itself. A set replaces all values: without --expires, the
override is permanent again, and without --concurrency it does not change leases. In a line of an
import, "expires" is a Unix time in ms, in the future.

LAST APPLIED and APPLIED say when an override last applied to a check or an acquire, and how
often. The server that answers counts its own; a check with cost 0 is not counted.
`,
  examples: [
    "weir overrides set 'user_*' --namespace default --limit 100 --duration 60s",
    'weir overrides set 203.0.113.0/24 --cidr --namespace default --limit 100 --duration 60s',
    'weir overrides set acme --namespace default --limit 1000 --duration 60s --expires 7d',
    'weir overrides set acme --namespace jobs --limit 1000 --duration 60s --concurrency 20',
    'weir overrides list',
    'weir overrides list --namespace default --json',
    'weir overrides export > overrides.jsonl',
    'weir overrides export --usage',
    'weir overrides import overrides.jsonl --dry-run',
  ],
  exitCodes: CLIENT_EXIT_CODES,
};
