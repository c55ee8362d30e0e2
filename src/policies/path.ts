/**
 * The path of a request by which a caller is counted. Pure. What RFC 3986 (6.2.2) takes for the
 * same path has one text here, and so have slashes in a row: otherwise one page would have as many
 * counters as its path has spellings. Applications may see more of them as one (`/A`, `/a/`).
 */

import { IDENTIFIER_MAX_CHARACTERS } from '../core/constants.ts';

/** What is longer is not worth the work: to any page there is a shorter way. */
const PATH_MAX_CHARACTERS = 4 * IDENTIFIER_MAX_CHARACTERS;
const ABSOLUTE_URL = /^[a-z][a-z0-9+.-]*:\/\//i;
/** What may be spelt in another way: without any, a path is what it is. */
const NEEDS_NORMALIZATION = /[^!-~]|["%<>\\^`{|}]|\/[/.]/;
/** What stands in no URI but escaped; of bytes that were no text, what they were is lost. */
const UNESCAPED_CHARACTER = /[^!-~\ufffd\ud800-\udfff]|["<>\\^`{|}]/gu;
const ESCAPED_OCTET = /%[0-9a-f]{2}/gi;
/** Which mean the same with and without an escape (RFC 3986, 2.3). */
const UNRESERVED = /[a-z0-9._~-]/i;

/**
 * @param target of a request, as it came: with a query, or a host before it
 * @returns undefined for one that is too long
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

/** `.` is this segment, `..` takes back the one before, and one without a name is none. */
function removeDotSegments(path: string): string {
  const segments = path.split('/');
  const kept: string[] = [];
  for (const segment of segments) {
    if (segment === '..') kept.pop();
    else if (segment !== '.' && segment !== '') kept.push(segment);
  }
  const isFolder = kept.length > 0 && ['', '.', '..'].includes(segments.at(-1)!);
  return `/${kept.join('/')}${isFolder ? '/' : ''}`;
}
