/** What tests fetch by npm: other versions of Node; and clones in which they run it. */

import { execFileSync, spawnSync } from 'node:child_process';
import { copyFileSync, mkdirSync } from 'node:fs';
import { dirname, join } from 'node:path';

const ROOT = new URL('../../', import.meta.url).pathname;
const REGISTRY_MS = 20_000;

/**
 * Whether packages can be fetched; where not, tests are skipped for it.
 * @throws where they cannot in CI
 */
export function isRegistryReachable(): boolean {
  const args = ['view', 'uws-pack@20.0.8', 'version', '--fetch-retries=0'];
  const { status, stderr } = spawnSync('npm', args, { timeout: REGISTRY_MS, encoding: 'utf8' });
  if (status !== 0 && process.env.CI !== undefined) {
    throw new Error(`the npm registry cannot be reached: ${stderr}`);
  }
  return status === 0;
}

/** The path of the executable of a version of Node, fetched where it is not there. */
export function fetchNode(version: string): string {
  const args = ['-y', '-p', `node@${version}`, '--', 'node', '-p', 'process.execPath'];
  return execFileSync('npx', args, { encoding: 'utf8' }).trim();
}

/** Copies what a clone of the repository has, as it is at hand. */
export function copyWorkingTree(directory: string): void {
  const tracked = ['ls-files', '--cached', '--others', '--exclude-standard'];
  const files = execFileSync('git', tracked, { cwd: ROOT, encoding: 'utf8' });
  for (const file of files.trim().split('\n')) {
    mkdirSync(dirname(join(directory, file)), { recursive: true });
    copyFileSync(join(ROOT, file), join(directory, file));
  }
}
