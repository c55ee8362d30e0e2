/**
 * The URL of a Redis or Valkey: one server, Sentinels that name the primary, or a cluster. A
 * password may be part of it, so that no error quotes any of its text.
 */

import { isIPv6 } from 'node:net';
import { REDIS_DATABASE_MAX, REDIS_NODES_MAX } from '../core/constants.ts';
import { urlHost } from '../core/hosts.ts';

/** The forms that `parseRedisUrl` accepts, for messages. */
export const REDIS_URL_FORMS =
  'redis://host:port/database, redis+sentinel://host:port,host:port/primary or ' +
  'redis+cluster://host:port,host:port, or the same with rediss for TLS; user:password@ may be ' +
  'in front of the hosts, and ports and the database may be left out';

const PORT = 6_379;
const SENTINEL_PORT = 26_379;

export interface RedisAddress {
  host: string;
  port: number;
}

export interface RedisTarget {
  kind: 'standalone' | 'sentinel' | 'cluster';
  /** The server, all Sentinels, or some nodes of the cluster. */
  addresses: readonly RedisAddress[];
  usesTls: boolean;
  username: string | undefined;
  password: string | undefined;
  database: number;
  /** The name by which Sentinels know the primary; '' without Sentinels. */
  primaryName: string;
}

/** Its message completes the sentence "WEIR_REDIS_URL must be …; got". */
export class RedisUrlError extends Error {}

/** @throws RedisUrlError */
export function parseRedisUrl(text: string): RedisTarget {
  const parts = /^(redis|rediss)(?:\+(sentinel|cluster))?:\/\/([^/?#]*)([^?#]*)(\?[^#]*)?$/i.exec(
    text,
  );
  if (parts === null) throw new RedisUrlError('one of another form');
  const [, scheme, form = 'standalone', authority, path, query] = parts;
  const kind = form.toLowerCase() as RedisTarget['kind'];
  const at = authority.lastIndexOf('@');
  const hosts = authority.slice(at + 1).split(',');
  if (kind === 'standalone' && hosts.length > 1) {
    throw new RedisUrlError('one with several hosts, but without "+sentinel" or "+cluster"');
  }
  if (hosts.length > REDIS_NODES_MAX) {
    throw new RedisUrlError(`one with more than ${REDIS_NODES_MAX} hosts`);
  }
  const defaultPort = kind === 'sentinel' ? SENTINEL_PORT : PORT;
  return {
    kind,
    addresses: hosts.map((host) => parseAddress(host, defaultPort)),
    usesTls: scheme.toLowerCase() === 'rediss',
    ...parseCredentials(at < 0 ? '' : authority.slice(0, at)),
    ...parsePath(kind, path, query ?? ''),
  };
}

/** The target as logs name it: the URL without user and password. */
export function describeTarget(target: RedisTarget): string {
  const { kind, addresses, usesTls, database, primaryName } = target;
  const scheme = `redis${usesTls ? 's' : ''}${kind === 'standalone' ? '' : `+${kind}`}`;
  const path = kind === 'sentinel' ? `/${encodeURIComponent(primaryName)}` : '';
  const selected = kind === 'sentinel' ? `?db=${database}` : `/${database}`;
  const hosts = addresses.map(describeAddress).join(',');
  return `${scheme}://${hosts}${path}${database === 0 ? '' : selected}`;
}

export function describeAddress({ host, port }: RedisAddress): string {
  return `${urlHost(host)}:${port}`;
}

function parseAddress(text: string, defaultPort: number): RedisAddress {
  const [, bracketed, plain, digits] = /^(?:\[([^\]]*)\]|([^:[\]]*))(?::(.*))?$/.exec(text) ?? [];
  const host = bracketed ?? plain;
  const hasColons = bracketed === undefined && digits?.includes(':');
  if (host === undefined || hasColons || (bracketed !== undefined && !isIPv6(bracketed))) {
    throw new RedisUrlError('one with an invalid host; IPv6 addresses need brackets');
  }
  if (host === '') throw new RedisUrlError('one without a host');
  if (bracketed === undefined && !/^[\w.-]+$/.test(host)) {
    throw new RedisUrlError('one with an invalid host');
  }
  if (digits === undefined) return { host, port: defaultPort };
  const port = /^\d{1,5}$/.test(digits) ? Number(digits) : 0;
  if (port < 1 || port > 65_535) {
    throw new RedisUrlError('one with a port that is no integer from 1 to 65535');
  }
  return { host, port };
}

function parseCredentials(text: string): Pick<RedisTarget, 'username' | 'password'> {
  if (text.includes('@')) {
    throw new RedisUrlError('one with "@" in the user or the password: write it as %40');
  }
  const colon = text.indexOf(':');
  const username = decode(colon < 0 ? text : text.slice(0, colon));
  const password = colon < 0 ? '' : decode(text.slice(colon + 1));
  return {
    username: username === '' ? undefined : username,
    password: password === '' ? undefined : password,
  };
}

function decode(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    throw new RedisUrlError('one with "%" in front of something else than two hexadecimal digits');
  }
}

function parsePath(
  kind: RedisTarget['kind'],
  path: string,
  query: string,
): Pick<RedisTarget, 'database' | 'primaryName'> {
  const name = path.replace(/^\//, '');
  if (kind === 'cluster') {
    if (name === '' && query === '') return { database: 0, primaryName: '' };
    throw new RedisUrlError('one of a cluster with a database: clusters have none');
  }
  if (kind === 'standalone') {
    if (query !== '') throw new RedisUrlError('one with a query');
    return { database: name === '' ? 0 : parseDatabase(name), primaryName: '' };
  }
  const primaryName = decode(name);
  if (primaryName === '') throw new RedisUrlError('one of Sentinels without /<primary>');
  if (!/^[\w.-]+$/.test(primaryName)) {
    throw new RedisUrlError('one with a name of the primary that no Sentinel accepts');
  }
  if (query === '') return { database: 0, primaryName };
  const [, digits] = /^\?db=(.*)$/.exec(query) ?? [];
  if (digits === undefined) throw new RedisUrlError('one with another query than ?db=<number>');
  return { database: parseDatabase(digits), primaryName };
}

function parseDatabase(digits: string): number {
  const database = /^\d{1,5}$/.test(digits) ? Number(digits) : REDIS_DATABASE_MAX + 1;
  if (database <= REDIS_DATABASE_MAX) return database;
  throw new RedisUrlError(`one with a database that is no integer from 0 to ${REDIS_DATABASE_MAX}`);
}

/** Reveals nothing of the URL, which may contain a password. */
export function describeInvalidRedisUrl(text: string): string | undefined {
  try {
    parseRedisUrl(text);
    return undefined;
  } catch (error) {
    if (!(error instanceof RedisUrlError)) throw error;
    return error.message;
  }
}
