#!/usr/bin/env node
/**
 * The command `weir`: which of its parts is meant. Without one it serves. The others talk to a
 * running server, and end with code 2 and one sentence where that, or what they were told, is
 * wrong.
 */

import { say } from './supervise/fatal.ts';

const COMMANDS: Record<string, () => Promise<(args: readonly string[]) => Promise<number>>> = {
  keys: async () => (await import('./cli/keys.ts')).keys,
  overrides: async () => (await import('./cli/overrides.ts')).overrides,
  check: async () => (await import('./cli/check.ts')).check,
  reset: async () => (await import('./cli/reset.ts')).reset,
  gateway: async () => (await import('./cli/gateway.ts')).gateway,
};

const USAGE = `weir: a rate limiting sidecar

  weir [serve] [flags]      serve checks; weir serve --help lists the settings
  weir check                one check, for a human: exit code 0 admitted, 1 refused, 2 error
  weir reset                let an identifier in again
  weir overrides            set, get, list, delete, import or export overrides
  weir gateway              print the configuration of a gateway that asks weir
  weir keys                 create, list or revoke API keys

Each says more with --help. All but serve talk to a running server: WEIR_URL says where it is
(http://127.0.0.1:7070 unless told otherwise), WEIR_KEY has the API key.
`;

/** Whoever reads the output may have had enough: `weir overrides export | head -1`. */
function endQuietly(error: NodeJS.ErrnoException): void {
  if (error.code !== 'EPIPE') say(`standard output: ${error.message}`);
  process.exit(2);
}

const [command = 'serve', ...args] = process.argv.slice(2);
const load = Object.hasOwn(COMMANDS, command) ? COMMANDS[command] : undefined;
if (load !== undefined) {
  process.stdout.on('error', endQuietly);
  try {
    process.exitCode = await (await load())(args);
  } catch (error) {
    say(error instanceof Error ? error.message : String(error));
    process.exitCode = 2;
  }
} else if (command === 'help') {
  process.stdout.write(USAGE);
} else if (command === 'serve' || command.startsWith('-')) {
  // What is read while it loads need not be read again.
  process.on('SIGHUP', () => {});
  const { main } = await import('./main.ts');
  await main(command === 'serve' ? args : [command, ...args]);
} else {
  say(`${JSON.stringify(command)} is no command; see weir help`);
  process.exitCode = 2;
}
