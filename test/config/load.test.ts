import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, describe, expect, test } from 'vitest';
import { loadSettings } from '../../src/config/load.ts';
import { removeDirectory, temporaryDirectory } from '../support/server.ts';

const directory = temporaryDirectory();
afterAll(() => removeDirectory(directory));

let serial = 0;
const writeConfigFile = (content: string) => {
  const path = join(directory, `settings-${serial++}.json`);
  writeFileSync(path, content);
  return path;
};

function errorMessage(load: () => unknown): string {
  try {
    load();
  } catch (error) {
    return (error as Error).message;
  }
  return 'no error';
}

describe('settings', () => {
  test('have the documented defaults', () => {
    const limit = { bytes: 2 ** 40, source: 'a large machine' };
    expect(loadSettings([], {}, limit)).toMatchObject({
      host: '127.0.0.1',
      port: 7070,
      socketMode: '0660',
      adminHost: '127.0.0.1',
      adminPort: 7071,
      dataDir: './weir-data',
      counters: 1_048_576,
      onFull: 'deny',
      drainMs: 250,
      logLevel: 'info',
    });
    expect(loadSettings([], {})?.rootKey).toBeUndefined();
  });

  test('come from flags, then environment, then file, then defaults', () => {
    const path = writeConfigFile('{"port": 1, "adminPort": 1, "drainMs": 1, "onFull": "allow"}');
    const env = { WEIR_CONFIG: path, WEIR_PORT: '2', WEIR_ADMIN_PORT: '2' };
    const settings = loadSettings(['--port', '3'], env);
    expect(settings).toMatchObject({
      port: 3,
      adminPort: 2,
      drainMs: 1,
      onFull: 'allow',
      counters: 1_048_576,
    });
    expect(loadSettings(['--port=4', `--config=${path}`], {})).toMatchObject({
      port: 4,
      adminPort: 1,
    });
  });

  test('may be in a file with comments and trailing commas, as in JSONC', () => {
    const path = writeConfigFile(
      '// weir\n{\n  "port": 1, /* "port": 2, */\n  "host": "http://a//b", // c\n' +
        '  "policies": {"a": {"gateway": ["nginx",], "limit": 1, "duration": "60s",},/**/},\n}\n',
    );
    const loaded = loadSettings(['--config', path], {})!;
    expect(loaded).toMatchObject({ port: 1, host: 'http://a//b' });
    expect(loaded.file?.policies).toMatchObject([{ windows: [{ limit: 1, duration: 60_000 }] }]);
    expect(Object.fromEntries(loaded.file!.positions)).toEqual({
      port: { line: 3, column: 3 },
      host: { line: 4, column: 3 },
      policies: { line: 5, column: 3 },
    });
  });

  test('may have durations with a unit in every source', () => {
    const path = writeConfigFile('{"syncMs": "1s", "checkpointMs": "1m", "drainMs": 1}');
    const env = { WEIR_DRAIN_MS: '2s', WEIR_ENGINE: 'redis', WEIR_REDIS_URL: 'redis://a' };
    const args = ['--config', path, '--redis-timeout-ms', '30ms'];
    expect(loadSettings(args, env)).toMatchObject({
      ...{ syncMs: 1_000, checkpointMs: 60_000, drainMs: 2_000, redisTimeoutMs: 30 },
    });
  });

  test('let an acceptor miss heartbeats for 2 s, and for 1 s at least', () => {
    expect(loadSettings([], {})).toMatchObject({ unresponsiveMs: 2_000 });
    const load = (value: string) => loadSettings(['--unresponsive-ms', value], {});
    expect(load('1s')).toMatchObject({ unresponsiveMs: 1_000 });
    expect(() => load('999')).toThrow(
      /--unresponsive-ms.*must be an integer from 1000 to 60000.*999/,
    );
  });

  test('may be in a file that names a schema for editors', () => {
    const path = writeConfigFile('{"$schema": "./weir.schema.json", "port": 1}');
    expect(loadSettings(['--config', path], {})).toMatchObject({ port: 1 });
  });

  test('ignore the variables of Kubernetes services and of the client commands', () => {
    const env = {
      WEIR_PORT: 'tcp://10.0.0.1:7070',
      WEIR_PORT_7070_TCP: 'tcp://10.0.0.1:7070',
      WEIR_PORT_7070_TCP_PROTO: 'tcp',
      WEIR_SERVICE_HOST: '10.0.0.1',
      WEIR_SERVICE_PORT_HTTP: '7070',
      WEIR_METRICS_SERVICE_HOST: '10.0.0.2',
      WEIR_METRICS_PORT: 'udp://10.0.0.2:9',
      WEIR_ADMIN_PORT: 'tcp://10.0.0.2:7071',
      WEIR_ADMIN_PORT_7071_TCP_ADDR: '10.0.0.2',
      WEIR_URL: 'http://127.0.0.1:7070',
      WEIR_KEY: 'key',
      PORT: '80',
    };
    expect(loadSettings([], env)).toEqual(loadSettings([], {}));
  });

  test('have the source of each value', () => {
    const path = writeConfigFile('{"port": 1, "rootKey": "root-key-of-the-file"}');
    const sourcesOf = (args: string[], env: Record<string, string>) => {
      const { sources } = loadSettings(args, env)!;
      return (['host', 'port', 'drainMs', 'rootKey', 'socket'] as const).map((name) => {
        return sources.get(name);
      });
    };
    const keyFile = writeConfigFile('root-key-of-a-file');
    expect(
      sourcesOf(['--drain-ms', '1'], { WEIR_HOST: '::1', WEIR_ROOT_KEY_FILE: keyFile }),
    ).toEqual([...['WEIR_HOST', 'default', '--drain-ms', `the key in ${keyFile}`, undefined]]);
    expect(sourcesOf(['--config', path, '--host=a'], { WEIR_DRAIN_MS: '1' })).toEqual([
      ...['--host', `"port" in ${path}`, 'WEIR_DRAIN_MS', `"rootKey" in ${path}`, undefined],
    ]);
  });

  test('accept host names for the admin port without ports, separated by commas', () => {
    for (const value of ['weir', 'weir,weir.default.svc', 'a-b.C_d.9, x', '_x.y', 'x'.repeat(63)]) {
      expect(loadSettings(['--admin-hosts', value], {})?.adminHosts).toBe(value);
    }
    const rule = 'must be host names without ports, separated by commas; got';
    const long = Array(64).fill('abc').join('.');
    for (const [value, invalid] of [
      ['weir:7071', '"weir:7071"'],
      ['weir,', '""'],
      ['a,,b', '""'],
      ['a, http://weir', '"http://weir"'],
      ['*.weir', '"*.weir"'],
      ['a b', '"a b"'],
      ['-a', '"-a"'],
      ['a..b', '"a..b"'],
      [`a,${'x'.repeat(64)}`, '"x'],
      [`a,${long}`, 'a text of 255 characters'],
    ]) {
      const load = () => loadSettings([], { WEIR_ADMIN_HOSTS: value });
      expect([value, errorMessage(load)]).toEqual([
        value,
        expect.stringContaining(`WEIR_ADMIN_HOSTS ${rule} ${invalid}`),
      ]);
    }
  });

  test('accept a public URL that can be the prefix of links', () => {
    for (const value of [
      ...['http://weir', 'https://weir.example:8443', 'https://weir.example/limits/'],
      ...['http://[::1]:1', 'HTTPS://Weir.Example'],
    ]) {
      expect(loadSettings(['--public-url', value], {})?.publicUrl).toBe(value);
    }
    for (const value of [
      ...['weir.example', '/limits', 'ftp://weir', 'https://', 'https://weir?', 'https://weir/#'],
      ...['https://weir?a=1', 'https://weir/#a', 'javascript:alert(1)', 'http://weir:99999'],
      ...['https:weir', ' https://weir', 'https://we ir', 'https://weir\n'],
    ]) {
      expect(errorMessage(() => loadSettings([], { WEIR_PUBLIC_URL: value }))).toBe(
        'WEIR_PUBLIC_URL must be an http or https URL without credentials, query and fragment,' +
          ` as in https://weir.example; got ${JSON.stringify(value)}`,
      );
    }
    const secret = () => loadSettings([], { WEIR_PUBLIC_URL: 'https://me:secret@weir' });
    expect(errorMessage(secret)).toMatch(/got one with a user name or a password$/);
    for (const value of ['htps://me:secret@weir', 'me:secret@weir', 'https://weir/@?me:secret']) {
      const load = () => loadSettings([], { WEIR_PUBLIC_URL: value });
      expect([value, errorMessage(load)]).toEqual([value, expect.not.stringContaining('secret')]);
    }
  });

  test('request help with --help or -h at any position', () => {
    expect(loadSettings(['--help'], {})).toBeUndefined();
    expect(loadSettings(['--port', '1', '-h'], {})).toBeUndefined();
    expect(loadSettings(['serve', '--bogus', '--help'], {})).toBeUndefined();
  });

  test('accept the root key from the environment, a file or a JSON file, not from a flag', () => {
    const key = 'k'.repeat(16);
    expect(loadSettings([], { WEIR_ROOT_KEY: key })?.rootKey).toBe(key);
    expect(loadSettings(['--root-key-file', writeConfigFile(` ${key}\n`)], {})?.rootKey).toBe(key);
    expect(loadSettings(['--config', writeConfigFile(`{"rootKey":"${key}"}`)], {})?.rootKey).toBe(
      key,
    );
  });
});

