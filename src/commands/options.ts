/**
 * Parses the values of options. An invalid value is a StartError that names the option, the
 * accepted values and the received one.
 */

import { isNamespaceId } from '../api/common/namespace-reference.ts';
import { ALGORITHM_NAMES, ALGORITHMS } from '../core/algorithm-fields.ts';
import {
  AMOUNT_MAX,
  DURATION_MAX_MS,
  DURATION_MIN_MS,
  NAMESPACE_ID_PREFIX,
} from '../core/constants.ts';
import { formatValue } from '../core/describe.ts';
import { DURATION_FORMAT, type DurationBounds, readDuration } from '../core/duration.ts';
import { StartError } from '../core/errors.ts';
import type { RuleName } from '../core/window-rules.ts';
import { systemMs } from '../shared-memory/clock.ts';

/** `--duration` of a check and of an override. */
export const WINDOW_OPTION = {
  type: 'string',
  value: '<duration>',
  help: 'length of a window: 90000 (milliseconds), 90s, 15m, 1h, 30d',
} as const;

/** `--expires` of a key and of an override. */
export const EXPIRES_OPTION = {
  type: 'string',
  value: '<when>',
  help: 'a duration such as 90s or 30d, 2030-01-31 or 2030-01-31T12:00:00Z',
} as const;

/** `--algorithm` of a check and of a reset. */
export const ALGORITHM_OPTION = {
  type: 'string',
  value: '<name>',
  choices: ALGORITHMS,
} as const;

export function parseAlgorithm(value: string): RuleName {
  const name = ALGORITHMS.find((known) => known === value);
  if (name !== undefined) return name;
  throw new StartError(`--algorithm must be ${ALGORITHM_NAMES}; got ${formatValue(value)}`);
}

/** An argument or option is missing, or one argument is too many: the user needs the usage. */
export class UsageError extends StartError {}

/** @throws UsageError if the option is missing */
export function required<T>(option: string, value: T | undefined): T {
  if (value === undefined) throw new UsageError(`--${option} is required`);
  return value;
}

export function parseInteger(option: string, value: string, minimum = 0, maximum = AMOUNT_MAX) {
  const number = /^\d+$/.test(value) ? Number(value) : Number.NaN;
  if (number >= minimum && number <= maximum) return number;
  throw new StartError(
    `--${option} must be an integer from ${minimum} to ${maximum}; got ${formatValue(value)}`,
  );
}

/** @returns ms */
export function parseDuration(
  option: string,
  value: string,
  bounds: DurationBounds = { minimumMs: DURATION_MIN_MS, maximumMs: DURATION_MAX_MS },
): number {
  const ms = readDuration(value, bounds);
  if (typeof ms === 'number') return ms;
  throw new StartError(`--${option} ${ms}`);
}

const DATE = /^(\d{4})-(\d\d)-(\d\d)(T\d\d:\d\d(:\d\d(\.\d{1,3})?)?(Z|[+-]\d\d:\d\d))?$/;

/** A time in the future, as a duration from now or a date. @returns Unix time in ms */
export function parseExpiry(option: string, value: string): number {
  if (DURATION_FORMAT.test(value)) return systemMs() + parseDuration(option, value);
  const [text, year, month, day] = DATE.exec(value) ?? [];
  const ms = text === undefined ? Number.NaN : Date.parse(text);
  // Date.parse reads February 30 as March 2.
  const dayStart = Date.UTC(Number(year), Number(month) - 1, Number(day));
  const monthEnd = Date.UTC(Number(year), Number(month), 1);
  if (Number.isNaN(ms) || dayStart >= monthEnd) {
    throw new StartError(
      `--${option} must be a duration from now such as 90s, 15m, 1h or 30d, or a date such as` +
        ' 2030-01-31, 2030-01-31T12:00:00Z or 2030-01-31T12:00:00+02:00;' +
        ` got ${formatValue(value)}`,
    );
  }
  if (ms > systemMs()) return ms;
  throw new StartError(`--${option} must be in the future; got ${formatValue(value)}`);
}

/** The field `expires` of a request, from the value of `--expires`. */
export function expiresFieldOf(value: string | undefined): { expires?: number } {
  return value === undefined ? {} : { expires: parseExpiry('expires', value) };
}

/** An identifier to check or reset. An empty one is usually an unset shell variable. */
export function requireIdentifier(value: string, isEmptyAllowed = false): string {
  if (value !== '' || isEmptyAllowed) return value;
  throw new StartError('<identifier> is empty: add --empty-identifier to allow that');
}

/** A namespace as fields of a v1 request, and as the text that v2 accepts for names and ids. */
export function parseNamespace({
  namespace,
  'namespace-id': id,
}: {
  namespace?: string;
  'namespace-id'?: string;
}) {
  if (namespace !== undefined && id !== undefined) {
    throw new StartError('--namespace and --namespace-id cannot be combined: remove one');
  }
  if (id !== undefined && !isNamespaceId(id)) {
    throw new StartError(
      `--namespace-id must be an id such as ${NAMESPACE_ID_PREFIX}...; got ${formatValue(id)}`,
    );
  }
  const text = id ?? required('namespace', namespace);
  return { text, fields: isNamespaceId(text) ? { namespaceId: text } : { namespaceName: text } };
}
