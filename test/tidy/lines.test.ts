/** What no line of the code may have, and what each file begins with. */

import { expect, test } from 'vitest';
import { BROWSER_CODE, type CodeFile, code, luaFiles, manifest, sources, tools } from './files.ts';

const THIS_FILE = 'test/tidy/lines.test.ts';

const ofServer = sources.filter(({ path }) => !path.startsWith(BROWSER_CODE));
const commonJs = Object.keys(manifest.dependencies)
  .filter((name) => !['typebox', 'uWebSockets.js'].includes(name))
  .join('|');
const suppression = ['ts-ignore', 'ts-nocheck', 'ts-expect-error', 'biome-ignore'].join('|');

/** Patterns of lines, and the only files that may have them. */
const FORBIDDEN: [name: string, files: readonly CodeFile[], pattern: RegExp, allowed: string[]][] =
  [
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
    [
      'window arithmetic',
      ofServer.filter(({ path }) => !path.startsWith('src/engine/windows/')),
      /^(?!\s*(\*|\/\/)).*([*/%] \(?(\w+\.)*duration(Ms|OfKey)?\b|duration(Ms)?\) \/)/,
      [],
    ],
    ['weak randomness and the console', sources, /Math\.random|console\./, []],
    [
      'the end of a process',
      sources,
      /process\.exit\(/,
      [
        ...['src/dispatch.ts', 'src/runtime/lifecycle.ts'],
        ...['src/server/thread/acceptor.ts', 'src/rls/thread/rls.ts'],
      ],
    ],
    // A long text that stands for itself, as in a table of cases, cannot be broken.
    [
      'lines of more than 100 characters',
      [...code.filter(({ path }) => !path.startsWith('test/')), ...luaFiles],
      /^.{101}/u,
      [],
    ],
    ['work for later', code, new RegExp(`\\b(TODO|FIXME|XXX|${suppression})\\b`), [THIS_FILE]],
    ['any', code, /\bas any\b|: any\b|<any>/, [THIS_FILE]],
    [
      'tests that are selected',
      code.filter(({ path }) => path.startsWith('test/')),
      /\.(only|skip)\(/,
      [THIS_FILE],
    ],
  ];

test.each(FORBIDDEN)('no other file has %s', (_name, files, pattern, allowed) => {
  const lines = files.flatMap(({ path, text }) => {
    if (allowed.includes(path)) return [];
    return text.split('\n').flatMap((line, i) => (pattern.test(line) ? [`${path}:${i + 1}`] : []));
  });
  expect(lines).toEqual([]);
});

test('every file of src and tools says in their head what they are', () => {
  const head = /^(#!.*\n)?\/\*\*/;
  const files = [...sources, ...tools];
  expect(files.filter(({ text }) => !head.test(text)).map(({ path }) => path)).toEqual([]);
});
