/**
 * Runs every command except `serve`. A failure is one line on standard error and an exit code.
 */

import { formatValue } from '../core/describe.ts';
import { StartError } from '../core/errors.ts';
import { EXIT, type ExitCode, exitName } from '../core/exit.ts';
import { printError, printErrorAsJson } from '../core/fatal.ts';
import { didYouMean } from '../core/nearest.ts';
import { type Command, type CommandEntry, hasFlag, surplusError } from './command.ts';
import { commandHelp, generalHelp } from './help.ts';
import { ServerError } from './server-client.ts';

export const COMMANDS: Readonly<Record<string, CommandEntry>> = {
  check: {
    summary: 'check an identifier against a limit',
    load: async () => (await import('./check.ts')).check,
  },
  inspect: {
    summary: 'show the counters of an identifier',
    load: async () => (await import('./inspect.ts')).inspect,
  },
  explain: {
    summary: 'explain why a check is allowed or denied',
    load: async () => (await import('./explain.ts')).explain,
  },
  reset: {
    summary: 'clear the counters of an identifier',
    load: async () => (await import('./reset.ts')).reset,
  },
  reserve: {
    summary: 'reserve tokens for work whose cost is known later',
    load: async () => (await import('./reservations.ts')).reserve,
  },
  commit: {
    summary: 'correct a reservation to the cost that the work had',
    load: async () => (await import('./reservations.ts')).commit,
  },
  cancel: {
    summary: 'return all tokens of a reservation',
    load: async () => (await import('./reservations.ts')).cancel,
  },
  acquire: {
    summary: 'acquire a concurrency lease',
    load: async () => (await import('./leases.ts')).acquire,
  },
  renew: {
    summary: 'renew a concurrency lease',
    load: async () => (await import('./leases.ts')).renew,
  },
  release: {
    summary: 'release a concurrency lease',
    load: async () => (await import('./leases.ts')).release,
  },
  run: {
    summary: 'run a command while it holds a concurrency lease',
    load: async () => (await import('./job.ts')).job,
  },
  holds: {
    summary: 'end a live reservation or lease by its handle',
    load: async () => (await import('./holds.ts')).holds,
  },
  overrides: {
    summary: 'set, get, list, delete, import or export overrides',
    load: async () => (await import('./overrides.ts')).overrides,
  },
  blocks: {
    summary: 'block, list or unblock identifiers',
    load: async () => (await import('./blocks.ts')).blocks,
  },
  keys: {
    summary: 'create, list or revoke API keys',
    load: async () => (await import('./keys.ts')).keys,
  },
  namespaces: {
    summary: 'list and delete namespaces',
    load: async () => (await import('./namespaces.ts')).namespaces,
  },
  policies: {
    summary: 'list the gateway policies that a server applies',
    load: async () => (await import('./policies.ts')).policies,
  },
  stats: {
    summary: 'show what the namespaces and their busiest identifiers use',
    load: async () => (await import('./stats.ts')).stats,
  },
  top: {
    summary: 'show the checks per second of the namespaces, live',
    load: async () => (await import('./top.ts')).top,
  },
  events: {
    summary: 'print the recent decisions, and new ones as they come',
    load: async () => (await import('./events.ts')).events,
  },
  audit: {
    summary: 'list changes, their times and the keys that made them',
    load: async () => (await import('./audit.ts')).audit,
  },
  config: {
    summary: 'validate the settings and a configuration file without a start',
    load: async () => (await import('./config.ts')).config,
  },
  migrate: {
    summary: 'move the records of a local store into Redis',
    load: async () => (await import('./migrate.ts')).migrate,
  },
  cluster: {
    summary: 'list the machines that share a Redis, or forget one',
    load: async () => (await import('./cluster.ts')).cluster,
  },
  health: {
    summary: 'ask a server whether it answers checks',
    load: async () => (await import('./health.ts')).health,
  },
  rls: {
    summary: "validate or try the files of Envoy's rate limit service",
    load: async () => (await import('./rls.ts')).rls,
  },
  gateway: {
    summary: 'print the configuration of a gateway for a policy',
    load: async () => (await import('./gateway.ts')).gateway,
  },
  print: {
    summary: 'print alerts for Prometheus, or a dashboard for Grafana',
    load: async () => (await import('./print.ts')).print,
  },
  completion: {
    summary: 'print a script that completes command lines in bash, zsh or fish',
    load: async () => (await import('./completion.ts')).completionOf(HELP_ENTRIES, COMMANDS),
  },
  version: {
    summary: 'print the version of weir, Node and the platform; --version, -v',
    load: async () => (await import('./version.ts')).version,
  },
};

