/** `weir version`: prints the versions of weir and Node, and the platform. */

import { EXIT } from '../core/exit.ts';
import { VERSION } from '../core/version.ts';
import { type Command, subcommand } from './command.ts';

export const version: Command = {
  subcommands: {
    '': subcommand({
      usage: '',
      needsServer: false,
      hasJsonOption: false,
      run: async () => {
        const platform = `${process.platform}-${process.arch}`;
        process.stdout.write(`weir ${VERSION} (node ${process.version}, ${platform})\n`);
        return undefined;
      },
    }),
  },
  examples: ['weir --version', 'weir -v'],
  exitCodes: [EXIT.OK, EXIT.USAGE],
};