describe('an invalid setting gives an error with its name, its value and the accepted values', () => {
  const expectError = (args: string[], env: Record<string, string>, message: string) => {
    expect(() => loadSettings(args, env)).toThrow(message);
    expect(() => loadSettings(args, env)).not.toThrow('\n');
  };

  test.each<[args: string[], message: string]>([
    [['--port', '70000'], '--port must be an integer from 0 to 65535; got 70000'],
    [['--port'], '--port must be an integer from 0 to 65535; got nothing'],
    [['--port', '--host', 'x'], '--port must be an integer from 0 to 65535; got nothing'],
    [['--counters', '1e6'], '--counters must be an integer from 1024 to 16777216; got "1e6"'],
    [['--on-full', 'maybe'], '--on-full must be deny or allow; got "maybe"'],
    [
      ['--drain-ms', '-1'],
      '--drain-ms must be an integer from 0 to 600000, or a duration such as 500ms or 5s; got "-1"',
    ],
    [['--drain-ms', '1h'], 'or a duration such as 500ms or 5s; got "1h"'],
    [['--drain-ms', '5 s'], 'or a duration such as 500ms or 5s; got "5 s"'],
    [['--port', '5s'], '--port must be an integer from 0 to 65535; got "5s"'],
    [['--socket-mode', '888'], '--socket-mode must be three octal digits, as in 0660; got "888"'],
    [['--socket='], '--socket must be a path of at most 107 bytes; got ""'],
    [['--config='], '--config must be a path; got ""'],
    [['--gateway-host', 'localhost'], '--gateway-host must be 127.x.x.x or ::1'],
    [['--prot', '1'], '--prot is no setting of weir; is it --port?'],
    [['--frobnicate'], '--frobnicate is no setting of weir; see weir help serve'],
    [['--root-key', 'k'.repeat(16)], '--root-key is no setting of weir'],
    [['serve'], '"serve" is not a flag; see weir help serve'],
    [['--port', '7071'], 'WEIR_PORT and WEIR_ADMIN_PORT are both 7071: they must differ'],
    [['--gateway-port', '7070'], 'WEIR_PORT and WEIR_GATEWAY_PORT are both 7070: they must'],
    [['--gateway-port', '7071'], 'WEIR_ADMIN_PORT and WEIR_GATEWAY_PORT are both 7071'],
    [
      ['--socket', '/a', '--gateway-socket', '/a'],
      'WEIR_SOCKET and WEIR_GATEWAY_SOCKET are both /a: they must differ',
    ],
  ])('%j', (args, message) => expectError(args, {}, message));

  const keyRule = `must be 16 to 512 visible ASCII characters without spaces (openssl rand -hex 32 makes a good key)`;
  test.each<[env: Record<string, string>, message: string]>([
    [{ WEIR_PORT: '' }, 'WEIR_PORT must be an integer from 0 to 65535; got ""'],
    [{ WEIR_HOST: '' }, 'WEIR_HOST must be an address or a host name; got ""'],
    [{ WEIR_ACCEPTOR: '1' }, 'WEIR_ACCEPTOR is no setting of weir; is it WEIR_ACCEPTORS?'],
    [{ WEIR_CONFIG: '/no/file' }, '/no/file (WEIR_CONFIG) cannot be read: no such file'],
    [{ WEIR_ROOT_KEY: '' }, `${keyRule}; got nothing`],
    [{ WEIR_ROOT_KEY: 'fifteen-letters' }, `${keyRule}; got a text of 15 characters`],
    [{ WEIR_ROOT_KEY: 'some words with spaces' }, `${keyRule}; got a text of 22 characters`],
    [{ WEIR_ROOT_KEY_FILE: writeConfigFile('short\n') }, `${keyRule}; got a text of 5 characters`],
    [{ WEIR_ROOT_KEY: 'a'.repeat(16), WEIR_ROOT_KEY_FILE: 'b' }, 'are both set'],
    [{ WEIR_TLS_KEY: '/a' }, 'WEIR_TLS_KEY requires WEIR_TLS_CERT, which is not set'],
    [{ WEIR_TLS_CERT: '/a' }, 'WEIR_TLS_CERT requires WEIR_TLS_KEY, which is not set'],
    [
      { WEIR_ROOT_KEY_FILE: '/no/key' },
      '/no/key (WEIR_ROOT_KEY_FILE) cannot be read: no such file',
    ],
  ])('%j', (env, message) => expectError([], env, message));

  const nested = (depth: number, inner = '') => `${'['.repeat(depth)}${inner}${']'.repeat(depth)}`;
  test.each<[content: string, message: string]>([
    ['[]', 'must hold one JSON object; got an array of 0'],
    ['{}\n/* a', '.json, line 2, column 1: this is not JSON: a comment has no end'],
    ['{"port":1,,}', '.json, line 1, column 11: this is not JSON: a name in double quotes'],
    ['{,}', '.json, line 1, column 2: this is not JSON: '],
    ['{"port":1,\n"adminPort":1}', 'line 2, column 1: WEIR_PORT and WEIR_ADMIN_PORT are both 1'],
    ['{"adminPort":7070}', 'line 1, column 2: WEIR_PORT and WEIR_ADMIN_PORT are both 7070'],
    ['{"gatewayPort":1,\n"port":1}', 'line 2, column 1: WEIR_PORT and WEIR_GATEWAY_PORT are both'],
    ['{"socket":"/a",\n"gatewaySocket":"/a"}', 'line 2, column 1: WEIR_SOCKET and WEIR_GATEWAY'],
    ['{\n"tlsKey":"/a"}', 'line 2, column 1: WEIR_TLS_KEY requires WEIR_TLS_CERT'],
    ['{\n"leases":"off"}', 'line 2, column 1: WEIR_LEASES requires WEIR_ENGINE=redis'],
    ['{"engine":"redis"}', 'line 1, column 2: WEIR_ENGINE=redis requires WEIR_REDIS_URL'],
    ['{', '.json, line 1, column 2: this is not JSON: "}" is expected'],
    ['\ufeff[', '.json, line 1, column 2: this is not JSON: '],
    ['\ufeff{"port":""}', '.json, line 1, column 2: "port" must be an'],
    ['{"port":"7070"}', 'must be an integer from 0 to 65535; got "7070"'],
    ['{"socketMode":660}', 'must be three octal digits, as in 0660; got 660'],
    ['{"socket":"\\u0000a"}', 'must be a path of at most 107 bytes; got'],
    ['{"rootKey":"fifteen-letters"}', `${keyRule}; got a text of 15 characters`],
    ['{"rootKey":1234567890123456}', `${keyRule}; got a value that is not a text`],
    ['{"$schema":1}', 'column 2: "$schema" must be a string; got 1'],
    ['{"config":"x"}', 'is no setting of weir'],
    ['{\n  "polices": {}}', 'line 2, column 3: polices is no setting of weir; is it policies?'],
    ['{"port":1,\n"port":1}', '.json, line 2, column 1: "port" is repeated; remove one'],
    [
      '{"policies":{"a":{"windows":[{},{"limit":1,"limit":1}]}}}',
      'column 44: "limit" is repeated in "policies.a.windows[1]"; remove one',
    ],
    [`{"x":${nested(20_000, '{"a":1,"a":1}')}}`, 'line 1, column 2: x is no setting of weir'],
    [`{"host":${'['.repeat(100_000)}`, '.json is not JSON, and it is nested too deeply'],
    [`{"host":${nested(20_000)}}`, '"host" must be an address or a host name; got an array of 1'],
    ['{"policies":[]}', 'line 1, column 2: "policies" must be an object of policies'],
    [
      '{"policies":{"a":{\n "gateway":"nginx",\n "limit":1,\n "duration":60}}}',
      '.json, line 4, column 2: policy "a": "duration" must be an integer number of' +
        ' milliseconds from 1000 to 3155760000000, or a duration such as "60s"; got 60',
    ],
    ['{"policies":{"a":{},\n "/":{}}}', 'line 1, column 14: policy "a": "gateway" is required'],
  ])('%.60j', (content, message) => {
    expectError(['--config', writeConfigFile(content)], {}, message);
  });

  test('the error does not contain an invalid key', () => {
    const path = writeConfigFile(`{"rootKey":'secret-key'}`);
    expect(() => loadSettings(['--config', path], {})).toThrow('is not JSON');
    expect(() => loadSettings(['--config', path], {})).not.toThrow('secret');
    const repeated = writeConfigFile('{"rootKey":"secret-key","rootKey":"secret-key"}');
    expect(() => loadSettings(['--config', repeated], {})).toThrow('"rootKey" is repeated; remove');
    expect(() => loadSettings(['--config', repeated], {})).not.toThrow('secret');
    expect(() => loadSettings([], { WEIR_ROOT_KEY: 'sécret' })).not.toThrow('sécret');
    expect(() => loadSettings([], { WEIR_ROOT_KEY: 'too-short' })).not.toThrow('too-short');
  });
});
