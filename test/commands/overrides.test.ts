/** `weir overrides` on a running server. */

import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, test } from 'vitest';
import { IMPORT_MAX_BYTES, INFIX_OVERRIDES_MAX } from '../../src/core/constants.ts';
import { EXIT } from '../../src/core/exit.ts';
import { callOperationOk } from '../support/operations.ts';
import { commandServer, ISO_TIME } from '../support/weir-command.ts';

const commands = commandServer();
const { weir, lines } = commands;

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
    const since = expect.any(Number);
    const shown = { ...override, usage: { applied: 0, since } };
    expect(await lines(['overrides', 'get', ...target])).toEqual([shown]);
    const list = ['overrides', 'list', '--namespace', 'over*'];
    expect(await lines(list)).toEqual([shown]);
    expect((await weir(list)).stdout).toBe(
      'IDENTIFIER  CIDR  LIMIT  DURATION  CONCURRENCY  ASYNC  EXPIRES  LAST APPLIED  APPLIED  ID\n' +
        'user_*      no    7      1h        -            yes    never    never         0        ' +
        `${overrideId}\n`,
    );
    expect((await weir(['overrides', 'get', ...target])).stdout).toBe((await weir(list)).stdout);
    const args = ['--namespace', 'overridden', '--limit', '99', '--duration', '1s'];
    expect(await lines(['check', 'user_1', ...args])).toMatchObject([{ remaining: 6, limit: 7 }]);
    const row = new RegExp(
      `\\nuser_\\* +no +7 +1h +- +yes +never +${ISO_TIME} +1 +${overrideId}\\n$`,
    );
    expect((await weir(list)).stdout).toMatch(row);
    // Without --async it is synchronous again, and keeps its id.
    const again = await weir(['overrides', 'set', ...target, '--limit', '1', '--duration', '90s']);
    expect([again.code, again.stdout]).toEqual([
      EXIT.OK,
      `Override ${overrideId} is set in the namespace "over*": 1 token per 90s for "user_*".\n`,
    ]);
    const usage = { applied: 1, lastAppliedAt: expect.any(Number), since };
    const changed = { ...override, limit: 1, duration: 90_000, async: false, usage };
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

  test('lists all namespaces that the key may read, with a column for them', async () => {
    const values = ['--limit', '7', '--duration', '1h'];
    const set = async (identifier: string, namespace: string) => {
      const args = ['overrides', 'set', identifier, '--namespace', namespace, ...values];
      return (await lines(args))[0].overrideId;
    };
    const first = await set('of_all', 'two words');
    const second = await set('of_all', 'of_all*');
    const all = (await lines(['overrides', 'list'])).filter((one) => one.identifier === 'of_all');
    expect(all).toMatchObject([
      { id: first, namespaceName: 'two words' },
      { id: second, namespaceName: 'of_all*' },
    ]);
    const { stdout } = await weir(['overrides', 'list']);
    expect(stdout).toMatch(/^NAMESPACE +IDENTIFIER +CIDR +LIMIT +DURATION /);
    expect(stdout).toMatch(new RegExp(`\\n"two words" +of_all +no +7 +1h .* ${first}\\n`));
    expect(stdout).toMatch(new RegExp(`\\nof_all\\* +of_all +no +7 +1h .* ${second}\\n`));

    const namespaces = await lines(['namespaces', 'list']);
    const { id } = namespaces.find(({ name }) => name === 'two words')!;
    const permission = ['--permission', `ratelimit.${id}.read_override`];
    const [{ key }] = await lines(['keys', 'create', '--name', 'reader', ...permission]);
    const theirs = await lines(['overrides', 'list'], { WEIR_KEY: String(key) });
    expect(theirs.map((one) => one.id)).toEqual([first]);
  });

  test('shows why a further pattern with text between wildcards is rejected', async () => {
    const values = { namespaceName: 'many', limit: 1, duration: 60_000 };
    const overrides = Array.from({ length: INFIX_OVERRIDES_MAX }, (_, i) => {
      return { ...values, identifier: `*${i}*-` };
    });
    await callOperationOk(commands.server.port, 'ratelimits.importOverrides', { overrides });
    const args = ['--namespace', 'many', '--limit', '1', '--duration', '60s'];
    const { code, stderr } = await weir(['overrides', 'set', '*a*b', ...args]);
    expect(code).toBe(EXIT.SERVER_ERROR);
    expect(stderr).toContain(
      `got "*a*b": the namespace "many" has the maximum of ${INFIX_OVERRIDES_MAX} overrides`,
    );
  });

  test('sets the limit of leases with --concurrency; without it there is none', async () => {
    const target = ['user_*', '--namespace', 'leases'];
    const set = ['overrides', 'set', ...target, '--limit', '7', '--duration', '1h'];
    const { stdout } = await weir([...set, '--concurrency', '2', '--async']);
    expect(stdout).toContain('7 tokens per 1h for "user_*", concurrency 2, asynchronous.\n');
    const get = ['overrides', 'get', ...target];
    expect(await lines(get)).toMatchObject([{ concurrency: 2, async: true }]);
    expect((await weir(get)).stdout).toMatch(/^user_\* +no +7 +1h +2 +yes /m);
    const acquire = ['acquire', 'user_1', '--namespace', 'leases', '--limit', '1', '--ttl', '1m'];
    expect(await lines(acquire)).toMatchObject([{ inUse: 1, limit: 2 }]);
    const explained = (await weir(['explain', 'user_1', '--namespace', 'leases'])).stdout;
    expect(explained).toContain(': limit 7, duration 1h, concurrency 2, async.');
    const [line] = (await weir(['overrides', 'export'])).stdout.match(/.*"leases".*/)!;
    const input = line.replace(/"concurrency":2/, '"concurrency":0');
    expect((await weir(['overrides', 'import', '-'], undefined, input)).code).toBe(0);
    expect(await lines(get)).toMatchObject([{ concurrency: 0 }]);
    const audited = (await weir(['audit', 'list', '--limit', '3'])).stdout;
    expect(audited).toContain('concurrency=2');
    await weir(set);
    expect((await lines(get))[0]).not.toHaveProperty('concurrency');
    const invalid = await weir([...set, '--concurrency', 'many']);
    expect([invalid.code, invalid.stderr]).toEqual([
      ...[EXIT.USAGE, expect.stringContaining('--concurrency must be an integer from 0 to ')],
    ]);
  });

  test('sets an end with --expires, as a duration or a time; without it there is none', async () => {
    const target = ['vip', '--namespace', 'ends'];
    const set = ['overrides', 'set', ...target, '--limit', '7', '--duration', '1h'];
    const time = '2099-01-31T12:00:00Z';
    const { stdout } = await weir([...set, '--expires', time, '--async']);
    expect(stdout).toContain(`7 tokens per 1h for "vip", asynchronous, until ${time}.\n`);
    const get = ['overrides', 'get', ...target];
    expect(await lines(get)).toMatchObject([{ expires: Date.parse(time), async: true }]);
    expect((await weir(get)).stdout).toMatch(new RegExp(` yes {4}${time} {2}never +0 +rlor_`));
    const [line] = (await weir(['overrides', 'export'])).stdout.match(/.*"ends".*/)!;
    const input = line.replace(/"limit":7/, '"limit":8');
    expect((await weir(['overrides', 'import', '-'], undefined, input)).code).toBe(0);
    expect(await lines(get)).toMatchObject([{ expires: Date.parse(time), limit: 8 }]);
    const before = Date.now();
    await weir([...set, '--expires', '2d']);
    const [{ expires }] = await lines(get);
    expect(expires).toBeGreaterThanOrEqual(before + 2 * 86_400_000);
    expect((await weir(['audit', 'list', '--limit', '1'])).stdout).toContain(
      'expires: 2099-01-31T',
    );
    await weir(set);
    expect((await lines(get))[0]).not.toHaveProperty('expires');
    expect((await weir(['audit', 'list', '--limit', '1'])).stdout).toMatch(/expires: \S+ -> never/);
    for (const when of ['2020-01-01', 'tomorrow', '0s']) {
      const { code, stderr } = await weir([...set, '--expires', when]);
      expect([code, stderr]).toEqual([EXIT.USAGE, expect.stringContaining('--expires must be ')]);
    }
  });

  test('sets, gets, lists and deletes CIDR blocks with --cidr', async () => {
    const target = ['10.0.0.0/8', '--cidr', '--namespace', 'networks'];
    const set = ['overrides', 'set', ...target, '--limit', '5', '--duration', '1h'];
    const { stdout } = await weir([...set, '--async']);
    const [, id] = /^Override (rlor_\w+) is set/.exec(stdout)!;
    expect(stdout).toContain('5 tokens per 1h for the CIDR block "10.0.0.0/8", asynchronous.');
    const override = { id, identifier: '10.0.0.0/8', cidr: true, limit: 5, duration: 3_600_000 };
    const shown = { ...override, async: true };
    expect(await lines(['overrides', 'get', ...target])).toMatchObject([shown]);
    expect((await weir(['overrides', 'list', '--namespace', 'networks'])).stdout).toMatch(
      /^IDENTIFIER +CIDR .*\n10\.0\.0\.0\/8 +yes /,
    );
    await weir(['overrides', 'set', '10*', '--namespace', 'networks', ...set.slice(-4)]);
    await weir([
      'overrides',
      'set',
      '0.0.0.0/0',
      '--cidr',
      '--namespace',
      'networks',
      ...set.slice(-4),
    ]);
    const explained = await weir(['explain', '10.1.2.3', '--namespace', 'networks']);
    expect(explained.stdout).toContain('applies, CIDR block "10.0.0.0/8" in the namespace');
    expect(explained.stdout).toMatch(/0\.0\.0\.0\/0 \(CIDR\) .*a longer CIDR block takes/);
    expect(explained.stdout).toMatch(/10\* .*a CIDR block takes precedence over a pattern/);
    const literal = await weir(['overrides', 'delete', '10.0.0.0/8', '--namespace', 'networks']);
    expect(literal.stderr).toContain('there is no override of "10.0.0.0/8" in that namespace');
    expect((await weir(['overrides', 'delete', ...target])).stdout).toBe(
      'The override of the CIDR block "10.0.0.0/8" in the namespace "networks" is deleted.\n',
    );
    expect((await weir(['audit', 'list', '--limit', '1'])).stdout).toContain(
      'networks "10.0.0.0/8" (CIDR)',
    );
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
    // The check creates the namespace, a moment after its answer.
    const idOf = async () => {
      return (await lines(['namespaces', 'list'])).find(({ name }) => name === 'by id')?.id;
    };
    await expect.poll(idOf).toBeDefined();
    const id = `${await idOf()}`;
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
    const file = join(commands.files, 'overrides.jsonl');
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
    const before = await callOperationOk(commands.server.port, 'ratelimits.listNamespaces');
    expect(await lines(['overrides', 'import', file])).toEqual([{ ...counts, dryRun: false }]);
    const after = await callOperationOk(commands.server.port, 'ratelimits.listNamespaces');
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

  test('exports the use of overrides with --usage; an import ignores it', async () => {
    const target = ['user_*', '--namespace', 'used'];
    await weir(['overrides', 'set', ...target, '--limit', '7', '--duration', '1h']);
    const check = ['--namespace', 'used', '--limit', '9', '--duration', '1s'];
    for (const id of ['user_1', 'user_2', 'other']) await weir(['check', id, ...check]);
    const { stdout } = await weir(['overrides', 'export', '--usage']);
    const exported = stdout
      .trim()
      .split('\n')
      .map((line) => JSON.parse(line));
    expect(exported.find((it) => it.namespaceName === 'used')).toEqual({
      ...{ namespaceName: 'used', identifier: 'user_*', limit: 7, duration: 3_600_000 },
      ...{ async: false },
      usage: { applied: 2, lastAppliedAt: expect.any(Number), since: expect.any(Number) },
    });
    expect((await weir(['overrides', 'export'])).stdout).not.toContain('usage');
    expect(await lines(['overrides', 'import', '-'], {}, stdout)).toMatchObject([
      { created: 0, updated: 0, unchanged: exported.length },
    ]);
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
    const large = join(commands.files, 'large.jsonl');
    // The file alone is within the limit; the request that contains it is not.
    writeFileSync(
      large,
      `${line({})}\n`.repeat(Math.floor(IMPORT_MAX_BYTES / line({}).length) - 1),
    );
    expect((await weir(['overrides', 'import', large])).stderr).toContain('split the file');
    const latin = join(commands.files, 'latin.jsonl');
    writeFileSync(latin, Buffer.from(`${line({ identifier: 'na\u00efve' })}\n`, 'latin1'));
    expect((await weir(['overrides', 'import', latin])).stderr).toContain(
      'latin.jsonl must be UTF-8; got bytes that are not',
    );
    for (const [path, reason] of [
      ['nowhere', 'no such file or directory'],
      [commands.files, 'it is a directory'],
    ]) {
      const { code, stderr } = await weir(['overrides', 'import', path]);
      expect([code, stderr]).toEqual([EXIT.USAGE, `weir: ${path} cannot be read: ${reason}\n`]);
    }
    const { namespaces } = await callOperationOk(commands.server.port, 'ratelimits.listNamespaces');
    expect(namespaces).not.toContainEqual(expect.objectContaining({ name: 'faulty' }));
  });
});
