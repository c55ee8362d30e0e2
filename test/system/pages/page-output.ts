/**
 * Compares what a page shows with what its commands print.
 *
 * Varying values are equal to each other: times, ids, keys, and the rest of a window (`VARYING`).
 * In a text, a line `…` stands for any lines, and `…` in a line for any characters. In JSON, the
 * value "…" stands for any value. Of an HTTP response, the status line and each shown header must
 * be there, in any order; a shown body must be complete.
 */

import type { ExpectedOutput } from './page-steps.ts';

/** What differs from run to run, and what replaces it on both sides. */
const VARYING: readonly [pattern: RegExp, replacement: string][] = [
  // Warnings about the configuration of the user who runs the tests.
  [/^npm warn Unknown (?:user|env) config .*\n/gim, ''],
  [/\r/g, ''],
  [/\b(req|key|rlor|rlns)_[0-9a-f]{8,}(?:_\d+)?/g, '$1_<id>'],
  [/\b(rlrs|rlls)_[\w-]{22}/g, '$1_<id>'],
  // The handle of a hold, and the width of its column.
  [/\b[0-9a-z]{1,6}-[0-9a-f]{4}\b */g, '<handle> '],
  [/\bHANDLE +/g, 'HANDLE '],
  [/(?<=WEIR_KEY=|Bearer |^key: {4})[\w-]{16,}/gm, '<key>'],
  [/\b\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?Z/g, '<time>'],
  [/\b\w{3}, \d\d \w{3} \d{4} \d\d:\d\d:\d\d GMT/g, '<time>'],
  // Unix times in ms, from 2017 to 2096.
  [/\b[1-3]\d{12}\b/g, '<time>'],
  // The rest of a window.
  [/\b(in|retry after) \d+ (ms|s)\b/g, '$1 <rest> $2'],
  [/;t=\d+/g, ';t=<rest>'],
  [/^(Retry-After: )\d+$/gim, '$1<rest>'],
  [/^(X-RateLimit-Reset: )\d+$/gim, '$1<time>'],
  [/\bv(?:20|22|24|26)\.\d+\.\d+\b/g, 'v<node>'],
  [/\bweir[ @]\d+\.\d+\.\d+\b/g, 'weir <version>'],
  [/\b(nginx)\/\d+\.\d+\.\d+/g, '$1/<version>'],
];

const ANY = '…';

function normalize(text: string): string {
  return VARYING.reduce((result, [pattern, to]) => result.replace(pattern, to), text).trimEnd();
}

/**
 * @param mayContinue whether more output may follow
 * @returns undefined if the output is the expected one, else a description of both
 */
export function describeDifference(
  { format, text }: ExpectedOutput,
  actual: string,
  mayContinue = false,
): string | undefined {
  const isEqual = { text: isSameText, json: isSameJson, http: isSameResponse }[format];
  if (isEqual(text, actual, mayContinue)) return undefined;
  return `the page shows as output\n${text}\n--- but its commands print\n${actual}`;
}

function isSameText(expected: string, actual: string, mayContinue = false): boolean {
  const lines = normalize(expected).split('\n');
  const pattern = lines.map((line) => {
    if (line.trim() === ANY) return '(?:.*\\n)*?';
    const literal = line.split(ANY).map((text) => text.replace(/[\\^$.*+?()[\]{}|]/g, '\\$&'));
    return `${literal.join('.*?')}\\n`;
  });
  const rest = mayContinue ? '' : '$';
  return new RegExp(`^${pattern.join('')}${rest}`).test(`${normalize(actual)}\n`);
}

function isSameJson(expected: string, actual: string): boolean {
  const values = readJson(actual);
  return values !== undefined && isSameValue(readJson(expected), values);
}

/** One JSON value, or several lines of one each. @returns undefined if it is not JSON */
function readJson(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    const lines = text.trim().split('\n');
    if (lines.length < 2) return undefined;
    const values = lines.map(readJson);
    return values.includes(undefined) ? undefined : values;
  }
}

function isSameValue(expected: unknown, actual: unknown): boolean {
  if (expected === ANY) return actual !== undefined;
  if (expected === null || typeof expected !== 'object') {
    if (typeof expected !== typeof actual) return false;
    return normalize(String(expected)) === normalize(String(actual));
  }
  if (actual === null || typeof actual !== 'object') return false;
  if (Array.isArray(expected) !== Array.isArray(actual)) return false;
  const [names, others] = [Object.keys(expected), Object.keys(actual)];
  const of = (value: object, name: string) => (value as Record<string, unknown>)[name];
  return (
    names.length === others.length &&
    names.every((name) => isSameValue(of(expected, name), of(actual, name)))
  );
}

function isSameResponse(expected: string, actual: string): boolean {
  const shown = readResponse(expected);
  const received = readResponse(actual);
  const has = (header: string) => received.headers.some((other) => isSameText(header, other));
  if (!isSameText(shown.status, received.status) || !shown.headers.every(has)) return false;
  if (shown.body === undefined) return true;
  const body = received.body ?? '';
  return isSameText(shown.body, body) || isSameJson(shown.body, body);
}

function readResponse(text: string) {
  const [head = '', ...rest] = normalize(text).split('\n\n');
  const [status = '', ...lines] = head.split('\n');
  // Names of headers have no case.
  const headers = lines.map((line) => line.replace(/^[^:]+/, (name) => name.toLowerCase()));
  return { status, headers, body: rest.length === 0 ? undefined : rest.join('\n\n') };
}
