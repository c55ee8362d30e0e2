/** `weir namespaces`: lists and deletes the namespaces of a running server. */

import type { ResponseOf } from '../api/operations/documentation.ts';
import { parseNamespaceArgument } from './analytics.ts';
import { CLIENT_EXIT_CODES, type Command, subcommand } from './command.ts';
import { formatCell, formatCount, quoted } from './output.ts';

const list = subcommand({
  usage: '',
  run: async (call) => {
    const items = call.server().listItems('ratelimits.listNamespaces', 'namespaces');
    const row = ({ id, name }: { id: string; name: string }) => [id, formatCell(name)];
    await call.printList(items, ['ID', 'NAME'], row);
    return undefined;
  },
});

const remove = subcommand({
  usage: '<namespace>',
  argumentNames: ['namespace'],
  run: async (call) => {
    const [namespace] = call.positionals;
    const fields = parseNamespaceArgument(namespace);
    const server = call.server();
    const response = await server.post<ResponseOf<'ratelimits.deleteNamespace'>>(
      'ratelimits.deleteNamespace',
      fields,
    );
    const { overrides } = response;
    if (!Number.isInteger(overrides)) throw server.unexpectedResponseError(200);
    call.print(response, () => {
      const count = formatCount(overrides, 'override');
      return `The namespace ${quoted(namespace)} is deleted, with ${count}.`;
    });
    return undefined;
  },
});

export const namespaces: Command = {
  subcommands: { list, delete: remove },
  notes: `
<namespace> is a name or an id. delete also deletes the overrides, counters and figures of the
namespace, and cannot be undone. A later check with the same name creates another namespace. To
repeat a delete, name the id: the name may be that of the next namespace.
`,
  examples: ['weir namespaces list --json', 'weir namespaces delete sms.send'],
  exitCodes: CLIENT_EXIT_CODES,
};