/** The commands that the general help lists, in its order. */
export const HELP_ENTRIES = {
  serve: { summary: 'serve checks; the default without a command' },
  ...COMMANDS,
  help: { summary: 'print the help of a command' },
};

/** @param args the arguments of the process. @returns the exit code */
export async function run(args: readonly string[]): Promise<number> {
  try {
    return await dispatch(args);
  } catch (error) {
    return report(error, args);
  }
}

/** Prints an error. @returns the exit code for it */
export function report(error: unknown, args: readonly string[]): ExitCode {
  const message = error instanceof Error ? error.message : String(error);
  const exitCode = (error instanceof StartError ? error.exitCode : undefined) ?? EXIT.USAGE;
  const isFromServer = error instanceof ServerError;
  const code = isFromServer ? error.code : exitName(exitCode);
  if (hasFlag(args, '--json')) printErrorAsJson({ error: { code, message } });
  else printError(isFromServer ? `${code}: ${message}` : message);
  return exitCode;
}

async function dispatch([name, ...args]: readonly string[]): Promise<number> {
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

async function runCommand(name: string, args: readonly string[]): Promise<number> {
  const command = await loadCommand(name);
  if (hasFlag(args, '--help', '-h')) return print(commandHelp(name, command));
  const { subcommands } = command;
  if (Object.hasOwn(subcommands, '')) return subcommands[''].run(`weir ${name}`, args);
  const [subcommandName, ...rest] = args;
  const known = Object.keys(subcommands);
  if (subcommandName === undefined) {
    const accepted = known.length === 1 ? known[0] : `one of ${known.join(', ')}`;
    throw new StartError(`weir ${name} needs a subcommand: ${accepted}; see weir help ${name}`);
  }
  const all = `it must be one of ${known.join(', ')}`;
  const subcommand = findByName(subcommands, subcommandName, `a command of weir ${name}`, all);
  return subcommand.run(`weir ${name} ${subcommandName}`, rest);
}

/** @param args a command, optionally followed by one of its subcommands */
async function help(args: readonly string[]): Promise<ExitCode> {
  const [name, ...more] = args;
  const isGeneral = name === undefined || ['help', '--help', '-h'].includes(name);
  if (isGeneral || name === 'serve') {
    rejectSurplus(more[0]);
    if (isGeneral) return print(generalHelp(HELP_ENTRIES));
    return print((await import('../config/help.ts')).helpText());
  }
  const command = await loadCommand(name);
  const hasSubcommand =
    more.length > 0 && more[0] !== '' && Object.hasOwn(command.subcommands, more[0]);
  rejectSurplus(more[hasSubcommand ? 1 : 0]);
  return print(commandHelp(name, command));
}

function rejectSurplus(argument: string | undefined): void {
  if (argument !== undefined) throw surplusError(argument, 'weir help');
}

function loadCommand(name: string): Promise<Command> {
  const known = Object.keys(HELP_ENTRIES);
  return findByName(COMMANDS, name, 'a command of weir', 'weir help lists them', known).load();
}

function print(text: string): ExitCode {
  process.stdout.write(text);
  return EXIT.OK;
}

function findByName<T>(
  all: Readonly<Record<string, T>>,
  name: string,
  what: string,
  otherwise: string,
  known = Object.keys(all),
): T {
  if (Object.hasOwn(all, name)) return all[name];
  const hint = didYouMean(name, known) || `; ${otherwise}`;
  throw new StartError(`${formatValue(name)} is not ${what}${hint}`);
}
