/**
 * The settings of the engine in Redis, with the contents of the files that they name. Settings that
 * do not fit together and files that cannot be used stop the start with a StartError. No message
 * contains a password.
 */

import { createSecureContext } from 'node:tls';
import { REDIS_PASSWORD_MAX_CHARACTERS } from '../core/constants.ts';
import { describeFileError } from '../core/errno.ts';
import { StartError } from '../core/errors.ts';
import { REDIS_SETTINGS, type RedisSettings } from '../redis/settings.ts';
import { parseRedisUrl } from '../redis/url.ts';
import { environmentName, type SettingName, type Settings } from './schema.ts';
import { readText, SettingsError } from './setting-value.ts';

const REDIS_SETTING_NAMES = Object.keys(REDIS_SETTINGS) as (keyof typeof REDIS_SETTINGS)[];

/**
 * @param isSet whether a setting has another source than its default, also if it is invalid
 * @returns undefined for the memory engine
 * @throws StartError
 */
export function loadRedisSettings(
  settings: Settings,
  isSet: (name: SettingName) => boolean,
): RedisSettings | undefined {
  if (settings.engine !== 'redis') {
    const set = REDIS_SETTING_NAMES.find(isSet);
    if (set === undefined) return undefined;
    throw new SettingsError(
      [set],
      `${environmentName(set)} requires WEIR_ENGINE=redis, which is not set`,
    );
  }
  const { redisUrl } = settings;
  if (redisUrl === undefined) {
    if (isSet('redisUrl')) return undefined;
    throw new SettingsError(
      ['engine'],
      'WEIR_ENGINE=redis requires WEIR_REDIS_URL, which is not set',
    );
  }
  const password = readPassword(settings.redisPasswordFile, redisUrl);
  const { username, password: passwordInUrl } = parseRedisUrl(redisUrl);
  if (username !== undefined && (password ?? passwordInUrl) === undefined) {
    throw new SettingsError(
      ['redisUrl'],
      'WEIR_REDIS_URL names a user without a password: add it, or set WEIR_REDIS_PASSWORD_FILE',
    );
  }
  const values = Object.fromEntries(REDIS_SETTING_NAMES.map((name) => [name, settings[name]]));
  const tls = readTlsFiles(settings, redisUrl);
  return { ...(values as unknown as RedisSettings), redisUrl, password, tls };
}

function readPassword(path: string | undefined, url: string): string | undefined {
  if (path === undefined) return undefined;
  if (parseRedisUrl(url).password !== undefined) {
    throw new SettingsError(
      ['redisUrl', 'redisPasswordFile'],
      'WEIR_REDIS_URL contains a password, and WEIR_REDIS_PASSWORD_FILE is set: leave one out',
    );
  }
  const password = readText('WEIR_REDIS_PASSWORD_FILE', path).trim();
  const { length } = [...password];
  if (length >= 1 && length <= REDIS_PASSWORD_MAX_CHARACTERS && !/[\r\n\0]/.test(password)) {
    return password;
  }
  throw new StartError(
    `the password in ${path} must be one line of 1 to ${REDIS_PASSWORD_MAX_CHARACTERS} ` +
      `characters; got ${length === 0 ? 'nothing' : `a text of ${length} characters`}`,
  );
}

function readTlsFiles(settings: Settings, url: string): RedisSettings['tls'] {
  const { redisCa, redisCert, redisKey } = settings;
  if ((redisCert === undefined) !== (redisKey === undefined)) {
    const [set, missing] = redisKey === undefined ? ['CERT', 'KEY'] : ['KEY', 'CERT'];
    throw new SettingsError(
      ['redisCert', 'redisKey'],
      `WEIR_REDIS_${set} requires WEIR_REDIS_${missing}, which is not set`,
    );
  }
  const named = (['redisCa', 'redisCert', 'redisKey'] as const).find((name) => {
    return settings[name] !== undefined;
  });
  if (named !== undefined && !parseRedisUrl(url).usesTls) {
    throw new SettingsError(
      [named, 'redisUrl'],
      `${environmentName(named)} requires a WEIR_REDIS_URL with TLS, as in rediss://host`,
    );
  }
  const ca = readPem('WEIR_REDIS_CA', redisCa, (text) => createSecureContext({ ca: text }));
  const cert = readPem('WEIR_REDIS_CERT', redisCert, (text) => createSecureContext({ cert: text }));
  const key = readPem('WEIR_REDIS_KEY', redisKey, (text) => {
    // The key is read together with the certificate, to which it must belong.
    createSecureContext({ key: text, ...(cert !== undefined && { cert }) });
  });
  return { ca, cert, key };
}

function readPem(
  setting: string,
  path: string | undefined,
  validate: (text: string) => void,
): string | undefined {
  if (path === undefined) return undefined;
  const text = readText(setting, path);
  try {
    // A CA without any certificate is valid to OpenSSL.
    if (!text.includes('-----BEGIN ')) throw new Error('it is not PEM');
    validate(text);
  } catch (error) {
    throw new StartError(`${path} (${setting}) cannot be used: ${describeFileError(error)}`);
  }
  return text;
}
