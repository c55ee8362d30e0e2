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

export const EXIT_MEANINGS: Readonly<Record<ExitCode, string>> = {
  [EXIT.OK]: 'success; check: allowed',
  [EXIT.DENIED]: 'check: denied',
  [EXIT.USAGE]:
    'wrong command line, setting or file: nothing was done; or unusable standard output',
  [EXIT.NO_ANSWER]: 'no answer from the server, or an answer that is not from weir',
  [EXIT.SERVER_ERROR]: 'the server answered with an error, whose code the message names',
  [EXIT.CANNOT_SERVE]: 'serve cannot start or go on: port, data directory, store or thread',
};

/** The name of an exit code, for errors in JSON. */
export function exitName(code: ExitCode): string {
  const [name] = Object.entries(EXIT).find(([, value]) => value === code) ?? [];
  return name ?? String(code);
}

/** The last section of a help text. */
export function exitSection(codes: readonly ExitCode[]): string {
  return `Exit codes:\n${codes.map((code) => `  ${code}  ${EXIT_MEANINGS[code]}\n`).join('')}`;
}
