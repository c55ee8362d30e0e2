/**
 * The shape of a command, and the parser of its arguments. Each subcommand declares its options
 * once, for the parser and for the help text. An invalid argument is a StartError that names it.
 */

import { type ParseArgsConfig, parseArgs } from 'node:util';
import { formatValue } from '../core/describe.ts';
import { StartError } from '../core/errors.ts';
import { EXIT, type ExitCode, type ExitMeanings } from '../core/exit.ts';
import { nearestName } from '../core/nearest.ts';
import { UsageError } from './options.ts';
import { formatTable } from './output.ts';
import { SERVER_OPTIONS, ServerClient } from './server-client.ts';

export interface Option {
  type: 'string' | 'boolean';
  multiple?: true;
  short?: string;
  /** The placeholder of the value in the help text. */
  value?: string;
  /** Values that a shell completes. The command validates the value itself. */
  choices?: readonly string[];
  help: string;
}
export type Options = Readonly<Record<string, Option>>;

type Value<O extends Option> = O['type'] extends 'boolean'
  ? true
  : O extends { multiple: true }
    ? string[]
    : string;
type Values<O extends Options> = { -readonly [N in keyof O]?: Value<O[N]> };

const JSON_OPTION = {
  json: { type: 'boolean', help: 'print one JSON object per line, and errors as JSON' },
} as const;
const HELP_OPTION = { help: { type: 'boolean', short: 'h', help: 'print this help' } } as const;

/** For example `set` of `weir overrides`. */
interface Subcommand {
  /** The command line after `weir`, the command and the subcommand. */
  usage: string;
  argumentNames: readonly string[];
  /** Values of the first argument that a shell completes. */
  argumentChoices: readonly string[];
  options: Options;
  /** @returns the exit code */
  run(command: string, args: readonly string[]): Promise<number>;
}

export interface Command {
  /** A command without subcommands has one entry, whose name is empty. */
  subcommands: Readonly<Record<string, Subcommand>>;
  /** Text between the usage and the options of the help. */
  notes?: string;
  examples: readonly string[];
  exitCodes: readonly ExitCode[];
  /** Meanings of exit codes that differ from the general ones. */
  exitMeanings?: ExitMeanings;
}

/** A command in the list of all. */
export interface CommandEntry {
  summary: string;
  /** Imports the command. */
  load: () => Promise<Command>;
}

/** The exit codes of a command that talks to a server. */
export const CLIENT_EXIT_CODES = [EXIT.OK, EXIT.USAGE, EXIT.NO_ANSWER, EXIT.SERVER_ERROR] as const;

/** One run of a subcommand: its parsed arguments and its output. */
class Invocation<O extends Options> {
  readonly values: Values<O>;
  readonly positionals: readonly string[];
  readonly #commonOptions: { json?: true; url?: string; timeout?: string };
  #server: ServerClient | undefined;

  constructor(values: Values<O>, positionals: readonly string[]) {
    this.values = values;
    this.positionals = positionals;
    this.#commonOptions = values;
  }

  get isJson(): boolean {
    return this.#commonOptions.json === true;
  }

  server(): ServerClient {
    this.#server ??= new ServerClient(this.#commonOptions);
    return this.#server;
  }

  /** Prints a response: as JSON with --json, else as text. */
  print(response: object, text: () => string): void {
    process.stdout.write(this.isJson ? `${JSON.stringify(response)}\n` : `${text()}\n`);
  }

  /** Prints a list: one JSON object per line with --json, as pages arrive; else a table. */
  async printList<T extends object>(
    items: AsyncIterable<object>,
    header: readonly string[],
    row: (item: T) => string[],
  ): Promise<void> {
    if (this.isJson) return printLines(items);
    const rows: string[][] = [];
    for await (const item of items) {
      try {
        rows.push(row(item as T));
      } catch {
        throw this.server().unexpectedResponseError(200);
      }
    }
    process.stdout.write(formatTable(header, rows));
  }
}

export async function printLines(items: AsyncIterable<object>): Promise<void> {
  for await (const item of items) process.stdout.write(`${JSON.stringify(item)}\n`);
}

