/** The command `weir`, as its own process, against a running server. */

import { execFile, spawn } from 'node:child_process';
import { readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { IMPORT_MAX_BYTES } from '../../src/limits.ts';
import { done } from '../support/api.ts';
import {
  MAIN,
  ROOT_KEY,
  type Running,
  removeDirectory,
  startServer,
  temporaryDirectory,
} from '../support/server.ts';
import { withStore } from '../support/store.ts';

const dataDir = temporaryDirectory();
const files = temporaryDirectory();
let server: Running;
beforeAll(async () => {
  server = await startServer(dataDir, { args: ['--acceptors', '2', '--counters', '1024'] });
});
afterAll(async () => {
  expect(await server.stop()).toEqual({ code: 0, signal: null });
  removeDirectory(dataDir);
  removeDirectory(files);
});

interface Outcome {
  code: number;
  stdout: string;
  stderr: string;
}

function weir(args: string[], env: Record<string, string> = {}, input?: string): Promise<Outcome> {
  return new Promise((resolve) => {
    const known = { PATH: process.env.PATH, WEIR_URL: server.url, WEIR_KEY: ROOT_KEY, ...env };
    const options = { env: known as NodeJS.ProcessEnv, cwd: files };
    const child = execFile(process.execPath, [MAIN, ...args], options, (error, stdout, stderr) => {
      resolve({ code: (error?.code as number | undefined) ?? 0, stdout, stderr });
    });
    child.stdin?.end(input);
  });
}

/** What a command printed, line by line; fails unless it ended with 0. */
async function lines(args: string[], env?: Record<string, string>, input?: string) {
  const { code, stdout, stderr } = await weir(args, env, input);
  expect([args, code, stderr]).toEqual([args, 0, '']);
  const printed = stdout.split('\n').filter((line) => line !== '');
  return printed.map((line): Record<string, unknown> => JSON.parse(line));
}

describe('weir check', () => {
  test('says what a human wants to know, and ends with 0, 1 or 2', async () => {
    const args = ['check', 'user_1', '--limit', '2', '--duration', '30d', '--namespace', 'cli'];
    const answers = [await weir(args), await weir([...args, '--cost', '2']), await weir(args)];
    expect(answers.map(({ code }) => code)).toEqual([0, 1, 0]);
    expect(answers.map(({ stderr }) => stderr)).toEqual(['', '', '']);
    expect(answers[0].stdout).toMatch(/^admitted: 1 of 2 left, new window in \d+ s\n$/);
    expect(answers[1].stdout).toMatch(/^refused: 1 of 2 left/);
    expect((await weir(args)).code).toBe(1);
    expect((await weir([...args, '--cost', '0'])).code).toBe(0);
  });

  const faults: [string, string[], Record<string, string>, string][] = [
    ['no key', ['a', '--limit', '1', '--duration', '1s'], { WEIR_KEY: '' }, 'WEIR_KEY must hold'],
    ['a wrong key', ['a', '--limit', '1', '--duration', '1s'], { WEIR_KEY: 'x' }, 'UNAUTHORIZED: '],
    [
      'no server',
      ['a', '--limit', '1', '--duration', '1s'],
      { WEIR_URL: 'http://127.0.0.1:1' },
      'there is no answer from http://127.0.0.1:1 (WEIR_URL): ',
    ],
    ['no identifier', ['--limit', '1', '--duration', '1s'], {}, '<identifier> is missing'],
    ['too much', ['a', 'b', '--limit', '1', '--duration', '1s'], {}, '"b" is too much'],
    ['no limit', ['a', '--duration', '1s'], {}, '--limit is missing'],
    ['a wrong limit', ['a', '--limit', 'x', '--duration', '1s'], {}, '--limit must be an integer'],
    [
      'a limit beyond',
      ['a', '--limit', '9007199254740992', '--duration', '1s'],
      {},
      '--limit must be an integer from 0 to 9007199254740991, got "9007199254740992"',
    ],
    [
      'no URL',
      ['a', '--limit', '1', '--duration', '1s'],
      { WEIR_URL: '' },
      'WEIR_URL must be a URL like http://127.0.0.1:7070, got ""',
    ],
    ['a wrong duration', ['a', '--limit', '1', '--duration', '1y'], {}, '--duration must be a dur'],
    ['an unknown option', ['a', '--lmit', '1'], {}, "Unknown option '--lmit'"],
    ['a bad field', ['a', '--limit', '0', '--duration', '1s'], {}, 'BAD_REQUEST: "limit" must be'],
  ];
  test.each(faults)('ends with 2 and one sentence: %s', async (_what, args, env, message) => {
    const { code, stdout, stderr } = await weir(['check', ...args], env);
    expect([code, stdout]).toEqual([2, '']);
    expect(stderr).toContain(`weir: ${message}`);
    expect(stderr.trim().split('\n').length).toBe(1);
  });
});

describe('weir reset', () => {
  test('lets in again who was refused, in all windows or in one', async () => {
    const check = (duration: string, identifier = 'locked out') => {
      const args = ['--limit', '1', '--duration', duration, '--namespace', 'cli'];
      return weir(['check', ...args, '--', identifier]);
    };
    const reset = (...args: string[]) => weir(['reset', '--namespace', 'cli', ...args]);
    for (const duration of ['30d', '29d', '30d', '29d']) await check(duration);
    const one = await reset('locked out', '--duration', '29d');
    expect([one.code, one.stdout, one.stderr]).toEqual([0, 'cleared: 1 counter\n', '']);
    expect([(await check('29d')).code, (await check('30d')).code]).toEqual([0, 1]);
    expect((await reset('locked out')).stdout).toBe('cleared: 2 counters\n');
    expect((await check('30d')).code).toBe(0);
    await check('30d', '--help');
    expect((await reset('--', '--help')).stdout).toBe('cleared: 1 counter\n');
    expect((await reset('nobody')).stdout).toBe('cleared: 0 counters\n');
  });

  test('ends with 2 and one sentence where it is told wrong, and says how with --help', async () => {
    const wrong = await weir(['reset']);
    expect([wrong.code, wrong.stderr]).toEqual([2, expect.stringContaining('<identifier> is')]);
    const window = await weir(['reset', 'a', '--duration', '1y']);
    expect([window.code, window.stderr]).toEqual([2, expect.stringContaining('--duration must')]);
    const help = await weir(['reset', '--help']);
    expect([help.code, help.stdout]).toEqual([
      0,
      expect.stringContaining('weir reset <identifier>'),
    ]);
  });
});

describe('weir check, where something is odd,', () => {
  const args = ['check', '--limit', '1', '--duration', '1h', '--namespace', 'odd'];

  test('asks about an identifier that looks like an option, behind --', async () => {
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
      expect(stderr).toBe(
        'weir: WEIR_KEY must hold an API key, 1 to 512 visible characters of ASCII\n',
      );
    }
  });

  test('takes no answer but one of weir for an answer', async () => {
    let body = '';
    const other = createServer((_request, response) => response.end(body));
    await new Promise<void>((resolve) => other.listen(0, '127.0.0.1', resolve));
    const { port } = other.address() as AddressInfo;
    const env = { WEIR_URL: `http://127.0.0.1:${port}` };
    const cases: [string, string[]][] = [
      ['{"message":"ok"}', [...args, 'a']],
      ['{"success":true}', [...args, 'a']],
      ['null', [...args, 'a']],
      ['{"overrides":5}', ['overrides', 'list', '--namespace', 'n']],
      ['{}', ['keys', 'list']],
      ['3', ['keys', 'revoke', 'key_1']],
    ];
    for (const [answer, command] of cases) {
      body = answer;
      const { code, stderr } = await weir(command, env);
      expect([answer, code, stderr]).toEqual([
        answer,
        2,
        expect.stringContaining('answers 200, and not as weir does'),
      ]);
    }
    other.close();
  });

  test('that cannot say what came of it ends with 2', async () => {
    const child = spawn(
      'sh',
      ['-c', '"$0" "$@" > /dev/full', process.execPath, MAIN, ...args, 'full'],
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
    const of = ['user_*', '--namespace', 'over*'];
    const said = ['--limit', '7', '--duration', '1h', '--async'];
    const [{ overrideId }] = await lines(['overrides', 'set', ...of, ...said]);
    const override = {
      id: overrideId,
      identifier: 'user_*',
      limit: 7,
      duration: 3_600_000,
      async: true,
    };
    expect(await lines(['overrides', 'get', ...of])).toEqual([override]);
    expect(await lines(['overrides', 'list', '--namespace', 'over*'])).toEqual([override]);
    const checked = await weir([
      ...['check', 'user_1', '--namespace', 'overridden'],
      ...['--limit', '99', '--duration', '1s'],
    ]);
    expect(checked.stdout).toContain('6 of 7 left');
    expect(await lines(['overrides', 'delete', ...of])).toEqual([{}]);
    const gone = await weir(['overrides', 'get', ...of]);
    expect([gone.code, gone.stderr]).toEqual([
      2,
      'weir: NOT_FOUND: there is no override of "user_*" in that namespace\n',
    ]);
  });

  test('exports what an import takes, more than a page of it, all in one step', async () => {
    const text = Array.from({ length: 2_345 }, (_, i) => {
      const identifier = i % 3 === 0 ? `é_${i}_*` : `é_${i}`;
      const namespaceName = i % 2 === 0 ? 'exported' : 'export*';
      const said = { limit: i + 1, duration: 60_000, async: false };
      return `${JSON.stringify({ namespaceName, identifier, ...said })}\n`;
    }).join('');
    const file = join(files, 'overrides.jsonl');
    writeFileSync(file, text);
    const counts = { created: 2_345, updated: 0, unchanged: 0 };
    expect(await lines(['overrides', 'import', file, '--dry-run'])).toEqual([
      { ...counts, dryRun: true },
    ]);
    expect((await weir(['overrides', 'export'])).stdout).toBe('');
    const before = await done(server.port, 'ratelimits.listNamespaces');
    expect(await lines(['overrides', 'import', file])).toEqual([{ ...counts, dryRun: false }]);
    const after = await done(server.port, 'ratelimits.listNamespaces');
    expect(after.total).toBe((before.total as number) + 1);
    expect((await weir(['overrides', 'export'])).stdout).toBe(text);
    // From standard input, with a byte order mark, empty lines and one that changes.
    const [first, ...rest] = text.split('\n');
    const changed = `\ufeff${first.replace('"limit":1', '"limit":9')}\n\n${rest.join('\r\n')}`;
    expect(await lines(['overrides', 'import', '-'], {}, changed)).toEqual([
      { created: 0, updated: 1, unchanged: 2_344, dryRun: false },
    ]);
  });

  test('ends quietly when nobody reads on, and not with 0', async () => {
    // More than a pipe holds, from the test before.
    const command = '{ "$0" "$1" overrides export; echo "$?" >&2; } | head -n 1';
    const env = { ...process.env, WEIR_URL: server.url, WEIR_KEY: ROOT_KEY };
    const printed = await new Promise<string[]>((resolve) => {
      const args = ['-c', command, process.execPath, MAIN];
      execFile('sh', args, { env }, (_error, stdout, stderr) => resolve([stdout, stderr]));
    });
    expect(printed).toEqual([expect.stringMatching(/^\{.*\}\n$/), '2\n']);
  });

  test('names the line of an import that is at fault, and imports nothing', async () => {
    const line = (changes: object) => {
      const said = { namespaceName: 'faulty', identifier: 'abc', limit: 1, duration: 1_000 };
      return JSON.stringify({ ...said, ...changes });
    };
    const cases: [string, string][] = [
      [
        `${line({})}\n\n${line({ limit: -1 })}\n`,
        'BAD_REQUEST: line 3: "limit" must be an integer',
      ],
      [`${line({})}\nnot json\n`, 'line 2 is not JSON: "not json"'],
      [`\n${line({ namespaceName: undefined })}`, 'BAD_REQUEST: line 2: one of "namespaceId"'],
      ['5\n', 'BAD_REQUEST: line 1: an override must be a JSON object, got 5'],
    ];
    for (const [input, message] of cases) {
      const { code, stderr } = await weir(['overrides', 'import', '-'], {}, input);
      expect([code, stderr]).toEqual([2, expect.stringContaining(`weir: ${message}`)]);
    }
    const large = join(files, 'large.jsonl');
    // The file is not too large by itself, but with what goes around it.
    writeFileSync(
      large,
      `${line({})}\n`.repeat(Math.floor(IMPORT_MAX_BYTES / line({}).length) - 1),
    );
    expect((await weir(['overrides', 'import', large])).stderr).toContain('split the file');
    const latin = join(files, 'latin.jsonl');
    writeFileSync(latin, Buffer.from(`${line({ identifier: 'na\u00efve' })}\n`, 'latin1'));
    expect((await weir(['overrides', 'import', latin])).stderr).toContain(
      'latin.jsonl is not UTF-8',
    );
    expect((await weir(['overrides', 'import', 'nowhere'])).stderr).toContain('ENOENT');
    const { namespaces } = await done(server.port, 'ratelimits.listNamespaces');
    expect(namespaces).not.toContainEqual(expect.objectContaining({ name: 'faulty' }));
  });
});

describe('weir keys', () => {
  test('creates, lists and revokes', async () => {
    const permissions = ['ratelimit.*.limit', 'ratelimit.*.create_namespace'];
    const asked = permissions.flatMap((permission) => ['--permission', permission]);
    const args = ['keys', 'create', '--name', 'gateway', '--expires', '30d', ...asked];
    const [{ keyId, key }] = await lines(args);
    const used = { WEIR_KEY: `${key}` };
    const check = ['check', 'a', '--limit', '5', '--duration', '1h'];
    expect((await weir(check, used)).code).toBe(0);
    expect(await lines(['keys', 'list'])).toContainEqual({
      keyId,
      name: 'gateway',
      permissions,
      createdAt: expect.any(Number),
      expires: expect.any(Number),
    });
    expect((await weir(['keys', 'list'], used)).stderr).toContain('FORBIDDEN: ');
    expect(await lines(['keys', 'revoke', `${keyId}`])).toEqual([{}]);
    expect((await weir(check, used)).stderr).toContain('UNAUTHORIZED: ');
  });

  test('reads when a key expires as a duration or a date', async () => {
    const args = ['keys', 'create', '--name', 'k', '--permission', '*', '--expires'];
    const [{ keyId }] = await lines([...args, '2100-01-31']);
    const keys = await lines(['keys', 'list']);
    expect(keys.find((one) => one.keyId === keyId)?.expires).toBe(Date.UTC(2100, 0, 31));
    expect((await weir([...args, '2001-01-31'])).stderr).toContain('"expires" must be a time to');
    expect((await weir([...args, 'soon'])).stderr).toContain('--expires must be a duration');
    for (const date of ['2030-13-45', '2030-02-31', '2030-', '2030-1-31', '2030-01-31 10:00']) {
      const { code, stderr } = await weir([...args, date]);
      expect([date, code, stderr]).toEqual([date, 2, expect.stringContaining('must be a date')]);
    }
  });

  test('creates one in the data directory of a stopped server, and of no other', async () => {
    const own = temporaryDirectory();
    const args = ['keys', 'create', '--offline', '--name', 'back in', '--permission', '*'];
    expect((await weir([...args, '--data-dir', dataDir])).stderr).toContain(
      'is in use by another weir',
    );
    const empty = await weir([...args, '--data-dir', join(own, 'mistyped')]);
    expect([empty.code, empty.stderr]).toEqual([2, expect.stringContaining('holds no store')]);
    expect(readdirSync(own)).toEqual([]);
    withStore(own, () => {});
    const offline = (name: string, permission: string, ...rest: string[]) => {
      const said = ['--name', name, '--permission', permission, '--data-dir', own];
      return weir(['keys', 'create', '--offline', ...said, ...rest]);
    };
    // As over the API.
    for (const [wrong, message] of [
      [offline('k', 'everything'), '"permissions[0]" must be'],
      [offline('', '*'), '"name" must be'],
      [offline('k', '*', '--expires', '0'), '"expires" must be a time to come'],
      [offline('k', '*', '--expires', '9999999999999d'), '"expires" must be an integer'],
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
    // It is not the first start of that directory any more.
    expect(other.stdout()).not.toContain('weir_');
    const env = { WEIR_URL: other.url, WEIR_KEY: `${key}` };
    expect((await lines(['keys', 'list'], env)).map(({ name }) => name)).toEqual(['back in']);
    expect(await other.stop()).toEqual({ code: 0, signal: null });
    removeDirectory(own);
  });
});

describe('weir', () => {
  test('says what it can do', async () => {
    const { code, stdout } = await weir(['help']);
    expect(code).toBe(0);
    for (const command of ['serve', 'check', 'overrides', 'keys']) {
      expect(stdout).toContain(`weir ${command === 'serve' ? '[serve]' : command}`);
      const help = await weir([command, '--help']);
      expect([command, help.code]).toEqual([command, 0]);
      expect(help.stdout).toContain(command === 'serve' ? '--admin-port' : `weir ${command} `);
    }
    expect((await weir(['overrides'])).code).toBe(2);
    expect((await weir(['sevre'])).stderr).toBe('weir: "sevre" is no command; see weir help\n');
    expect((await weir(['keys', 'make'])).stderr).toContain('"make" is no command of weir keys');
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

  test('makes a package whose weir runs where it is installed', async () => {
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
    const answer = await new Promise<Outcome>((resolve) => {
      const env = { PATH: process.env.PATH, WEIR_URL: packed.url, WEIR_KEY: ROOT_KEY };
      const args = ['check', 'a', '--limit', '5', '--duration', '1h'];
      execFile(installed, args, { env: env as NodeJS.ProcessEnv }, (error, stdout, stderr) => {
        resolve({ code: (error?.code as number | undefined) ?? 0, stdout, stderr });
      });
    });
    expect(answer).toMatchObject({ code: 0, stderr: '' });
    expect(answer.stdout).toContain('admitted: 4 of 5 left');
    expect(await packed.stop()).toEqual({ code: 0, signal: null });
    removeDirectory(elsewhere);
  }, 180_000);
});
