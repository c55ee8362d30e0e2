/** `weir check`: one check on a running server. */

import { DECISION_MEANINGS, EXIT } from '../core/exit.ts';
import { isoTime, systemMs } from '../shared-memory/clock.ts';
import { CLIENT_EXIT_CODES, type Command, subcommand } from './command.ts';
import {
  parseDuration,
  parseInteger,
  required,
  requireIdentifier,
  WINDOW_OPTION,
} from './options.ts';

interface LimitResponse {
  success: boolean;
  limit: number;
  remaining: number;
  reset: number;
}

const OPTIONS = {
  limit: { type: 'string', value: '<tokens>', help: 'tokens in a window; at least 1' },
  duration: WINDOW_OPTION,
  namespace: { type: 'string', value: '<name or id>', help: 'default: default' },
  cost: {
    type: 'string',
    value: '<tokens>',
    help: 'default: 1; 0 shows the remaining tokens and changes nothing',
  },
  async: { type: 'boolean', help: 'return the decision first and deduct afterwards' },
  'empty-identifier': { type: 'boolean', help: 'allow "" as the identifier' },
} as const;

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
          identifier: requireIdentifier(positionals[0], values['empty-identifier']),
          limit: parseInteger('limit', required('limit', values.limit), 1),
          duration: parseDuration('duration', required('duration', values.duration)),
          namespace,
          cost: cost === undefined ? undefined : parseInteger('cost', cost),
          async,
        };
        const server = call.server();
        const response = await server.post<LimitResponse>('ratelimits.limit', fields);
        const { success, remaining, limit, reset } = response;
        const isValid = typeof success === 'boolean' && Number.isFinite(remaining + limit + reset);
        if (!isValid) throw server.unexpectedResponseError(200);
        call.print(response, () => {
          const seconds = Math.max(0, Math.ceil((reset - systemMs()) / 1_000));
          const decision = `${success ? 'allowed' : 'denied'}: limit ${limit}, remaining`;
          return `${decision} ${remaining}, resets at ${isoTime(reset)} (in ${seconds} s)`;
        });
        return success ? EXIT.OK : EXIT.DENIED;
      },
    }),
  },
  notes: 'Put an identifier that begins with - after --, at the end.',
  examples: [
    'weir check user_1 --limit 10 --duration 60s',
    'weir check user_1 --limit 10 --duration 60s --cost 0',
    'weir check --limit 10 --duration 60s -- -user',
  ],
  exitCodes: [EXIT.OK, EXIT.DENIED, ...CLIENT_EXIT_CODES.slice(1)],
  exitMeanings: DECISION_MEANINGS,
};
