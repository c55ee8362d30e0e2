/** The configuration files and the unit of systemd that pages show. */

import { spawnSync } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
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

const hasSystemd = spawnSync('systemd-analyze', ['--version']).status === 0;
test.skipIf(!hasSystemd)('systemd accepts the unit of docs/deployment.md', () => {
  const units = blocksOf('ini').filter(([, text]) => text.startsWith('[Unit]'));
  expect(units.map(([page]) => page)).toEqual(['docs/deployment.md']);
  const directory = mkdtempSync(join(tmpdir(), 'weir-unit-'));
  try {
    const path = join(directory, 'weir.service');
    writeFileSync(path, units[0][1].replace('/usr/bin/node', process.execPath));
    const verify = ['verify', '--man=no', path];
    const { status, stderr } = spawnSync('systemd-analyze', verify, { encoding: 'utf8' });
    expect([status, stderr]).toEqual([0, '']);
  } finally {
    rmSync(directory, { recursive: true });
  }
});
