/** Rules of settings that a schema cannot express: host names, URLs and a header. */

import { formatValue } from '../core/describe.ts';

export const HOST_NAME_MAX_CHARACTERS = 253;
export const HOST_NAME_LABEL = '[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?';
const HOST_NAME = new RegExp(`^${HOST_NAME_LABEL}(\\.${HOST_NAME_LABEL})*$`, 'i');

/** @returns the names of WEIR_ADMIN_HOSTS */
export function parseHostNames(list: string): string[] {
  return list.split(',').map((name) => name.trim());
}

export function describeInvalidHosts(list: string): string | undefined {
  const wrong = parseHostNames(list).find((name) => {
    return name.length > HOST_NAME_MAX_CHARACTERS || !HOST_NAME.test(name);
  });
  return wrong === undefined ? undefined : `${formatValue(wrong)} in ${formatValue(list)}`;
}

/** @returns the URL without a slash at its end */
export function withoutTrailingSlash(url: string): string {
  return new URL(url).href.replace(/\/+$/, '');
}

export function describeInvalidUrl(text: string): string | undefined {
  // An invalid URL may still contain a password before an @.
  const shown = text.includes('@') ? 'one with "@"' : formatValue(text);
  // A URL parser also accepts blanks, line breaks and missing slashes.
  if (!/^https?:\/\/\S+$/i.test(text) || !URL.canParse(text)) return shown;
  const { username, password, search, hash } = new URL(text);
  if (username !== '' || password !== '') return 'one with a user name or a password';
  // `search` and `hash` are also empty for an empty query or fragment.
  return search !== '' || hash !== '' || /[?#]/.test(text) ? shown : undefined;
}

const USER_HEADER = /^[A-Za-z0-9-]{1,64}$/;
/** Headers with another meaning, which clients send. */
const DEFINED_HEADERS = [
  ...['accept', 'accept-.*', 'access-control-.*', 'authorization', 'connection', 'content-.*'],
  ...['cookie', 'date', 'expect', 'forwarded', 'from', 'host', 'if-.*', 'keep-alive', 'origin'],
  ...['proxy-.*', 'range', 'referer', 'sec-.*', 'te', 'trailer', 'transfer-encoding', 'upgrade'],
  ...['user-agent', 'via', 'x-weir-.*'],
];
const DEFINED_HEADER = new RegExp(`^(${DEFINED_HEADERS.join('|')})$`, 'i');

export function describeInvalidUserHeader(name: string): string | undefined {
  return USER_HEADER.test(name) && !DEFINED_HEADER.test(name) ? undefined : formatValue(name);
}
