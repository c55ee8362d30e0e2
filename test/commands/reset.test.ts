/** `weir reset` on a running server. */

import { describe, expect, test } from 'vitest';
import { EXIT } from '../../src/core/exit.ts';
import { commandServer } from '../support/weir-command.ts';

const { weir, lines } = commandServer();

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
    expect(await lines(['reset', 'unknown', '--namespace', 'cli'])).toEqual([{ cleared: 0 }]);
  });

  test('of an unknown namespace is an error that suggests a similar name', async () => {
    await weir(['check', 'a', '--limit', '1', '--duration', '30d', '--namespace', 'email.send']);
    const reset = (namespace: string, key?: string) => {
      const env = key === undefined ? {} : { WEIR_KEY: key };
      return weir(['reset', 'a', '--namespace', namespace], env);
    };
    const missing = 'weir: NOT_FOUND: there is no namespace';
    expect(await reset('emial.send')).toEqual({
      code: EXIT.SERVER_ERROR,
      stdout: '',
      stderr: `${missing} "emial.send"; did you mean "email.send"?\n`,
    });
    expect((await reset('sms')).stderr).toBe(`${missing} "sms"\n`);
    expect((await weir(['reset', 'a'])).stderr).toBe(`${missing} "default"\n`);
    for (const args of [
      ['inspect', 'a', '--namespace', 'emial.send'],
      ['explain', 'a', '--namespace', 'emial.send'],
      ['overrides', 'list', '--namespace', 'emial.send'],
      ['stats', 'emial.send'],
    ]) {
      expect((await weir(args)).stderr).toContain('"emial.send"; did you mean "email.send"?\n');
    }
    // A key that may not list namespaces gets no name of another one.
    const create = ['keys', 'create', '--name', 'k', '--permission'];
    const [{ key }] = await lines([...create, 'ratelimit.*.reset']);
    expect(await reset('emial.send', String(key))).toMatchObject({
      ...{ code: EXIT.OK, stderr: '' },
      stdout: 'Cleared 0 counters of "a" in the namespace "emial.send".\n',
    });
  });

  test('clears the counter of one algorithm', async () => {
    const of = ['both', '--duration', '30d', '--algorithm'];
    for (const algorithm of ['fixed', 'gcra']) {
      await weir(['check', ...of, algorithm, '--limit', '1']);
    }
    expect(await lines(['reset', ...of, 'gcra'])).toEqual([{ cleared: 1 }]);
    expect(await lines(['reset', ...of, 'sliding'])).toEqual([{ cleared: 1 }]);
  });
});
