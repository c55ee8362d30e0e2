/**
 * The exit codes of the command `weir` and of its server, declared once: the help texts print the
 * meanings, and the README has the same table.
 */

export const EXIT = {
  OK: 0,
  DENIED: 1,
  USAGE: 2,
  NO_ANSWER: 3,
  SERVER_ERROR: 4,
  CANNOT_SERVE: 5,
} as const;

export type ExitCode = (typeof EXIT)[keyof typeof EXIT];

export type ExitMeanings = Readonly<Partial<Record<ExitCode, string>>>;

/** Of all commands. */
export const EXIT_MEANINGS: Readonly<Record<ExitCode, string>> = {
  [EXIT.OK]: 'success; check: allowed',
  [EXIT.DENIED]: 'check: denied',
  [EXIT.USAGE]:
    'wrong command line, setting or file, nothing was done; or standard output cannot be written',
  [EXIT.NO_ANSWER]: 'no answer from the server, or an answer that is not from weir',
  [EXIT.SERVER_ERROR]: 'the server answered with an error, whose code the message names',
  [EXIT.CANNOT_SERVE]: 'serve cannot start: port, data directory, store or thread',
};

/** Of one command: of those that decide nothing, and of a check. */
const SUCCESS_MEANINGS: ExitMeanings = { [EXIT.OK]: 'success' };
export const DECISION_MEANINGS: ExitMeanings = { [EXIT.OK]: 'allowed', [EXIT.DENIED]: 'denied' };

/** The name of an exit code, for errors in JSON. */
export function exitName(code: ExitCode): string {
  const [name] = Object.entries(EXIT).find(([, value]) => value === code) ?? [];
  return name ?? String(code);
}

/**
 * The last section of a help text.
 * @param own what codes mean for one command, where that is less than for all; {} for all
 */
export function exitSection(
  codes: readonly ExitCode[],
  own: ExitMeanings = SUCCESS_MEANINGS,
): string {
  const meanings = { ...EXIT_MEANINGS, ...own };
  return `Exit codes:\n${codes.map((code) => `  ${code}  ${meanings[code]}\n`).join('')}`;
}
