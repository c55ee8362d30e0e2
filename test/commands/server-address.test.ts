/** The address that a command calls, by the environment of a real server. */

import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, test } from 'vitest';
import { NO_LEASE_ID, NO_RESERVATION_ID } from '../../src/api/texts/examples.ts';
import { COMMANDS } from '../../src/commands/run.ts';
import { EXIT } from '../../src/core/exit.ts';
import { CERTIFICATE_A, writeCertificate } from '../support/certificates.ts';
import { freePort } from '../support/server.ts';
import { useServer } from '../support/test-server.ts';
import { callWeir } from '../support/weir-command.ts';

const server = useServer();
/** A command line for each command that calls a server, and its exit code on an empty one. */
const REMOTE_LINES: [line: string, code: number][] = [
  ['inspect nobody', 0],
  ['explain nobody --namespace default', 0],
  ['reset nobody', 0],
  ['reserve a --limit 5 --duration 60s --cost 1 --ttl 1s', 0],
  [`commit ${NO_RESERVATION_ID} --cost 1`, 4],
  [`cancel ${NO_RESERVATION_ID}`, 4],
  ['acquire a --limit 5 --ttl 1s', 0],
  [`renew ${NO_LEASE_ID} --ttl 1s`, 1],
  [`release ${NO_LEASE_ID}`, 4],
  ['run --concurrency 1 --identifier job -- true', 0],
  ['holds end a 1c-09f3', 4],
  ['overrides list', 0],
  ['blocks list', 0],
  ['events tail --once', 0],
  ['keys list', 0],
  ['namespaces list', 0],
  ['policies list', 0],
  ['stats', 0],
  ['top --interval 100ms', 0],
  ['audit list', 0],
  ['gateway nginx', 2],
];
const CHECK = ['check', 'user_1', '--limit', '10', '--duration', '60s'];

function call(args: string[], env: Record<string, string> = {}) {
  return callWeir('', args, { cwd: server.directory, env: { WEIR_URL: undefined, ...env } });
}
/** Without the reason of the system. */
const errorOf = async (args: string[], env: Record<string, string> = {}) => {
  const { code, stderr } = await call(args, env);
  return [code, stderr.replace(/: connect .*\n$/, '')];
};

