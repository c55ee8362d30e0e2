/** Validates settings whose rules the schema cannot express. */

import { formatValue } from '../core/describe.ts';
import { parseRedisUrl, RedisUrlError } from '../redis/url.ts';
import type { SettingName } from './schema.ts';

export const HOST_NAME_MAX_CHARACTERS = 253;
export const HOST_NAME_LABEL = '[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?';
const HOST_NAME = new RegExp(`^${HOST_NAME_LABEL}(\\.${HOST_NAME_LABEL})*$`, 'i');

/** @returns the names of WEIR_ADMIN_HOSTS */
export function parseHostNames(list: string): string[] {
  return list.split(',').map((name) => name.trim());
}

function describeInvalidHosts(list: string): string | undefined {
  const wrong = parseHostNames(list).find((name) => {
    return name.length > HOST_NAME_MAX_CHARACTERS || !HOST_NAME.test(name);
  });
  return wrong === undefined ? undefined : `${formatValue(wrong)} in ${formatValue(list)}`;
}

/** @returns the URL without a slash at its end */
export function withoutTrailingSlash(url: string): string {
  return new URL(url).href.replace(/\/+$/, '');
}

function describeInvalidUrl(text: string): string | undefined {
  // An invalid URL may still contain a password before an @.
  const shown = text.includes('@') ? 'one with "@"' : formatValue(text);
  // A URL parser also accepts blanks, line breaks and missing slashes.
  if (!/^https?:\/\/\S+$/i.test(text) || !URL.canParse(text)) return shown;
  const { username, password, search, hash } = new URL(text);
  if (username !== '' || password !== '') return 'one with a user name or a password';
  // `search` and `hash` are also empty for an empty query or fragment.
  return search !== '' || hash !== '' || /[?#]/.test(text) ? shown : undefined;
}

/** Reveals nothing of the URL, which may contain a password. */
function describeInvalidRedisUrl(text: string): string | undefined {
  try {
    parseRedisUrl(text);
    return undefined;
  } catch (error) {
    if (!(error instanceof RedisUrlError)) throw error;
    return error.message;
  }
}

const VALIDATORS: Partial<Record<SettingName, (value: string) => string | undefined>> = {
  adminHosts: describeInvalidHosts,
  publicUrl: describeInvalidUrl,
  redisUrl: describeInvalidRedisUrl,
};

/** @param value of the right type. @returns a description of the invalid part, if there is one */
export function describeInvalidValue(name: SettingName, value: unknown): string | undefined {
  return VALIDATORS[name]?.(value as string);
}
