/** Other versions of Node, fetched by npm, and copies of the repository to run npm in. */

import { execFileSync, spawnSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import {
  copyFileSync,
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  symlinkSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { basename, dirname, join } from 'node:path';

const ROOT = new URL('../../../', import.meta.url).pathname;
const CACHE = join(ROOT, 'node_modules/.cache/weir-npm');
/** In CI an unreachable registry fails the run, so it gets more time and attempts there. */
const IS_CI = process.env.CI !== undefined;
const REGISTRY_MS = IS_CI ? 120_000 : 20_000;
const REGISTRY_RETRIES = IS_CI ? 3 : 0;
const INSTALL_MS = 180_000;

let isReachable: boolean | undefined;

/**
 * Whether packages can be fetched. Tests that need them are skipped otherwise.
 * @throws in CI, if packages cannot be fetched
 */
export function isRegistryReachable(): boolean {
  isReachable ??= canViewPackage();
  return isReachable;
}

function canViewPackage(): boolean {
  const args = ['view', 'uws-pack@20.0.8', 'version', `--fetch-retries=${REGISTRY_RETRIES}`];
  const { status, stderr } = spawnSync('npm', args, { timeout: REGISTRY_MS, encoding: 'utf8' });
  if (status !== 0 && IS_CI) {
    throw new Error(`the npm registry cannot be reached: ${stderr}`);
  }
  return status === 0;
}

/** npx must not install one package twice at the same time. */
const NPX =
  process.platform === 'linux' ? ['flock', join(tmpdir(), 'weir-npx.lock'), 'npx'] : ['npx'];

/** The path of the executable of a Node version, fetched if necessary. */
export function fetchNode(version: string): string {
  const [command, ...before] = NPX;
  const args = ['-y', '-p', `node@${version}`, '--', 'node', '-p', 'process.execPath'];
  return execFileSync(command, [...before, ...args], { encoding: 'utf8' }).trim();
}

/**
 * Installs the packages of a folder with `package.json` and `package-lock.json` in
 * node_modules/.cache, where later runs use them again.
 * @returns their `node_modules`
 */
export function installPackages(folder: string): string {
  const lock = readFileSync(join(folder, 'package-lock.json'));
  const digest = createHash('sha256').update(lock).digest('hex').slice(0, 12);
  const directory = join(CACHE, `${basename(folder)}-${digest}`);
  const modules = join(directory, 'node_modules');
  // npm writes this file last.
  if (existsSync(join(modules, '.package-lock.json'))) return modules;
  mkdirSync(directory, { recursive: true });
  for (const file of ['package.json', 'package-lock.json']) {
    copyFileSync(join(folder, file), join(directory, file));
  }
  const args = ['ci', '--no-audit', '--no-fund'];
  execFileSync('npm', args, { cwd: directory, stdio: 'pipe', timeout: INSTALL_MS });
  return modules;
}

/** Copies all files of the working tree that git does not ignore. */
export function copyWorkingTree(directory: string): void {
  const tracked = ['ls-files', '--cached', '--others', '--exclude-standard'];
  const files = execFileSync('git', tracked, { cwd: ROOT, encoding: 'utf8' });
  for (const file of files.trim().split('\n')) {
    mkdirSync(dirname(join(directory, file)), { recursive: true });
    copyFileSync(join(ROOT, file), join(directory, file));
  }
}

/**
 * Gives a copy of the repository its packages without the build tool, as `npm ci --omit=dev` does,
 * and its build, if `hasBuild`. `npm start` then runs that build.
 */
export function linkPackages(directory: string, hasBuild = true): void {
  const modules = join(directory, 'node_modules');
  mkdirSync(modules);
  for (const name of readdirSync(join(ROOT, 'node_modules'))) {
    if (name === 'rolldown' || name === '.cache') continue;
    symlinkSync(join(ROOT, 'node_modules', name), join(modules, name));
  }
  if (hasBuild) symlinkSync(join(ROOT, 'dist'), join(directory, 'dist'));
}
