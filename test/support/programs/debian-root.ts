/**
 * Root file systems of Debian as tar files, made by mmdebstrap in node_modules/.cache. Later runs
 * use them again; to get newer packages, remove the file. If mmdebstrap or the mirror is not
 * available, tests are skipped; in CI that is an error instead.
 */

import { execFile } from 'node:child_process';
import { createHash } from 'node:crypto';
import { existsSync, mkdirSync, renameSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { promisify } from 'node:util';

const run = promisify(execFile);
const CACHE = new URL('../../../node_modules/.cache/weir-roots/', import.meta.url).pathname;
/** Packages of another architecture are configured by an emulator, which takes minutes. */
const MAKE_MS = 1_200_000;

/**
 * Returns the path of a tar file with a minimal Debian and these packages. It is a tar file and not
 * a directory, because programs that run in a root change it: each test unpacks a copy, or imports
 * it as an image.
 *
 * @param architecture another one than that of this machine; it requires an emulator
 * @returns undefined if it cannot be made; the tests that need it are then skipped
 * @throws in CI, if it cannot be made
 */
export async function debianRoot(
  suite: 'bookworm' | 'trixie',
  packages: readonly string[],
  architecture?: 'arm64',
): Promise<string | undefined> {
  const names = [...packages].sort().join();
  const digest = createHash('sha256').update(names).digest('hex').slice(0, 12);
  const path = join(CACHE, `${[suite, architecture, digest].filter(Boolean).join('-')}.tar`);
  if (existsSync(path)) return path;
  mkdirSync(CACHE, { recursive: true });
  // Renamed when it is complete: another test file may make the same root at the same time.
  const incomplete = `${path}.${process.pid}`;
  const include = names === '' ? [] : [`--include=${names}`];
  const emulated = architecture === undefined ? [] : [`--architectures=${architecture}`];
  const options = ['--quiet', '--variant=minbase', '--format=tar', ...emulated, ...include];
  try {
    await run('mmdebstrap', [...options, suite, incomplete], { timeout: MAKE_MS });
    renameSync(incomplete, path);
    return path;
  } catch (error) {
    rmSync(incomplete, { force: true });
    if (process.env.CI !== undefined) throw error;
    return undefined;
  }
}
