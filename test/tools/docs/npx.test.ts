/**
 * Where pages call the command `npx weir`: in a clone. Elsewhere npx runs another package of that
 * name. The package of this repository is not published, so no command gets it from a registry.
 * A server is not started by npx, which does not forward SIGTERM to it.
 */

import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { findPages } from '../../../tools/docs/generator.ts';
import { blocksOf } from '../../support/markdown.ts';

const ROOT = new URL('../../..', import.meta.url).pathname;
const NAMES_CLONE = /\bclone\b|directory of the\s+repository/;

const PAGES = findPages(ROOT).map((path) => {
  const text = readFileSync(join(ROOT, path), 'utf8');
  const scripts = blocksOf(text).flatMap((block) => {
    return block.kind === 'fence' && block.language === 'sh' ? [block.text] : [];
  });
  return { path, text, scripts };
});

test('a page with `npx weir` says before it that this is for a clone', () => {
  const using = PAGES.filter(({ scripts }) => scripts.some((script) => /npx weir\b/.test(script)));
  expect(using.length).toBeGreaterThan(10);
  const silent = using.filter(({ text, scripts }) => {
    const [first] = scripts.filter((script) => /npx weir\b/.test(script));
    return !NAMES_CLONE.test(text.slice(0, text.indexOf(first)));
  });
  expect(silent.map(({ path }) => path)).toEqual([]);
});

test('no command gets the package from a registry before it is published', () => {
  const contributing = PAGES.find(({ path }) => path === 'CONTRIBUTING.md');
  expect(contributing?.text).toContain('nothing has been published yet');
  const fetching = /(?:npx|npm (?:i|install|exec)|yarn add|pnpm add) .*@weir-ratelimit\/weir/;
  const wrong = PAGES.filter(({ scripts }) => scripts.some((script) => fetching.test(script)));
  expect(wrong.map(({ path }) => path)).toEqual([]);
});

test('no page, unit or image starts the server with npx', () => {
  const files = readdirSync(join(ROOT, 'deploy'), { recursive: true, withFileTypes: true })
    .filter((entry) => entry.isFile())
    .map((entry) => readFileSync(join(entry.parentPath, entry.name), 'utf8'));
  const commands = [...PAGES.flatMap(({ scripts }) => scripts), ...files];
  commands.push(readFileSync(join(ROOT, 'Dockerfile'), 'utf8'));
  const starting = /npx weir(?: serve\b| --|\s*$)|npx", "weir/m;
  expect(commands.filter((text) => starting.test(text))).toEqual([]);
  const operations = PAGES.find(({ path }) => path === 'docs/operations.md');
  expect(operations?.text).toContain('SIGTERM to `npx weir serve` ends npx');
});
