/**
 * The exit codes of the command `weir` and of its server. The help texts print the meanings, and
 * docs/cli.md has a table of them.
 */

export const EXIT = {
  OK: 0,
  DENIED: 1,
  NOT_READY: 1,
  USAGE: 2,
  NO_ANSWER: 3,
  SERVER_ERROR: 4,
  CANNOT_SERVE: 5,
} as const;

export type ExitCode = (typeof EXIT)[keyof typeof EXIT];

export type ExitMeanings = Readonly<Partial<Record<ExitCode, string>>>;

export const EXIT_MEANINGS: Readonly<Record<ExitCode, string>> = {
  [EXIT.OK]: 'success; check: allowed; health: ready',
  [EXIT.DENIED]: 'check, reserve, acquire, run: denied; renew: no live lease; health: not ready',
  [EXIT.USAGE]:
    'invalid command line, setting or file (nothing was done), or standard output is not writable',
  [EXIT.NO_ANSWER]: 'no response from the server, or a response that is not from weir',
  [EXIT.SERVER_ERROR]: 'the server returned an error; the message names its code',
  [EXIT.CANNOT_SERVE]: 'the server cannot start: port, data directory, store or thread',
};

/** Meanings for commands without a decision, and for those with one. */
const SUCCESS_MEANINGS: ExitMeanings = { [EXIT.OK]: 'success' };
export const DECISION_MEANINGS: ExitMeanings = { [EXIT.OK]: 'allowed', [EXIT.DENIED]: 'denied' };

/** The name of an exit code, which errors in JSON contain. */
export function exitName(code: ExitCode): string {
  const [name] = Object.entries(EXIT).find(([, value]) => value === code) ?? [];
  return name ?? String(code);
}

/**
 * The last section of a help text.
 * @param overrides meanings for one command that differ from the general ones
 */
export function exitSection(
  codes: readonly ExitCode[],
  overrides: ExitMeanings = SUCCESS_MEANINGS,
): string {
  const meanings = { ...EXIT_MEANINGS, ...overrides };
  return `Exit codes:\n${codes.map((code) => `  ${code}  ${meanings[code]}\n`).join('')}`;
}
