/** `weir reset`: clears the counters of an identifier on a running server. */

import { CLIENT_EXIT_CODES, type Command, subcommand } from './command.ts';
import { COUNTER_OPTIONS, counterFields } from './counter-options.ts';
import { formatCount, quoted } from './output.ts';

const DEFAULT_NAMESPACE = 'default';

export const reset: Command = {
  subcommands: {
    '': subcommand({
      usage: '<identifier> [options]',
      argumentNames: ['identifier'],
      options: COUNTER_OPTIONS,
      run: async (call) => {
        const fields = counterFields(call.positionals, call.values);
        const server = call.server();
        const response = await server.post<{ cleared: number }>('ratelimits.reset', fields);
        const { cleared } = response;
        if (!Number.isInteger(cleared)) throw server.unexpectedResponseError(200);
        call.print(response, () => {
          const what = `${formatCount(cleared, 'counter')} of ${quoted(fields.identifier)}`;
          const where = quoted(fields.namespace ?? DEFAULT_NAMESPACE);
          return `Cleared ${what} in the namespace ${where}.`;
        });
        return undefined;
      },
    }),
  },
  notes: 'If the identifier begins with -, put it at the end, after --.',
  examples: [
    'weir reset user_1',
    'weir reset user_1 --namespace email.send --duration 60s',
    'weir reset user_1 --algorithm gcra',
  ],
  exitCodes: CLIENT_EXIT_CODES,
};
