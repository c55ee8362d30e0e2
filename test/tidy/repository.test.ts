/** The files of the repository as a whole: its top, its packages, its examples. */

import { createHash } from 'node:crypto';
import { basename, join } from 'node:path';
import { describe, expect, test } from 'vitest';
import { manifest, read, tracked } from './files.ts';

/** What weir is measured beside, with packages of its own. */
const PEERS = 'bench/peers';
/** Packages for a test, beside another TypeScript. */
const TYPED_CLIENT = 'test/system/clients/openapi-client';

describe('the repository', () => {
  test('has at its top what was agreed on, and nothing else', () => {
    const top = new Set(tracked.map((path) => path.split('/')[0]));
    expect([...top].sort()).toEqual([
      ...['.ci', '.dockerignore', '.github', '.gitignore', 'CHANGELOG.md', 'CONTRIBUTING.md'],
      ...['Dockerfile', 'LICENSE', 'NOTICE', 'README.md', 'SECURITY.md', 'bench', 'biome.json'],
      ...['deploy', 'docs', 'examples', 'package-lock.json', 'package.json', 'src', 'test'],
      ...['tools', 'tsconfig.json'],
    ]);
  });

  test('has no content twice', () => {
    const LONG = 200;
    const paths = new Map<string, string[]>();
    for (const path of tracked) {
      const text = read(path);
      if (text.length <= LONG) continue;
      const digest = createHash('sha256').update(text).digest('hex');
      paths.set(digest, [...(paths.get(digest) ?? []), path]);
    }
    expect([...paths.values()].filter(({ length }) => length > 1)).toEqual([]);
  });

  /** Expects an exact version, a use in the code, and a reason in a page. */
  function expectPinned(
    dependencies: Record<string, string>,
    isCode: (path: string) => boolean,
    page: string,
    mention: (name: string) => string,
    unnamed: readonly string[],
  ): void {
    const text = tracked.filter(isCode).map(read).join('\n');
    const reasons = read(page);
    for (const [name, version] of Object.entries(dependencies)) {
      const isPinned = /^(npm:[@\w/-]+@)?\d+\.\d+\.\d+$/.test(version);
      const isUsed = unnamed.includes(name) || text.includes(`from '${name}'`);
      expect([name, isPinned, isUsed, reasons.includes(mention(name))]).toEqual([
        ...[name, true, true, true],
      ]);
    }
  }

  test('pins every dependency, uses it, and says in CONTRIBUTING.md why it is there', () => {
    const { dependencies, optionalDependencies, devDependencies } = manifest;
    // One of these is loaded, by a name that is put together.
    const platform = Object.keys(optionalDependencies);
    const tools = ['@biomejs/biome', '@types/express', '@types/node', 'autocannon', 'rolldown'];
    expectPinned(
      { ...dependencies, ...optionalDependencies, ...devDependencies },
      (path) => /\.(tsx?|mjs)$/.test(path) && !path.startsWith(PEERS),
      'CONTRIBUTING.md',
      (name) => `| \`${name}\` |`,
      [...tools, 'typescript', ...platform],
    );
    const { dependencies: peers } = JSON.parse(read(`${PEERS}/package.json`));
    const isPeerCode = (path: string) => path.startsWith(`${PEERS}/`) && path.endsWith('.mjs');
    expectPinned(peers, isPeerCode, `${PEERS}/README.md`, (name) => `\`${name}\``, []);
  });

  test('locks packages by hash, without the address of a registry', () => {
    for (const folder of ['.', PEERS, TYPED_CLIENT]) {
      const file = join(folder, 'package-lock.json');
      const lock = JSON.parse(read(file));
      for (const [path, entry] of Object.entries<Record<string, unknown>>(lock.packages)) {
        if (path === '' || entry.link) continue;
        expect([path, typeof entry.integrity, entry.resolved]).toEqual([path, 'string', undefined]);
      }
      for (const version of Object.values(lock.packages[''].dependencies)) {
        expect([file, version]).toEqual([file, expect.stringMatching(/^(npm:.+@)?\d+\.\d+\.\d+$/)]);
      }
    }
  });
});

describe('the examples', () => {
  const examples = tracked
    .filter((path) => path.startsWith('examples/') && path.endsWith('.mjs'))
    .map((path) => ({ path, text: read(path) }));

  test('import published packages and files of their own folder only', () => {
    const published = Object.keys(manifest.devDependencies);
    const imported = examples.flatMap(({ path, text }) => {
      return [...text.matchAll(/^import .*?'([^']+)'/gms)].map(([, to]) => ({ path, to }));
    });
    expect(imported.length).toBeGreaterThan(0);
    const others = imported.filter(({ to }) => {
      return !to.startsWith('node:') && !/^\.\/[\w-]+\.mjs$/.test(to) && !published.includes(to);
    });
    expect(others).toEqual([]);
  });

  test('are checked by tsc, except for printed modules', () => {
    const unchecked = examples.filter(({ text }) => !text.startsWith('// @ts-check\n/**'));
    expect(unchecked.every(({ path }) => basename(path) === 'weir.mjs')).toBe(true);
  });
});
