/** The rate limit service of a server: its start, its listeners, reloads of its rules, its end. */

import { mkdirSync, renameSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { request } from 'node:https';
import { join } from 'node:path';
import { credentials, type ServiceError, status } from '@grpc/grpc-js';
import { afterAll, afterEach, beforeAll, describe, expect, test } from 'vitest';
import { EXIT } from '../../src/core/exit.ts';
import { CERTIFICATE_A, CERTIFICATE_B, writeCertificate } from '../support/certificates.ts';
import { useDataDirectory } from '../support/data-directory.ts';
import { readMetrics, waitForCheckpoint } from '../support/http.ts';
import { RlsClient } from '../support/rls/client.ts';
import { useRlsServer, writeFiles } from '../support/rls/rls-server.ts';
import {
  DECIDE_MODES,
  freePort,
  removeDirectory,
  type ServerOptions,
  type ServerProcess,
  spawnServer,
  temporaryDirectory,
  waitUntil,
} from '../support/server.ts';
import { SMALL } from '../support/test-server.ts';

const rule = (limit: number, domain = 'd') => `
domain: ${domain}
descriptors:
  - { key: k, rate_limit: { unit: year, requests_per_unit: ${limit} } }
`;

interface Readiness {
  status: string;
  reasons?: string[];
}

const readinessOf = async ({ adminUrl }: Pick<ServerProcess, 'adminUrl'>): Promise<Readiness> => {
  return (await fetch(`${adminUrl}/readyz`)).json() as Promise<Readiness>;
};

describe('rules', () => {
  const server = useRlsServer({ files: { 'd.yaml': rule(5) } });
  const limitOf = async (domain = 'd') => {
    const [, text] = await server.rls.ask(domain, [{ of: 'k=look', hits: 0 }]);
    return text.split('/').at(-1);
  };
  const loads = async () => {
    const metrics = await readMetrics(server.adminUrl);
    return ['success', 'error'].map((result) => {
      return metrics.get(`weir_rls_rule_loads_total{result="${result}"}`);
    });
  };
  const waitForLimit = (limit: string, domain?: string) => {
    return waitUntil('the rules are active', async () => (await limitOf(domain)) === limit);
  };

  test('are read again when a file changes', async () => {
    expect([await limitOf(), await loads()]).toEqual(['5 YEAR', [1, 0]]);
    server.write({ 'd.yaml': rule(6) });
    await waitForLimit('6 YEAR');
    expect(await loads()).toEqual([2, 0]);
  });

  test('stay as they were with an invalid file, which the server reports until it is mended', async () => {
    server.write({ 'd.yaml': rule(7).replace('unit: year', 'unit: fortnight') });
    await waitUntil(
      'it is degraded',
      async () => (await readinessOf(server)).status === 'degraded',
    );
    const fault =
      'd.yaml:4: "unit" must be one of second, minute, hour, day, week, month, year;' +
      ' got fortnight';
    const { reasons } = await readinessOf(server);
    expect(reasons).toEqual([expect.stringContaining(fault)]);
    expect(reasons?.[0]).toMatch(/^rate limit service: old rules apply: /);
    expect([await limitOf(), await loads()]).toEqual(['6 YEAR', [2, 1]]);
    expect(server.stderr() + server.stdout()).toContain('fortnight');
    server.write({ 'e.yaml': rule(8, 'e') });
    server.write({ 'd.yaml': rule(7) });
    await waitForLimit('7 YEAR');
    expect(await loads()).toEqual([3, 1]);
    expect(await readinessOf(server)).toMatchObject({ status: 'ready' });
    expect(await limitOf('e')).toBe('8 YEAR');
    await server.namespaceId('e');
  });

  test('are read again when a symbolic link is replaced, as Kubernetes does', async () => {
    const at = (name: string) => join(server.folder, name);
    for (const [version, limit] of [
      ['..v1', 11],
      ['..v2', 12],
    ] as const) {
      mkdirSync(at(version));
      writeFileSync(at(`${version}/map.yaml`), rule(limit, 'map'));
    }
    symlinkSync('..v1', at('..data'));
    symlinkSync('..data/map.yaml', at('map.yaml'));
    await waitForLimit('11 YEAR', 'map');
    symlinkSync('..v2', at('..new'));
    renameSync(at('..new'), at('..data'));
    await waitForLimit('12 YEAR', 'map');
  });

  test('of a removed file do not apply any more', async () => {
    rmSync(join(server.folder, 'e.yaml'));
    await waitUntil('the domain has none', async () => {
      return (await server.rls.ask('e', ['k=1'])).join() === 'OK,OK';
    });
  });

  test('are read again on SIGHUP', async () => {
    const [before] = await loads();
    server.child.kill('SIGHUP');
    await waitUntil('they are loaded', async () => (await loads())[0] === before! + 1);
  });
});

const own = useDataDirectory(SMALL);
let root = '';
const clients: RlsClient[] = [];
beforeAll(() => {
  root = temporaryDirectory();
});
afterAll(() => removeDirectory(root));
afterEach(() => {
  for (const client of clients.splice(0)) client.close();
});
let folders = 0;
const folderOf = (files: Record<string, string>) => {
  const folder = join(root, `rules${folders++}`);
  mkdirSync(folder);
  writeFiles(folder, files);
  return folder;
};
const clientOf = (...target: ConstructorParameters<typeof RlsClient>) => {
  const client = new RlsClient(...target);
  clients.push(client);
  return client;
};

describe('a start', () => {
  const refused = async (env: Record<string, string>) => {
    const server = own.adopt(await spawnServer(own.dataDir, { args: SMALL, env }));
    const { code } = await server.exited;
    return [code, server.stderr()];
  };

  test('is refused with one sentence where a file is invalid', async () => {
    const WEIR_RLS_CONFIG = folderOf({ 'd.yaml': rule(1), 'e.yaml': rule(1) });
    expect(await refused({ WEIR_RLS_PORT: '0', WEIR_RLS_CONFIG })).toEqual([
      EXIT.USAGE,
      expect.stringMatching(/^.*e\.yaml:2: "domain" must be different in each file.*\n$/),
    ]);
  });

  test('is refused with one sentence where the folder is missing', async () => {
    expect(await refused({ WEIR_RLS_PORT: '0', WEIR_RLS_CONFIG: join(root, 'none') })).toEqual([
      EXIT.USAGE,
      expect.stringMatching(/^.*none.*\n$/),
    ]);
  });

  test('is refused with several threads on Node 20', async () => {
    const WEIR_RLS_CONFIG = folderOf({ 'd.yaml': rule(1) });
    const [major] = process.versions.node.split('.');
    if (Number(major) !== 20) return;
    const env = { WEIR_RLS_PORT: '0', WEIR_RLS_CONFIG, WEIR_RLS_THREADS: '2' };
    expect(await refused(env)).toEqual([
      EXIT.USAGE,
      expect.stringMatching(/^[^\n]*WEIR_RLS_THREADS must be 1 with Node 20[^\n]*\n$/),
    ]);
  });

  test('is ready when calls are accepted', async () => {
    const port = await freePort();
    const env = { WEIR_RLS_PORT: String(port), WEIR_RLS_CONFIG: folderOf({ 'd.yaml': rule(3) }) };
    const server = own.adopt(await spawnServer(own.dataDir, { args: SMALL, env }));
    await waitUntil('it is ready', async () => {
      const response = await fetch(`${server.adminUrl}/readyz`).catch(() => undefined);
      return response?.status === 200;
    });
    expect(await clientOf(`127.0.0.1:${port}`).ask('d', ['k=1'])).toEqual(['OK', 'OK 2/3 YEAR']);
  });
});

describe('listeners', () => {
  test('have TLS with certificates of clients, /json over it, and a socket without', async () => {
    const files = writeCertificate(root, CERTIFICATE_A);
    const clientCa = join(root, 'ca.pem');
    writeFileSync(clientCa, CERTIFICATE_B.cert);
    const socket = join(root, 'rls.sock');
    const port = await freePort();
    await own.start({
      args: SMALL,
      env: {
        WEIR_RLS_PORT: String(port),
        WEIR_RLS_SOCKET: socket,
        WEIR_RLS_CONFIG: folderOf({ 'd.yaml': rule(3) }),
        WEIR_RLS_TLS_CERT: files.cert,
        WEIR_RLS_TLS_KEY: files.key,
        WEIR_RLS_TLS_CLIENT_CA: clientCa,
      },
    });
    const ca = Buffer.from(CERTIFICATE_A.cert);
    const pair = [CERTIFICATE_B.key, CERTIFICATE_B.cert].map((text) => Buffer.from(text));
    const trusted = credentials.createSsl(ca, pair[0], pair[1]);
    expect(await clientOf(`localhost:${port}`, trusted).ask('d', ['k=1'])).toEqual([
      'OK',
      'OK 2/3 YEAR',
    ]);
    expect(await clientOf(`unix:${socket}`).ask('d', ['k=1'])).toEqual(['OK', 'OK 1/3 YEAR']);
    for (const channel of [credentials.createSsl(ca), credentials.createInsecure()]) {
      const [code] = await clientOf(`localhost:${port}`, channel).ask('d', ['k=1']);
      expect(code).toBe('UNAVAILABLE');
    }
    const [key, cert] = pair;
    const body = await new Promise<string>((resolve, reject) => {
      const options = { port, ca, key, cert, method: 'POST', path: '/json', agent: false };
      const req = request({ host: 'localhost', ...options }, async (res) => {
        resolve(`${res.statusCode} ${Buffer.concat(await res.toArray())}`);
      });
      req.on('error', reject);
      req.end('{"domain":"d","descriptors":[{"entries":[{"key":"k","value":"1"}]}]}');
    });
    expect(body).toMatch(/^200 \{"overallCode":"OK",/);
  });
});

describe.each(DECIDE_MODES)('the end of a server, decided %s,', (mode) => {
  const start = async (options: ServerOptions = {}) => {
    const port = await freePort();
    const server = await own.start({
      args: [...SMALL, '--decide', mode, '--checkpoint-ms', '100', ...(options.args ?? [])],
      env: {
        WEIR_RLS_PORT: String(port),
        WEIR_RLS_CONFIG: folderOf({ 'd.yaml': rule(1_000_000) }),
      },
    });
    return { server, client: clientOf(`127.0.0.1:${port}`) };
  };
  const used = async (client: RlsClient) => {
    const [, text] = await client.ask('d', [{ of: 'k=1', hits: 0 }]);
    return 1_000_000 - Number(/^OK (\d+)\//.exec(text)?.[1]);
  };

  test('by SIGTERM under load keeps each answered call, and counts no other', async () => {
    const { server, client } = await start();
    let answered = 0;
    const refusals: string[] = [];
    let isStopping = false;
    const loop = async () => {
      while (!isStopping || refusals.length === 0) {
        try {
          await client.call('d', ['k=1']);
          answered++;
        } catch (error) {
          refusals.push(status[(error as ServiceError).code]);
          return;
        }
      }
    };
    const loops = Array.from({ length: 20 }, loop);
    await waitUntil('calls are answered', () => answered > 200);
    isStopping = true;
    expect(await server.stop()).toEqual({ code: 0, signal: null });
    await Promise.all(loops);
    expect(new Set(refusals)).toEqual(new Set(['UNAVAILABLE']));
    expect(await used((await start()).client)).toBe(answered);
  });

  test('by SIGKILL keeps what the last checkpoint has', async () => {
    const { server, client } = await start();
    await client.call('d', [{ of: 'k=1', hits: 7 }]);
    await waitForCheckpoint(server.adminUrl);
    server.child.kill('SIGKILL');
    await server.exited;
    expect(await used((await start()).client)).toBe(7);
  });
});
