/** `weir namespaces`: the namespaces of a running server. */

import { CODES, type Command, part } from './command.ts';
import { cell } from './output.ts';

const list = part({
  usage: '',
  run: async (call) => {
    const items = call.server().items('ratelimits.listNamespaces', 'namespaces');
    const row = ({ id, name }: { id: string; name: string }) => [id, cell(name)];
    await call.printList(items, ['ID', 'NAME'], row);
    return undefined;
  },
});

export const namespaces: Command = {
  parts: { list },
  examples: ['weir namespaces list', 'weir namespaces list --json'],
  codes: CODES,
};
