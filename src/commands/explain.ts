/** `weir explain`: why the next check of an identifier is allowed or denied on a running server. */

import type { ShownDecision } from '../api/common/recent-decisions.ts';
import { ALGORITHM_NAMES } from '../core/algorithm-fields.ts';
import { AMOUNT_MAX } from '../core/constants.ts';
import { formatDuration } from '../core/duration.ts';
import { StartError } from '../core/errors.ts';
import { printError, printErrorAsJson } from '../core/fatal.ts';
import { DEFAULT_RULE } from '../core/window-rules.ts';
import { isoTime } from '../shared-memory/clock.ts';
import { countCell } from './analytics.ts';
import { parseWindowRule } from './check.ts';
import { CLIENT_EXIT_CODES, type Command, subcommand, surplusError } from './command.ts';
import { type CounterFields, counterTable } from './counter-table.ts';
import { limitTexts } from './decision-text.ts';
import { findIdentifier, placesTable } from './find-identifier.ts';
import { type HoldFields, holdTable } from './hold-table.ts';
import {
  ALGORITHM_OPTION,
  parseDuration,
  parseInteger,
  requireIdentifier,
  WINDOW_OPTION,
} from './options.ts';
import { formatCell, formatCount, formatEnd, formatTable, quoted } from './output.ts';
import type { RequestFields, ServerClient } from './server-client.ts';

interface MatchedOverride {
  id: string;
  namespace: string;
  identifier: string;
  cidr?: boolean;
  limit: number;
  duration: number;
  concurrency?: number;
  async: boolean;
  expires?: number;
}

interface Term<T> {
  value: T;
  from: string;
}

interface ExplainedWindow {
  success: boolean;
  left: number;
  reset: number;
  passesAt?: number;
  terms: {
    limit: Term<number>;
    duration: Term<number>;
    algorithm: Term<string>;
    burst?: Term<number>;
    async: Term<boolean>;
    cost: Term<number>;
  };
}

interface ExplainResponse {
  namespace: string;
  cause: string;
  reason: string;
  isExact: boolean;
  block?: { expires: number; reason?: string };
  override?: MatchedOverride;
  otherOverrides: (MatchedOverride & { reason: string })[];
  matchingOverrides: number;
  holds?: HoldFields;
  policy?: { shadow: boolean };
  windows: ExplainedWindow[];
  recent?: { since: number; lastDenied?: ShownDecision; leftOut?: number };
  deniedThisHour?: { start: number; count: number; error: number };
  counters: CounterFields[];
}

const OPTIONS = {
  namespace: { type: 'string', value: '<name or id>', help: 'namespace of the check' },
  limit: { type: 'string', value: '<tokens>', help: 'limit of the check, with --duration' },
  duration: WINDOW_OPTION,
  algorithm: {
    ...ALGORITHM_OPTION,
    help: `window rule: ${ALGORITHM_NAMES}; default: ${DEFAULT_RULE}`,
  },
  burst: {
    type: 'string',
    value: '<tokens>',
    help: 'with gcra: tokens that may pass at once; default: the limit',
  },
  cost: { type: 'string', value: '<tokens>', help: 'default: 1, or the cost of the policy' },
  'empty-identifier': { type: 'boolean', help: 'allow "" as the identifier' },
} as const;

export const explain: Command = {
  subcommands: {
    '': subcommand({
      usage: '<identifier> [--namespace <name or id>] [options]',
      // The second one is only for the old order of arguments.
      argumentNames: ['identifier', 'identifier of the old order'],
      isLastArgumentOptional: true,
      options: OPTIONS,
      run: async (call) => {
        const { values } = call;
        const { identifier, namespace } = readArguments(call);
        const { limit, duration, cost } = values;
        requireBoth(limit, duration);
        if (namespace === undefined) {
          return explainEverywhere(
            { values, isJson: call.isJson, server: () => call.server() },
            identifier,
          );
        }
        const tokens = limit === undefined ? undefined : parseInteger('limit', limit, 1);
        const fields = {
          namespace,
          identifier: requireIdentifier(identifier, values['empty-identifier']),
          limit: tokens,
          duration: duration === undefined ? undefined : parseDuration('duration', duration),
          cost: cost === undefined ? undefined : parseInteger('cost', cost),
          ...parseWindowRule(values, tokens ?? AMOUNT_MAX),
        };
        const { response, text } = await explanationOf(call.server(), fields);
        call.print(response, () => text);
        return undefined;
      },
    }),
  },
  notes: `
Without --namespace, shows in which namespaces the identifier has a counter, a reservation or lease,
an override of its own or a recent decision. With it, or if it is in one only: shows the override
that applies and why others do not, the terms of the check and their sources, the decision that it
would get, when the identifier was last denied, and the counters. Nothing changes. Without --limit
and --duration, the policy of the namespace sets them if there is one. If no override or policy sets
them, they are those of the last recorded check, with its rule and cost, or of the last counted
check. If the identifier begins with -, put it at the end, after --.
`,
  examples: [
    'weir explain user_1',
    'weir explain user_1 --namespace email.send',
    'weir explain user_1 --namespace email.send --limit 10 --duration 60s --cost 3',
    'weir explain 203.0.113.7 --namespace search',
  ],
  exitCodes: CLIENT_EXIT_CODES,
};

