/** NOTICE names the third-party code of the package, with its licences. */

import { execFileSync } from 'node:child_process';
import { readdirSync, readFileSync } from 'node:fs';
import { expect, test } from 'vitest';
import { BUNDLED_PACKAGES } from '../../../tools/release/sbom.ts';
import { removeDirectory, temporaryDirectory } from '../../support/server.ts';

const ROOT = new URL('../../..', import.meta.url).pathname;
const read = (path: string): string => readFileSync(`${ROOT}/${path}`, 'utf8');
const notice = read('NOTICE');
const manifest = JSON.parse(read('package.json'));
const { packages } = JSON.parse(read('package-lock.json'));

/** The packages whose code the build copies into dist: the sources of its source maps. */
function bundledPackages(): string[] {
  const directory = temporaryDirectory();
  try {
    const steps: string[] = manifest.scripts.build.split(' && ');
    const threads = steps[0].replace('-d dist', `-d ${directory} -s`);
    const dashboard = steps.at(-1)!.replace('dist/dashboard', `${directory}/dashboard --sourcemap`);
    for (const step of [threads, dashboard]) {
      execFileSync('npx', ['--no-install', 'sh', '-c', step], { cwd: ROOT });
    }
    const find = ['-c', `cat ${directory}/*.map ${directory}/dashboard/*.map`];
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
    const file = readdirSync(`${ROOT}/${path}`).find((name) => /^license$/i.test(name));
    expect(notice).toContain(read(`${path}/${file}`).trim());
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
