/**
 * The command `weir`. Without a command, or with the flag of a setting, it runs the server. The
 * server and each command are loaded only when they are needed.
 */

import './runtime/inspector.ts';
import { StartError } from './core/errors.ts';
import { EXIT } from './core/exit.ts';

/** Flags that are short for a command. */
const COMMAND_FLAGS = ['--help', '-h', '--version', '-v'];

const args = process.argv.slice(2);
const [first = 'serve'] = args;
if (first === 'serve' || (first.startsWith('-') && !COMMAND_FLAGS.includes(first))) {
  // The default of SIGHUP would end the process; a server that loads reads all its files anyway.
  process.on('SIGHUP', () => {});
  const { main } = await import('./main.ts');
  await main(first === 'serve' ? args.slice(1) : args);
} else {
  const { run, report } = await import('./commands/run.ts');
  process.stdout.on('error', (error: NodeJS.ErrnoException) => {
    // The reader may close the pipe early, as in `weir overrides export | head -1`.
    const isClosed = error.code === 'EPIPE';
    const message = `standard output: ${error.message}`;
    process.exit(isClosed ? EXIT.USAGE : report(new StartError(message), args));
  });
  process.exitCode = await run(args);
}
