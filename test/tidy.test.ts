/** The repository's own rules, kept by a test. */

import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { basename, dirname, join, relative } from 'node:path';
import { describe, expect, test } from 'vitest';

const ROOT = new URL('..', import.meta.url).pathname;
/** What is not the repository's: made here, or git's own. */
const UNTRACKED = ['node_modules', 'dist', '.git', 'weir-data'];
const tracked = readdirSync(ROOT, { withFileTypes: true })
  .filter(({ name }) => !UNTRACKED.includes(name))
  .flatMap((entry) => {
    if (!entry.isDirectory()) return [entry.name];
    return readdirSync(join(ROOT, entry.name), { recursive: true, withFileTypes: true })
      .filter((inner) => inner.isFile())
      .map((inner) => relative(ROOT, join(inner.parentPath, inner.name)))
      .filter((path) => !path.includes('node_modules/'));
  });
const read = (path: string) => readFileSync(join(ROOT, path), 'utf8');
const code = tracked
  .filter((path) => /\.tsx?$/.test(path))
  .map((path) => ({ path, text: read(path) }));
const sources = code.filter(({ path }) => path.startsWith('src/'));
const tools = code.filter(({ path }) => path.startsWith('tools/'));
const manifest = JSON.parse(read('package.json'));

type Files = typeof code;
/** The imports of files in a file, those of types included. */
const importsOf = ({ path, text }: Files[number]) => {
  const found = text.matchAll(/(?:from|import\(|^import)\s*'(\.[^']+)'/gm);
  return [...found].map(([, to]) => ({ from: path, to: join(dirname(path), to) }));
};
const asText = ({ from, to }: { from: string; to: string }) => `${from} -> ${to}`;

const THIS_FILE = 'test/tidy.test.ts';
/** Runs in browsers. */
const BROWSER_CODE = 'src/dashboard/';
/** What weir is measured beside, with packages of its own. */
const PEERS = 'bench/peers';
/** Packages for a test, beside another TypeScript. */
const TYPED_CLIENT = 'test/system/clients/openapi-client';

const ofServer = sources.filter(({ path }) => !path.startsWith(BROWSER_CODE));
const commonJs = Object.keys(manifest.dependencies)
  .filter((name) => !['typebox', 'uWebSockets.js'].includes(name))
  .join('|');
const suppression = ['ts-ignore', 'ts-nocheck', 'ts-expect-error', 'biome-ignore'].join('|');

