/** Reads options. An invalid one is a TypeError when the application starts, not at a request. */

/** What to do with a request if weir has not decided. */
export type OnError = 'allow' | 'deny';

/** @throws TypeError for an option that does not exist */
export function requireKnownOptions(options: object, known: readonly string[]): void {
  for (const name of Object.keys(options)) {
    if (!known.includes(name)) throw new TypeError(`"${name}" is none of ${known.join(', ')}`);
  }
}

/** @param isValid whether the value is accepted */
export function requireOption(
  isValid: boolean,
  name: string,
  accepted: string,
  value: unknown,
): void {
  if (!isValid) throw new TypeError(`"${name}" must be ${accepted}; got ${formatOption(value)}`);
}

export function readTimeout(value: unknown = 2_000): number {
  const isValid = typeof value === 'number' && value >= 1 && value <= 60_000;
  requireOption(isValid, 'timeoutMs', 'a number of milliseconds from 1 to 60000', value);
  return value as number;
}

export function readOnError(value: unknown = 'allow'): OnError {
  requireOption(value === 'allow' || value === 'deny', 'onError', "'allow' or 'deny'", value);
  return value as OnError;
}

/** @param value is a secret, so errors do not show it. Blanks around it come from files */
export function readKey(value: unknown): string {
  const key = typeof value === 'string' ? value.trim() : '';
  if (/^[!-~]+$/.test(key)) return key;
  const received = typeof value === 'string' ? 'another text' : formatOption(value);
  throw new TypeError(`"key" must be an API key of weir, in printable ASCII; got ${received}`);
}

/** A URL as an error may show it: it may contain a password before an @. */
export function shownUrl(value: unknown): unknown {
  return String(value).includes('@') ? 'a URL with a user' : value;
}

function formatOption(value: unknown): string {
  if (value === undefined) return 'nothing';
  return typeof value === 'string' ? JSON.stringify(value) : String(value);
}
