/**
 * What `npm start` runs: builds where the build tool is installed, and then runs the build in this
 * process. It is plain JavaScript, because it runs before a build, and on every Node from 16 on.
 */

import { spawnSync } from 'node:child_process';
import { existsSync, readFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { cannotStart, checkNode } from './node.mjs';

const ROOT = new URL('../../', import.meta.url);
const BUILD_TOOL = new URL('node_modules/rolldown/package.json', ROOT);
const ENTRY = new URL('dist/cli.js', ROOT);

function isBuilt() {
  if (!existsSync(BUILD_TOOL)) {
    if (existsSync(ENTRY)) return true;
    cannotStart('there is no build in dist; run "npm ci && npm run build" first');
    return false;
  }
  const options = { cwd: fileURLToPath(ROOT), shell: true, stdio: 'inherit' };
  const { status } = spawnSync('npm run --silent build', options);
  if (status === 0) return true;
  cannotStart('the build failed; its messages are above');
  return false;
}

const { engines } = JSON.parse(readFileSync(new URL('package.json', ROOT), 'utf8'));
if (checkNode(engines.node) && isBuilt()) await import(ENTRY.href);
