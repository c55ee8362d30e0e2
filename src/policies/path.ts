/**
 * Normalizes the path of a request, as part of an identifier. Paths that are equivalent by RFC 3986
 * (6.2.2), or that differ only in repeated slashes, get one form. Otherwise a client could reach
 * one page under many counters. An application may treat more paths as equal (`/A`, `/a/`).
 */

import { IDENTIFIER_MAX_CHARACTERS } from '../core/constants.ts';

/** Longer paths are not normalized, to bound the work: every page has a shorter path. */
const PATH_MAX_CHARACTERS = 4 * IDENTIFIER_MAX_CHARACTERS;
const ABSOLUTE_URL = /^[a-z][a-z0-9+.-]*:\/\//i;
/** A path without a match is already in normal form. */
const NEEDS_NORMALIZATION = /[^!-~]|["%<>\\^`{|}]|\/[/.]/;
/** Characters that a URI must escape. U+FFFD replaces bytes that were not UTF-8: these are lost. */
const UNESCAPED_CHARACTER = /[^!-~\ufffd\ud800-\udfff]|["<>\\^`{|}]/gu;
const ESCAPED_OCTET = /%[0-9a-f]{2}/gi;
/** Equivalent with and without an escape (RFC 3986, 2.3). */
const UNRESERVED = /[a-z0-9._~-]/i;

/** A path that means the same for every gateway and application: nothing in it is ambiguous. */
export const PLAIN_PATH = /^(\/(?!\.{1,2}(?:\/|$))[A-Za-z0-9._~-]+)*\/?$/;
export const PLAIN_PATH_RULE =
  'have only segments of letters, digits, "-", "_", "." and "~", none of them empty, "." or ".."';

/**
 * The path of a request target, to be compared with plain paths. Only its escapes are normalized:
 * applications disagree about dot segments and repeated slashes, so these equal no plain path.
 *
 * @param target the request target, which may have a query
 */
export function plainPathOf(target: string): string {
  const path = truncateAt(target, /\?/);
  return path.includes('%') ? path.replace(ESCAPED_OCTET, normalizeOctet) : path;
}

/**
 * @param target the request target, which may have a query, or a scheme and a host
 * @returns undefined if the path is too long
 */
export function normalizePath(target: string): string | undefined {
  const path = truncateAt(target, /[?#]/);
  if (!path.startsWith('/')) return ABSOLUTE_URL.test(path) ? pathOfUrl(path) : path;
  if (path.length > PATH_MAX_CHARACTERS) return undefined;
  if (!NEEDS_NORMALIZATION.test(path)) return path;
  return removeDotSegments(
    path.replace(ESCAPED_OCTET, normalizeOctet).replace(UNESCAPED_CHARACTER, encodeURIComponent),
  );
}

function truncateAt(text: string, end: RegExp): string {
  const at = text.search(end);
  return at < 0 ? text : text.slice(0, at);
}

function pathOfUrl(url: string): string | undefined {
  const slash = url.indexOf('/', url.indexOf('//') + 2);
  return slash < 0 ? '/' : normalizePath(url.slice(slash));
}

function normalizeOctet(octet: string): string {
  const character = String.fromCharCode(Number.parseInt(octet.slice(1), 16));
  return UNRESERVED.test(character) ? character : octet.toUpperCase();
}

/** Removes `.` and empty segments, and each `..` together with the segment before it. */
function removeDotSegments(path: string): string {
  const segments = path.split('/');
  const names: string[] = [];
  for (const segment of segments) {
    if (segment === '..') names.pop();
    else if (segment !== '.' && segment !== '') names.push(segment);
  }
  const isFolder = names.length > 0 && ['', '.', '..'].includes(segments.at(-1)!);
  return `/${names.join('/')}${isFolder ? '/' : ''}`;
}
