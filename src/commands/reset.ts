/** `weir reset`: clears the counters of an identifier on a running server. */

import { ALGORITHM_NAMES } from '../core/algorithm.ts';
import { CLIENT_EXIT_CODES, type Command, subcommand } from './command.ts';
import { ALGORITHM_OPTION, parseAlgorithm, parseDuration, requireIdentifier } from './options.ts';
import { formatCount, quoted } from './output.ts';

const DEFAULT_NAMESPACE = 'default';

export const reset: Command = {
  subcommands: {
    '': subcommand({
      usage: '<identifier> [options]',
      argumentNames: ['identifier'],
      options: {
        namespace: { type: 'string', value: '<name or id>', help: `default: ${DEFAULT_NAMESPACE}` },
        duration: {
          type: 'string',
          value: '<duration>',
          help: 'only counters of checks with this duration; default: all counters',
        },
        algorithm: {
          ...ALGORITHM_OPTION,
          help: `only counters of this rule: ${ALGORITHM_NAMES}; default: all`,
        },
        'empty-identifier': { type: 'boolean', help: 'allow "" as the identifier' },
      },
      run: async (call) => {
        const { duration, algorithm, namespace, 'empty-identifier': isEmptyAllowed } = call.values;
        const identifier = requireIdentifier(call.positionals[0], isEmptyAllowed);
        const fields = {
          identifier,
          namespace,
          duration: duration === undefined ? undefined : parseDuration('duration', duration),
          algorithm: algorithm === undefined ? undefined : parseAlgorithm(algorithm),
        };
        const server = call.server();
        const response = await server.post<{ cleared: number }>('ratelimits.reset', fields);
        const { cleared } = response;
        if (!Number.isInteger(cleared)) throw server.unexpectedResponseError(200);
        call.print(response, () => {
          const what = `${formatCount(cleared, 'counter')} of ${quoted(identifier)}`;
          return `Cleared ${what} in the namespace ${quoted(namespace ?? DEFAULT_NAMESPACE)}.`;
        });
        return undefined;
      },
    }),
  },
  notes: 'Put an identifier that begins with - after --, at the end.',
  examples: [
    'weir reset user_1',
    'weir reset user_1 --namespace email.send --duration 60s',
    'weir reset user_1 --algorithm gcra',
  ],
  exitCodes: CLIENT_EXIT_CODES,
};
