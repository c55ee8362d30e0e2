/** `weir stats`: what the namespaces of a running server, or one of them, have used. */

import { GRANULARITIES, GRANULARITY_MS, type Granularity } from '../analytics/granularity.ts';
import {
  ANALYTICS_NAMESPACES_PAGE_MAX,
  ANALYTICS_QUERY_HOURS_MAX,
  PAGE_MAX,
  TIMELINE_POINTS_MAX,
} from '../core/constants.ts';
import { formatValue } from '../core/describe.ts';
import { StartError } from '../core/errors.ts';
import { addFigures, FIGURES, type Figures, NO_FIGURES } from '../core/figures.ts';
import { isoTime, systemMs } from '../shared-memory/clock.ts';
import {
  AnalyticsClient,
  countCell,
  INCOMPLETE,
  identifierCell,
  type ListedIdentifier,
  parseNamespaceArgument,
  type SearchedIdentifier,
} from './analytics.ts';
import { CLIENT_EXIT_CODES, type Command, subcommand } from './command.ts';
import { parseDuration, parseInteger } from './options.ts';
import { formatCell, formatTable, quoted } from './output.ts';

/** The columns of the figures. The share of denied checks follows the denied checks. */
const FIGURE_COLUMNS = FIGURES.flatMap(({ name, heading }) => {
  const column = { heading, cell: (figures: Figures) => String(figures[name]) };
  return name === 'denied' ? [column, { heading: 'DENIED %', cell: deniedShare }] : [column];
});
const FIGURE_HEADINGS = FIGURE_COLUMNS.map(({ heading }) => heading);
const BAR_WIDTH = 20;
/** The longest `--last` that is shown by minute without `--by`. */
const MINUTES_UP_TO_MS = 3 * GRANULARITY_MS.hour;

interface Values {
  prefix?: string;
  last?: string;
  by?: string;
  limit?: string;
}

export const stats: Command = {
  subcommands: {
    '': subcommand({
      usage: '[<namespace>] [options]',
      argumentNames: ['namespace'],
      isLastArgumentOptional: true,
      options: {
        last: {
          type: 'string',
          value: '<duration>',
          help: 'how far to look back, such as 3h or 7d; default: 24h, by minute 1h',
        },
        by: {
          type: 'string',
          value: '<unit>',
          choices: GRANULARITIES,
          help: 'with <namespace>: a line per minute or hour; default: minute up to --last 3h',
        },
        limit: {
          type: 'string',
          value: '<n>',
          help: 'lines of a list; default: 100 namespaces, 20 identifiers',
        },
        prefix: {
          type: 'string',
          value: '<text>',
          help: 'only search the identifiers that begin with it',
        },
      },
      run: async (call) => {
        const client = new AnalyticsClient(call.server());
        const [namespace] = call.positionals;
        const { values, isJson } = call;
        const textOf = () => {
          if (values.prefix !== undefined) {
            return searchText(client, namespace, values.prefix, values, isJson);
          }
          return namespace === undefined
            ? namespacesText(client, values, isJson)
            : namespaceText(client, namespace, values, isJson);
        };
        process.stdout.write(await textOf());
        return undefined;
      },
    }),
  },
  notes: `
Without <namespace>, the namespaces with the most checks. With it, its sums and its checks over
time. Both with the identifiers that were denied most often, and those that spent most tokens.
<namespace> is a name or an id. --last includes the current minute or hour; lists of identifiers
cover whole hours. A count such as 40-45 is between both. An identifier that ends with … is cut off.
The figures are those of one machine.

With --prefix, the known identifiers that begin with a text, of the last 24 hours: those that were
denied most often first. FROM says what knows them: analytics, recent decisions or an override.
Others may exist, because counters do not have the texts of identifiers.
`,
  examples: [
    'weir stats',
    'weir stats email.send --last 30m',
    'weir stats email.send --by hour',
    'weir stats --prefix user_',
  ],
  exitCodes: CLIENT_EXIT_CODES,
};

