/**
 * Runs the commands other than `serve`, and reports what goes wrong: one line on standard error and
 * an exit code.
 */

import { formatValue } from '../core/describe.ts';
import { StartError } from '../core/errors.ts';
import { EXIT, type ExitCode, exitName } from '../core/exit.ts';
import { printError, printErrorAsJson } from '../core/fatal.ts';
import { nearestName } from '../core/nearest.ts';
import { type Command, hasFlag } from './command.ts';
import { commandHelp, generalHelp } from './help.ts';
import { ServerError } from './server-client.ts';

/** A command is loaded when it is asked for. */
interface CommandEntry {
  summary: string;
  load: () => Promise<Command>;
}

const COMMANDS: Readonly<Record<string, CommandEntry>> = {
  check: {
    summary: 'check an identifier against a limit',
    load: async () => (await import('./check.ts')).check,
  },
  reset: {
    summary: 'clear the counters of an identifier',
    load: async () => (await import('./reset.ts')).reset,
  },
  overrides: {
    summary: 'set, get, list, delete, import or export overrides',
    load: async () => (await import('./overrides.ts')).overrides,
  },
  keys: {
    summary: 'create, list or revoke API keys',
    load: async () => (await import('./keys.ts')).keys,
  },
  namespaces: {
    summary: 'list the namespaces and their ids',
    load: async () => (await import('./namespaces.ts')).namespaces,
  },
  audit: {
    summary: 'list what was changed, when and by which key',
    load: async () => (await import('./audit.ts')).audit,
  },
  config: {
    summary: 'check the settings and a configuration file without a start',
    load: async () => (await import('./config.ts')).config,
  },
  gateway: {
    summary: 'print the configuration of a gateway for a policy',
    load: async () => (await import('./gateway.ts')).gateway,
  },
  version: {
    summary: 'print the version of weir, Node and the platform; --version, -v',
    load: async () => (await import('./version.ts')).version,
  },
};

/** What the help lists. */
const HELP_ENTRIES = {
  serve: { summary: 'serve checks; what weir does without a command' },
  ...COMMANDS,
  help: { summary: 'print the help of a command' },
};

/** @param args the words of the command line. @returns the exit code */
export async function run(args: readonly string[]): Promise<ExitCode> {
  try {
    return await dispatch(args);
  } catch (error) {
    return report(error, args);
  }
}

/** Says what went wrong. @returns the exit code for it */
export function report(error: unknown, args: readonly string[]): ExitCode {
  const message = error instanceof Error ? error.message : String(error);
  const exitCode = (error instanceof StartError ? error.exitCode : undefined) ?? EXIT.USAGE;
  const isServers = error instanceof ServerError;
  const code = isServers ? error.code : exitName(exitCode);
  if (hasFlag(args, '--json')) printErrorAsJson({ error: { code, message } });
  else printError(isServers ? `${code}: ${message}` : message);
  return exitCode;
}

async function dispatch([name, ...args]: readonly string[]): Promise<ExitCode> {
  switch (name) {
    case 'help':
    case '--help':
    case '-h':
      return help(args);
    case 'version':
    case '--version':
    case '-v':
      return runCommand('version', args);
    default:
      return runCommand(name, args);
  }
}

async function runCommand(name: string, args: readonly string[]): Promise<ExitCode> {
  const found = await loadCommand(name);
  if (hasFlag(args, '--help', '-h')) return print(commandHelp(name, found));
  const { subcommands } = found;
  if (Object.hasOwn(subcommands, '')) return subcommands[''].run(`weir ${name}`, args);
  const [partName, ...rest] = args;
  const known = Object.keys(subcommands);
  if (partName === undefined) {
    const which = known.length === 1 ? known[0] : `one of ${known.join(', ')}`;
    throw new StartError(`weir ${name} needs a subcommand: ${which}; see weir help ${name}`);
  }
  const part = findByName(subcommands, partName, `a command of weir ${name}`, known);
  return part.run(`weir ${name} ${partName}`, rest);
}

/** @param words a command, which the name of one of its parts may follow */
async function help(words: readonly string[]): Promise<ExitCode> {
  const [name, ...more] = words;
  const isGeneral = name === undefined || ['help', '--help', '-h'].includes(name);
  if (isGeneral || name === 'serve') {
    rejectSurplus(more[0]);
    if (isGeneral) return print(generalHelp(HELP_ENTRIES));
    return print((await import('../config/help.ts')).helpText());
  }
  const found = await loadCommand(name);
  const isPart = more.length > 0 && more[0] !== '' && Object.hasOwn(found.subcommands, more[0]);
  rejectSurplus(more[isPart ? 1 : 0]);
  return print(commandHelp(name, found));
}

function rejectSurplus(word: string | undefined): void {
  if (word === undefined) return;
  throw new StartError(`${formatValue(word)} is one argument too many for weir help`);
}

function loadCommand(name: string): Promise<Command> {
  return findByName(COMMANDS, name, 'a command of weir', Object.keys(HELP_ENTRIES)).load();
}

function print(text: string): ExitCode {
  process.stdout.write(text);
  return EXIT.OK;
}

function findByName<T>(
  all: Readonly<Record<string, T>>,
  name: string,
  what: string,
  known: readonly string[],
): T {
  if (Object.hasOwn(all, name)) return all[name];
  const near = nearestName(name, known);
  const hint =
    near === undefined ? `it must be one of ${known.join(', ')}` : `did you mean ${near}?`;
  throw new StartError(`${formatValue(name)} is not ${what}; ${hint}`);
}
