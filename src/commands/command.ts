/**
 * The shape of a command, and the parser of its words. Each part declares its options once, for
 * the parser and for the help. What is wrong is a StartError that names the word.
 */

import { type ParseArgsConfig, parseArgs } from 'node:util';
import { formatValue } from '../core/describe.ts';
import { StartError } from '../core/errors.ts';
import { EXIT, type ExitCode, type ExitMeanings } from '../core/exit.ts';
import { nearestName } from '../core/nearest.ts';
import { formatTable } from './output.ts';
import { SERVER_OPTIONS, ServerClient } from './server-client.ts';

export interface Option {
  type: 'string' | 'boolean';
  multiple?: true;
  short?: string;
  /** The value, as the help shows it. */
  value?: string;
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

/** A part of a command, or all of it: `set` of `weir overrides`. */
export interface Subcommand {
  /** The command line behind `weir` and the command. */
  usage: string;
  options: Options;
  run(command: string, args: readonly string[]): Promise<ExitCode>;
}

export interface Command {
  /** A part without a name is the whole command. */
  subcommands: Readonly<Record<string, Subcommand>>;
  /** More to know, in lines. */
  notes?: string;
  examples: readonly string[];
  exitCodes: readonly ExitCode[];
  /** Of these codes, where they mean more than success or a failure. */
  exitMeanings?: ExitMeanings;
}

/** The exit codes of a command that talks to a server. */
export const CLIENT_EXIT_CODES = [EXIT.OK, EXIT.USAGE, EXIT.NO_ANSWER, EXIT.SERVER_ERROR] as const;

/** What a part is run with. */
export class Invocation<O extends Options> {
  readonly values: Values<O>;
  readonly positionals: readonly string[];
  readonly #commonOptions: { json?: true; url?: string; timeout?: string };
  #server: ServerClient | undefined;

  constructor(values: Values<O>, words: readonly string[]) {
    this.values = values;
    this.positionals = words;
    this.#commonOptions = values;
  }

  get isJson(): boolean {
    return this.#commonOptions.json === true;
  }

  server(): ServerClient {
    this.#server ??= new ServerClient(this.#commonOptions);
    return this.#server;
  }

  /** Prints an answer: with --json as it is, otherwise a text for people. */
  print(response: object, text: () => string): void {
    process.stdout.write(this.isJson ? `${JSON.stringify(response)}\n` : `${text()}\n`);
  }

  /** Prints a list: with --json one item per line as it comes, otherwise a table. */
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
  /** Behind the name of the part; in <> each of the words. */
  usage: string;
  argumentNames?: readonly string[];
  /** Whether the last of the words may be left out. */
  isLastArgumentOptional?: true;
  options?: O;
  /** Whether it talks to a server. */
  needsServer?: false;
  /** Whether it prints a result, which --json makes into JSON. */
  hasJsonOption?: false;
  /** @returns the exit code, where it is not 0 */
  run(call: Invocation<O>): Promise<ExitCode | undefined>;
}

export function subcommand<const O extends Options>(
  declaration: SubcommandDeclaration<O>,
): Subcommand {
  const { usage, argumentNames = [], run } = declaration;
  const own = {
    ...declaration.options,
    ...(declaration.hasJsonOption === false ? {} : JSON_OPTION),
  };
  const ofServer = declaration.needsServer === false ? {} : SERVER_OPTIONS;
  const options: Options = { ...own, ...ofServer, ...HELP_OPTION };
  const neededWords = declaration.isLastArgumentOptional
    ? argumentNames.slice(0, -1)
    : argumentNames;
  return {
    usage,
    options,
    run: async (command, args) => {
      const { values, positionals } = parseOptions(command, args, options, argumentNames);
      const missing = neededWords[positionals.length];
      if (missing !== undefined) throw new StartError(`<${missing}> is required`);
      const surplus = positionals[argumentNames.length];
      if (surplus !== undefined) {
        throw new StartError(`${formatValue(surplus)} is one argument too many for ${command}`);
      }
      return (await run(new Invocation(values as Values<O>, positionals))) ?? EXIT.OK;
    },
  };
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
      throw new StartError(`${typed} is not an option of ${command}${hint}`);
    }
    if (options[name].type === 'boolean') {
      if (value !== undefined) throw new StartError(`${rawName} takes no value`);
    } else if (value === undefined || (!inlineValue && /^-\D/.test(value))) {
      throw new StartError(`${rawName} needs a value: ${options[name].value}`);
    }
  }
  return parsed;
}

/** What an unknown option was probably meant to be. @param word as it was typed */
function suggestOption(
  word: string,
  known: readonly string[],
  argumentNames: readonly string[],
): string {
  const name = word.replace(/^--?|=.*$/gs, '');
  const isLong = word.startsWith('--');
  // One letter is as near to any other as a word of two; `-limit` stands for nothing else.
  const near = isLong ? nearestName(name, known) : known.find((option) => option === name);
  if (near !== undefined) return `; did you mean --${near}?`;
  if (isLong || argumentNames.length === 0) return '';
  const what = `${/^[aeiou]/.test(argumentNames[0]) ? 'an' : 'a'} ${argumentNames[0]}`;
  return `; ${what} that begins with "-" stands behind "--", at the end`;
}

/** Words behind `--` are no options. */
export function hasFlag(args: readonly string[], ...options: string[]): boolean {
  const end = args.indexOf('--');
  return args.slice(0, end === -1 ? undefined : end).some((word) => options.includes(word));
}
