/** `weir reset` on a running server. */

import { describe, expect, test } from 'vitest';
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
