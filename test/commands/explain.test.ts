/** `weir explain` on a running server. */

import { describe, expect, test } from 'vitest';
import { waitUntil } from '../support/server.ts';
import { commandServer } from '../support/weir-command.ts';

const { weir, lines } = commandServer();

describe('weir explain', () => {
  const set = async (namespace: string, identifier: string, limit: string) => {
    const values = ['--namespace', namespace, '--limit', limit, '--duration', '30d'];
    expect(await weir(['overrides', 'set', identifier, ...values])).toMatchObject({ code: 0 });
  };
  const use = async (identifier: string, cost: string) => {
    const terms = ['--limit', '10', '--duration', '30d', '--cost', cost];
    await weir(['check', identifier, '--namespace', 'cli', ...terms]);
  };

  test('prints the reason, the overrides, the terms of the check and the counters', async () => {
    await use('first', '1');
    await set('cli', 'explained*', '5');
    await set('c*', 'explained_1', '50');
    await use('explained_1', '4');
    await use('explained_1', '3');
    const explained = await weir(['explain', 'explained_1', '--namespace', 'cli', '--cost', '2']);
    expect([explained.code, explained.stderr]).toEqual([0, '']);
    const [reason, denials, applies, others, check, counters] = explained.stdout
      .trimEnd()
      .split('\n\n');
    expect(reason).toMatch(
      /^The check is denied: the sliding window of 30d has 1 of 5 tokens left, and the co/,
    );
    expect(applies).toMatch(
      /^Override: rlor_\w+ applies, identifier "explained\*" in the namespace "cli": limit 5, du/,
    );
    expect(others).toContain('Other overrides that match: 1\n');
    expect(cellsOf(others)).toMatchObject([
      { 2: 'explained_1', 5: 'never', 6: 'an exact namespace takes precedence over a pattern' },
    ]);
    expect(check).toMatch(/^Next check:\n/);
    expect(cellsOf(check)).toEqual([
      [
        ...['5 (override)', '30d (override)', 'sliding (last check)', '-', '2 (request)'],
        ...['no (default)', '1', 'denied', expect.stringMatching(/T00:00:00\.001Z$/)],
      ],
    ]);
    expect(denials).toMatch(
      /^Last denied: \S+Z, cost 3, 0 left, 5 per 30d, sliding, by the override rlor_\w+\.\nDenied/,
    );
    expect(counters).toMatch(/^Counters:\nDURATION {2}/);
    expect(cellsOf(counters)[0].slice(0, 5)).toEqual(['30d', 'sliding', '5', '4', '1']);
    // Nothing has changed.
    expect(await weir(['explain', 'explained_1', '--namespace', 'cli', '--cost', '2'])).toEqual(
      explained,
    );
  });

  test('prints the ends of the overrides', async () => {
    const values = ['--namespace', 'cli', '--limit', '5', '--duration', '30d'];
    const [first, second] = ['2099-01-31T00:00:00Z', '2098-01-31T00:00:00Z'];
    await weir(['overrides', 'set', 'ending', ...values, '--expires', first]);
    await weir(['overrides', 'set', 'endin*', ...values, '--expires', second]);
    const [, , applies, others] = (
      await weir(['explain', 'ending', '--namespace', 'cli'])
    ).stdout.split('\n\n');
    expect(applies).toContain(`: limit 5, duration 30d, until ${first}.`);
    expect(cellsOf(others)[0]).toContain(second);
  });

  test('prints the response as JSON, and takes all terms of a check', async () => {
    const terms = ['--limit', '10', '--duration', '60s', '--algorithm', 'gcra', '--burst', '3'];
    const [json] = await lines(['explain', 'plain', '--namespace', 'cli', ...terms, '--cost', '4']);
    expect(json).toMatchObject({
      ...{ namespace: 'cli', identifier: 'plain', success: false, cause: 'cost_above_limit' },
      windows: [{ terms: { burst: { value: 3, from: 'request' }, duration: { value: 60_000 } } }],
    });
  });

  test('says when the identifier was last denied, and how often in this hour', async () => {
    await use('abuser', '10');
    const { stdout } = await weir(['explain', 'abuser', '--namespace', 'cli']);
    expect(stdout).toMatch(/^Last denied: not since \S+Z, when the records begin\.$/m);
    await use('abuser', '1');
    const denied = (await weir(['explain', 'abuser', '--namespace', 'cli'])).stdout;
    expect(denied).toMatch(
      /^Last denied: \S+Z, cost 1, 0 left, 10 per 30d, sliding, by the request\.\nDenied this hour: 1 time since \S+:00:00Z\.$/m,
    );
    expect(cellsOf(denied.split('\n\n')[3])[0].slice(0, 3)).toEqual([
      ...['10 (last check)', '30d (last check)', 'sliding (last check)'],
    ]);
  });

  test('labels the limit of the last counted check, for a key without analytics', async () => {
    await use('in_code', '10');
    const permissions = ['limit', 'read_namespace', 'read_override'].flatMap((action) => {
      return ['--permission', `ratelimit.*.${action}`];
    });
    const [{ key }] = await lines(['keys', 'create', '--name', 'k', ...permissions]);
    const env = { WEIR_KEY: key as string };
    const { stdout } = await weir(['explain', 'in_code', '--namespace', 'cli'], env);
    const [reason, override, check] = stdout.split('\n\n');
    expect(reason).toMatch(/^The check is denied: .* 0 of 10 tokens left, and the cost is 1\. /);
    expect(reason).toContain('10 per 30d is the limit of the last counted check: the re');
    expect(override).toBe('Override: none matches.');
    expect(check).toMatch(/^Next check:\n/);
    expect(cellsOf(check)[0].slice(0, 3)).toEqual([
      ...['10 (last counted check)', '30d (last counted check)', 'sliding (default)'],
    ]);
    const terms = ['--limit', '5', '--duration', '60s'];
    await weir(['check', 'in_code', '--namespace', 'cli', ...terms]);
    const [, , several] = (
      await weir(['explain', 'in_code', '--namespace', 'cli'], env)
    ).stdout.split('\n\n');
    expect(several).toMatch(/^Next check of each counter:\n/);
    expect(cellsOf(several).map((cells) => [cells[0], cells[7]])).toEqual([
      ['5 (last counted check)', 'allowed'],
      ['10 (last counted check)', 'denied'],
    ]);
  });

  test('without a namespace shows where the identifier is', async () => {
    expect((await weir(['explain', 'nowhere'])).stdout).toMatch(
      /^nowhere is in 0 of \d+ namespaces?: it has no counter, no hold, no block, no override and no recent decision\.\nIdentifiers that begin with it: weir stats --prefix nowhere\n$/,
    );
    await use('in one', '3');
    const one = (await weir(['explain', 'in one'])).stdout;
    expect(one).toMatch(/^"in one" is in 1 of \d+ namespaces?:\n\nNAMESPACE {2}LAST DENIED /);
    const [, table, ...explained] = one.split('\n\n');
    expect(cellsOf(`\n${table}`)).toEqual([['cli', '-', '3 of 10 used per 30d', '-']]);
    const { stdout } = await weir(['explain', 'in one', '--namespace', 'cli']);
    expect(explained.join('\n\n')).toBe(stdout);
    await use('in_two', '11');
    await weir(['check', 'in_two', '--namespace', 'more', '--limit', '2', '--duration', '30d']);
    await waitUntil('both namespaces are stored', async () => {
      return (await lines(['explain', 'in_two'])).length === 2;
    });
    const two = (await weir(['explain', 'in_two'])).stdout;
    expect(two).toMatch(/^in_two is in 2 of \d+ namespaces:\n/);
    const rows = cellsOf(`\n${two.trimEnd().split('\n\n')[1]}`);
    // The one with the latest denial comes first.
    expect(rows.map(([namespace]) => namespace)).toEqual(['cli', 'more']);
    expect(rows[0][1]).toMatch(/^\d{4}-/);
    const [json] = await lines(['explain', 'in_two']);
    expect(json).toMatchObject({ namespace: { name: 'cli' }, lastDenied: { cost: 11 } });
    expect(await weir(['explain', 'in_two', '--cost', '2'])).toMatchObject({
      code: 2,
      stderr: 'weir: --cost is for the check in one namespace: add --namespace\n',
    });
  });

  test('accepts the old order of arguments, and says the new one', async () => {
    const explained = await weir(['explain', 'two words', '--namespace', 'cli']);
    const old = await weir(['explain', 'cli', 'two words']);
    const sentence =
      'the order of arguments has changed; write weir explain "two words" --namespace cli';
    expect(old).toEqual({ ...explained, stderr: `weir: ${sentence}\n` });
    const json = await weir(['explain', 'cli', 'two words', '--json']);
    expect(JSON.parse(json.stdout)).toMatchObject({ identifier: 'two words', namespace: 'cli' });
    expect(JSON.parse(json.stderr)).toEqual({ warning: { message: sentence } });
  });

  test('says that no override matches, and that there are no counters', async () => {
    const { stdout } = await weir(['explain', 'nobody', '--namespace', 'cli']);
    expect(stdout).toContain('No decision is predicted: the request has no limit and duration');
    expect(stdout).toContain(' begin.\n\nOverride: none matches.\n\nCounters:\nnone\n');
    expect(stdout).not.toContain('Next check');
  });
});

/** The cells of a table below a title and a header. */
function cellsOf(paragraph: string): string[][] {
  return paragraph
    .split('\n')
    .slice(2)
    .map((line) => line.split(/ {2,}/));
}
