/** Installs the production dependencies into a temporary directory, to see what npm installs. */

import { execFileSync } from 'node:child_process';
import { copyFileSync, mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { Lock } from './sbom.ts';

/**
 * @param root of the repository
 * @returns npm's own list of the installed packages, in the format of a lock file
 * @throws if npm fails; its output is in the message
 */
export function installForProduction(root: string): Lock {
  const directory = mkdtempSync(join(tmpdir(), 'weir-release-'));
  try {
    for (const file of ['package.json', 'package-lock.json']) {
      copyFileSync(join(root, file), join(directory, file));
    }
    const args = ['ci', '--omit=dev', '--ignore-scripts', '--no-audit', '--no-fund', '--silent'];
    execFileSync('npm', args, { cwd: directory, stdio: ['ignore', 'pipe', 'pipe'] });
    return JSON.parse(readFileSync(join(directory, 'node_modules/.package-lock.json'), 'utf8'));
  } finally {
    rmSync(directory, { recursive: true });
  }
}