interface SubcommandDeclaration<O extends Options> {
  /** The arguments and options, as the help shows them. */
  usage: string;
  argumentNames?: readonly string[];
  argumentChoices?: readonly string[];
  isLastArgumentOptional?: true;
  options?: O;
  /** The words after `--` are a command line, and the only arguments. */
  takesCommandLine?: true;
  needsServer?: false;
  hasJsonOption?: false;
  /** @returns the exit code; undefined for 0 */
  run(call: Invocation<O>): Promise<number | undefined>;
}

export function subcommand<const O extends Options>(
  declaration: SubcommandDeclaration<O>,
): Subcommand {
  const { usage, argumentNames = [], argumentChoices = [], run } = declaration;
  const options: Options = {
    ...declaration.options,
    ...(declaration.hasJsonOption === false ? {} : JSON_OPTION),
    ...(declaration.needsServer === false ? {} : SERVER_OPTIONS),
    ...HELP_OPTION,
  };
  const requiredNames = declaration.isLastArgumentOptional
    ? argumentNames.slice(0, -1)
    : argumentNames;
  return {
    usage,
    argumentNames,
    argumentChoices,
    options,
    run: async (command, args) => {
      try {
        const commandLine = declaration.takesCommandLine ? wordsAfterTerminator(args) : [];
        const own = args.slice(0, args.length - commandLine.length);
        const { values, positionals } = parseOptions(command, own, options, argumentNames);
        const missing = requiredNames[positionals.length];
        if (missing !== undefined) throw new UsageError(`<${missing}> is required`);
        const surplus = positionals[argumentNames.length];
        if (surplus !== undefined) throw surplusError(surplus, command);
        const all = [...positionals, ...commandLine];
        return (await run(new Invocation(values as Values<O>, all))) ?? EXIT.OK;
      } catch (error) {
        if (!(error instanceof UsageError)) throw error;
        throw new StartError(`${error.message}; usage: ${command} ${usage}`.trimEnd());
      }
    },
  };
}

function wordsAfterTerminator(args: readonly string[]): readonly string[] {
  const words = args.includes('--') ? args.slice(args.indexOf('--') + 1) : [];
  if (words.length > 0) return words;
  throw new UsageError('<command> is required, at the end, after "--"');
}

export function surplusError(argument: string, command: string): UsageError {
  return new UsageError(`${formatValue(argument)} is one argument too many for ${command}`);
}

function parseOptions(
  command: string,
  args: readonly string[],
  options: Options,
  argumentNames: readonly string[],
) {
  const config: ParseArgsConfig = { args: [...args], options, allowPositionals: true };
  const parsed = parseArgs({ ...config, strict: false, tokens: true });
  for (const token of parsed.tokens) {
    if (token.kind !== 'option') continue;
    const { name, rawName, value, inlineValue, index } = token;
    if (!Object.hasOwn(options, name)) {
      const hint = suggestOption(args[index], Object.keys(options), argumentNames);
      const [typed] = args[index].split('=');
      const help = `; see weir help ${command.split(' ')[1]}`;
      throw new StartError(`${typed} is not an option of ${command}${hint || help}`);
    }
    if (options[name].type === 'boolean') {
      if (value !== undefined) throw new StartError(`${rawName} takes no value`);
    } else if (value === undefined || (!inlineValue && /^-\D/.test(value))) {
      throw new StartError(`${rawName} needs a value: ${options[name].value}`);
    }
  }
  return parsed;
}

/** A hint for an unknown option, or an empty string. @param argument as the user typed it */
function suggestOption(
  argument: string,
  known: readonly string[],
  argumentNames: readonly string[],
): string {
  const name = argument.replace(/^--?|=.*$/gs, '');
  const isLong = argument.startsWith('--');
  // A short option is compared exactly: one letter is within two edits of many names.
  const near = isLong ? nearestName(name, known) : known.find((option) => option === name);
  if (near !== undefined) return `; did you mean --${near}?`;
  if (isLong || argumentNames.length === 0) return '';
  const what = `${/^[aeiou]/.test(argumentNames[0]) ? 'an' : 'a'} ${argumentNames[0]}`;
  return `; put ${what} that begins with "-" after "--", at the end`;
}

/** Whether the arguments contain one of the options. Arguments after `--` are not options. */
export function hasFlag(args: readonly string[], ...options: string[]): boolean {
  const end = args.indexOf('--');
  return args.slice(0, end === -1 ? undefined : end).some((argument) => options.includes(argument));
}
