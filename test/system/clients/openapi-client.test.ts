/**
 * A typed client of the API, as users generate it: openapi-typescript makes types from
 * `docs/openapi.json`, a program uses them with openapi-fetch, and a strict TypeScript compiles it.
 *
 * These packages need TypeScript 5, whose compiler weir does not have: `openapi-client` has them.
 */

import { spawnSync } from 'node:child_process';
import { cpSync, mkdirSync, readFileSync, symlinkSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { blocksOf } from '../../support/markdown.ts';
import { installPackages, isRegistryReachable } from '../../support/programs/npm.ts';
import {
  ROOT_KEY,
  removeDirectory,
  type ServerProcess,
  startServer,
  temporaryDirectory,
} from '../../support/server.ts';

const ROOT = new URL('../../..', import.meta.url).pathname;
const PACKAGE = new URL('./openapi-client', import.meta.url).pathname;
const INSTALL_MS = 300_000;
const COMPILE_MS = 120_000;

const PROGRAM = `
import createClient from 'openapi-fetch';
import type { components, paths } from './weir.js';

const [, , baseUrl = '', key = ''] = process.argv;
const weir = createClient<paths>({ baseUrl, headers: { Authorization: \`Bearer \${key}\` } });

const body: components['schemas']['V2LimitRequest'] = {
  namespace: 'typed',
  identifier: 'user_1',
  limit: 2,
  duration: 2_592_000_000,
};
const checks: [boolean, number][] = [];
for (let i = 0; i < 3; i++) {
  const { data, error } = await weir.POST('/v2/ratelimit.limit', { body });
  if (error !== undefined) throw new Error(error.error.detail);
  checks.push([data.data.success, data.data.remaining]);
}

const override = { namespaceName: 'typed', identifier: 'vip_*', limit: 5, duration: 60_000 };
const set = await weir.POST('/v1/ratelimits.setOverride', { body: override });
const query = { namespaceName: 'typed', identifier: 'vip_*' };
const found = await weir.GET('/v1/ratelimits.getOverride', { params: { query } });
const isSame = set.data?.overrideId === found.data?.id;

const invalid = await weir.POST('/v1/ratelimits.limit', { body: { ...body, duration: 60 } });
const code: string | undefined = invalid.error?.error.code;
console.log(JSON.stringify({ checks, limit: found.data?.limit, isSame, code }));
`;

/** A replacement that makes the program wrong, and the error of the compiler. */
const MISTAKES: [string, string, string, RegExp][] = [
  ['a misspelled field', 'limit: 2,', 'limt: 2,', /'limt' does not exist in type/],
  ['a missing field', 'limit: 2,\n', '', /Property 'limit' is missing/],
  ['a value of another type', 'limit: 2,', "limit: '2',", /'string' is not assignable to/],
  ['another algorithm', 'limit: 2,', "limit: 2, algorithm: 'leaky',", /'"leaky"' is not assign/],
  [
    'a burst without gcra',
    'limit: 2,',
    'limit: 2, burst: 1,',
    /Property 'algorithm' is missing .*\{ algorithm: "gcra"/,
  ],
  ['an unknown path', '/v2/ratelimit.limit', '/v2/ratelimit.limits', /not assignable to param/],
  ['another method', "POST('/v2/rate", "GET('/v2/rate", /not assignable to parameter/],
  ['a field of no response', 'data.data.remaining', 'data.data.left', /'left' does not exist/],
  ['a response that may be an error', 'error !== undefined', 'false', /possibly 'undefined'/],
  ['an override without a limit', ' limit: 5,', '', /Property 'limit' is missing/],
];

describe.skipIf(!isRegistryReachable())('a client with types from the OpenAPI document', () => {
  const directory = temporaryDirectory();
  const dataDir = temporaryDirectory();
  let server: ServerProcess;

  beforeAll(async () => {
    const modules = installPackages(PACKAGE);
    symlinkSync(modules, join(directory, 'node_modules'));
    cpSync(join(PACKAGE, 'package.json'), join(directory, 'package.json'));
    const document = join(ROOT, 'docs/openapi.json');
    const types = ['--output', 'weir.d.ts', '--default-non-nullable=false'];
    expect(run(join(modules, '.bin/openapi-typescript'), [document, ...types])).toMatchObject({
      status: 0,
    });
    server = await startServer(dataDir, { args: ['--counters', '1024'] });
  }, INSTALL_MS);
  afterAll(async () => {
    expect(await server.stop()).toEqual({ code: 0, signal: null });
    for (const path of [directory, dataDir]) removeDirectory(path);
  });

  function run(command: string, args: string[], env: Record<string, string> = {}) {
    const { status, stdout, stderr } = spawnSync(command, args, {
      cwd: directory,
      encoding: 'utf8',
      env: { ...process.env, ...env },
    });
    return { status, output: stdout + stderr };
  }

  /** Compiles programs by their file name, in a folder of their own. */
  function compile(compiler: string, folder: string, programs: Record<string, string>) {
    mkdirSync(join(directory, folder), { recursive: true });
    cpSync(join(directory, 'weir.d.ts'), join(directory, folder, 'weir.d.ts'));
    const files = Object.entries(programs).map(([name, program]) => {
      const file = join(folder, `${name}.ts`);
      writeFileSync(join(directory, file), program);
      return file;
    });
    const options = [
      ...['--strict', '--exactOptionalPropertyTypes', '--noUncheckedIndexedAccess'],
      ...['--target', 'es2023', '--lib', 'es2023,dom,dom.iterable', '--module', 'nodenext'],
      ...['--types', 'node', '--typeRoots', join(ROOT, 'node_modules/@types')],
      ...['--skipLibCheck', '--outDir', folder],
    ];
    return run(compiler, [...options, ...files]);
  }
  const typescript5 = () => join(directory, 'node_modules/.bin/tsc');

  test('compiles, and checks a limit', { timeout: COMPILE_MS }, () => {
    expect(compile(typescript5(), 'right', { client: PROGRAM })).toEqual({ status: 0, output: '' });
    const { status, output } = run(process.execPath, ['right/client.js', server.url, ROOT_KEY]);
    expect([status, JSON.parse(output)]).toEqual([
      0,
      {
        checks: [
          [true, 1],
          [true, 0],
          [false, 0],
        ],
        limit: 5,
        isSame: true,
        code: 'BAD_REQUEST',
      },
    ]);
  });

  test('compiles and runs as the page of the API shows it', { timeout: COMPILE_MS }, () => {
    const blocks = blocksOf(readFileSync(join(ROOT, 'docs/api.md'), 'utf8'));
    const program = blocks.find((block) => block.kind === 'fence' && block.language === 'ts')!.text;
    const shown = `${program.replace('http://127.0.0.1:7070', server.url)}
      console.log(success, remaining);`;
    expect(compile(typescript5(), 'shown', { client: shown })).toEqual({ status: 0, output: '' });
    const result = run(process.execPath, ['shown/client.js'], { WEIR_KEY: ROOT_KEY });
    expect(result).toEqual({ status: 0, output: 'true 9\n' });
  });

  test('compiles with the TypeScript of this repository too', () => {
    const compiler = join(ROOT, 'node_modules/.bin/tsc');
    expect(compile(compiler, 'newer', { client: PROGRAM })).toEqual({ status: 0, output: '' });
  });

  test('does not compile with a wrong field, path, method or response', {
    timeout: COMPILE_MS,
  }, () => {
    const programs = MISTAKES.map(([name, right, wrong]) => {
      expect([name, PROGRAM.includes(right)]).toEqual([name, true]);
      return [name.replaceAll(' ', '-'), PROGRAM.replace(right, wrong)];
    });
    const { status, output } = compile(typescript5(), 'wrong', Object.fromEntries(programs));
    expect(status).not.toBe(0);
    for (const [name, , , message] of MISTAKES) {
      const errors = output.split(/^wrong\//m).filter((error) => {
        return error.startsWith(`${name.replaceAll(' ', '-')}.ts(`);
      });
      expect([name, errors.join('')]).toEqual([name, expect.stringMatching(message)]);
    }
  });
});