/** Also in the old order, `weir explain <namespace> <identifier>`. @throws StartError */
function readArguments({
  values: { namespace },
  positionals: [first, second],
  isJson,
}: {
  values: { namespace?: string };
  positionals: readonly string[];
  isJson: boolean;
}) {
  if (second === undefined) return { identifier: first, namespace };
  if (namespace !== undefined) throw surplusError(second, 'weir explain');
  const message =
    'the order of arguments has changed; write' +
    ` weir explain ${formatCell(second)} --namespace ${formatCell(first)}`;
  if (isJson) printErrorAsJson({ warning: { message } });
  else printError(message);
  return { identifier: second, namespace: first };
}

/** @throws StartError */
async function explanationOf(
  server: ServerClient,
  fields: RequestFields,
): Promise<{ response: ExplainResponse; text: string }> {
  const response = await server.post<ExplainResponse>('ratelimits.explain', fields);
  try {
    return { response, text: describe(response) };
  } catch {
    throw server.unexpectedResponseError(200);
  }
}

interface Call {
  values: { [option in (typeof OPTIONS_OF_A_CHECK)[number]]?: string } & {
    'empty-identifier'?: boolean;
  };
  isJson: boolean;
  server: () => ServerClient;
}

/** What an option of a check would mean in several namespaces, nobody knows. */
const OPTIONS_OF_A_CHECK = ['limit', 'duration', 'algorithm', 'burst', 'cost'] as const;

/**
 * Finds the namespaces in which an identifier is, and explains its check where it is in one only.
 * @throws StartError
 */
async function explainEverywhere(call: Call, text: string): Promise<undefined> {
  const option = OPTIONS_OF_A_CHECK.find((name) => call.values[name] !== undefined);
  if (option !== undefined) {
    throw new StartError(`--${option} is for the check in one namespace: add --namespace`);
  }
  const identifier = requireIdentifier(text, call.values['empty-identifier']);
  const server = call.server();
  const { found, total } = await findIdentifier(server, identifier);
  if (call.isJson) {
    process.stdout.write(found.map((place) => `${JSON.stringify(place)}\n`).join(''));
    return undefined;
  }
  const namespaces = formatCount(total, 'namespace');
  const where = `${formatCell(identifier)} is in ${found.length} of ${namespaces}`;
  if (found.length === 0) {
    process.stdout.write(
      `${where}: it has no counter, no hold, no block, no override and no recent decision.\n` +
        `Identifiers that begin with it: weir stats --prefix ${formatCell(identifier)}\n`,
    );
    return undefined;
  }
  process.stdout.write(`${where}:\n\n${placesTable(found)}\n`);
  if (found.length > 1) return undefined;
  const [{ namespace }] = found;
  const explained = await explanationOf(server, { namespace: namespace.name, identifier });
  process.stdout.write(`\n${explained.text}\n`);
  return undefined;
}

/** @throws StartError if a check has only one of both options */
function requireBoth(limit: string | undefined, duration: string | undefined): void {
  if ((limit === undefined) === (duration === undefined)) return;
  const [given, missing] = limit === undefined ? ['duration', 'limit'] : ['limit', 'duration'];
  throw new StartError(`--${missing} is required with --${given}: a check has both`);
}

const TERM_SOURCE_TEXTS: Readonly<Record<string, string>> = {
  decision: 'last check',
  counter: 'last counted check',
};

/** The response as text: paragraphs. */
function describe(response: ExplainResponse): string {
  const { reason, isExact, windows, counters } = response;
  const holds = holdTable(response.holds);
  const estimate = 'Other machines share the counters, so this is an estimate.';
  return [
    isExact ? reason : `${reason} ${estimate}`,
    ...denialParagraph(response),
    ...overrideParagraphs(response),
    ...(windows.length > 0 ? [checkParagraph(response)] : []),
    `Counters:\n${counterTable(counters) ?? 'none'}`,
    ...(holds === undefined ? [] : [holds]),
  ].join('\n\n');
}

