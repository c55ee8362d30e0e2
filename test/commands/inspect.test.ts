/** `weir inspect` on a running server. */

import { describe, expect, test } from 'vitest';
import { commandServer } from '../support/weir-command.ts';

const { weir, lines } = commandServer();

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
});
