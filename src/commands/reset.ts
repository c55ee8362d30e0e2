/** `weir reset`: clears the counters of an identifier on a running server. */

import { DEFAULT_NAMESPACE } from '../api/common/check-request.ts';
import { CLIENT_EXIT_CODES, type Command, subcommand } from './command.ts';
import { COUNTER_OPTIONS, counterFields } from './counter-options.ts';
import { formatCount, quoted } from './output.ts';
import { type ServerClient, ServerError } from './server-client.ts';

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
        if (cleared === 0) await requireNamespace(server, fields);
        call.print(response, () => {
          const what = `${formatCount(cleared, 'counter')} of ${quoted(fields.identifier)}`;
          const where = quoted(fields.namespace ?? DEFAULT_NAMESPACE);
          return `Cleared ${what} in the namespace ${where}.`;
        });
        return undefined;
      },
    }),
  },
  notes: `
A namespace that does not exist is an error, if the key has the permission read_namespace. If the
identifier begins with -, put it at the end, after --.
`,
  examples: [
    'weir reset user_1',
    'weir reset user_1 --namespace email.send --duration 60s',
    'weir reset user_1 --algorithm gcra',
  ],
  exitCodes: CLIENT_EXIT_CODES,
};

/**
 * A reset by the API needs no namespace, so it does not notice a mistyped name. An inspection does,
 * with a key that may inspect. Its other errors do not matter: the reset is done.
 */
async function requireNamespace(
  server: ServerClient,
  fields: ReturnType<typeof counterFields>,
): Promise<void> {
  try {
    await server.post<object>('ratelimits.inspect', fields);
  } catch (error) {
    if (error instanceof ServerError && error.code === 'NOT_FOUND') throw error;
  }
}
