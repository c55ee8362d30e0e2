/** The page of the API has every operation, with anchors that do not change and whole examples. */

import { readFileSync } from 'node:fs';
import GithubSlugger from 'github-slugger';
import { describe, expect, test } from 'vitest';
import { DOCUMENTED_OPERATIONS } from '../../support/openapi.ts';

const PAGE = readFileSync(new URL('../../../docs/api.md', import.meta.url), 'utf8');
const SECTIONS = new Map(
  PAGE.split(/^### /m)
    .slice(1)
    .map((section) => [section.slice(0, section.indexOf('\n')), section.split(/^## /m)[0]]),
);

test('the sections of the page are the operations of the document, and the bodies of errors', () => {
  const names = DOCUMENTED_OPERATIONS.map(({ operationId }) => operationId);
  const bodies = ['Errors of v1 and of gateway checks', 'Errors of v2'];
  expect([...SECTIONS.keys()].toSorted()).toEqual([...bodies, ...names.toSorted()]);
  const slugger = new GithubSlugger();
  for (const name of names) expect(PAGE).toContain(`](#${slugger.slug(name)}) |`);
});

describe.each(DOCUMENTED_OPERATIONS)('$operationId', (operation) => {
  const section = SECTIONS.get(operation.operationId) ?? '';

  test('has its permissions, its fields and its status codes', () => {
    const also = operation['x-also-permissions'] ?? [];
    for (const permission of [...(operation['x-permissions'] ?? []), ...also]) {
      expect(section).toContain(`\`${permission}\``);
    }
    for (const { name } of operation.parameters ?? []) expect(section).toContain(`| \`${name}\` |`);
    for (const status of Object.keys(operation.responses)) {
      if (status !== '200')
        expect(section).toMatch(new RegExp(`\\[${status}\\]|Response ${status}`));
    }
    expect(section).not.toMatch(/undefined|\[object|NaN/);
  });

  test('has an example with a command', () => {
    expect(section).toContain('```sh\ncurl ');
    const bodies = section.matchAll(/```json\n(.*?)\n```/gs);
    for (const [, body] of bodies) expect(() => JSON.parse(body)).not.toThrow();
  });
});
