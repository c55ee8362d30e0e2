/** `weir version`: which weir this is, and what it runs on. */

import { EXIT } from '../exit.ts';
import { VERSION } from '../version.ts';
import { type Command, part } from './command.ts';

export const version: Command = {
  parts: {
    '': part({
      usage: '',
      server: false,
      json: false,
      run: async () => {
        const platform = `${process.platform}-${process.arch}`;
        process.stdout.write(`weir ${VERSION} (node ${process.version}, ${platform})\n`);
        return undefined;
      },
    }),
  },
  examples: ['weir version', 'weir --version', 'weir -v'],
  codes: [EXIT.OK, EXIT.USAGE],
};
