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

  test('clears the counter of one algorithm', async () => {
    const of = ['both', '--duration', '30d', '--algorithm'];
    for (const algorithm of ['fixed', 'gcra']) {
      await weir(['check', ...of, algorithm, '--limit', '1']);
    }
    expect(await lines(['reset', ...of, 'gcra'])).toEqual([{ cleared: 1 }]);
    expect(await lines(['reset', ...of, 'sliding'])).toEqual([{ cleared: 1 }]);
  });
});
