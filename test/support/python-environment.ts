/**
 * Virtual environments with Python packages for tests, in node_modules/.cache: made by the first
 * test that needs one, and used again by later runs. Where Python or its package index cannot be
 * reached there is none, and tests are skipped for it; in CI that is an error instead.
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
import { promisify } from 'node:util';
import { removeDirectory } from './server.ts';

const run = promisify(execFile);
const CACHE = new URL('../../node_modules/.cache/weir-python/', import.meta.url).pathname;
/** Written last, so an environment without it is incomplete. */
const COMPLETE = 'complete';
const COMMAND_MS = 180_000;
const LOCK_POLL_MS = 200;

export interface PythonEnvironment {
  /** The folder with its `python3`, and with the commands of its packages. */
  bin: string;
}

/**
 * An environment with exactly these packages and what they depend on.
 *
 * @param name of the environment, for its folder: letters, digits and `-`
 * @param requirements as pip takes them: `['unkey.py==3.2.2']`
 * @returns undefined where it cannot be made and tests have to be skipped
 * @throws where it cannot be made in CI
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
    if (process.env.CI !== undefined) throw error;
    return undefined;
  }
}

async function make(directory: string, requirements: readonly string[]): Promise<void> {
  mkdirSync(CACHE, { recursive: true });
  const unlock = await lock(`${directory}.lock`);
  try {
    // Another test file may have made it in the meantime.
    if (existsSync(join(directory, COMPLETE))) return;
    removeDirectory(directory);
    await run('python3', ['-m', 'venv', directory], { timeout: COMMAND_MS });
    const options = ['--quiet', '--disable-pip-version-check', '--no-input', '--retries', '1'];
    const pip = ['-m', 'pip', 'install', ...options, ...requirements];
    await run(join(directory, 'bin', 'python3'), pip, { timeout: COMMAND_MS });
    writeFileSync(join(directory, COMPLETE), '');
  } finally {
    unlock();
  }
}

/** Waits until no other process holds the lock; one whose process has ended is taken over. */
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
    await new Promise((resolve) => setTimeout(resolve, LOCK_POLL_MS));
  }
}

function hasDeadOwner(path: string): boolean {
  try {
    const owner = Number(readFileSync(path, 'utf8'));
    // Empty for the moment in which its owner is writing it.
    if (owner > 0) process.kill(owner, 0);
    return false;
  } catch (error) {
    return (error as NodeJS.ErrnoException).code === 'ESRCH';
  }
}