async function namespacesText(
  client: AnalyticsClient,
  { last, by, limit }: Values,
  isJson: boolean,
): Promise<string> {
  if (by !== undefined) throw new StartError('--by is only for one namespace: add <namespace>');
  const lines = limitOf(limit, ANALYTICS_NAMESPACES_PAGE_MAX);
  const response = await client.namespaces({
    start: last === undefined ? undefined : startOf(last, 'hour', ANALYTICS_QUERY_HOURS_MAX),
    limit: lines,
  });
  const { start, end, namespaces, total } = response;
  const identifiersMax = lines === undefined ? undefined : Math.min(lines, PAGE_MAX);
  const identifiers = await client.identifiers({ start, end, limit: identifiersMax });
  if (isJson) return `${JSON.stringify(response)}\n${JSON.stringify(identifiers)}\n`;
  const rows = namespaces.map((item) => [...figureCells(item), formatCell(item.name)]);
  const header = [...FIGURE_HEADINGS, 'NAMESPACE'];
  const others = total - rows.length;
  const table = formatTable(header, rows, FIGURE_HEADINGS.length);
  const note = others > 0 ? `\n${others} more with fewer checks: see --limit\n` : '';
  return [
    `${rangeText(start, end)}\n`,
    table + note,
    `Identifiers of all namespaces${identifiers.complete ? '' : `, ${INCOMPLETE}`}\n`,
    identifiersTable('DENIED', identifiers.denied),
    identifiersTable('TOKENS', identifiers.spent),
  ].join('\n');
}

async function namespaceText(
  client: AnalyticsClient,
  argument: string,
  { last, by, limit }: Values,
  isJson: boolean,
): Promise<string> {
  const fields = parseNamespaceArgument(argument);
  const granularity = by === undefined ? defaultGranularity(last) : parseGranularity(by);
  const pointsMax = granularity === 'hour' ? ANALYTICS_QUERY_HOURS_MAX : TIMELINE_POINTS_MAX;
  const start = last === undefined ? undefined : startOf(last, granularity, pointsMax);
  const identifiersMax = limitOf(limit, PAGE_MAX);
  const timeline = await client.timeline({ ...fields, granularity, start });
  const { start: from, end: to, points } = timeline;
  const range = { start: from, end: to };
  const identifiers = await client.identifiers({ ...fields, ...range, limit: identifiersMax });
  if (isJson) return `${JSON.stringify(timeline)}\n${JSON.stringify(identifiers)}\n`;

  const sums = points.reduce(addFigures, NO_FIGURES);
  const sumRow = [...figureCells(sums), formatCell(timeline.namespace.name)];
  const hours = rangeText(identifiers.start, identifiers.end);
  return [
    `${rangeText(from, to)}\n`,
    formatTable([...FIGURE_HEADINGS, 'NAMESPACE'], [sumRow], FIGURE_HEADINGS.length),
    timelineTable(points, from, to, GRANULARITY_MS[granularity]),
    `Identifiers, ${hours}${identifiers.complete ? '' : `, ${INCOMPLETE}`}\n`,
    identifiersTable('DENIED', identifiers.denied),
    identifiersTable('TOKENS', identifiers.spent),
  ].join('\n');
}

async function searchText(
  client: AnalyticsClient,
  namespace: string | undefined,
  prefix: string,
  { last, by, limit }: Values,
  isJson: boolean,
): Promise<string> {
  if (prefix === '') throw new StartError('--prefix is empty: it must have at least 1 character');
  if (last !== undefined || by !== undefined) {
    const option = last === undefined ? 'by' : 'last';
    throw new StartError(`--${option} is not for --prefix: a search covers 24 hours`);
  }
  const fields = namespace === undefined ? {} : parseNamespaceArgument(namespace);
  const response = await client.search({ ...fields, prefix, limit: limitOf(limit, PAGE_MAX) });
  if (isJson) return `${JSON.stringify(response)}\n`;
  const { start, end, identifiers, truncated } = response;
  const others = `Others that begin with ${quoted(prefix)} may exist: counters have no texts.\n`;
  return [
    `${rangeText(start, end)}\n`,
    identifiers.length === 0 ? 'No identifier is known.\n' : searchTable(identifiers),
    truncated ? `More are known: see --limit, or give a longer prefix or a namespace.\n` : others,
  ].join('\n');
}