/** Patterns of lines, and the only files that may have them. */
const FORBIDDEN: [name: string, files: Files, pattern: RegExp, allowed: string[]][] = [
  [
    'clocks',
    ofServer,
    /Date\.now|new Date\(|performance\.now|hrtime/,
    // The second runs in applications, which have no clock of weir.
    ['src/shared-memory/clock.ts', 'src/middleware/fetch.ts'],
  ],
  [
    'imports of uWebSockets.js',
    sources,
    /from 'uWebSockets\.js'|@uwsjs\//,
    ['src/server/uws.ts', 'src/server/binary.ts'],
  ],
  [
    'handlers of uWebSockets.js',
    sources,
    /\bapp\.(any|get|post|put|del|patch|head|options|connect|trace|ws)\(/,
    ['src/server/route.ts'],
  ],
  [
    'values of CommonJS packages',
    sources,
    new RegExp(
      `^(?!import type ).*\\bfrom '(?:${commonJs})'|(?<!typeof )import\\('(?:${commonJs})'`,
    ),
    [],
  ],
  ['weak randomness and the console', sources, /Math\.random|console\./, []],
  [
    'the end of a process',
    sources,
    /process\.exit\(/,
    ['src/dispatch.ts', 'src/runtime/lifecycle.ts', 'src/server/thread/acceptor.ts'],
  ],
  // A long text that stands for itself, as in a table of cases, cannot be broken.
  [
    'lines of more than 100 characters',
    code.filter(({ path }) => !path.startsWith('test/')),
    /^.{101}/u,
    [],
  ],
  ['work for later', code, new RegExp(`\\b(TODO|FIXME|XXX|${suppression})\\b`), [THIS_FILE]],
  ['any', code, /\bas any\b|: any\b|<any>/, [THIS_FILE]],
  ['tests that are selected', code, /\.(only|skip)\(/, [THIS_FILE]],
];

test.each(FORBIDDEN)('no other file has %s', (_name, files, pattern, allowed) => {
  const lines = files.flatMap(({ path, text }) => {
    if (allowed.includes(path)) return [];
    return text.split('\n').flatMap((line, i) => (pattern.test(line) ? [`${path}:${i + 1}`] : []));
  });
  expect(lines).toEqual([]);
});

describe('the sources', () => {
  test('say in their head what they are', () => {
    const head = /^(#!.*\n)?\/\*\*/;
    const files = [...sources, ...tools];
    expect(files.filter(({ text }) => !head.test(text)).map(({ path }) => path)).toEqual([]);
  });

  test('are all reachable from the entries of the build', () => {
    const scripts = Object.values(manifest.scripts).join(' ');
    const built = [...scripts.matchAll(/(?:src|tools)\/\S+\.ts/g)].map(([entry]) => entry);
    const exported = Object.keys(manifest.exports)
      .filter((name) => name !== './package.json')
      .map((name) => join('src/middleware', `${name}.ts`));
    // `src/dashboard/build.mjs` bundles it.
    const entries = [...built, ...exported, `${BROWSER_CODE}main.tsx`];
    const reached = new Set<string>();
    const left = [...entries];
    while (left.length > 0) {
      const path = left.pop()!;
      if (reached.has(path)) continue;
      reached.add(path);
      for (const [, to] of read(path).matchAll(/(?:from|import\()\s*'(\.[^']+)'/g)) {
        left.push(join(dirname(path), to));
      }
    }
    const paths = [...sources, ...tools].map(({ path }) => path);
    expect(paths.filter((path) => !reached.has(path))).toEqual([]);
  });
});

/** The folders of src, from the lowest layer to the highest. A folder imports only lower ones. */
const LAYERS = [
  ...['core', 'middleware', 'redis', 'shared-memory', 'analytics', 'events', 'auth', 'overrides'],
  ...['policies', 'engine', 'registry', 'config', 'api', 'server', 'observe', 'dashboard'],
  ...['runtime', 'commands', '.'],
];

/** Imports between folders of src. */
const folderImports = sources.flatMap(importsOf).filter(({ from, to }) => {
  return to.startsWith('src/') && dirname(from) !== dirname(to);
});
const folderOf = (path: string) => relative('src', dirname(path)) || '.';
const layerOf = (path: string) => folderOf(path).split('/')[0];

describe('imports', () => {
  test('of src name no tool', () => {
    const ofTools = sources.flatMap(importsOf).filter(({ to }) => to.startsWith('tools/'));
    expect(ofTools.map(asText)).toEqual([]);
  });

  test('point to lower layers', () => {
    expect([...new Set(sources.map(({ path }) => layerOf(path)))].toSorted()).toEqual(
      LAYERS.toSorted(),
    );
    const upward = folderImports.filter(({ from, to }) => {
      return LAYERS.indexOf(layerOf(from)) < LAYERS.indexOf(layerOf(to));
    });
    expect(upward.map(asText)).toEqual([]);
  });

  test('of an engine name its interface only, in the API and the server', () => {
    const below = folderImports.filter(({ from, to }) => {
      return ['api', 'server'].includes(layerOf(from)) && to.startsWith('src/engine/');
    });
    const creates = 'src/server/create-engine.ts';
    const named = below.filter(({ from, to }) => from !== creates && to !== 'src/engine/engine.ts');
    expect(named).toEqual([]);
    const http = folderImports.filter(({ from, to }) => {
      return (
        from.startsWith('src/engine/') && !/^src\/(core|redis|shared-memory|engine)\//.test(to)
      );
    });
    expect(http).toEqual([]);
  });

  test('of the dashboard load no code of the server, which loads none of it', () => {
    const isBrowserCode = (path: string) => path.startsWith(BROWSER_CODE);
    const crossing = sources.flatMap(({ path, text }) => {
      return [...text.matchAll(/^(import|export) (type )?[^;]*?'(\.[^']+)'/gm)]
        .map(([, , type, to]) => ({ path, type, to: join(dirname(path), to) }))
        .filter(({ to }) => isBrowserCode(path) !== isBrowserCode(to));
    });
    expect(crossing.length).toBeGreaterThan(0);
    const isTypeOfServer = (it: (typeof crossing)[number]) => isBrowserCode(it.path) && it.type;
    expect(crossing.filter((it) => !isTypeOfServer(it))).toEqual([]);
  });

  test('form no cycle of folders, type imports included', () => {
    const imported = new Map<string, Set<string>>();
    for (const { from, to } of folderImports) {
      const folders = imported.get(folderOf(from)) ?? new Set();
      imported.set(folderOf(from), folders.add(folderOf(to)));
    }
    const cycles: string[] = [];
    const visit = (folder: string, path: string[]) => {
      const start = path.indexOf(folder);
      if (start >= 0) cycles.push([...path.slice(start), folder].join(' -> '));
      if (start >= 0 || isDone.has(folder)) return;
      for (const next of imported.get(folder) ?? []) visit(next, [...path, folder]);
      isDone.add(folder);
    };
    const isDone = new Set<string>();
    for (const folder of imported.keys()) visit(folder, []);
    expect(cycles).toEqual([]);
  });
});

/** Folders of the first level whose tests are not about one folder of src. */
const OWN_FOLDERS = ['test/model', 'test/deploy', 'test/support/mutation'];
/** The other levels, and the files that only they import. */
const OTHER_LEVELS = /^test\/(system|long|support\/(programs|levels))\//;
/** The engine in Redis has the same tests as the one in memory; they are skipped without Redis. */
const REDIS = 'test/support/programs/redis.ts';
const REDIS_USERS = ['support/engines.ts', 'support/engine-modes.ts', 'engine/engine.test.ts'].map(
  (name) => `test/${name}`,
);
const firstLevel = code.filter(({ path }) => path.startsWith('test/') && !OTHER_LEVELS.test(path));

/** A longer wait of the first level, by file, and the reason for it. */
const LONG_WAITS: Record<string, string> = {
  'test/support/http.ts': 'fails a test whose response does not come',
  'test/support/raw-connection.ts': 'fails a test whose connection is not closed',
  [THIS_FILE]: 'has the pattern',
};

describe('the first level of tests', () => {
  test('is where its sources are', () => {
    const mirrored = (path: string) => {
      const folder = dirname(path)
        .replace(/^test\/(?=tools)/, '')
        .replace(/^test/, 'src');
      return folder === 'src'
        ? existsSync(join(ROOT, 'src', basename(path).replace('.test', '')))
        : existsSync(join(ROOT, folder));
    };
    const tests = firstLevel
      .map(({ path }) => path)
      .filter((path) => path.endsWith('.test.ts') && path !== THIS_FILE);
    expect(tests.filter((path) => !OWN_FOLDERS.includes(dirname(path)) && !mirrored(path))).toEqual(
      [],
    );
  });

  test('does not wait for a time', () => {
    const LONGEST_MS = 50;
    const waits = /\bsleep\(\s*([\d_]+)|\bsetTimeout\((?:\w+,|[^;]*?[\w)}],)\s*([\d_]+)\)/gs;
    const long = firstLevel.flatMap(({ path, text }) => {
      if (path in LONG_WAITS) return [];
      return [...text.matchAll(waits)]
        .map(([, sleep, timeout]) => Number((sleep ?? timeout).replaceAll('_', '')))
        .filter((ms) => ms > LONGEST_MS)
        .map((ms) => `${path}: ${ms} ms`);
    });
    expect(long).toEqual([]);
  });

  test('imports nothing of the other levels', () => {
    const imports = firstLevel.flatMap(importsOf).filter(({ to }) => OTHER_LEVELS.test(to));
    const own = 'test/vitest.config.ts';
    const others = imports.filter(({ from, to }) => {
      return from !== own && !(to === REDIS && REDIS_USERS.includes(from));
    });
    expect(others.map(asText)).toEqual([]);
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

describe('the documentation', () => {
  test('names no source, test or benchmark that does not exist', () => {
    for (const page of tracked.filter((path) => path.endsWith('.md'))) {
      for (const [, path] of read(page).matchAll(
        /`((?:src|test|bench|examples|tools)\/[\w./-]+)`/g,
      )) {
        expect([page, path, existsSync(join(ROOT, path))]).toEqual([page, path, true]);
      }
    }
  });
});
