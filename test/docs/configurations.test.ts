/** The configuration files that pages show. */

import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { findPages } from '../../src/docs/generator.ts';
import { readPolicies } from '../../src/policies/policy.ts';

const ROOT = new URL('../..', import.meta.url).pathname;
const FENCED_BLOCK = /^```(\w+)\n(.*?)^```$/gms;

/** All blocks of a language, with their page. */
function blocksOf(language: string): [page: string, text: string][] {
  return findPages(ROOT).flatMap((page) => {
    const blocks = readFileSync(join(ROOT, page), 'utf8').matchAll(FENCED_BLOCK);
    return [...blocks].flatMap(([, found, text]): [string, string][] => {
      return found === language ? [[page, text]] : [];
    });
  });
}

test('the policies of every configuration file on a page are valid', () => {
  const files = blocksOf('json').filter(([, text]) => /^\{.*"policies": \{/s.test(text));
  for (const [page, text] of files) {
    const faults: string[] = [];
    readPolicies(JSON.parse(text).policies, (_path, message) => faults.push(message));
    expect([page, faults]).toEqual([page, []]);
  }
  expect(files.map(([page]) => page)).toContain('docs/policies.md');
});
