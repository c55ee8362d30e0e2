/**
 * Virtual environments with Python packages, in node_modules/.cache. The first test that needs one
 * creates it, and later runs use it again. If Python or its package index is not available, tests
 * are skipped; in CI that is an error instead.
 */

import { execFile } from 'node:child_process';
import { createHash } from 'node:crypto';
import {
  closeSync,
  existsSync,
  mkdirSync,
  openSync,
  readFileSync,
  rmSync,
  writeFileSync,
} from 'node:fs';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { promisify } from 'node:util';
import { removeDirectory } from '../server.ts';

const run = promisify(execFile);
const CACHE = new URL('../../../node_modules/.cache/weir-python/', import.meta.url).pathname;
/** Written last: an environment without this file is incomplete. */
const COMPLETE = 'complete';
/** In CI a failed installation fails the run, so it gets more time and attempts there. */
const IS_CI = process.env.CI !== undefined;
const COMMAND_MS = IS_CI ? 600_000 : 180_000;
const RETRIES = IS_CI ? '5' : '1';
const LOCK_POLL_MS = 200;

export interface PythonEnvironment {
  /** The folder with `python3` and the commands of the packages. */
  bin: string;
}

/**
 * Returns an environment with exactly these packages and their dependencies.
 *
 * @param name part of its folder name: letters, digits and `-`
 * @param requirements in pip's format: `['unkey.py==3.2.2']`
 * @returns undefined if it cannot be created; the tests that need it are then skipped
 * @throws in CI, if it cannot be created
 */
export async function pythonEnvironment(
  name: string,
  requirements: readonly string[],
): Promise<PythonEnvironment | undefined> {
  const digest = createHash('sha256').update(requirements.join('\n')).digest('hex').slice(0, 12);
  const directory = join(CACHE, `${name}-${digest}`);
  try {
    if (!existsSync(join(directory, COMPLETE))) await make(directory, requirements);
    return { bin: join(directory, 'bin') };
  } catch (error) {
    if (IS_CI) throw error;
    return undefined;
  }
}

async function make(directory: string, requirements: readonly string[]): Promise<void> {
  mkdirSync(CACHE, { recursive: true });
  const unlock = await lock(`${directory}.lock`);
  try {
    // Another test file may have created it while this one waited for the lock.
    if (existsSync(join(directory, COMPLETE))) return;
    removeDirectory(directory);
    await run('python3', ['-m', 'venv', directory], { timeout: COMMAND_MS });
    const options = ['--quiet', '--disable-pip-version-check', '--no-input', '--retries', RETRIES];
    const pip = ['-m', 'pip', 'install', ...options, ...requirements];
    await run(join(directory, 'bin', 'python3'), pip, { timeout: COMMAND_MS });
    writeFileSync(join(directory, COMPLETE), '');
  } finally {
    unlock();
  }
}

/** Waits until no live process holds the lock. Removes a lock whose process has ended. */
async function lock(path: string): Promise<() => void> {
  for (;;) {
    try {
      const file = openSync(path, 'wx');
      writeFileSync(file, String(process.pid));
      closeSync(file);
      return () => rmSync(path, { force: true });
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code !== 'EEXIST') throw error;
    }
    if (hasDeadOwner(path)) rmSync(path, { force: true });
    await sleep(LOCK_POLL_MS);
  }
}

function hasDeadOwner(path: string): boolean {
  try {
    const owner = Number(readFileSync(path, 'utf8'));
    // The file is empty until its owner has written it.
    if (owner > 0) process.kill(owner, 0);
    return false;
  } catch (error) {
    return (error as NodeJS.ErrnoException).code === 'ESRCH';
  }
}
