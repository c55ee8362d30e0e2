/** `weir holds`: ends a live reservation or lease on a running server, for operators. */

import type { ResponseOf } from '../api/operations/documentation.ts';
import { CLIENT_EXIT_CODES, type Command, subcommand } from './command.ts';
import { requireIdentifier } from './options.ts';
import { formatCount } from './output.ts';

const end = subcommand({
  usage: '<identifier> <handle> [options]',
  argumentNames: ['identifier', 'handle'],
  options: {
    namespace: { type: 'string', value: '<name or id>', help: 'default: default' },
    'empty-identifier': { type: 'boolean', help: 'allow "" as the identifier' },
  },
  run: async (call) => {
    const { positionals, values } = call;
    const [text, handle] = positionals;
    const identifier = requireIdentifier(text, values['empty-identifier']);
    const server = call.server();
    const response = await server.post<ResponseOf<'ratelimits.endHold'>>('ratelimits.endHold', {
      namespace: values.namespace,
      identifier,
      handle,
    });
    const { kind, released } = response;
    if (!Number.isInteger(released)) throw server.unexpectedResponseError(200);
    call.print(response, () => {
      return `The ${kind} ${handle} has ended. Released ${formatCount(released, 'token')}.`;
    });
    return undefined;
  },
});

export const holds: Command = {
  subcommands: { end },
  notes: `
end cancels a reservation or releases a lease, also one of another client. <handle> is the HANDLE
that weir inspect and weir explain print. The work itself goes on, if its client does not stop it.
Needs the permission reset. The audit log gets an entry. If the identifier begins with -, put both
at the end, after --.
`,
  examples: ['weir holds end tenant_1 1c-09f3 --namespace jobs'],
  exitCodes: CLIENT_EXIT_CODES,
};
