/** The command `weir`, as its own process, on a running server. */

import { execFile, spawn } from 'node:child_process';
import { readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { IMPORT_MAX_BYTES } from '../../src/core/constants.ts';
import { EXIT } from '../../src/core/exit.ts';
import { callOperationOk } from '../support/operations.ts';
import {
  CLI_PATH,
  ROOT_KEY,
  removeDirectory,
  type ServerProcess,
  startServer,
  temporaryDirectory,
} from '../support/server.ts';
import { withStore } from '../support/store.ts';
import { jsonLines, runWeir } from '../support/weir-command.ts';

const dataDir = temporaryDirectory();
const files = temporaryDirectory();
let server: ServerProcess;
beforeAll(async () => {
  server = await startServer(dataDir, { args: ['--acceptors', '2', '--counters', '1024'] });
});
afterAll(async () => {
  expect(await server.stop()).toEqual({ code: 0, signal: null });
  removeDirectory(dataDir);
  removeDirectory(files);
});

function weir(args: string[], env: Record<string, string | undefined> = {}, input?: string) {
  return runWeir(server.url, args, { env, cwd: files, ...(input === undefined ? {} : { input }) });
}

/** The JSON lines that a command prints; fails if its exit code is not 0. */
function lines(args: string[], env: Record<string, string | undefined> = {}, input?: string) {
  const options = { env, cwd: files, ...(input === undefined ? {} : { input }) };
  return jsonLines(server.url, args, options);
}

const ISO = '\\d{4}-\\d\\d-\\d\\dT\\d\\d:\\d\\d:\\d\\d(\\.\\d{3})?Z';

describe('weir check', () => {
  test('prints the decision, the remaining tokens and the reset, and sets the exit code', async () => {
    const args = ['check', 'user_1', '--limit', '2', '--duration', '30d', '--namespace', 'cli'];
    const answers = [await weir(args), await weir([...args, '--cost', '2']), await weir(args)];
    expect(answers.map(({ code }) => code)).toEqual([EXIT.OK, EXIT.DENIED, EXIT.OK]);
    expect(answers.map(({ stderr }) => stderr)).toEqual(['', '', '']);
    const allowed = `^allowed: limit 2, remaining 1, resets at ${ISO} \\(in \\d+ s\\)\n$`;
    expect(answers[0].stdout).toMatch(new RegExp(allowed));
    expect(answers[1].stdout).toMatch(/^denied: limit 2, remaining 1, resets at /);
    expect((await weir(args)).code).toBe(EXIT.DENIED);
    const [unchanged] = await lines([...args, '--cost', '0']);
    const counter = { limit: 2, remaining: 0, reset: expect.any(Number) };
    expect(unchanged).toEqual({ success: true, ...counter });
    const denied = await weir([...args, '--json']);
    expect([denied.code, denied.stderr]).toEqual([EXIT.DENIED, '']);
    expect(JSON.parse(denied.stdout)).toEqual({ ...unchanged, success: false });
  });

  test('with GCRA says when the bucket is full, or when to retry', async () => {
    const rule = ['--algorithm', 'gcra', '--burst', '2'];
    const args = ['check', 'gcra_1', '--limit', '10', '--duration', '30d', ...rule];
    const answers = [await weir(args), await weir(args), await weir(args)];
    expect(answers.map(({ code }) => code)).toEqual([EXIT.OK, EXIT.OK, EXIT.DENIED]);
    const [allowed, , denied] = answers.map(({ stdout }) => stdout);
    expect(allowed).toMatch(/^allowed: limit 10, remaining 1, full at .* \(in 259\d{3} s\)\n$/);
    expect(denied).toMatch(/^denied: limit 10, remaining 0, retry at .* \(in 25\d{4} s\)\n$/);
  });

  test('takes the algorithm of a window', async () => {
    const args = ['check', 'sliding_1', '--limit', '3', '--duration', '30d', '--cost', '2'];
    await weir(args);
    const { stdout } = await weir([...args, '--algorithm', 'sliding']);
    expect(stdout).toMatch(/^denied: limit 3, remaining 0, resets at /);
    expect((await weir([...args, '--algorithm', 'fixed'])).stdout).toContain('remaining 1,');
  });

  const valid = ['a', '--limit', '1', '--duration', '1s'];
  const faults: [string, string[], Record<string, string | undefined>, number, string][] = [
    ['no key', valid, { WEIR_KEY: undefined }, EXIT.USAGE, 'WEIR_KEY is not set: set it to an API'],
    ['an empty key', valid, { WEIR_KEY: '' }, EXIT.USAGE, 'WEIR_KEY is not set'],
    ['a wrong key', valid, { WEIR_KEY: 'x' }, EXIT.SERVER_ERROR, 'UNAUTHORIZED: '],
    [
      'no server',
      valid,
      { WEIR_URL: 'http://127.0.0.1:2' },
      EXIT.NO_ANSWER,
      'no response from http://127.0.0.1:2 (WEIR_URL): connect ECONNREFUSED 127.0.0.1:2',
    ],
    ['no identifier', valid.slice(1), {}, EXIT.USAGE, '<identifier> is required'],
    [
      'an empty identifier',
      ['', ...valid.slice(1)],
      {},
      EXIT.USAGE,
      '<identifier> is empty: add --empty-identifier to allow that',
    ],
    [
      'a surplus argument',
      ['a', 'b', ...valid.slice(1)],
      {},
      EXIT.USAGE,
      '"b" is one argument too many',
    ],
    [
      'an unknown algorithm',
      [...valid, '--algorithm', 'GCRA'],
      {},
      EXIT.USAGE,
      '--algorithm must be fixed, sliding or gcra; got "GCRA"',
    ],
    [
      'a burst without an algorithm',
      [...valid, '--burst', '1'],
      {},
      EXIT.USAGE,
      '--burst must be left out unless there is --algorithm gcra; got no --algorithm',
    ],
    [
      'a burst of a window',
      [...valid, '--algorithm', 'fixed', '--burst', '1'],
      {},
      EXIT.USAGE,
      '--burst must be left out unless there is --algorithm gcra; got --algorithm fixed',
    ],
    [
      'a burst above the limit',
      [...valid, '--algorithm', 'gcra', '--burst', '2'],
      {},
      EXIT.USAGE,
      '--burst must be an integer from 1 to 1; got "2"',
    ],
    ['no limit', ['a', '--duration', '1s'], {}, EXIT.USAGE, '--limit is required'],
    ['no duration', ['a', '--limit', '1'], {}, EXIT.USAGE, '--duration is required'],
    [
      'a limit of 0',
      ['a', '--limit', '0', '--duration', '1s'],
      {},
      EXIT.USAGE,
      '--limit must be an integer from 1 to 9007199254740991; got "0"',
    ],
    [
      'a limit over the maximum',
      ['a', '--limit', '9007199254740992', '--duration', '1s'],
      {},
      EXIT.USAGE,
      '--limit must be an integer from 1 to 9007199254740991; got "9007199254740992"',
    ],
    [
      'a negative limit',
      ['a', '--limit', '-5', '--duration', '1s'],
      {},
      EXIT.USAGE,
      '--limit must be an integer from 1 to 9007199254740991; got "-5"',
    ],
    [
      'a limit without a value',
      ['a', '--limit', '--duration', '1s'],
      {},
      EXIT.USAGE,
      '--limit needs a value: <tokens>',
    ],
    ['a flag with a value', [...valid, '--async=1'], {}, EXIT.USAGE, '--async takes no value'],
    [
      'a wrong duration',
      ['a', '--limit', '1', '--duration', '1x'],
      {},
      EXIT.USAGE,
      '--duration must be a duration such as 90000 (milliseconds), 90s, 15m, 1h or 30d; got "1x"',
    ],
    [
      'a short duration',
      ['a', '--limit', '1', '--duration', '60'],
      {},
      EXIT.USAGE,
      '--duration must be from 1s to 36525d; got 60, which is 60 ms: for seconds write 60s',
    ],
    [
      'a long duration',
      ['a', '--limit', '1', '--duration', '36526d'],
      {},
      EXIT.USAGE,
      '--duration must be from 1s to 36525d; got "36526d"',
    ],
    [
      'an unknown option',
      ['a', '--lmit', '1'],
      {},
      EXIT.USAGE,
      '--lmit is not an option of weir check; did you mean --limit?',
    ],
    [
      'an error that the server finds',
      [...valid, '--namespace', ''],
      {},
      EXIT.SERVER_ERROR,
      'BAD_REQUEST: --namespace must be a text of 1 to 512 characters; got ""',
    ],
    [
      'an empty URL',
      valid,
      { WEIR_URL: '' },
      EXIT.USAGE,
      'WEIR_URL must be a URL such as http://127.0.0.1:7070; got ""',
    ],
    ['a URL without http', valid, { WEIR_URL: 'localhost:7070' }, EXIT.USAGE, 'WEIR_URL must be a'],
    [
      'a URL with a query',
      valid,
      { WEIR_URL: 'http://localhost:7070/?a' },
      EXIT.USAGE,
      'WEIR_URL must be a URL such as',
    ],
    ['a wrong --url', [...valid, '--url', 'a'], {}, EXIT.USAGE, '--url must be a URL such as'],
    [
      'a wrong timeout',
      [...valid, '--timeout', '1h'],
      {},
      EXIT.USAGE,
      '--timeout must be from 1ms to 5m; got "1h"',
    ],
    [
      'a timeout without a unit',
      [...valid, '--timeout', '5'],
      {},
      EXIT.USAGE,
      '--timeout must be a duration with a unit, such as 500ms or 5s; got "5"',
    ],
  ];
  test.each(faults)('prints one sentence for %s', async (_what, args, env, code, message) => {
    const failed = await weir(['check', ...args], env);
    expect([failed.code, failed.stdout]).toEqual([code, '']);
    expect(failed.stderr).toContain(`weir: ${message}`);
    expect(failed.stderr.trim().split('\n').length).toBe(1);

    const json = await weir(['check', ...args, '--json'], env);
    expect([json.code, json.stdout]).toEqual([code, '']);
    const { error } = JSON.parse(json.stderr);
    const [, serverCode = '', text] = /^(?:([A-Z_]+): )?(.*)$/s.exec(message) ?? [];
    expect([Object.keys(error), error.message]).toEqual([
      ['code', 'message'],
      expect.stringContaining(text),
    ]);
    const own = { [EXIT.USAGE]: 'USAGE', [EXIT.NO_ANSWER]: 'NO_ANSWER' }[code];
    expect(error.code).toBe(own ?? serverCode);
  });

  test('accepts the empty identifier only with --empty-identifier', async () => {
    const args = ['check', '', '--limit', '1', '--duration', '30d', '--empty-identifier'];
    expect([(await weir(args)).code, (await weir(args)).code]).toEqual([EXIT.OK, EXIT.DENIED]);
    const reset = await weir(['reset', '', '--empty-identifier']);
    expect([reset.code, reset.stdout]).toEqual([
      EXIT.OK,
      'Cleared 1 counter of "" in the namespace "default".\n',
    ]);
    const wrong = await weir(['reset', '']);
    expect([wrong.code, wrong.stderr]).toEqual([
      EXIT.USAGE,
      'weir: <identifier> is empty: add --empty-identifier to allow that\n',
    ]);
  });

  test('appends the operation to the path of its URL, with and without trailing slashes', async () => {
    const paths: unknown[] = [];
    const other = createServer((request, response) => {
      paths.push(request.url);
      response.end('{"success":true,"limit":1,"remaining":0,"reset":1000}');
    });
    await new Promise<void>((resolve) => other.listen(0, '127.0.0.1', resolve));
    const { port } = other.address() as AddressInfo;
    for (const end of ['', '/', '//', '/behind/a/proxy', '/behind/a/proxy/']) {
      const url = `http://127.0.0.1:${port}${end}`;
      const unused = { WEIR_URL: 'http://127.0.0.1:2' };
      expect((await weir(['check', ...valid], { WEIR_URL: url })).code).toBe(EXIT.OK);
      expect((await weir(['check', ...valid, '--url', url], unused)).code).toBe(EXIT.OK);
    }
    const [plain, proxied] = ['/v1/ratelimits.limit', '/behind/a/proxy/v1/ratelimits.limit'];
    expect(paths).toEqual([...Array(6).fill(plain), ...Array(4).fill(proxied)]);
    other.close();
  });

  test('never shows the password of a URL', async () => {
    const WEIR_URL = 'http://user:secret@127.0.0.1:7070';
    const { code, stderr } = await weir(['check', ...valid], { WEIR_URL });
    expect([code, stderr]).toEqual([EXIT.USAGE, expect.stringContaining('WEIR_URL must not')]);
    expect(stderr).not.toContain('secret');
  });
});

describe('weir reset', () => {
  test('allows a denied identifier again, for all durations or for one', async () => {
    const check = (duration: string, identifier = 'locked out') => {
      const args = ['--limit', '1', '--duration', duration, '--namespace', 'cli'];
      return weir(['check', ...args, '--', identifier]);
    };
    const reset = (...args: string[]) => weir(['reset', '--namespace', 'cli', ...args]);
    for (const duration of ['30d', '29d', '30d', '29d']) await check(duration);
    const one = await reset('locked out', '--duration', '29d');
    expect([one.code, one.stdout, one.stderr]).toEqual([
      0,
      'Cleared 1 counter of "locked out" in the namespace "cli".\n',
      '',
    ]);
    expect([(await check('29d')).code, (await check('30d')).code]).toEqual([0, 1]);
    expect((await reset('locked out')).stdout).toBe(
      'Cleared 2 counters of "locked out" in the namespace "cli".\n',
    );
    expect((await check('30d')).code).toBe(0);
    await check('30d', '--help');
    expect((await reset('--', '--help')).stdout).toBe(
      'Cleared 1 counter of "--help" in the namespace "cli".\n',
    );
    expect(await lines(['reset', 'unknown'])).toEqual([{ cleared: 0 }]);
    expect((await weir(['reset', 'unknown', '--namespace', 'mistyped'])).stdout).toBe(
      'Cleared 0 counters of "unknown" in the namespace "mistyped".\n',
    );
  });

  test('clears the counter of one algorithm, or those of all', async () => {
    const check = (algorithm: string) => {
      const args = ['--limit', '1', '--duration', '30d', '--algorithm', algorithm];
      return weir(['check', 'both', ...args]);
    };
    const algorithms = ['fixed', 'gcra'];
    for (const algorithm of algorithms) await check(algorithm);
    expect(await lines(['reset', 'both', '--algorithm', 'gcra'])).toEqual([{ cleared: 1 }]);
    expect([(await check('fixed')).code, (await check('gcra')).code]).toEqual([1, 0]);
    const ofDuration = ['reset', 'both', '--duration', '30d'];
    expect(await lines([...ofDuration, '--algorithm', 'sliding'])).toEqual([{ cleared: 1 }]);
    expect([(await check('fixed')).code, (await check('gcra')).code]).toEqual([0, 1]);
    expect(await lines(ofDuration)).toEqual([{ cleared: 2 }]);
    expect([(await check('fixed')).code, (await check('gcra')).code]).toEqual([0, 0]);
  });

  test('exits with 2 and one sentence for invalid arguments, and prints the usage with --help', async () => {
    const wrong = await weir(['reset']);
    expect([wrong.code, wrong.stderr]).toEqual([
      2,
      expect.stringContaining('<identifier> is required'),
    ]);
    const window = await weir(['reset', 'a', '--duration', '1y']);
    expect([window.code, window.stderr]).toEqual([2, expect.stringContaining('--duration must')]);
    const unknown = await weir(['reset', 'a', '--algorithm', 'all']);
    expect([unknown.code, unknown.stderr]).toEqual([
      2,
      expect.stringContaining('--algorithm must be fixed, sliding or gcra; got "all"'),
    ]);
    const help = await weir(['reset', '--help']);
    expect([help.code, help.stdout]).toEqual([
      0,
      expect.stringContaining('weir reset <identifier>'),
    ]);
  });
});

describe('weir inspect', () => {
  const use = (duration: string, cost = '3') => {
    const args = ['--limit', '10', '--duration', duration, '--cost', cost, '--namespace', 'cli'];
    return weir(['check', ...args, 'inspected']);
  };
  const inspect = (...args: string[]) => weir(['inspect', '--namespace', 'cli', ...args]);

  test('prints a row for each counter and algorithm, or the response as JSON', async () => {
    await use('30d');
    await use('29d', '4');
    const all = await inspect('inspected');
    expect([all.code, all.stderr]).toEqual([0, '']);
    const rows = all.stdout.split('\n').map((line) => line.split(/ {2,}/));
    expect(rows[0]).toEqual(['DURATION', 'ALGORITHM', 'LIMIT', 'USED', 'REMAINING', 'RESET']);
    expect(rows.slice(1, 5).map((row) => row.slice(0, 5))).toEqual([
      ['29d', 'fixed', '10', '4', '6'],
      ['29d', 'sliding', '10', '4', '6'],
      ['30d', 'fixed', '10', '3', '7'],
      ['30d', 'sliding', '10', '3', '7'],
    ]);
    expect(rows[1][5]).toMatch(/^\d{4}-\d\d-\d\dT00:00:00Z$/);
    const [json] = await lines(['inspect', 'inspected', '--namespace', 'cli', '--duration', '30d']);
    expect(json).toMatchObject({
      ...{ namespace: 'cli', identifier: 'inspected' },
      counters: [{ duration: 2_592_000_000, limit: 10, current: 3, previous: 0 }],
    });
    expect(await inspect('inspected')).toEqual(all);
  });

  test('says that an identifier has no counters', async () => {
    expect(await inspect('without')).toMatchObject({
      code: 0,
      stdout: '"without" has no counters in the namespace "cli".\n',
    });
  });

  test('ends with 2 where it is used wrongly, and with 4 in an unknown namespace', async () => {
    const wrong = await weir(['inspect']);
    expect([wrong.code, wrong.stderr]).toEqual([
      2,
      expect.stringContaining('<identifier> is required'),
    ]);
    const duration = await inspect('a', '--duration', '1y');
    expect([duration.code, duration.stderr]).toEqual([2, expect.stringContaining('--duration')]);
    const unknown = await weir(['inspect', 'a', '--namespace', 'mistyped']);
    expect([unknown.code, unknown.stdout, unknown.stderr]).toEqual([
      ...[4, ''],
      expect.stringContaining('NOT_FOUND: there is no namespace "mistyped"'),
    ]);
    const help = await weir(['inspect', '--help']);
    expect([help.code, help.stdout]).toEqual([
      0,
      expect.stringContaining('weir inspect <identifier>'),
    ]);
  });
});

describe('weir check with unusual input', () => {
  const args = ['check', '--limit', '1', '--duration', '1h', '--namespace', 'odd'];

  test('accepts an identifier that looks like an option, after --', async () => {
    for (const identifier of ['--help', '-h', '--limit']) {
      const codes = [
        await weir([...args, '--', identifier]),
        await weir([...args, '--', identifier]),
      ];
      expect([identifier, ...codes.map(({ code }) => code)]).toEqual([identifier, 0, 1]);
    }
  });

  test('never shows the key', async () => {
    for (const key of ['secret\nkey', 'sécret', 'a'.repeat(513)]) {
      const { code, stdout, stderr } = await weir([...args, 'a'], { WEIR_KEY: key });
      expect([code, stdout]).toEqual([2, '']);
      expect(stderr).toBe('weir: WEIR_KEY must be an API key, 1 to 512 visible ASCII characters\n');
    }
  });

  test('rejects a response that is not from weir', async () => {
    let body = '';
    let status = 200;
    const other = createServer((_request, response) => response.writeHead(status).end(body));
    await new Promise<void>((resolve) => other.listen(0, '127.0.0.1', resolve));
    const { port } = other.address() as AddressInfo;
    const env = { WEIR_URL: `http://127.0.0.1:${port}` };
    const set = ['overrides', 'set', 'a', '--limit', '1', '--duration', '1s'];
    const cases: [string, string[]][] = [
      ['<html>', [...args, 'a']],
      ['{"message":"ok"}', [...args, 'a']],
      ['{"success":true}', [...args, 'a']],
      ['null', [...args, 'a']],
      ['{"overrides":5}', ['overrides', 'list', '--namespace', 'n']],
      ['{}', ['keys', 'list']],
      ['{"keys":[{}]}', ['keys', 'list']],
      ['3', ['keys', 'revoke', 'key_1']],
      ['{"keyId":"key_1"}', ['keys', 'create', '--name', 'k', '--permission', '*']],
      ['{"cleared":"all"}', ['reset', 'a']],
      ['{"counters":5}', ['inspect', 'a']],
      ['{"counters":[{}]}', ['inspect', 'a']],
      ['{"overrideId":"rlor_1"}', [...set, '--namespace', 'n']],
      ['{"data":{}}', [...set, '--namespace', 'n']],
      ['{"created":1}', ['overrides', 'import', '-']],
    ];
    for (const [response, command] of cases) {
      body = response;
      const { code, stderr } = await weir(command, env);
      expect([response, code, stderr]).toEqual([
        response,
        EXIT.NO_ANSWER,
        expect.stringContaining('sent a response with status 200 that is not from weir'),
      ]);
    }
    // An error response of a proxy in front of weir.
    status = 502;
    body = '{"error":"bad gateway"}';
    const { code, stderr } = await weir([...args, 'a'], env);
    expect([code, stderr]).toEqual([EXIT.NO_ANSWER, expect.stringContaining('status 502 that is')]);
    other.close();
  });

  test('exits with 2 if standard output cannot be written', async () => {
    const child = spawn(
      'sh',
      ['-c', '"$0" "$@" > /dev/full', process.execPath, CLI_PATH, ...args, 'full'],
      {
        env: { PATH: process.env.PATH, WEIR_URL: server.url, WEIR_KEY: ROOT_KEY },
        stdio: ['ignore', 'ignore', 'pipe'],
      },
    );
    let stderr = '';
    child.stderr.on('data', (data) => {
      stderr += data;
    });
    const code = await new Promise((resolve) => child.on('close', resolve));
    expect([code, stderr]).toEqual([
      2,
      expect.stringMatching(/^weir: standard output: ENOSPC.*\n$/),
    ]);
  });
});

describe('weir overrides', () => {
  test('sets, gets, lists and deletes', async () => {
    const target = ['user_*', '--namespace', 'over*'];
    const values = ['--limit', '7', '--duration', '1h', '--async'];
    const [{ overrideId }] = await lines(['overrides', 'set', ...target, ...values]);
    const override = {
      id: overrideId,
      identifier: 'user_*',
      limit: 7,
      duration: 3_600_000,
      async: true,
    };
    expect(await lines(['overrides', 'get', ...target])).toEqual([override]);
    const list = ['overrides', 'list', '--namespace', 'over*'];
    expect(await lines(list)).toEqual([override]);
    expect((await weir(list)).stdout).toBe(
      `IDENTIFIER  LIMIT  DURATION  ASYNC  ID\nuser_*      7      1h        yes    ${overrideId}\n`,
    );
    expect((await weir(['overrides', 'get', ...target])).stdout).toBe((await weir(list)).stdout);
    const args = ['--namespace', 'overridden', '--limit', '99', '--duration', '1s'];
    expect(await lines(['check', 'user_1', ...args])).toMatchObject([{ remaining: 6, limit: 7 }]);
    // Without --async it is synchronous again, and keeps its id.
    const again = await weir(['overrides', 'set', ...target, '--limit', '1', '--duration', '90s']);
    expect([again.code, again.stdout]).toEqual([
      EXIT.OK,
      `Override ${overrideId} is set in the namespace "over*": 1 token per 90s for "user_*".\n`,
    ]);
    const changed = { ...override, limit: 1, duration: 90_000, async: false };
    expect(await lines(list)).toEqual([changed]);
    const deleted = await weir(['overrides', 'delete', ...target]);
    expect([deleted.code, deleted.stdout]).toEqual([
      EXIT.OK,
      'The override of "user_*" in the namespace "over*" is deleted.\n',
    ]);
    const missing = await weir(['overrides', 'delete', ...target]);
    expect([missing.code, missing.stderr]).toEqual([
      EXIT.SERVER_ERROR,
      'weir: NOT_FOUND: there is no override of "user_*" in that namespace\n',
    ]);
  });

  test.each([[[]], [['--async']]])(
    'accepts every override that v2 accepts, with %j',
    async (more) => {
      // The shortest and longest identifiers, and a limit that denies every check.
      const longest = 'é'.repeat(512);
      for (const identifier of ['a', 'ab', longest]) {
        const target = [identifier, '--namespace', 'range'];
        const set = ['overrides', 'set', ...target, '--limit', '0', '--duration', '1s', ...more];
        expect(await lines(set)).toEqual([{ overrideId: expect.stringMatching(/^rlor_/) }]);
        const found = { identifier, limit: 0, duration: 1_000, async: more.length > 0 };
        expect(await lines(['overrides', 'get', ...target])).toMatchObject([found]);
        const check = ['check', ...target, '--limit', '9', '--duration', '1s'];
        // An asynchronous check is decided before its deduction; a limit of 0 denies it all the same.
        expect((await weir(check)).code).toBe(EXIT.DENIED);
        expect(await lines(['overrides', 'delete', ...target])).toEqual([{}]);
      }
      const values = ['--namespace', 'range', '--limit', '0', '--duration', '1s', ...more];
      const long = await weir(['overrides', 'set', `${longest}é`, ...values]);
      expect([long.code, long.stderr]).toEqual([
        EXIT.SERVER_ERROR,
        'weir: BAD_REQUEST: <identifier> must be a text of 1 to 512 characters;' +
          ' got a text of 513 characters\n',
      ]);
      const empty = await weir(['overrides', 'set', '', ...values]);
      expect([empty.code, empty.stderr]).toEqual([
        EXIT.USAGE,
        'weir: <identifier> must have 1 to 512 characters; got ""\n',
      ]);
    },
  );

  test('accepts a namespace by name or by id', async () => {
    await weir(['check', 'a', '--namespace', 'by id', '--limit', '1', '--duration', '1s']);
    const namespaces = await lines(['namespaces', 'list']);
    const id = `${namespaces.find(({ name }) => name === 'by id')?.id}`;
    const set = ['overrides', 'set', 'a', '--limit', '3', '--duration', '1s'];
    const ids: unknown[] = [];
    for (const target of [
      ['--namespace', 'by id'],
      ['--namespace', id],
      ['--namespace-id', id],
    ]) {
      for (const more of [[], ['--async']]) {
        ids.push((await lines([...set, ...target, ...more]))[0]);
      }
      ids.push({ overrideId: (await lines(['overrides', 'get', 'a', ...target]))[0].id });
    }
    expect(ids).toEqual(ids.map(() => ids[0]));
    const cases: [string[], string][] = [
      [[], '--namespace is required'],
      [['--namespace', 'a', '--namespace-id', id], 'cannot be combined'],
      [['--namespace-id', 'by id'], '--namespace-id must be an id such as rlns_...; got "by id"'],
    ];
    for (const [target, message] of cases) {
      const { code, stderr } = await weir([...set, ...target]);
      expect([code, stderr]).toEqual([EXIT.USAGE, expect.stringContaining(message)]);
    }
  });

  test('exports in the format of an import, over several pages; an import is one transaction', async () => {
    const text = Array.from({ length: 2_345 }, (_, i) => {
      const identifier = i % 3 === 0 ? `é_${i}_*` : `é_${i}`;
      const namespaceName = i % 2 === 0 ? 'exported' : 'export*';
      const values = { limit: i + 1, duration: 60_000, async: false };
      return `${JSON.stringify({ namespaceName, identifier, ...values })}\n`;
    }).join('');
    const file = join(files, 'overrides.jsonl');
    writeFileSync(file, text);
    const counts = { created: 2_345, updated: 0, unchanged: 0 };
    const existing = (await weir(['overrides', 'export'])).stdout;
    expect(await lines(['overrides', 'import', file, '--dry-run'])).toEqual([
      { ...counts, dryRun: true },
    ]);
    expect((await weir(['overrides', 'import', file, '--dry-run'])).stdout).toBe(
      'An import would result in: 2345 created, 0 updated, 0 unchanged.\n',
    );
    expect((await weir(['overrides', 'export'])).stdout).toBe(existing);
    const before = await callOperationOk(server.port, 'ratelimits.listNamespaces');
    expect(await lines(['overrides', 'import', file])).toEqual([{ ...counts, dryRun: false }]);
    const after = await callOperationOk(server.port, 'ratelimits.listNamespaces');
    expect(after.total).toBe((before.total as number) + 1);
    expect((await weir(['overrides', 'export'])).stdout).toBe(existing + text);
    expect((await weir(['overrides', 'export', '--json'])).stdout).toBe(existing + text);
    // From standard input, with a byte order mark, empty lines and one changed override.
    const [first, ...rest] = text.split('\n');
    const changed = `\ufeff${first.replace('"limit":1', '"limit":9')}\n\n${rest.join('\r\n')}`;
    expect(await lines(['overrides', 'import', '-'], {}, changed)).toEqual([
      { created: 0, updated: 1, unchanged: 2_344, dryRun: false },
    ]);
    expect((await weir(['overrides', 'import', file])).stdout).toBe(
      'Imported: 0 created, 1 updated, 2344 unchanged.\n',
    );
  });

  test('exits without a message, but not with 0, if the reader closes the pipe', async () => {
    // The export of the test before exceeds the buffer of a pipe.
    const command = '{ "$0" "$1" overrides export; echo "$?" >&2; } | head -n 1';
    const env = { ...process.env, WEIR_URL: server.url, WEIR_KEY: ROOT_KEY };
    const printed = await new Promise<string[]>((resolve) => {
      const args = ['-c', command, process.execPath, CLI_PATH];
      execFile('sh', args, { env }, (_error, stdout, stderr) => resolve([stdout, stderr]));
    });
    expect(printed).toEqual([expect.stringMatching(/^\{.*\}\n$/), '2\n']);
  });

  test('names the invalid line of an import, and imports nothing', async () => {
    const line = (changes: object) => {
      const override = { namespaceName: 'faulty', identifier: 'abc', limit: 1, duration: 1_000 };
      return JSON.stringify({ ...override, ...changes });
    };
    const input = 'standard input, line';
    const cases: [string, number, string][] = [
      [
        `${line({})}\n\n${line({ limit: -1 })}\n`,
        EXIT.SERVER_ERROR,
        'BAD_REQUEST: line 3: "limit" must be an integer',
      ],
      [
        `\n${line({ namespaceName: undefined })}`,
        EXIT.SERVER_ERROR,
        'BAD_REQUEST: line 2: "namespaceId" or "namespaceName" is required',
      ],
      ['5\n', EXIT.SERVER_ERROR, 'BAD_REQUEST: line 1: an override must be a JSON object; got 5'],
      [`${line({})}\nxyz\n`, EXIT.USAGE, `${input} 2, column 1: not JSON: a value`],
      ['{"a": tru}', EXIT.USAGE, `${input} 1, column 7: not JSON`],
      ['{"a": 1} x', EXIT.USAGE, `${input} 1, column 10: not JSON`],
      ['{"a": 1,}', EXIT.USAGE, `${input} 1, column 9: not JSON`],
      ['{"a": [1', EXIT.USAGE, `${input} 1, column 9: not JSON`],
      ['{"a": "b', EXIT.USAGE, `${input} 1, column 7: not JSON`],
      ['{"a": [undefined]}', EXIT.USAGE, `${input} 1, column 8: not JSON`],
    ];
    for (const [text, expected, message] of cases) {
      const { code, stderr } = await weir(['overrides', 'import', '-'], {}, text);
      expect([code, stderr]).toEqual([expected, expect.stringContaining(`weir: ${message}`)]);
    }
    const large = join(files, 'large.jsonl');
    // The file alone is within the limit; the request that contains it is not.
    writeFileSync(
      large,
      `${line({})}\n`.repeat(Math.floor(IMPORT_MAX_BYTES / line({}).length) - 1),
    );
    expect((await weir(['overrides', 'import', large])).stderr).toContain('split the file');
    const latin = join(files, 'latin.jsonl');
    writeFileSync(latin, Buffer.from(`${line({ identifier: 'na\u00efve' })}\n`, 'latin1'));
    expect((await weir(['overrides', 'import', latin])).stderr).toContain(
      'latin.jsonl must be UTF-8; got bytes that are not',
    );
    for (const [path, reason] of [
      ['nowhere', 'no such file or directory'],
      [files, 'it is a directory'],
    ]) {
      const { code, stderr } = await weir(['overrides', 'import', path]);
      expect([code, stderr]).toEqual([EXIT.USAGE, `weir: ${path} cannot be read: ${reason}\n`]);
    }
    const { namespaces } = await callOperationOk(server.port, 'ratelimits.listNamespaces');
    expect(namespaces).not.toContainEqual(expect.objectContaining({ name: 'faulty' }));
  });
});

describe('weir keys', () => {
  const permissions = ['ratelimit.*.limit', 'ratelimit.*.create_namespace'];
  const permissionArgs = permissions.flatMap((permission) => ['--permission', permission]);
  const check = ['check', 'a', '--limit', '5', '--duration', '1h'];

  test('creates, lists and revokes', async () => {
    const args = ['keys', 'create', '--name', 'gateway', '--expires', '30d', ...permissionArgs];
    const [{ keyId, key }] = await lines(args);
    const env = { WEIR_KEY: `${key}` };
    expect((await weir(check, env)).code).toBe(EXIT.OK);
    expect(await lines(['keys', 'list'])).toContainEqual({
      keyId,
      name: 'gateway',
      permissions,
      createdAt: expect.any(Number),
      expires: expect.any(Number),
    });
    const forbidden = await weir(['keys', 'list'], env);
    expect([forbidden.code, forbidden.stderr]).toEqual([
      EXIT.SERVER_ERROR,
      expect.stringContaining('FORBIDDEN: '),
    ]);
    expect(await lines(['keys', 'revoke', `${keyId}`])).toEqual([{}]);
    expect((await weir(check, env)).stderr).toContain('UNAUTHORIZED: ');
  });

  test('prints a key once, and a table without characters that a terminal interprets', async () => {
    const name = 'a\u001b[2J\u202e\u009b name';
    const created = await weir(['keys', 'create', '--name', name, ...permissionArgs]);
    expect([created.code, created.stderr]).toEqual([EXIT.OK, '']);
    const [id, key, note, end] = created.stdout.split('\n');
    expect([note, end]).toEqual(['The key is shown only now: store it safely.', '']);
    const keyId = id.replace('key id: ', '');
    const env = { WEIR_KEY: key.replace('key:    ', '') };
    expect((await weir(check, env)).code).toBe(EXIT.OK);
    const [header, ...rows] = (await weir(['keys', 'list'])).stdout.split('\n');
    expect(header).toMatch(/^KEY ID +NAME +CREATED +EXPIRES +PERMISSIONS$/);
    const row = rows.find((row) => row.startsWith(keyId)) ?? '';
    const cells = `^${keyId} +"a.u001b.2J.u.202e..u.9b. name" +${ISO} +never +${permissions.join(' ')}$`;
    expect(row).toMatch(new RegExp(cells));
    expect(row.indexOf('never')).toBe(header.indexOf('EXPIRES'));
    expect((await weir(['keys', 'revoke', keyId])).stdout).toBe(`Key ${keyId} is revoked.\n`);
  });

  test('names the option in place of the field that the server rejects', async () => {
    const create = ['keys', 'create', '--name', 'k', '--permission', 'ratelimit.default.limit'];
    const { code, stderr } = await weir(create);
    expect([code, stderr]).toEqual([
      EXIT.SERVER_ERROR,
      expect.stringMatching(/^weir: BAD_REQUEST: --permission must be .*<namespaceId>/),
    ]);
    expect((await weir(['keys', 'create', '--permission', '*'])).stderr).toBe(
      'weir: --name is required\n',
    );
    expect((await weir(create.slice(0, 4))).stderr).toBe('weir: --permission is required\n');
  });

  test('accepts an expiry as a duration or a date', async () => {
    const args = ['keys', 'create', '--name', 'k', '--permission', '*', '--expires'];
    const [{ keyId }] = await lines([...args, '2100-01-31T12:00:00+02:00']);
    const keys = await lines(['keys', 'list']);
    expect(keys.find((one) => one.keyId === keyId)?.expires).toBe(Date.UTC(2100, 0, 31, 10));
    const past = await weir([...args, '2001-01-31']);
    expect([past.code, past.stderr]).toEqual([
      EXIT.USAGE,
      'weir: --expires must be in the future; got "2001-01-31"\n',
    ]);
    const wrong = await weir([...args, 'soon']);
    expect([wrong.code, wrong.stderr]).toEqual([
      EXIT.USAGE,
      'weir: --expires must be a duration from now such as 90s, 15m, 1h or 30d, or a date such as' +
        ' 2030-01-31, 2030-01-31T12:00:00Z or 2030-01-31T12:00:00+02:00; got "soon"\n',
    ]);
  });

  test('creates a key offline only in the data directory of a stopped server', async () => {
    const own = temporaryDirectory();
    const args = ['keys', 'create', '--offline', '--name', 'back in', '--permission', '*'];
    expect((await weir([...args, '--data-dir', dataDir])).stderr).toContain(
      'is in use by another weir',
    );
    const empty = await weir([...args, '--data-dir', join(own, 'mistyped')]);
    expect([empty.code, empty.stderr]).toEqual([2, expect.stringContaining('--data-dir must be')]);
    expect(readdirSync(own)).toEqual([]);
    withStore(own, () => {});
    const offline = (name: string, permission: string, ...rest: string[]) => {
      const values = ['--name', name, '--permission', permission, '--data-dir', own];
      return weir(['keys', 'create', '--offline', ...values, ...rest]);
    };
    // The validation of the API applies.
    for (const [wrong, message] of [
      [offline('k', 'everything'), '--permission must be'],
      [offline('', '*'), '--name must be'],
      [offline('k', 'ratelimit.rlns_0.limit'), 'there is no namespace with the id'],
    ] as const) {
      expect([(await wrong).code, (await wrong).stderr]).toEqual([
        2,
        expect.stringContaining(message),
      ]);
    }
    const [{ key }] = await lines(args, { WEIR_DATA_DIR: own });
    for (const name of ['store.db', 'lock']) {
      expect(readFileSync(join(own, name)).includes(`${key}`)).toBe(false);
    }
    const other = await startServer(own, {
      args: ['--counters', '1024'],
      env: { WEIR_ROOT_KEY: undefined },
    });
    // Only the first start on a directory creates a root key.
    expect(other.stdout()).not.toContain('weir_');
    const env = { WEIR_URL: other.url, WEIR_KEY: `${key}` };
    expect((await lines(['keys', 'list'], env)).map(({ name }) => name)).toEqual(['back in']);
    expect(await other.stop()).toEqual({ code: 0, signal: null });
    removeDirectory(own);
  });
});

describe('npm pack', () => {
  const run = (command: string, args: string[], cwd: string) => {
    return new Promise<string>((resolve, reject) => {
      const child = spawn(command, args, { cwd, stdio: ['ignore', 'pipe', 'pipe'] });
      let output = '';
      for (const stream of [child.stdout, child.stderr]) {
        stream.on('data', (data) => {
          output += data;
        });
      }
      child.on('close', (code) => {
        if (code === 0) resolve(output);
        else reject(new Error(`${command} ${args.join(' ')}: ${code}\n${output}`));
      });
    });
  };

  test('creates a package whose command runs in another directory', async () => {
    const root = new URL('../..', import.meta.url).pathname;
    const elsewhere = temporaryDirectory();
    await run('npm', ['pack', '--ignore-scripts', '--pack-destination', elsewhere], root);
    writeFileSync(join(elsewhere, 'package.json'), '{"name":"elsewhere","private":true}');
    const install = ['install', '--prefer-offline', '--no-audit', '--no-fund'];
    await run('npm', [...install, './weir-0.1.0.tgz'], elsewhere);
    const own = join(elsewhere, 'data');
    const packed = await startServer(own, {
      main: join(elsewhere, 'node_modules', 'weir', 'dist', 'cli.js'),
      args: ['--counters', '1024'],
    });
    const installed = join(elsewhere, 'node_modules', '.bin', 'weir');
    const env = { PATH: process.env.PATH, WEIR_URL: packed.url, WEIR_KEY: ROOT_KEY };
    const runInstalled = (args: string[]) => {
      return promisify(execFile)(installed, args, { env: env as NodeJS.ProcessEnv });
    };
    const result = await runInstalled(['check', 'a', '--limit', '5', '--duration', '1h']);
    expect([result.stdout, result.stderr]).toEqual([
      expect.stringContaining('allowed: limit 5, remaining 4'),
      '',
    ]);
    expect((await runInstalled(['--version'])).stdout).toMatch(/^weir 0\.1\.0 \(node v/);
    expect(await packed.stop()).toEqual({ code: 0, signal: null });
    removeDirectory(elsewhere);
  }, 180_000);
});
