/** Reads what stands behind a command. What is wrong is a StartError that names it. */

import { type ParseArgsConfig, parseArgs } from 'node:util';
import { describe } from '../describe.ts';
import { StartError } from '../errors.ts';
import { AMOUNT_MAX } from '../limits.ts';

type Options = NonNullable<ParseArgsConfig['options']>;

/** @param positionals names of the words that are not options, all required */
export function readOptions<const O extends Options>(
  args: readonly string[],
  options: O,
  positionals: readonly string[] = [],
) {
  let parsed: ReturnType<typeof parse<O>>;
  try {
    parsed = parse(args, options);
  } catch (error) {
    throw new StartError((error as Error).message);
  }
  const missing = positionals[parsed.positionals.length];
  if (missing !== undefined) throw new StartError(`<${missing}> is missing; see --help`);
  const tooMuch = parsed.positionals[positionals.length];
  if (tooMuch !== undefined) throw new StartError(`${describe(tooMuch)} is too much; see --help`);
  return parsed;
}

function parse<const O extends Options>(args: readonly string[], options: O) {
  return parseArgs({ args: [...args], options, allowPositionals: true, strict: true });
}

/** @throws StartError where a required option is not there */
export function required(option: string, value: string | undefined): string {
  if (value === undefined) throw new StartError(`--${option} is missing; see --help`);
  return value;
}

export function integerOf(option: string, value: string): number {
  const number = /^\d+$/.test(value) ? Number(value) : Number.NaN;
  if (Number.isSafeInteger(number)) return number;
  throw new StartError(
    `--${option} must be an integer from 0 to ${AMOUNT_MAX}, got ${describe(value)}`,
  );
}

const UNITS_MS = { ms: 1, s: 1_000, m: 60_000, h: 3_600_000, d: 86_400_000 } as const;

/** `90000`, `90s`, `15m`, `1h`, `30d`: in ms. */
export function durationOf(option: string, value: string): number {
  const [, count, unit = 'ms'] = /^(\d{1,13})(ms|s|m|h|d)?$/.exec(value) ?? [];
  if (count !== undefined) return Number(count) * UNITS_MS[unit as keyof typeof UNITS_MS];
  throw new StartError(
    `--${option} must be a duration like 90000, 90s, 15m, 1h or 30d, got ${describe(value)}`,
  );
}

/** What stands behind `--` are words like any others. */
export function asksForHelp(args: readonly string[]): boolean {
  const options = args.slice(0, args.includes('--') ? args.indexOf('--') : undefined);
  return options.includes('--help') || options.includes('-h');
}

/** For each subcommand, what does it. */
export type Subcommands = Record<string, (args: readonly string[]) => Promise<void>>;

/** @returns the exit code */
export async function runSubcommand(
  command: string,
  subcommands: Subcommands,
  usage: string,
  args: readonly string[],
): Promise<number> {
  const [name, ...rest] = args;
  if (name === undefined || asksForHelp(args)) {
    process.stdout.write(usage);
    return name === undefined ? 2 : 0;
  }
  if (!Object.hasOwn(subcommands, name)) {
    throw new StartError(`${describe(name)} is no command of weir ${command}; see --help`);
  }
  await subcommands[name](rest);
  return 0;
}

/** One line of JSON on standard output. */
export function printLine(value: object): void {
  process.stdout.write(`${JSON.stringify(value)}\n`);
}
