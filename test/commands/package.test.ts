/** The package that `npm pack` makes, alone and in another directory. */

import { execFile } from 'node:child_process';
import {
  cpSync,
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { dirname, join } from 'node:path';
import { promisify } from 'node:util';
import { gunzipSync } from 'node:zlib';
import { publint } from 'publint';
import { formatMessage } from 'publint/utils';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { blocksOf } from '../support/markdown.ts';
import { missingPagesOf } from '../support/pages.ts';
import {
  freePort,
  ROOT_KEY,
  removeDirectory,
  startServer,
  temporaryDirectory,
} from '../support/server.ts';

const ROOT = new URL('../..', import.meta.url).pathname;
const MANIFEST = JSON.parse(readFileSync(join(ROOT, 'package.json'), 'utf8'));
const TARBALL = 'weir-ratelimit-weir-0.1.0.tgz';

/** An application that uses all modules of the package, with the types of both frameworks. */
const APPLICATION = `
import express from 'express';
import Fastify from 'fastify';
import { rateLimit as expressLimit, type RateLimitOptions } from '@weir-ratelimit/weir/express';
import { rateLimit as fastifyLimit } from '@weir-ratelimit/weir/fastify';
import { createLimiter, type Decision, rateLimit } from '@weir-ratelimit/weir/fetch';
import type { LeaseDecision, Reservation, Settlement } from '@weir-ratelimit/weir/fetch';

const options: RateLimitOptions = { url: 'http://127.0.0.1:7072', namespace: 'login' };
express().use('/login', expressLimit({ ...options, identify: ['ip', 'header:x-api-key'] }));
Fastify().addHook('onRequest', fastifyLimit({ ...options, key: process.env.WEIR_KEY }));
Fastify().get('/', { onRequest: fastifyLimit(options) }, async () => 'hello');

const limits = { namespace: 'n', limit: 1, duration: 60_000 };
const limiter = createLimiter({ key: process.env.WEIR_KEY, ...limits });
const decision: Decision = await limiter.check('user_1', 2);
const remaining: number | undefined = decision.quota?.remaining;
const userOf = (request: Request) => request.headers.get('X-User') ?? 'none';
const handler = rateLimit(limiter, userOf, (request) => new Response(request.url));
Fastify().addHook(
  'onRequest',
  fastifyLimit({ ...options, concurrency: { limit: 5, ttl: 1_000, identify: ({ ip }) => ip ?? '' } }),
);
const jobs = createLimiter({ key: 'k', namespace: 'n', concurrency: { limit: 5, ttl: 1_000 } });
const lease: LeaseDecision = await jobs.acquire('user_1');
const reservation: Reservation = await limiter.reserve({ identifier: 'a', cost: 1, ttl: 1_000 });
const { charged }: Settlement = await reservation.commit(1);
console.log(lease.deniedBy, charged);
export const response: Promise<Response> = handler(new Request('http://a/'));
export { remaining };
`;

/** Lines that must not compile. */
const INVALID_LINES = [
  '  expressLimit({ ...options, limit: 3 });',
  "  fastifyLimit({ ...options, onError: 'open' });",
  '  createLimiter(limits);',
];

/** The same at run time: prints a decision of each module. */
const SCRIPT = `
import { createServer } from 'node:http';
import { rateLimit as expressLimit } from '@weir-ratelimit/weir/express';
import { rateLimit as fastifyLimit } from '@weir-ratelimit/weir/fastify';
import { createLimiter } from '@weir-ratelimit/weir/fetch';

const [, , checks, gateways] = process.argv;
const options = { url: gateways, namespace: 'login' };
const request = { headers: {}, ip: '192.0.2.1', socket: {} };
const reply = { headers() {}, code: (status) => ({ send: () => status }) };
const limit = fastifyLimit(options);
const limiter = createLimiter({
  url: checks, key: process.env.WEIR_KEY, namespace: 'n', limit: 5, duration: 60_000,
});
const server = createServer((request, response) => {
  expressLimit(options)(request, response, () => response.end('next'));
});
server.listen(0, '127.0.0.1', async () => {
  const response = await fetch('http://127.0.0.1:' + server.address().port);
  console.log(response.status, await response.text(), response.headers.get('RateLimit-Policy'));
  console.log(await limit(request, reply), await limit(request, reply));
  console.log((await limiter.check('user_1')).quota.remaining);
  process.exit();
});
`;

async function run(command: string, args: string[], cwd: string): Promise<string> {
  return (await promisify(execFile)(command, args, { cwd })).stdout;
}

/** Writes the files of a package, without the first folder of their paths. */
function unpack(tarball: Buffer, directory: string): void {
  const tar = gunzipSync(tarball);
  const textAt = (start: number, length: number) => {
    return tar.toString('utf8', start, start + length).replace(/\0.*$/s, '');
  };
  for (let at = 0; tar[at] !== 0; ) {
    const path = join(directory, textAt(at, 100).replace(/^package\//, ''));
    const [mode, bytes] = [textAt(at + 100, 8), textAt(at + 124, 12)].map((text) => {
      return Number.parseInt(text, 8);
    });
    mkdirSync(dirname(path), { recursive: true });
    writeFileSync(path, tar.subarray(at + 512, at + 512 + bytes), { mode });
    at += 512 * (1 + Math.ceil(bytes / 512));
  }
}

test('the image has all that the build reads', async () => {
  const context = temporaryDirectory();
  const admitted = readFileSync(join(ROOT, '.dockerignore'), 'utf8').matchAll(/^!(.*)$/gm);
  for (const [, path] of admitted) {
    cpSync(join(ROOT, path), join(context, path), { recursive: true });
  }
  symlinkSync(join(ROOT, 'node_modules'), join(context, 'node_modules'));
  await run('npm', ['run', '--silent', 'build'], context);
  for (const folder of ['dist/docs', 'dist/middleware']) {
    expect(readdirSync(join(context, folder))).toEqual(readdirSync(join(ROOT, folder)));
  }
  removeDirectory(context);
});

/** Without npm install, which needs a network: its dependencies are those of the repository. */
describe('npm pack creates a package', () => {
  const elsewhere = temporaryDirectory();
  const packages = join(ROOT, 'node_modules');
  const installed = join(elsewhere, 'node_modules/@weir-ratelimit/weir');
  beforeAll(async () => {
    await run('npm', ['pack', '--ignore-scripts', '--pack-destination', elsewhere], ROOT);
    unpack(readFileSync(join(elsewhere, TARBALL)), installed);
    const { dependencies, optionalDependencies } = MANIFEST;
    for (const name of Object.keys({ ...dependencies, ...optionalDependencies })) {
      if (!existsSync(join(packages, name))) continue;
      const link = join(elsewhere, 'node_modules', name);
      mkdirSync(dirname(link), { recursive: true });
      symlinkSync(join(packages, name), link);
    }
  }, 120_000);
  afterAll(() => removeDirectory(elsewhere));

  test('in which publint finds no fault', async () => {
    const { buffer, byteOffset, byteLength } = readFileSync(join(elsewhere, TARBALL));
    const tarball = buffer.slice(byteOffset, byteOffset + byteLength);
    const { messages } = await publint({ pack: { tarball }, strict: true, level: 'suggestion' });
    expect(messages.map((message) => formatMessage(message, MANIFEST))).toEqual([]);
  });

  test('whose command runs in another directory, and serves all pages', async () => {
    const packed = await startServer(join(elsewhere, 'data'), {
      main: join(installed, 'dist/cli.js'),
      args: ['--counters', '1024', '--acceptors', '1'],
    });
    const weir = join(installed, MANIFEST.bin.weir);
    const env = { PATH: process.env.PATH, WEIR_URL: packed.url, WEIR_KEY: ROOT_KEY };
    const runInstalled = (args: string[]) => {
      return promisify(execFile)(weir, args, { env: env as NodeJS.ProcessEnv });
    };
    const result = await runInstalled(['check', 'a', '--limit', '5', '--duration', '1h']);
    expect([result.stdout, result.stderr]).toEqual([
      expect.stringContaining('allowed: limit 5, remaining 4'),
      '',
    ]);
    const dashboard = await fetch(packed.adminUrl, { headers: { Accept: 'text/html' } });
    expect([dashboard.status, await dashboard.text()]).toEqual([
      200,
      expect.stringContaining('<title>weir</title>'),
    ]);
    expect(await missingPagesOf(packed.url)).toEqual([]);
    expect((await runInstalled(['--version'])).stdout).toMatch(/^weir 0\.1\.0 \(node v/);
    expect(await packed.stop()).toEqual({ code: 0, signal: null });
  });

  /** @returns the lines with errors, as file:line */
  async function compile(
    sources: Record<string, string>,
    moduleResolution: string,
    module: string,
  ): Promise<string[]> {
    const folder = join(elsewhere, moduleResolution);
    mkdirSync(folder);
    for (const [file, source] of Object.entries(sources)) writeFileSync(join(folder, file), source);
    const tsconfig = {
      compilerOptions: {
        ...{ target: 'es2022', module, moduleResolution, moduleDetection: 'force' },
        ...{ strict: true, exactOptionalPropertyTypes: true, skipLibCheck: true, noEmit: true },
        typeRoots: [join(packages, '@types')],
        types: ['node'],
        paths: {
          express: [join(packages, '@types/express/index.d.ts')],
          fastify: [join(packages, 'fastify/fastify.d.ts')],
        },
      },
      files: Object.keys(sources),
    };
    writeFileSync(join(folder, 'tsconfig.json'), JSON.stringify(tsconfig));
    const command = [join(packages, '.bin/tsc'), '--project', folder, '--pretty', 'false'];
    const output = await run('sh', ['-c', '"$@" || true', 'sh', ...command], folder);
    return [...output.matchAll(/^(\S+)\((\d+),\d+\): error/gm)].map(([, file, line]) => {
      return `${file}:${line}`;
    });
  }

  test.each([
    ['bundler', 'esnext'],
    ['nodenext', 'nodenext'],
  ])('whose modules have types for Express and Fastify, with %s', async (resolution, module) => {
    const page = readFileSync(join(ROOT, 'docs/middleware.md'), 'utf8');
    const fences = blocksOf(page).filter(
      (block) => block.kind === 'fence' && block.language === 'ts',
    );
    expect(fences.length).toBeGreaterThan(3);
    const documented = fences.map(({ text }, i) => [`middleware-${i}.mts`, text]);
    const sources = {
      'valid.mts': APPLICATION,
      'invalid.mts': [APPLICATION, ...INVALID_LINES].join('\n'),
      ...Object.fromEntries(documented),
    };
    const lineCount = APPLICATION.split('\n').length;
    const expected = INVALID_LINES.map((_, i) => `invalid.mts:${lineCount + 1 + i}`);
    expect(await compile(sources, resolution, module)).toEqual(expected);
  });

  test('whose modules check requests', async () => {
    const gatewayPort = await freePort();
    const policies = { login: { gateway: ['express', 'fastify'], limit: 1, duration: 3_600_000 } };
    writeFileSync(join(elsewhere, 'weir.json'), JSON.stringify({ gatewayPort, policies }));
    const packed = await startServer(join(elsewhere, 'data'), {
      main: join(installed, 'dist/cli.js'),
      args: ['--counters', '1024', '--acceptors', '1', '--config', join(elsewhere, 'weir.json')],
    });
    writeFileSync(join(elsewhere, 'script.mjs'), SCRIPT);
    const { stdout, stderr } = await promisify(execFile)(
      process.execPath,
      ['script.mjs', packed.url, `http://127.0.0.1:${gatewayPort}`],
      { cwd: elsewhere, env: { WEIR_KEY: ROOT_KEY } },
    );
    expect([stdout, stderr]).toEqual(['200 next "login";q=1;w=3600\nundefined 429\n4\n', '']);
    await packed.stop();
  });
});
