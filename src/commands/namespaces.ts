/** `weir namespaces`: lists the namespaces of a running server. */

import { CLIENT_EXIT_CODES, type Command, subcommand } from './command.ts';
import { formatCell } from './output.ts';

const list = subcommand({
  usage: '',
  run: async (call) => {
    const items = call.server().listItems('ratelimits.listNamespaces', 'namespaces');
    const row = ({ id, name }: { id: string; name: string }) => [id, formatCell(name)];
    await call.printList(items, ['ID', 'NAME'], row);
    return undefined;
  },
});

export const namespaces: Command = {
  subcommands: { list },
  examples: ['weir namespaces list', 'weir namespaces list --json'],
  exitCodes: CLIENT_EXIT_CODES,
};
