/** The files that comments and pages name. */

import { existsSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { expect, test } from 'vitest';
import { code, commentsIn, ROOT, read, tracked } from './files.ts';

const files = new Set(tracked);

/** A comment names a file by its path, from its own folder, or by a name of which there is one. */
function isNamed(by: string, name: string): boolean {
  if (files.has(name) || files.has(join(dirname(by), name))) return true;
  const [top] = by.split('/');
  const found = tracked.filter((path) => path.startsWith(top) && path.endsWith(`/${name}`));
  return found.length === 1;
}

test('comments name only files that exist', () => {
  const missing = code.flatMap(({ path, text }) => {
    return commentsIn(text).flatMap((comment) => {
      const names = comment.match(/(?<![\w./*<-])[\w./-]*\w\.tsx?\b/g) ?? [];
      return names.filter((name) => !isNamed(path, name)).map((name) => `${path}: ${name}`);
    });
  });
  expect(missing).toEqual([]);
});

test('the table of what to change where names files of its folders', () => {
  const [, table] = /\n## Where to change what\n(.*?)\n## /s.exec(read('CONTRIBUTING.md')) ?? [];
  const rows = [...table.matchAll(/^\| ([^|]*) \| `([^|`]*)`(?:, `([^|`]*)`)? \| (.*) \|$/gm)];
  expect(rows.length).toBeGreaterThan(25);
  const missing = rows.flatMap(([, change, ...cells]) => {
    const names = cells.pop()!.matchAll(/`([\w./-]+\.\w+)`/g);
    const folders = cells.filter((folder) => folder !== undefined);
    const wrong = folders.filter((folder) => !existsSync(join(ROOT, folder)));
    const absent = [...names].filter(([, name]) => {
      return !files.has(name) && !folders.some((folder) => files.has(join(folder, name)));
    });
    return [...wrong, ...absent.map(([, name]) => name)].map((name) => `${change}: ${name}`);
  });
  expect(missing).toEqual([]);
});

test('pages name no source, test or benchmark that does not exist', () => {
  for (const page of tracked.filter((path) => path.endsWith('.md'))) {
    for (const [, path] of read(page).matchAll(
      /`((?:src|test|bench|examples|tools)\/[\w./-]+)`/g,
    )) {
      expect([page, path, existsSync(join(ROOT, path))]).toEqual([page, path, true]);
    }
  }
});