function searchTable(identifiers: readonly SearchedIdentifier[]): string {
  const rows = identifiers.map(({ denied, spent, lastDeniedAt, namespace, sources, ...item }) => [
    denied === undefined ? '-' : countCell(denied),
    spent === undefined ? '-' : countCell(spent),
    lastDeniedAt === undefined ? '-' : isoTime(lastDeniedAt),
    formatCell(namespace.name),
    identifierCell(item),
    sources.map(formatCell).join(', '),
  ]);
  const header = ['DENIED', 'TOKENS', 'LAST DENIED', 'NAMESPACE', 'IDENTIFIER', 'FROM'];
  return formatTable(header, rows, 2);
}

/** One row for each minute or hour, also for those without checks, which responses leave out. */
function timelineTable(
  points: readonly (Figures & { time: number })[],
  from: number,
  to: number,
  unitMs: number,
): string {
  const pointAt = new Map(points.map((point) => [point.time, point]));
  const most = Math.max(1, ...points.map(({ allowed, denied }) => allowed + denied));
  const rows: string[][] = [];
  const count = Math.min(TIMELINE_POINTS_MAX, (to - from) / unitMs);
  for (let i = 0; i < count; i++) {
    const time = from + i * unitMs;
    const figures = pointAt.get(time) ?? NO_FIGURES;
    rows.push([...figureCells(figures), isoTime(time), barOf(figures, most)]);
  }
  const header = [...FIGURE_HEADINGS, 'TIME', '# ALLOWED, x DENIED'];
  return formatTable(header, rows, FIGURE_HEADINGS.length);
}

/** A bar of the checks; any check at all has at least one character. */
function barOf({ allowed, denied }: Figures, most: number): string {
  const width = (checks: number) => Math.ceil((checks / most) * BAR_WIDTH);
  const total = width(allowed + denied);
  const deniedWidth = Math.min(total, width(denied));
  return '#'.repeat(total - deniedWidth) + 'x'.repeat(deniedWidth);
}

function identifiersTable(title: string, items: readonly ListedIdentifier[]): string {
  const isOfAll = items.some(({ namespace }) => namespace !== undefined);
  const header = isOfAll ? [title, 'NAMESPACE', 'IDENTIFIER'] : [title, 'IDENTIFIER'];
  const rows = items.map((item) => {
    const { namespace } = item;
    const named = namespace === undefined ? [] : [formatCell(namespace.name)];
    return [countCell(item), ...named, identifierCell(item)];
  });
  return rows.length === 0 ? `${title}: none\n` : formatTable(header, rows, 1);
}

function figureCells(figures: Figures): string[] {
  return FIGURE_COLUMNS.map(({ cell }) => cell(figures));
}

function deniedShare({ allowed, denied }: Figures): string {
  const checks = allowed + denied;
  return checks === 0 ? '-' : ((100 * denied) / checks).toFixed(1);
}

function rangeText(start: number, end: number): string {
  return `${isoTime(start)} to ${isoTime(end)}`;
}

function parseGranularity(value: string): Granularity {
  const known = GRANULARITIES.find((name) => name === value);
  if (known !== undefined) return known;
  throw new StartError(`--by must be ${GRANULARITIES.join(' or ')}; got ${formatValue(value)}`);
}

function defaultGranularity(last: string | undefined): Granularity {
  if (last === undefined) return 'minute';
  const bounds = { minimumMs: GRANULARITY_MS.minute, maximumMs: maximumMs('hour') };
  return parseDuration('last', last, bounds) <= MINUTES_UP_TO_MS ? 'minute' : 'hour';
}

function maximumMs(granularity: Granularity, units = TIMELINE_POINTS_MAX): number {
  return units * GRANULARITY_MS[granularity];
}

/** The begin of the first of the units that `--last` covers; the last one is the current unit. */
function startOf(last: string, granularity: Granularity, unitsMax: number): number {
  const unitMs = GRANULARITY_MS[granularity];
  const bounds = { minimumMs: unitMs, maximumMs: maximumMs(granularity, unitsMax) };
  const lastMs = parseDuration('last', last, bounds);
  return (Math.floor((systemMs() - lastMs) / unitMs) + 1) * unitMs;
}

function limitOf(value: string | undefined, maximum: number): number | undefined {
  return value === undefined ? undefined : parseInteger('limit', value, 1, maximum);
}
