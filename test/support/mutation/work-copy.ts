/**
 * A copy of a checkout, with its uncommitted changes, in which mutants are instrumented. It shares
 * `node_modules` with the checkout. A failed build ends the tool with the output of the build.
 */

import { execFileSync } from 'node:child_process';
import * as fs from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join, relative } from 'node:path';
import { instrument, type Mutant } from './mutants.ts';

/** Where the files that run inside a work copy are, in this repository and in the copy. */
const FOLDER = 'test/support/mutation';
const FILES = ['switch.ts', 'run.setup.ts', 'run.config.ts'];
const OWN_ROOT = join(import.meta.dirname, '../..');
const BASE_CONFIG = "'../../vitest.config.ts'";

/** Copies the checkout, instruments the mutants, and builds. The copy lasts as long as the tool. */
export function createWorkCopy(
  checkout: string,
  mutants: readonly Mutant[],
  config: string,
): string {
  const copy = fs.mkdtempSync(join(tmpdir(), 'weir-mutation-'));
  process.once('exit', () => fs.rmSync(copy, { recursive: true, force: true }));
  for (const path of listFiles(checkout)) {
    const options = { verbatimSymlinks: true };
    if (fs.existsSync(join(checkout, path))) {
      fs.cpSync(join(checkout, path), join(copy, path), options);
    }
  }
  fs.symlinkSync(join(checkout, 'node_modules'), join(copy, 'node_modules'));

  fs.mkdirSync(join(copy, FOLDER), { recursive: true });
  for (const name of FILES) {
    const text = fs.readFileSync(join(OWN_ROOT, FOLDER, name), 'utf8');
    const base = `'${relative(FOLDER, config)}'`;
    fs.writeFileSync(join(copy, FOLDER, name), text.replace(BASE_CONFIG, base));
  }
  for (const path of new Set(mutants.map((mutant) => mutant.path))) {
    const own = [...mutants.entries()].filter(([, mutant]) => mutant.path === path);
    const switchPath = relative(dirname(path), join(FOLDER, 'switch.ts'));
    const text = fs.readFileSync(join(copy, path), 'utf8');
    fs.writeFileSync(join(copy, path), instrument(text, new Map(own), switchPath));
  }
  const { scripts } = JSON.parse(fs.readFileSync(join(copy, 'package.json'), 'utf8'));
  for (const name of ['build', 'build:threads']) {
    if (name in scripts) execFileSync('npm', ['run', '-s', name], { cwd: copy, stdio: 'inherit' });
  }
  return copy;
}

/** The files that git tracks, or would track. */
export function listFiles(checkout: string): string[] {
  const args = ['ls-files', '-z', '--cached', '--others', '--exclude-standard'];
  const list = execFileSync('git', args, { cwd: checkout, encoding: 'utf8', maxBuffer: 2 ** 26 });
  return [...new Set(list.split('\0'))].filter((path) => path !== '').sort();
}