function overrideParagraphs(response: ExplainResponse): string[] {
  const { block, override } = response;
  if (block !== undefined) {
    const reason = block.reason === undefined ? '' : `, reason ${quoted(block.reason)}`;
    const none = 'No override applies until then.';
    return [`Blocked until ${isoTime(block.expires)}${reason}. ${none}`, ...otherTable(response)];
  }
  if (override === undefined) return ['Override: none matches.'];
  const { id, namespace, identifier, cidr, limit, duration, concurrency } = override;
  const { async: isAsync, expires } = override;
  const selector = `${cidr ? 'CIDR block' : 'identifier'} ${quoted(identifier)}`;
  const texts = `${selector} in the namespace ${quoted(namespace)}`;
  const leases = concurrency === undefined ? '' : `, concurrency ${concurrency}`;
  const values = `limit ${limit}, duration ${formatDuration(duration)}${leases}`;
  const end = expires === undefined ? '' : `, until ${isoTime(expires)}`;
  const applies = `Override: ${id} applies, ${texts}: ${values}${isAsync ? ', async' : ''}${end}.`;
  return [applies, ...otherTable(response)];
}

/** The overrides that match and do not apply. */
function otherTable({ override, otherOverrides, matchingOverrides }: ExplainResponse): string[] {
  const others = matchingOverrides - (override === undefined ? 0 : 1);
  if (others === 0) return [];
  const shown = otherOverrides.length < others ? `, the first ${otherOverrides.length}` : '';
  const rows = otherOverrides.map((other) => [
    other.id,
    formatCell(other.namespace),
    `${formatCell(other.identifier)}${other.cidr ? ' (CIDR)' : ''}`,
    String(other.limit),
    formatDuration(other.duration),
    formatEnd(other.expires),
    other.reason,
  ]);
  const columns = ['ID', 'NAMESPACE', 'IDENTIFIER', 'LIMIT', 'DURATION', 'EXPIRES'];
  const header = [...columns, 'WHY IT DOES NOT APPLY'];
  const table = formatTable(header, rows).trimEnd();
  return [`Other overrides that match: ${others}${shown}\n${table}`];
}

/** When the identifier was last denied, and how often in this hour, as far as it is known. */
function denialParagraph({ recent, deniedThisHour }: ExplainResponse): string[] {
  const lines: string[] = [];
  if (recent?.lastDenied !== undefined) {
    const { lastDenied } = recent;
    lines.push(`Last denied: ${isoTime(lastDenied.until)}, ${limitTexts(lastDenied).join(', ')}.`);
  } else if (recent !== undefined) {
    const since = `since ${isoTime(recent.since)}, when the records begin`;
    lines.push(
      recent.leftOut === undefined
        ? `Last denied: not ${since}.`
        : `Last denied: no record ${since}. ${recent.leftOut} denials of the namespace have none.`,
    );
  }
  if (deniedThisHour !== undefined) {
    const times = countCell(deniedThisHour) === '1' ? 'time' : 'times';
    const since = isoTime(deniedThisHour.start);
    lines.push(`Denied this hour: ${countCell(deniedThisHour)} ${times} since ${since}.`);
  }
  return lines.length === 0 ? [] : [lines.join('\n')];
}

function checkParagraph({ windows, policy, cause }: ExplainResponse): string {
  const termOf = <T>({ value, from }: Term<T>, text = String(value)) => {
    return `${text} (${TERM_SOURCE_TEXTS[from] ?? from})`;
  };
  const rows = windows.map(({ success, left, reset, passesAt, terms }) => [
    termOf(terms.limit),
    termOf(terms.duration, formatDuration(terms.duration.value)),
    termOf(terms.algorithm),
    terms.burst === undefined ? '-' : termOf(terms.burst),
    termOf(terms.cost),
    termOf(terms.async, terms.async.value ? 'yes' : 'no'),
    String(left),
    success ? 'allowed' : 'denied',
    isoTime(passesAt ?? reset),
  ]);
  const header = ['LIMIT', 'DURATION', 'ALGORITHM', 'BURST', 'COST', 'ASYNC', 'LEFT'];
  const ofApi = cause === 'no_limit' ? 'Next check of each counter:' : 'Next check:';
  const title = policy === undefined ? ofApi : 'Next check of a gateway:';
  const table = formatTable([...header, 'DECISION', 'RESET OR RETRY'], rows).trimEnd();
  return `${title}\n${table}`;
}
