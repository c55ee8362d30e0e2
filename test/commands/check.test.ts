/** `weir check` on a running server. */

import { createServer } from 'node:http';
import { describe, expect, test } from 'vitest';
import { EXIT } from '../../src/core/exit.ts';
import { listen } from '../support/http.ts';
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
    // After a denial by a sliding window nothing remains, also for a smaller cost.
    expect(answers[1].stdout).toMatch(/^denied: limit 2, remaining 0, passes at /);
    expect((await weir(args)).code).toBe(EXIT.DENIED);
    const [unchanged] = await lines([...args, '--cost', '0']);
    const counter = { limit: 2, remaining: 0, reset: expect.any(Number) };
    expect(unchanged).toEqual({ success: true, ...counter });
    const denied = await weir([...args, '--json']);
    expect([denied.code, denied.stderr]).toEqual([EXIT.DENIED, '']);
    // The next window begins with two carried tokens. One of them is free a millisecond later.
    const passesAt = (unchanged as { reset: number }).reset + 1;
    expect(JSON.parse(denied.stdout)).toEqual({ ...unchanged, success: false, passesAt });
  });

  test('with GCRA says when the bucket is full, or when the check passes', async () => {
    const rule = ['--algorithm', 'gcra', '--burst', '2'];
    const args = ['check', 'gcra_1', '--limit', '10', '--duration', '30d', ...rule];
    const answers = [await weir(args), await weir(args), await weir(args)];
    expect(answers.map(({ code }) => code)).toEqual([EXIT.OK, EXIT.OK, EXIT.DENIED]);
    const [allowed, , denied] = answers.map(({ stdout }) => stdout);
    expect(allowed).toMatch(/^allowed: limit 10, remaining 1, full at .* \(in 259\d{3} s\)\n$/);
    expect(denied).toMatch(/^denied: limit 10, remaining 0, passes at .* \(in 25\d{4} s\)\n$/);
  });

  test('takes the algorithm of a window, which is sliding by default', async () => {
    const args = ['check', 'sliding_1', '--limit', '3', '--duration', '30d', '--cost', '2'];
    await weir(args);
    expect((await weir([...args, '--algorithm', 'fixed'])).stdout).toContain('remaining 1,');
    for (const rule of [['--algorithm', 'sliding'], []]) {
      const { stdout } = await weir([...args, ...rule]);
      expect(stdout).toMatch(/^denied: limit 3, remaining 0, passes at /);
    }
  });

  test('of a sliding window says when the check passes, which is not the end of the window', async () => {
    const rule = ['--duration', '1h', '--algorithm', 'sliding', '--json'];
    const args = ['check', 'sliding_2', '--limit', '4', ...rule];
    await weir([...args, '--cost', '4']);
    const denied = JSON.parse((await weir([...args, '--cost', '2'])).stdout);
    // Two tokens of four are carried over until a quarter of the next window has passed.
    expect(denied.passesAt - denied.reset).toBe(900_001);
  });

  test('says that a check never passes, and why', async () => {
    const args = ['check', 'never', '--limit', '4', '--duration', '1h'];
    expect((await weir([...args, '--cost', '5'])).stdout).toBe(
      'denied: limit 4, remaining 0, never passes: the cost is above the limit\n',
    );
    const burst = ['--algorithm', 'gcra', '--burst', '2', '--cost', '3'];
    expect((await weir([...args, ...burst])).stdout).toContain(
      'passes: the cost is above the burst',
    );
    await weir([
      'overrides',
      'set',
      'never',
      '--namespace',
      'default',
      '--limit',
      '0',
      '--duration',
      '1h',
    ]);
    expect((await weir(args)).stdout).toBe(
      'denied: limit 0, remaining 0, never passes: the limit is 0\n',
    );
  });

  test('says when the window resets where only v1 has the fields', async () => {
    for (const [duration, ...more] of [['40d'], ['1h', '--async']]) {
      const args = ['check', 'v1', '--limit', '1', '--duration', duration];
      // Counted at once. The token of an asynchronous check may be counted after the next check.
      await weir(args);
      expect((await weir([...args, ...more])).stdout).toMatch(/^denied: .*, resets at /);
    }
  });

  const valid = ['a', '--limit', '1', '--duration', '1s'];

  test('accepts the empty identifier only with --empty-identifier', async () => {
    const args = ['check', '', '--limit', '1', '--duration', '30d', '--empty-identifier'];
    expect([(await weir(args)).code, (await weir(args)).code]).toEqual([EXIT.OK, EXIT.DENIED]);
    const reset = await weir(['reset', '', '--empty-identifier']);
    expect([reset.code, reset.stdout]).toEqual([
      EXIT.OK,
      'Cleared 1 counter of "" in the namespace "default".\n',
    ]);
  });

  test('appends the operation to the path of its URL, with and without trailing slashes', async () => {
    const paths: unknown[] = [];
    const other = createServer((request, response) => {
      paths.push(request.url);
      response.end('{"data":{"success":true,"limit":1,"remaining":0,"reset":1000}}');
    });
    const port = await listen(other);
    for (const end of ['', '/', '//', '/behind/a/proxy', '/behind/a/proxy/']) {
      const url = `http://127.0.0.1:${port}${end}`;
      const unused = { WEIR_URL: 'http://127.0.0.1:2' };
      expect((await weir(['check', ...valid], { WEIR_URL: url })).code).toBe(EXIT.OK);
      expect((await weir(['check', ...valid, '--url', url], unused)).code).toBe(EXIT.OK);
    }
    const [plain, proxied] = ['/v2/ratelimit.limit', '/behind/a/proxy/v2/ratelimit.limit'];
    expect(paths).toEqual([...Array(6).fill(plain), ...Array(4).fill(proxied)]);
    other.close();
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
});
