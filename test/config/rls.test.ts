/** The settings of the rate limit service, and those that do not fit together. */

import { describe, expect, test } from 'vitest';
import { loadSettings } from '../../src/config/load.ts';
import { loadRlsSettings } from '../../src/config/rls.ts';
import type { Settings } from '../../src/config/schema.ts';

const ON = { WEIR_RLS_PORT: '8081', WEIR_RLS_CONFIG: '/rules' };
const TLS = { WEIR_RLS_TLS_CERT: '/cert', WEIR_RLS_TLS_KEY: '/key' };

const load = (env: Record<string, string>) => loadSettings([], env)?.rls;

describe('the settings of the rate limit service', () => {
  test('are absent by default', () => {
    expect(load({})).toBeUndefined();
  });

  test('have the documented defaults', () => {
    expect(load(ON)).toEqual({
      host: '127.0.0.1',
      port: 8081,
      socket: undefined,
      socketMode: expect.any(String),
      jsonPort: undefined,
      tls: undefined,
      config: '/rules',
      mergesDomains: false,
      isCompatible: false,
      isShadow: false,
      isQuota: false,
      headers: 'none',
      hasDynamicMetadata: false,
      counting: 'each',
      threads: 1,
    });
  });

  test('may have a socket without a port, and an open host with a certificate of clients', () => {
    const { WEIR_RLS_CONFIG } = ON;
    const socket = { WEIR_RLS_SOCKET: '/run/rls.sock', WEIR_RLS_CONFIG };
    expect(load(socket)).toMatchObject({ port: undefined, socket: '/run/rls.sock' });
    const host = { WEIR_RLS_HOST: '0.0.0.0' };
    const clientCa = { ...TLS, WEIR_RLS_TLS_CLIENT_CA: '/ca' };
    expect(load({ ...ON, ...host, ...clientCa })).toMatchObject({
      tls: { cert: '/cert', key: '/key', clientCa: '/ca' },
    });
    expect(load({ ...ON, ...host, WEIR_RLS_OPEN: 'true' })).toMatchObject({ host: '0.0.0.0' });
    expect(load({ ...socket, ...host })).toMatchObject({ host: '0.0.0.0' });
    const json = { WEIR_RLS_JSON_PORT: '8080', WEIR_RLS_OPEN: 'true' };
    expect(load({ ...socket, ...host, ...json })).toMatchObject({ jsonPort: 8080 });
  });

  const faults: [env: Record<string, string>, message: string][] = [
    [
      { WEIR_RLS_CONFIG: '/rules' },
      'WEIR_RLS_CONFIG requires WEIR_RLS_PORT or WEIR_RLS_SOCKET, and neither is set',
    ],
    [
      { WEIR_RLS_HEADERS: 'ietf' },
      'WEIR_RLS_HEADERS requires WEIR_RLS_PORT or WEIR_RLS_SOCKET, and neither is set',
    ],
    [{ WEIR_RLS_PORT: '8081' }, 'WEIR_RLS_PORT requires WEIR_RLS_CONFIG, the folder of the rules'],
    [
      {
        WEIR_RLS_SOCKET: '/rls.sock',
        WEIR_RLS_CONFIG: '/rules',
        WEIR_RLS_JSON_PORT: '8080',
        WEIR_RLS_HOST: '0.0.0.0',
      },
      'WEIR_RLS_HOST is 0.0.0.0, which other machines reach, and the service has no keys: set' +
        ' WEIR_RLS_TLS_CLIENT_CA, so that clients need a certificate, or WEIR_RLS_OPEN=true',
    ],
    [
      { WEIR_RLS_SOCKET: '/rls.sock', WEIR_RLS_CONFIG: '/rules', ...TLS },
      'WEIR_RLS_TLS_CERT requires WEIR_RLS_PORT, which is not set: WEIR_RLS_SOCKET has no TLS',
    ],
    [
      { WEIR_RLS_SOCKET: '/run/rls.sock' },
      'WEIR_RLS_SOCKET requires WEIR_RLS_CONFIG, the folder of the rules',
    ],
    [
      { ...ON, WEIR_RLS_TLS_CERT: '/cert' },
      'WEIR_RLS_TLS_CERT requires WEIR_RLS_TLS_KEY, which is not set',
    ],
    [
      { ...ON, WEIR_RLS_TLS_KEY: '/key' },
      'WEIR_RLS_TLS_KEY requires WEIR_RLS_TLS_CERT, which is not set',
    ],
    [
      { ...ON, WEIR_RLS_TLS_CLIENT_CA: '/ca' },
      'WEIR_RLS_TLS_CLIENT_CA requires WEIR_RLS_TLS_CERT, which is not set',
    ],
    ...[{}, TLS].map((tls): [Record<string, string>, string] => [
      { ...ON, ...tls, WEIR_RLS_HOST: '0.0.0.0' },
      'WEIR_RLS_HOST is 0.0.0.0, which other machines reach, and the service has no keys: set' +
        ' WEIR_RLS_TLS_CLIENT_CA, so that clients need a certificate, or WEIR_RLS_OPEN=true',
    ]),
    [
      { ...ON, ...TLS, WEIR_RLS_JSON_PORT: '8080' },
      'WEIR_RLS_JSON_PORT has no TLS: with WEIR_RLS_TLS_CERT, /json is on WEIR_RLS_PORT',
    ],
    [
      { ...ON, WEIR_RLS_PORT: '', WEIR_RLS_SOCKET: '/s', WEIR_RLS_THREADS: '2' },
      'WEIR_RLS_THREADS is 2, and only one thread can listen on WEIR_RLS_SOCKET: set' +
        ' WEIR_RLS_PORT, or leave WEIR_RLS_THREADS out',
    ],
  ];
  for (const [{ ...env }, message] of faults) {
    if (env.WEIR_RLS_PORT === '') delete env.WEIR_RLS_PORT;
    test(`that do not fit together stop the start: ${message}`, () => {
      expect(() => load(env)).toThrow(message);
    });
  }

  test('have several threads only with a version of Node in which they can share a port', () => {
    const settings = { ...loadSettings([], ON), rlsThreads: 2 } as Settings;
    const threads = (version: string) => loadRlsSettings(settings, () => true, version)?.threads;
    for (const version of ['22.22.2', '24.14.1', '26.0.0', '25.1.0']) {
      expect(threads(version)).toBe(2);
    }
    for (const version of ['20.20.2', '22.21.0', '24.13.0']) {
      expect(() => threads(version)).toThrow(
        `WEIR_RLS_THREADS must be 1 with Node ${version}; more threads require Node 22.22`,
      );
    }
  });
});