describe('a command without --url and WEIR_URL', () => {
  test('calls the server with the same variables', async () => {
    const { port } = new URL(server.url);
    for (const host of ['127.0.0.1', '0.0.0.0', 'localhost', undefined]) {
      const env = { WEIR_PORT: port, ...(host !== undefined && { WEIR_HOST: host }) };
      expect([host, await call(CHECK, env)]).toEqual([host, expect.objectContaining({ code: 0 })]);
    }
    // Any answer but "no response" is that of the server.
    for (const [line, expected] of REMOTE_LINES) {
      const { code } = await call(line.split(' '), { WEIR_PORT: port });
      expect([line, code]).toEqual([line, expected]);
    }
  });

  test('has a line above for each command that calls a server', async () => {
    const called = new Set(REMOTE_LINES.map(([line]) => line.split(' ')[0]));
    for (const [name, { load }] of Object.entries(COMMANDS)) {
      const { exitCodes } = await load();
      const callsServer = exitCodes.includes(EXIT.SERVER_ERROR);
      expect([name, called.has(name) || name === 'check']).toEqual([name, callsServer]);
    }
  });

  test('says which variable to set if nothing listens at the address', async () => {
    const port = String(await freePort());
    const refused = (of: string) => `connect ECONNREFUSED 127.0.0.1:${of}; if the server has`;
    const { stderr } = await call(CHECK, { WEIR_PORT: port });
    expect(stderr).toContain(`${refused(port)} another address, set WEIR_URL or WEIR_PORT\n`);
    const byUrl = await call(CHECK, { WEIR_URL: `http://127.0.0.1:${port}` });
    expect(byUrl.stderr).toContain(`${refused(port)} another address, change WEIR_URL\n`);
    const admin = await call(['health'], { WEIR_ADMIN_PORT: port });
    expect(admin.stderr).toContain('another address, set --url or WEIR_ADMIN_PORT\n');
    const byOption = await call([...CHECK, '--url', `http://127.0.0.1:${port}`]);
    expect(byOption.stderr).toMatch(/ \(--url\): connect ECONNREFUSED [\d.:]+\n$/);
  });

  test('calls the server with the same file, of which other faults do not matter', async () => {
    const port = Number(new URL(server.url).port);
    const file = join(server.directory, 'weir.json');
    writeFileSync(file, JSON.stringify({ port, drainMs: 'no', policies: { a: {} } }));
    const env = { WEIR_CONFIG: file, WEIR_NO_SETTING: 'a', WEIR_COUNTERS: 'many' };
    expect(await call(CHECK, env)).toMatchObject({ code: 0 });
    // As for the server, a variable replaces the setting of the file.
    const other = String(await freePort());
    expect(await errorOf(CHECK, { ...env, WEIR_PORT: other })).toEqual([
      3,
      `weir: no response from http://127.0.0.1:${other} (by WEIR_PORT)`,
    ]);
    writeFileSync(file, JSON.stringify({ port: Number(other) }));
    expect(await errorOf(CHECK, { WEIR_CONFIG: file })).toEqual([
      3,
      `weir: no response from http://127.0.0.1:${other} (by "port" in ${file})`,
    ]);
  });

  test('names all that has set the address, or that nothing has', async () => {
    const port = String(await freePort());
    expect(await errorOf(CHECK, { WEIR_PORT: port, WEIR_HOST: '::1' })).toEqual([
      3,
      `weir: no response from http://[::1]:${port} (by WEIR_PORT and WEIR_HOST)`,
    ]);
    const { cert } = writeCertificate(server.directory, CERTIFICATE_A);
    expect(await errorOf(CHECK, { WEIR_PORT: port, WEIR_TLS_CERT: cert })).toEqual([
      3,
      `weir: no response from https://127.0.0.1:${port} (by WEIR_PORT and WEIR_TLS_CERT)`,
    ]);
    // The port of a Kubernetes service is no port of a server.
    const kubernetes = { WEIR_PORT: 'tcp://10.0.0.1:7070', WEIR_HOST: '127.0.0.9' };
    expect(await errorOf(CHECK, kubernetes)).toEqual([
      3,
      'weir: no response from http://127.0.0.9:7070 (by WEIR_HOST)',
    ]);
    const { stderr } = await call(['health', '--timeout', '1ms'], { WEIR_ADMIN_HOST: '127.0.0.9' });
    expect(stderr).toContain('no response from http://127.0.0.9:7071 (by WEIR_ADMIN_HOST)');
  });

  test('is an error if the server selects its port', async () => {
    expect(await call(CHECK, { WEIR_PORT: '0' })).toMatchObject({
      code: 2,
      stderr: 'weir: WEIR_PORT is 0, which selects a free port: set --url or WEIR_URL\n',
    });
    expect(await call(['health'], { WEIR_ADMIN_PORT: '0' })).toMatchObject({
      code: 2,
      stderr: 'weir: WEIR_ADMIN_PORT is 0, which selects a free port: set --url\n',
    });
    expect((await call(CHECK, { WEIR_PORT: '70000' })).stderr).toContain('got 70000');
  });
});

test('--url has precedence over WEIR_URL, and WEIR_URL over the settings', async () => {
  const [one, other, third] = [await freePort(), await freePort(), await freePort()];
  const env = { WEIR_PORT: `${third}`, WEIR_URL: `http://127.0.0.1:${other}` };
  expect(await errorOf([...CHECK, '--url', `http://127.0.0.1:${one}`], env)).toEqual([
    3,
    `weir: no response from http://127.0.0.1:${one} (--url)`,
  ]);
  expect(await errorOf(CHECK, env)).toEqual([
    3,
    `weir: no response from http://127.0.0.1:${other} (WEIR_URL)`,
  ]);
  expect(await call(CHECK, { ...env, WEIR_URL: server.url })).toMatchObject({ code: 0 });
});
