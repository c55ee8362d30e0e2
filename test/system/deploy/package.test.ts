/** npm installs the package that `npm pack` makes, with its dependencies and its command. */

import { execFileSync } from 'node:child_process';
import { readdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, expect, test } from 'vitest';
import { removeDirectory, temporaryDirectory } from '../../support/server.ts';

const ROOT = new URL('../../..', import.meta.url).pathname;
const directory = temporaryDirectory();
afterAll(() => removeDirectory(directory));

test('the command of the installed package runs', { timeout: 120_000 }, () => {
  const pack = ['pack', '--ignore-scripts', '--pack-destination', directory];
  execFileSync('npm', pack, { cwd: ROOT, stdio: 'pipe' });
  writeFileSync(join(directory, 'package.json'), '{"name":"elsewhere","private":true}');
  const [tarball] = readdirSync(directory).filter((name) => name.endsWith('.tgz'));
  const install = ['install', '--prefer-offline', '--no-audit', '--no-fund', `./${tarball}`];
  execFileSync('npm', install, { cwd: directory, stdio: 'pipe' });
  const weir = join(directory, 'node_modules/.bin/weir');
  const version = execFileSync(weir, ['--version'], { encoding: 'utf8' });
  expect(version).toMatch(/^weir \d+\.\d+\.\d+ \(node v/);
});
