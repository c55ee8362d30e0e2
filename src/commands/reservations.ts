/** `weir reserve`, `weir commit` and `weir cancel`: reservations on a running server. */

import { DECISION_MEANINGS, EXIT } from '../core/exit.ts';
import { DEFAULT_RULE } from '../core/window-rules.ts';
import { type LimitResponse, parseWindowRule, timeText, WINDOW_OPTIONS } from './check.ts';
import { CLIENT_EXIT_CODES, type Command, subcommand } from './command.ts';
import { describeHold, parseTtl, TTL_OPTION } from './hold-options.ts';
import { parseDuration, parseInteger, required, requireIdentifier } from './options.ts';
import { formatCount } from './output.ts';

interface ReserveResponse extends LimitResponse {
  reservationId: string | null;
  expiresAt: number | null;
}

export const reserve: Command = {
  subcommands: {
    '': subcommand({
      usage: '<identifier> --limit <tokens> --duration <duration> --cost <tokens> --ttl <duration>',
      argumentNames: ['identifier'],
      options: {
        ...WINDOW_OPTIONS,
        cost: { type: 'string', value: '<tokens>', help: 'the most that the work may use' },
        ttl: TTL_OPTION,
        'empty-identifier': { type: 'boolean', help: 'allow "" as the identifier' },
      },
      run: async (call) => {
        const { values, positionals } = call;
        const limit = parseInteger('limit', required('limit', values.limit), 1);
        const { algorithm = DEFAULT_RULE, burst } = parseWindowRule(values, limit);
        const request = {
          namespace: values.namespace,
          identifier: requireIdentifier(positionals[0], values['empty-identifier']),
          limit,
          duration: parseDuration('duration', required('duration', values.duration)),
          cost: parseInteger('cost', required('cost', values.cost)),
          ttl: parseTtl(required('ttl', values.ttl)),
          algorithm,
          burst,
        };
        const server = call.server();
        const response = await server.post<ReserveResponse>('ratelimits.reserve', request);
        const { success, remaining, reset, reservationId, expiresAt } = response;
        const isValid =
          typeof success === 'boolean' && Number.isFinite(response.limit + remaining + reset);
        if (!isValid) throw server.unexpectedResponseError(200);
        call.print(response, () => {
          const decision = `${success ? 'reserved' : 'denied'}: limit ${response.limit}, remaining`;
          const window = `${decision} ${remaining}, ${timeText(response, request)}`;
          if (!success) return window;
          return `${window}, ${describeHold('reservation', reservationId, expiresAt)}`;
        });
        return success ? EXIT.OK : EXIT.DENIED;
      },
    }),
  },
  notes: `
Counts the cost at once, if the limit allows it. When the work has ended, weir commit corrects it.
The window rule is that of weir check, so both share a counter. If the identifier begins with -, put
it at the end, after --.
`,
  examples: [
    'weir reserve org_1 --namespace llm --limit 100000 --duration 60s --cost 4000 --ttl 2m',
    'weir reserve org_1 --limit 100 --duration 1h --cost 5 --ttl 30s --json | jq -r .reservationId',
  ],
  exitCodes: [EXIT.OK, EXIT.DENIED, ...CLIENT_EXIT_CODES.slice(1)],
  exitMeanings: { ...DECISION_MEANINGS, [EXIT.OK]: 'reserved' },
};

interface CommitResponse {
  charged: number;
  released: number;
  late: boolean;
}

export const commit: Command = {
  subcommands: {
    '': subcommand({
      usage: '<reservationId> --cost <tokens>',
      argumentNames: ['reservationId'],
      options: {
        cost: { type: 'string', value: '<tokens>', help: 'tokens that the work has used' },
      },
      run: async (call) => {
        const [reservationId] = call.positionals;
        const cost = parseInteger('cost', required('cost', call.values.cost));
        const server = call.server();
        const fields = { reservationId, cost };
        const response = await server.post<CommitResponse>('ratelimits.commit', fields);
        const { charged, released, late } = response;
        if (!Number.isInteger(charged + released)) throw server.unexpectedResponseError(200);
        call.print(response, () => {
          const end = late ? ' It had ended by itself before.' : '';
          return `The reservation has ${charged} charged and ${released} released tokens.${end}`;
        });
        return undefined;
      },
    }),
  },
  notes: `
A cost below the reserved one returns the difference, as far as the window has not ended. A cost
above it is charged too, also beyond the limit. A second commit changes nothing.
`,
  examples: ['weir commit rlrs_... --cost 1250'],
  exitCodes: CLIENT_EXIT_CODES,
};

export const cancel: Command = {
  subcommands: {
    '': subcommand({
      usage: '<reservationId>',
      argumentNames: ['reservationId'],
      run: async (call) => {
        const [reservationId] = call.positionals;
        const server = call.server();
        const fields = { reservationId };
        const response = await server.post<{ released: number }>('ratelimits.cancel', fields);
        const { released } = response;
        if (!Number.isInteger(released)) throw server.unexpectedResponseError(200);
        call.print(response, () => `Released ${formatCount(released, 'token')}.`);
        return undefined;
      },
    }),
  },
  notes: 'For work that was not done: all tokens return, as far as the window has not ended.',
  examples: ['weir cancel rlrs_...'],
  exitCodes: CLIENT_EXIT_CODES,
};
