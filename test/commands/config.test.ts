/** `weir config check`. */

import { mkdirSync, readdirSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:net';
import { join } from 'node:path';
import { afterAll, describe, expect, test } from 'vitest';
import { CERTIFICATE_A, CERTIFICATE_B, writeCertificate } from '../support/certificates.ts';
import { removeDirectory, spawnServer, temporaryDirectory } from '../support/server.ts';
import { callWeir } from '../support/weir-command.ts';

const directory = temporaryDirectory();
afterAll(() => removeDirectory(directory));

const weir = (args: string[], env: Record<string, string> = {}) => {
  const own = { WEIR_URL: undefined, WEIR_KEY: undefined, ...env };
  return callWeir('', args, { env: own, cwd: directory });
};
const checkConfig = (args: string[], env?: Record<string, string>) => {
  return weir(['config', 'check', ...args], env);
};

let serial = 0;
function writeConfigFile(content: string | object): string {
  const name = `weir-${serial++}.json`;
  const text = typeof content === 'string' ? content : JSON.stringify(content);
  writeFileSync(join(directory, name), text);
  return name;
}

const LOGIN = { gateway: 'nginx', limit: 100, duration: 60_000 };
const UNREACHABLE =
  'a gateway can use "policies" only on WEIR_PORT and with an API key in X-Weir-Key: set' +
  ' WEIR_GATEWAY_PORT or WEIR_GATEWAY_SOCKET to accept checks of gateways without a key';
const RIGHT = {
  $schema: 'https://example.com/weir.json',
  drainMs: 1,
  gatewayPort: 7072,
  policies: { login: LOGIN, api: { ...LOGIN, missing: 'refuse' } },
};

describe('weir config check of a valid file', () => {
  test('prints one sentence with the number of policies and settings', async () => {
    const right = writeConfigFile(RIGHT);
    const sentence = `${right} and the environment are valid: 2 policies, 2 settings\n`;
    const success = { code: 0, stdout: sentence, stderr: '' };
    expect(await checkConfig([right])).toEqual(success);
    expect(await checkConfig([], { WEIR_CONFIG: right })).toEqual(success);
    // An argument replaces WEIR_CONFIG.
    expect(await checkConfig([right], { WEIR_CONFIG: 'nowhere.json' })).toEqual(success);
    const one = writeConfigFile({ gatewaySocket: '/a', policies: { login: LOGIN } });
    expect((await checkConfig([one])).stdout).toContain(': 1 policy, 1 setting\n');
  });

  test('prints one JSON object with --json', async () => {
    const right = writeConfigFile(RIGHT);
    const { code, stdout, stderr } = await checkConfig([right, '--json']);
    expect([code, stderr, stdout.trim().split('\n').length]).toEqual([0, '', 1]);
    const found = { ok: true, file: right, policies: 2, settings: 2, faults: [], warnings: [] };
    expect(JSON.parse(stdout)).toEqual(found);
  });

  test('prints the warnings about its policies', async () => {
    const raw = { ...LOGIN, identify: 'header:cf-connecting-ip' };
    const file = writeConfigFile({ gatewaySocket: '/a', policies: { login: raw } });
    const { code, stdout, stderr } = await checkConfig([file]);
    expect(code).toBe(0);
    expect(stdout).toBe(`${file} and the environment are valid: 1 policy, 1 setting\n`);
    expect(stderr).toMatch(
      /^weir: warning: policy "login": .*; use "ip:header:cf-connecting-ip"\n$/,
    );
    const { warnings } = JSON.parse((await checkConfig([file, '--json'])).stdout);
    expect(warnings.map(({ message }: Error) => `weir: warning: ${message}\n`)).toEqual([stderr]);
  });

  test('needs no file to check the environment', async () => {
    const { code, stdout } = await checkConfig([], { WEIR_PORT: '1' });
    const sentence = 'the environment is valid; no configuration file is named\n';
    expect([code, stdout]).toEqual([0, sentence]);
  });

  test('opens no port and creates no directory or socket', async () => {
    const other = createServer();
    await new Promise<void>((resolve) => other.listen(0, '127.0.0.1', resolve));
    const { port } = other.address() as { port: number };
    const dataDir = join(directory, 'data');
    const socket = join(directory, 'weir.sock');
    const right = writeConfigFile({ port, dataDir, socket });
    expect((await checkConfig([right])).code).toBe(0);
    expect(readdirSync(directory)).not.toContain('data');
    expect(readdirSync(directory)).not.toContain('weir.sock');
    other.close();
  });
});

describe('weir config check of policies', () => {
  const policies = '{\n  "policies": {"login":{"gateway":"nginx","limit":1,"duration":"60s"}}\n}';

  test('warns where no gateway reaches them without a key, with the line, and exits with 0', async () => {
    const file = writeConfigFile(policies);
    const message = `in ${file}, line 2, column 3: ${UNREACHABLE}`;
    const { code, stdout, stderr } = await checkConfig([file]);
    expect([code, stderr]).toEqual([0, `weir: warning: ${message}\n`]);
    expect(stdout).toContain(' are valid: 1 policy, 0 settings\n');
    const json = await checkConfig([file, '--json']);
    expect(JSON.parse(json.stdout)).toMatchObject({
      ok: true,
      warnings: [{ message, line: 2, column: 3 }],
    });
    expect(json.stderr).toBe('');
  });

  test('does not warn with a listener for gateways, nor where other machines reach weir', async () => {
    const file = writeConfigFile(policies);
    for (const env of [
      { WEIR_GATEWAY_PORT: '0' },
      { WEIR_GATEWAY_SOCKET: '/a' },
      { WEIR_HOST: '0.0.0.0' },
      { WEIR_HOST: 'weir.example' },
    ]) {
      const { code, stderr } = await checkConfig([file], env);
      expect([env, code, stderr]).toEqual([env, 0, '']);
    }
  });

  test('rejects Traefik with onError allow, at its line, as a start does', async () => {
    const policy = '"gateway": ["nginx", "traefik"],\n"limit": 1, "duration": "60s"';
    const text = `{"gatewayPort": 7072, "policies": {"login": {${policy},\n "onError": "allow"}}}`;
    const file = join(directory, writeConfigFile(text));
    const message =
      `weir: in ${file}, line 3, column 2: policy "login": "onError" must be deny or left out with` +
      ' the gateway traefik, which denies all requests while weir is stopped; got "allow"';
    const { code, stderr } = await checkConfig([file]);
    expect([code, stderr]).toEqual([2, `${message}\n`]);
    const server = await spawnServer(join(directory, 'never'), { args: ['--config', file] });
    expect((await server.exited).code).toBeGreaterThan(0);
    expect(server.stderr().trim()).toBe(message);
  });
});

const WRONG = `{
  "prot": 1,
  "port": "7070",
  "port": 7071,
  "policies": {
    "login": { "gateway": "nginx", "limit": 1, "duration": 60 },
    "api": {
      "gateway": "nginx", "duration": 60000,
      "limt": 1
    },
    "right": { "gateway": "nginx", "limit": 1, "duration": 60000 }
  }
}
`;

describe('weir config check of an invalid file', () => {
  test('exits with 2 and prints every error with its position, each in one line', async () => {
    const wrong = writeConfigFile(WRONG);
    const { code, stdout, stderr } = await checkConfig([wrong], { WEIR_ACCEPTOR: '1' });
    expect([code, stdout]).toEqual([2, '']);
    expect(stderr.split('\n')).toEqual([
      'weir: WEIR_ACCEPTOR is no setting of weir; is it WEIR_ACCEPTORS?',
      `weir: in ${wrong}, line 4, column 3: "port" is repeated; remove one`,
      `weir: in ${wrong}, line 2, column 3: prot is no setting of weir; is it port?`,
      `weir: in ${wrong}, line 6, column 48: policy "login": "duration" must be an integer` +
        ' number of milliseconds from 1000 to 3155760000000, or a duration such as "60s"; got 60',
      `weir: in ${wrong}, line 9, column 7: policy "api": "limt" is not a field of a policy; is it` +
        ' "limit"?',
      `weir: in ${wrong}, line 4, column 3: WEIR_PORT and WEIR_ADMIN_PORT are both 7071: they must` +
        ' differ',
      `weir: warning: in ${wrong}, line 5, column 3: ${UNREACHABLE}`,
      '',
    ]);
  });

  test('prints only the errors and their positions with --json', async () => {
    const wrong = writeConfigFile('{\n  "port": 1,,\n}');
    const { code, stdout, stderr } = await checkConfig(['--json', wrong], { WEIR_PORT: 'x' });
    expect([code, stderr]).toEqual([2, '']);
    const reason = 'this is not JSON: a name in double quotes is expected';
    expect(JSON.parse(stdout)).toEqual({
      ok: false,
      file: wrong,
      policies: 0,
      settings: 0,
      faults: [
        { message: `in ${wrong}, line 2, column 13: ${reason}`, line: 2, column: 13 },
        { message: 'WEIR_PORT must be an integer from 0 to 65535; got "x"' },
      ],
      warnings: [],
    });
  });

  const a = writeCertificate(directory, CERTIFICATE_A);
  mkdirSync(join(directory, 'b'));
  const b = writeCertificate(join(directory, 'b'), CERTIFICATE_B);
  const cases: [content: string, env: Record<string, string>][] = [
    [WRONG, {}],
    ['{', {}],
    ['[]', {}],
    ['{"gatewaySocket":"/a","socket":"/a"}', {}],
    ['{}', { WEIR_SOCKET: `/tmp/${'s'.repeat(200)}` }],
    ['{}', { WEIR_ROOT_KEY: 'a', WEIR_ROOT_KEY_FILE: 'b' }],
    ['{}', { WEIR_ROOT_KEY_FILE: '/nowhere/key' }],
    ['{}', { WEIR_TLS_CERT: a.cert }],
    ['{}', { WEIR_TLS_CERT: a.cert, WEIR_TLS_KEY: b.key }],
    ['{}', { WEIR_TLS_CERT: a.key, WEIR_TLS_KEY: a.key }],
    ['{}', { WEIR_TLS_CERT: '/nowhere/cert', WEIR_TLS_KEY: a.key }],
    [JSON.stringify({ tlsCert: a.cert, tlsKey: b.key }), {}],
  ];

  test('rejects every configuration that a start rejects', async () => {
    for (const [content, env] of cases) {
      const { code, stdout, stderr } = await checkConfig([writeConfigFile(content)], env);
      expect([content, env, code, stdout]).toEqual([content, env, 2, '']);
      expect(stderr).toMatch(/^(weir: .*\n)+$/);
    }
  });

  test('prints first the error that a start prints', async () => {
    // Of the settings, of a socket, and of a certificate.
    for (const [content, env] of [cases[0], cases[4], cases[8]]) {
      const path = join(directory, writeConfigFile(content));
      const [first] = (await checkConfig([path], env)).stderr.split('\n');
      const server = await spawnServer(join(directory, 'never'), { env, args: ['--config', path] });
      expect((await server.exited).code).toBeGreaterThan(0);
      expect(server.stderr().trim()).toBe(first);
    }
  });

  test('accepts a certificate with its key', async () => {
    const tls = { WEIR_TLS_CERT: a.cert, WEIR_TLS_KEY: a.key };
    expect((await checkConfig([writeConfigFile('{}')], tls)).code).toBe(0);
  });
});
