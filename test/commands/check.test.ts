/** `weir check` on a running server. */

import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { describe, expect, test } from 'vitest';
import { EXIT } from '../../src/core/exit.ts';
import { commandServer, ISO_TIME } from '../support/weir-command.ts';

const { weir, lines } = commandServer();

describe('weir check', () => {
  test('prints the decision, the remaining tokens and the reset, and sets the exit code', async () => {
    const args = ['check', 'user_1', '--limit', '2', '--duration', '30d', '--namespace', 'cli'];
    const answers = [await weir(args), await weir([...args, '--cost', '2']), await weir(args)];
    expect(answers.map(({ code }) => code)).toEqual([EXIT.OK, EXIT.DENIED, EXIT.OK]);
    expect(answers.map(({ stderr }) => stderr)).toEqual(['', '', '']);
    const allowed = `^allowed: limit 2, remaining 1, resets at ${ISO_TIME} \\(in \\d+ s\\)\n$`;
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
  /** Arguments of which the command says without a request what is wrong. */
  const usageFaults: [what: string, args: string[], message: string][] = [
    ['no identifier', valid.slice(1), '<identifier> is required'],
    [
      'an empty identifier',
      ['', ...valid.slice(1)],
      '<identifier> is empty: add --empty-identifier to allow that',
    ],
    ['a surplus argument', ['a', 'b', ...valid.slice(1)], '"b" is one argument too many'],
    [
      'an unknown algorithm',
      [...valid, '--algorithm', 'GCRA'],
      '--algorithm must be fixed, sliding or gcra; got "GCRA"',
    ],
    [
      'a burst without an algorithm',
      [...valid, '--burst', '1'],
      '--burst must be left out unless there is --algorithm gcra; got no --algorithm',
    ],
    [
      'a burst of a window',
      [...valid, '--algorithm', 'fixed', '--burst', '1'],
      '--burst must be left out unless there is --algorithm gcra; got --algorithm fixed',
    ],
    [
      'a burst above the limit',
      [...valid, '--algorithm', 'gcra', '--burst', '2'],
      '--burst must be an integer from 1 to 1; got "2"',
    ],
    ['no limit', ['a', '--duration', '1s'], '--limit is required'],
    ['no duration', ['a', '--limit', '1'], '--duration is required'],
    [
      'a limit of 0',
      ['a', '--limit', '0', '--duration', '1s'],
      '--limit must be an integer from 1 to 9007199254740991; got "0"',
    ],
    [
      'a limit over the maximum',
      ['a', '--limit', '9007199254740992', '--duration', '1s'],
      '--limit must be an integer from 1 to 9007199254740991; got "9007199254740992"',
    ],
    [
      'a negative limit',
      ['a', '--limit', '-5', '--duration', '1s'],
      '--limit must be an integer from 1 to 9007199254740991; got "-5"',
    ],
    [
      'a limit without a value',
      ['a', '--limit', '--duration', '1s'],
      '--limit needs a value: <tokens>',
    ],
    ['a flag with a value', [...valid, '--async=1'], '--async takes no value'],
    [
      'a wrong duration',
      ['a', '--limit', '1', '--duration', '1x'],
      '--duration must be a duration such as 90000 (milliseconds), 90s, 15m, 1h or 30d; got "1x"',
    ],
    [
      'a short duration',
      ['a', '--limit', '1', '--duration', '60'],
      '--duration must be from 1s to 36525d; got 60, which is 60 ms: for seconds write 60s',
    ],
    [
      'a long duration',
      ['a', '--limit', '1', '--duration', '36526d'],
      '--duration must be from 1s to 36525d; got "36526d"',
    ],
    [
      'an unknown option',
      ['a', '--lmit', '1'],
      '--lmit is not an option of weir check; did you mean --limit?',
    ],
    ['a wrong --url', [...valid, '--url', 'a'], '--url must be a URL such as'],
    [
      'a wrong timeout',
      [...valid, '--timeout', '1h'],
      '--timeout must be from 1ms to 5m; got "1h"',
    ],
    [
      'a timeout without a unit',
      [...valid, '--timeout', '5'],
      '--timeout must be a duration with a unit, such as 500ms or 5s; got "5"',
    ],
  ];
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
    ...usageFaults.map(([what, args, message]): (typeof faults)[number] => {
      return [what, args, {}, EXIT.USAGE, message];
    }),
  ];
  test.each(faults)('prints one sentence for %s', async (_what, args, env, code, message) => {
    const [failed, json] = await Promise.all([
      weir(['check', ...args], env),
      weir(['check', ...args, '--json'], env),
    ]);
    expect([failed.code, failed.stdout]).toEqual([code, '']);
    expect(failed.stderr).toContain(`weir: ${message}`);
    expect(failed.stderr.trim().split('\n').length).toBe(1);

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
});
