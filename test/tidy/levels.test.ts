/** The first level of tests: where its files are, what they import, and how long they wait. */

import { existsSync } from 'node:fs';
import { basename, dirname, join } from 'node:path';
import { describe, expect, test } from 'vitest';
import { asText, code, importsOf, ROOT } from './files.ts';

const THIS_FILE = 'test/tidy/levels.test.ts';

/** Folders of the first level whose tests are not about one folder of src. */
const OWN_FOLDERS = ['test/model', 'test/deploy', 'test/support/mutation', 'test/tidy'];
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
        .replace(/^test\/(?=bench|tools)/, '')
        .replace(/^test/, 'src');
      return folder === 'src'
        ? existsSync(join(ROOT, 'src', basename(path).replace('.test', '')))
        : existsSync(join(ROOT, folder));
    };
    const tests = firstLevel.map(({ path }) => path).filter((path) => path.endsWith('.test.ts'));
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
