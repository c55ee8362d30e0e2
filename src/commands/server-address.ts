/**
 * The address of the server that a command calls: --url, else WEIR_URL for the port for checks,
 * else the settings that the server itself reads. Errors name what has set the address.
 */

import { loadSome } from '../config/load.ts';
import { annotations, environmentName, type SettingName, type Settings } from '../config/schema.ts';
import { formatValue } from '../core/describe.ts';
import { StartError } from '../core/errors.ts';
import { locallyReachableHost } from '../core/hosts.ts';

export interface ServerAddress {
  /** Without a trailing slash. */
  url: string;
  /** What has set the URL, for errors. */
  source: string;
  /** What to do if the server has another address. Absent with --url, which is in view. */
  remedy?: string;
}

interface Listener {
  host: 'host' | 'adminHost';
  port: 'port' | 'adminPort';
  /** A setting that enables TLS. */
  tls?: 'tlsCert';
  /** A variable with the URL, which has precedence over the settings. */
  variable?: 'WEIR_URL';
}

const CHECKS: Listener = { host: 'host', port: 'port', tls: 'tlsCert', variable: 'WEIR_URL' };
const ADMIN: Listener = { host: 'adminHost', port: 'adminPort' };

/** The port for checks. @param url the option --url */
export function checkAddress(url?: string): ServerAddress {
  return addressOf(CHECKS, url);
}

/** The admin port. @param url the option --url */
export function adminAddress(url?: string): ServerAddress {
  return addressOf(ADMIN, url);
}

function addressOf(listener: Listener, option: string | undefined): ServerAddress {
  const { variable, port } = listener;
  const example = `http://127.0.0.1:${annotations(port).default}`;
  if (option !== undefined) return { url: parseUrl('--url', option, example), source: '--url' };
  const value = variable && process.env[variable];
  if (variable !== undefined && value !== undefined) {
    const url = parseUrl(variable, value, example);
    return { url, source: variable, remedy: `change ${variable}` };
  }
  return configuredAddress(listener);
}

function configuredAddress({ host, port, tls, variable }: Listener): ServerAddress {
  const names: SettingName[] = [port, host, ...(tls === undefined ? [] : [tls])];
  const { settings, sources } = loadSome(names, process.env);
  const portNumber = settings[port] as Settings['port'];
  if (portNumber === 0) {
    const urls = ['--url', ...(variable === undefined ? [] : [variable])].join(' or ');
    throw new StartError(`${sources.get(port)} is 0, which selects a free port: set ${urls}`);
  }
  const scheme = tls !== undefined && settings[tls] !== undefined ? 'https' : 'http';
  const address = locallyReachableHost(settings[host] as Settings['host']);
  const source = sources.size > 0 ? `by ${[...sources.values()].join(' and ')}` : 'the default';
  const remedy = `set ${variable ?? '--url'} or ${environmentName(port)}`;
  return { url: `${scheme}://${address}:${portNumber}`, source, remedy };
}

/** @throws StartError for an invalid URL; a URL with a password is not quoted */
function parseUrl(source: string, text: string, example: string): string {
  const url = URL.canParse(text) ? new URL(text) : undefined;
  if (url !== undefined && (url.username !== '' || url.password !== '')) {
    throw new StartError(
      `${source} must not contain a user name or a password; set the key with WEIR_KEY`,
    );
  }
  const isUsable = ['http:', 'https:'].includes(url?.protocol ?? '') && !/[?#]/.test(text);
  if (isUsable) return text.trim().replace(/\/+$/, '');
  throw new StartError(`${source} must be a URL such as ${example}; got ${formatValue(text)}`);
}
