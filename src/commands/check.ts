/** `weir check`: one check on a running server. */

import { DEFAULT_NAMESPACE } from '../api/common/check-request.ts';
import { ALGORITHM_NAMES } from '../core/algorithm-fields.ts';
import { V2_DURATION_MAX_MS } from '../core/constants.ts';
import { StartError } from '../core/errors.ts';
import { DECISION_MEANINGS, EXIT } from '../core/exit.ts';
import { DEFAULT_RULE, type RuleName } from '../core/window-rules.ts';
import { CLIENT_EXIT_CODES, type Command, subcommand } from './command.ts';
import {
  ALGORITHM_OPTION,
  parseAlgorithm,
  parseDuration,
  parseInteger,
  required,
  requireIdentifier,
  WINDOW_OPTION,
} from './options.ts';
import { formatTimeFromNow } from './output.ts';

export interface LimitResponse {
  success: boolean;
  limit: number;
  remaining: number;
  reset: number;
  /** Only from v2, and of a denied check that can pass. */
  passesAt?: number;
}

interface WindowFields {
  cost: number | undefined;
  burst: number | undefined;
  algorithm: RuleName;
}

/** What a reservation has too. */
export const WINDOW_OPTIONS = {
  limit: { type: 'string', value: '<tokens>', help: 'tokens in a window; at least 1' },
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
  namespace: { type: 'string', value: '<name or id>', help: 'default: default' },
} as const;

const OPTIONS = {
  ...WINDOW_OPTIONS,
  cost: {
    type: 'string',
    value: '<tokens>',
    help: 'default: 1; 0 shows the remaining tokens and changes nothing',
  },
  async: { type: 'boolean', help: 'return the decision first and deduct afterwards' },
  'empty-identifier': { type: 'boolean', help: 'allow "" as the identifier' },
} as const;

/** @throws StartError for a burst without GCRA, or above the limit */
export function parseWindowRule(
  { algorithm: name, burst }: { algorithm?: string; burst?: string },
  limit: number,
) {
  const algorithm = name === undefined ? undefined : parseAlgorithm(name);
  if (burst === undefined) return { algorithm };
  if (algorithm === 'gcra') return { algorithm, burst: parseInteger('burst', burst, 1, limit) };
  const which = algorithm === undefined ? 'no --algorithm' : `--algorithm ${algorithm}`;
  throw new StartError(`--burst must be left out unless there is --algorithm gcra; got ${which}`);
}

/** When a denied check passes, or else when its window resets or its bucket is full. */
export function timeText(
  { success, limit, reset, passesAt }: LimitResponse,
  { cost = 1, burst = limit, algorithm }: WindowFields,
) {
  if (!success && cost > Math.min(limit, burst)) {
    const bound = cost > limit ? 'limit' : 'burst';
    return `never passes: ${limit === 0 ? 'the limit is 0' : `the cost is above the ${bound}`}`;
  }
  const timeMs = passesAt ?? reset;
  // For a denial by GCRA, `reset` is that time too.
  const isDenied = passesAt !== undefined || (!success && algorithm === 'gcra');
  const label = isDenied ? 'passes at' : algorithm === 'gcra' ? 'full at' : 'resets at';
  return `${label} ${formatTimeFromNow(timeMs)}`;
}

export const check: Command = {
  subcommands: {
    '': subcommand({
      usage: '<identifier> --limit <tokens> --duration <duration> [options]',
      argumentNames: ['identifier'],
      options: OPTIONS,
      run: async (call) => {
        const { values, positionals } = call;
        const { namespace, cost, async } = values;
        const fields = {
          namespace: namespace ?? DEFAULT_NAMESPACE,
          identifier: requireIdentifier(positionals[0], values['empty-identifier']),
          limit: parseInteger('limit', required('limit', values.limit), 1),
          duration: parseDuration('duration', required('duration', values.duration)),
          cost: cost === undefined ? undefined : parseInteger('cost', cost),
        };
        const { algorithm = DEFAULT_RULE, burst } = parseWindowRule(values, fields.limit);
        const request = { ...fields, algorithm, burst };
        // v2 does not have these.
        const { identifier, duration } = fields;
        const isV2 = async !== true && identifier !== '' && duration <= V2_DURATION_MAX_MS;
        const server = call.server();
        const response = isV2
          ? await server.postV2<LimitResponse>('ratelimit.limit', request)
          : await server.post<LimitResponse>('ratelimits.limit', { ...request, async });
        const { success, remaining, limit, reset } = response;
        const isValid = typeof success === 'boolean' && Number.isFinite(remaining + limit + reset);
        if (!isValid) throw server.unexpectedResponseError(200);
        call.print(response, () => {
          const decision = `${success ? 'allowed' : 'denied'}: limit ${limit}, remaining`;
          return `${decision} ${remaining}, ${timeText(response, request)}`;
        });
        return success ? EXIT.OK : EXIT.DENIED;
      },
    }),
  },
  notes: `
weir calls v2 of the API. v1 is called with --async, with an empty identifier and with a duration
above 30 days: a denial of a sliding window then shows when the window resets, not when the check
passes. If the identifier begins with -, put it at the end, after --.
`,
  examples: [
    'weir check user_1 --limit 10 --duration 60s',
    'weir check user_1 --limit 10 --duration 60s --cost 0',
    'weir check user_1 --limit 100 --duration 60s --algorithm gcra --burst 20',
    'weir check --limit 10 --duration 60s -- -user',
  ],
  exitCodes: [EXIT.OK, EXIT.DENIED, ...CLIENT_EXIT_CODES.slice(1)],
  exitMeanings: DECISION_MEANINGS,
};
