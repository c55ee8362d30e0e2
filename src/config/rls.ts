/**
 * The settings of the rate limit service. Settings that do not fit together stop the start with a
 * StartError.
 */

import { isLoopbackHost } from '../core/hosts.ts';
import { RLS_SETTINGS, type RlsSettings, type RlsTlsFiles } from '../rls/config/settings.ts';
import { environmentName, type SettingName, type Settings } from './schema.ts';
import { SettingsError } from './setting-value.ts';

const RLS_SETTING_NAMES = Object.keys(RLS_SETTINGS) as (keyof typeof RLS_SETTINGS)[];

/** The first versions of Node in which several threads can listen on one port. */
const REUSE_PORT_VERSIONS = { 22: 22, 24: 14 } as const;

/**
 * @param isSet whether a setting has another source than its default
 * @returns undefined where the service is off
 * @throws StartError
 */
export function loadRlsSettings(
  settings: Settings,
  isSet: (name: SettingName) => boolean,
  nodeVersion = process.versions.node,
): RlsSettings | undefined {
  const { rlsPort: port, rlsSocket: socket, rlsConfig: config, rlsHost: host } = settings;
  if (port === undefined && socket === undefined) {
    const set = RLS_SETTING_NAMES.find(isSet);
    if (set === undefined) return undefined;
    throw new SettingsError(
      [set],
      `${environmentName(set)} requires WEIR_RLS_PORT or WEIR_RLS_SOCKET, and neither is set`,
    );
  }
  if (config === undefined) {
    const listener = port === undefined ? 'rlsSocket' : 'rlsPort';
    throw new SettingsError(
      [listener],
      `${environmentName(listener)} requires WEIR_RLS_CONFIG, the folder of the rules`,
    );
  }
  const tls = tlsFiles(settings);
  if (tls !== undefined && port === undefined) {
    throw new SettingsError(
      ['rlsTlsCert', 'rlsSocket'],
      'WEIR_RLS_TLS_CERT requires WEIR_RLS_PORT, which is not set: WEIR_RLS_SOCKET has no TLS',
    );
  }
  const isOnHost = port !== undefined || settings.rlsJsonPort !== undefined;
  if (isOnHost && !isLoopbackHost(host) && settings.rlsOpen === 'false') {
    if (tls?.clientCa === undefined) {
      throw new SettingsError(
        ['rlsHost'],
        `WEIR_RLS_HOST is ${host}, which other machines reach, and the service has no keys: set` +
          ' WEIR_RLS_TLS_CLIENT_CA, so that clients need a certificate, or WEIR_RLS_OPEN=true',
      );
    }
  }
  if (settings.rlsJsonPort !== undefined && tls !== undefined) {
    throw new SettingsError(
      ['rlsJsonPort', 'rlsTlsCert'],
      'WEIR_RLS_JSON_PORT has no TLS: with WEIR_RLS_TLS_CERT, /json is on WEIR_RLS_PORT',
    );
  }
  requireThreads(settings, nodeVersion);
  return {
    ...{ host, port, socket, config, tls },
    socketMode: settings.rlsSocketMode,
    jsonPort: settings.rlsJsonPort,
    mergesDomains: settings.rlsMergeDomains === 'true',
    isCompatible: settings.rlsCompatible === 'true',
    isShadow: settings.rlsShadowMode === 'true',
    isQuota: settings.rlsQuotaMode === 'true',
    headers: settings.rlsHeaders,
    hasDynamicMetadata: settings.rlsDynamicMetadata === 'true',
    counting: settings.rlsCounting,
    threads: settings.rlsThreads,
  };
}

/** The threads of the service if it is on, before it is known whether its settings are valid. */
export function countRlsThreads({ rlsPort, rlsSocket, rlsThreads }: Settings): number {
  return (rlsPort ?? rlsSocket) === undefined ? 0 : rlsThreads;
}

function tlsFiles(settings: Settings): RlsTlsFiles | undefined {
  const { rlsTlsCert: cert, rlsTlsKey: key, rlsTlsClientCa: clientCa } = settings;
  if (cert !== undefined && key !== undefined) return { cert, key, clientCa };
  const set = cert !== undefined ? 'rlsTlsCert' : key !== undefined ? 'rlsTlsKey' : undefined;
  if (set !== undefined) {
    const missing = environmentName(set === 'rlsTlsCert' ? 'rlsTlsKey' : 'rlsTlsCert');
    throw new SettingsError([set], `${environmentName(set)} requires ${missing}, which is not set`);
  }
  if (clientCa === undefined) return undefined;
  throw new SettingsError(
    ['rlsTlsClientCa'],
    'WEIR_RLS_TLS_CLIENT_CA requires WEIR_RLS_TLS_CERT, which is not set',
  );
}

function requireThreads({ rlsThreads, rlsPort }: Settings, version: string): void {
  if (rlsThreads === 1) return;
  if (rlsPort === undefined) {
    throw new SettingsError(
      ['rlsThreads'],
      `WEIR_RLS_THREADS is ${rlsThreads}, and only one thread can listen on WEIR_RLS_SOCKET: set` +
        ' WEIR_RLS_PORT, or leave WEIR_RLS_THREADS out',
    );
  }
  const [major, minor] = version.split('.').map(Number);
  const first = Object.entries(REUSE_PORT_VERSIONS).find(([it]) => Number(it) === major)?.[1];
  if (major > 24 || (first !== undefined && minor >= first)) return;
  throw new SettingsError(
    ['rlsThreads'],
    `WEIR_RLS_THREADS must be 1 with Node ${version}; more threads require Node 22.22`,
  );
}
