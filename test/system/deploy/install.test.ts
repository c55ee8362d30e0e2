/** The packages of uWebSockets.js that npm installs, by Node, npm and platform. */

import { execFileSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import { copyFileSync, existsSync, readdirSync, readFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { describe, expect, test } from 'vitest';
import { PLATFORM_PACKAGES, platformPackage } from '../../../src/server/binary.ts';
import { IS_LONG } from '../../support/guarantees.ts';
import { fetchNode, isRegistryReachable } from '../../support/programs/npm.ts';
import { removeDirectory, temporaryDirectory } from '../../support/server.ts';
import { BINARY_SHA256 } from '../../support/uws-binaries.ts';

const ROOT = new URL('../../../', import.meta.url).pathname;
const INSTALL_MS = 300_000;
const isLinux = process.platform === 'linux' && process.arch === 'x64';

/**
 * Runs an npm command in a directory, with a given Node. The environment of `npm run` names the
 * prefix of the installed npm. With it, npx would run that npm, on the Node beside it, where its
 * version is the wanted one.
 */
function npm(directory: string, node: string, version: string | undefined, args: string[]): void {
  const command = version === undefined ? ['npm'] : ['npx', '-y', `npm@${version}`];
  const path = `${dirname(node)}:${process.env.PATH}`;
  const env = { ...process.env, PATH: path, npm_config_prefix: undefined };
  const [file, ...before] = command;
  execFileSync(file, [...before, ...args], { cwd: directory, env, stdio: 'pipe' });
}

/** Installs the server's dependencies. @returns the installed packages of uWebSockets.js */
function install(node: string, version: string | undefined, args: string[]): string[] {
  const directory = temporaryDirectory();
  try {
    for (const file of ['package.json', 'package-lock.json']) {
      copyFileSync(join(ROOT, file), join(directory, file));
    }
    npm(directory, node, version, ['ci', '--omit=dev', '--no-audit', '--no-fund', ...args]);
    const modules = join(directory, 'node_modules');
    const scoped = join(modules, '@uwsjs');
    const platform = existsSync(scoped) ? readdirSync(scoped) : [];
    for (const name of args.length === 0 ? platform : []) {
      execFileSync(node, ['-e', `require('@uwsjs/${name}').App()`], { cwd: directory });
    }
    const general = existsSync(join(modules, 'uWebSockets.js')) ? ['uWebSockets.js'] : [];
    return [...platform.map((name) => `@uwsjs/${name}`), ...general];
  } finally {
    removeDirectory(directory);
  }
}

describe.skipIf(!isRegistryReachable())('npm ci', () => {
  const versions = ['20.20.2', '22.22.2'].flatMap((node) => {
    return ['10', '11'].map((npm) => ({ node, npm }));
  });
  const all = [{ node: undefined, npm: undefined }, ...(IS_LONG && isLinux ? versions : [])];
  const nodeOf = (version?: string) => {
    return version === undefined ? process.execPath : fetchNode(version);
  };

  test.each(all)(
    'installs the package of the platform, if there is one, and uws-pack: Node $node, npm $npm',
    { timeout: INSTALL_MS },
    ({ node: version, npm }) => {
      const platform =
        version === undefined ? platformPackage() : `@uwsjs/linux-x64-${version.split('.')[0]}`;
      const expected = [...(platform ? [platform] : []), 'uWebSockets.js'];
      expect(install(nodeOf(version), npm, [])).toEqual(expected);
    },
  );

  test.runIf(IS_LONG).each(all)(
    'installs only uws-pack on another platform: Node $node, npm $npm',
    { timeout: INSTALL_MS },
    ({ node: version, npm }) => {
      const other = ['--os=darwin', '--cpu=arm64'];
      expect(install(nodeOf(version), npm, other)).toEqual(['uWebSockets.js']);
    },
  );

  test('downloads the reviewed binaries of the platform packages', {
    timeout: INSTALL_MS,
  }, () => {
    const directory = temporaryDirectory();
    for (const [major, version] of Object.entries(PLATFORM_PACKAGES)) {
      const name = `linux-x64-${major}`;
      npm(directory, process.execPath, undefined, [
        'pack',
        '--silent',
        `@uwsjs/${name}@${version}`,
      ]);
      execFileSync('tar', ['xzf', `uwsjs-${name}-${version}.tgz`], { cwd: directory });
      const binary = readFileSync(join(directory, 'package', 'uws.node'));
      const found = createHash('sha256').update(binary).digest('hex');
      expect([name, found]).toEqual([name, BINARY_SHA256[`@uwsjs/${name}/uws.node`]]);
    }
    removeDirectory(directory);
  });
});
