/** Follows every link of the documentation within the repository. */

import { existsSync, readFileSync } from 'node:fs';
import { dirname, join, relative } from 'node:path';
import { expect, test } from 'vitest';
import { findPages } from '../../../tools/docs/generator.ts';
import { anchorsOf, brokenReferencesOf, type Link, linksOf } from '../../support/markdown.ts';

const ROOT = new URL('../../..', import.meta.url).pathname;
const PAGES = new Map(
  findPages(ROOT).map((path) => [path, readFileSync(join(ROOT, path), 'utf8')] as const),
);
const ANCHORS = new Map([...PAGES].map(([path, text]) => [path, anchorsOf(text)] as const));

/** @returns what is wrong with the link; undefined if nothing is */
function faultOf(page: string, { line, target }: Link): string | undefined {
  const at = `${page}:${line}: ${target}`;
  if (/^https:\/\/|^http:\/\/127\.0\.0\.1:/.test(target)) return undefined;
  if (/^[a-z]+:/.test(target)) return `${at} is not https`;
  const [path, anchor] = decodeURI(target).split('#');
  const file = path === '' ? page : relative(ROOT, join(ROOT, dirname(page), path));
  if (file.startsWith('..')) return `${at} leads out of the repository`;
  if (!existsSync(join(ROOT, file))) return `${at} does not exist`;
  if (anchor === undefined) return undefined;
  const anchors = ANCHORS.get(file);
  if (anchors === undefined) return `${at} is no page with anchors`;
  return anchors.has(anchor) ? undefined : `${at} has no such anchor`;
}

test('every link and anchor of the documentation exists', () => {
  const faults = [...PAGES].flatMap(([page, text]) => {
    return linksOf(text).flatMap((link) => faultOf(page, link) ?? []);
  });
  expect(faults).toEqual([]);
});

test('every path of an installed package is that of a file which the package has', () => {
  const { name, files, optionalDependencies } = JSON.parse(
    readFileSync(join(ROOT, 'package.json'), 'utf8'),
  ) as { name: string; files: string[]; optionalDependencies: Record<string, string> };
  const paths = [...PAGES].flatMap(([page, text]) => {
    const found = text.matchAll(/node_modules\/(?!\.)((?:@[\w-]+\/)?[\w-]+)\/([\w./-]*[\w-])/g);
    return [...found].flatMap(([, owner, path]) => {
      return owner! in optionalDependencies ? [] : { page, owner, path };
    });
  });
  expect(paths.length).toBeGreaterThan(0);
  for (const { page, owner, path } of paths) {
    const isPacked = files.some((packed) => path === packed || path.startsWith(`${packed}/`));
    expect([page, owner, path, isPacked]).toEqual([page, name, path, true]);
  }
});

test('every reference to a link has its definition', () => {
  const broken = [...PAGES].flatMap(([page, text]) => {
    return brokenReferencesOf(text).map((reference) => `${page}: ${reference}`);
  });
  expect(broken).toEqual([]);
});

test('every page of the documentation can be reached from README.md', () => {
  const reached = new Set(['README.md']);
  for (const page of reached) {
    for (const { target } of linksOf(PAGES.get(page) ?? '')) {
      if (/^[a-z]+:|^#/.test(target)) continue;
      const path = relative(ROOT, join(ROOT, dirname(page), target.split('#')[0]));
      if (PAGES.has(path)) reached.add(path);
    }
  }
  expect([...PAGES.keys()].filter((page) => !reached.has(page))).toEqual([]);
});
