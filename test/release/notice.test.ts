/** NOTICE names the third-party code of the package, with its licences. */

import { execFileSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { expect, test } from 'vitest';
import { BUNDLED_PACKAGES } from '../../src/release/sbom.ts';
import { removeDirectory, temporaryDirectory } from '../support/server.ts';

const ROOT = new URL('../..', import.meta.url).pathname;
const read = (path: string): string => readFileSync(`${ROOT}/${path}`, 'utf8');
const notice = read('NOTICE');
const manifest = JSON.parse(read('package.json'));
const { packages } = JSON.parse(read('package-lock.json'));

/** The packages whose code the build copies into dist: the sources of its source maps. */
function bundledPackages(): string[] {
  const directory = temporaryDirectory();
  try {
    const build = manifest.scripts.build.split(' && ')[0].replace('-d dist', `-d ${directory} -s`);
    execFileSync('npx', ['--no-install', 'sh', '-c', build], { cwd: ROOT });
    const find = ['-c', `cat ${directory}/*.map`];
    const maps = execFileSync('sh', find, { encoding: 'utf8', maxBuffer: 2 ** 28 });
    const names = maps.matchAll(/node_modules\/((?:@[^/"]+\/)?[^/"]+)\//g);
    return [...new Set([...names].map(([, name]) => name))].sort();
  } finally {
    removeDirectory(directory);
  }
}

test('the build copies code of no package but those that NOTICE and the bill of materials name', () => {
  expect(bundledPackages()).toEqual([...BUNDLED_PACKAGES].sort());
});

test('NOTICE has the licence of each package in dist, and its version', () => {
  for (const name of BUNDLED_PACKAGES) {
    const path = `node_modules/${name}`;
    expect(notice.toLowerCase()).toContain(`${name} ${packages[path].version}`);
    expect(notice).toContain(read(`${path}/license`).trim());
  }
});

test('NOTICE names the versions of the packages with binaries of uWebSockets.js', () => {
  const alias = packages['node_modules/uWebSockets.js'];
  const binaries = Object.keys(manifest.optionalDependencies);
  const named = [
    `${alias.name} ${alias.version}`,
    ...binaries.map((name) => `${name} ${packages[`node_modules/${name}`].version}`),
  ];
  const words = notice.replaceAll(/\s+/g, ' ');
  expect(named.filter((text) => !words.includes(text))).toEqual([]);
});

test('the package contains NOTICE', () => {
  expect(manifest.files).toContain('NOTICE');
});
