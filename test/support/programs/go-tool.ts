/**
 * Programs and files of Go modules, in node_modules/.cache. The first test that needs a program
 * builds it, which may take minutes, and later runs use it again. If Go or its module proxy is not
 * available, tests are skipped; in CI that is an error instead.
 */

import { execFile } from 'node:child_process';
import { existsSync, mkdirSync } from 'node:fs';
import { basename, join } from 'node:path';
import { promisify } from 'node:util';

const run = promisify(execFile);
const CACHE = new URL('../../../node_modules/.cache/weir-go/', import.meta.url).pathname;
const IS_CI = process.env.CI !== undefined;
/** Helm compiles for five minutes on two busy cores. */
const BUILD_MS = 1_200_000;
const DOWNLOAD_MS = 180_000;

/**
 * Builds a program of a Go module. `go install` renames the finished executable into its place, so
 * two test files may build it at the same time.
 *
 * @param packagePath of its main package: `helm.sh/helm/v3/cmd/helm`
 * @param version of its module: `v3.22.0`
 * @returns the path of the executable; undefined if it cannot be built, and tests are then skipped
 * @throws in CI, if it cannot be built
 */
export async function goTool(packagePath: string, version: string): Promise<string | undefined> {
  const directory = join(CACHE, `${basename(packagePath)}-${version}`);
  const executable = join(directory, basename(packagePath));
  if (existsSync(executable)) return executable;
  return await unlessMissing(async () => {
    mkdirSync(directory, { recursive: true });
    const env = { ...process.env, GOBIN: directory, CGO_ENABLED: '0' };
    await run('go', ['install', `${packagePath}@${version}`], { env, timeout: BUILD_MS });
    return executable;
  });
}

/**
 * Downloads the files of a Go module.
 *
 * @param modulePath `github.com/prometheus-operator/prometheus-operator`
 * @returns their directory; undefined if it is not available, and tests are then skipped
 * @throws in CI, if it is not available
 */
export async function goModule(modulePath: string, version: string): Promise<string | undefined> {
  return await unlessMissing(async () => {
    const args = ['mod', 'download', '-json', `${modulePath}@${version}`];
    const { stdout } = await run('go', args, { cwd: '/', timeout: DOWNLOAD_MS });
    return (JSON.parse(stdout) as { Dir: string }).Dir;
  });
}

async function unlessMissing(get: () => Promise<string>): Promise<string | undefined> {
  try {
    return await get();
  } catch (error) {
    if (IS_CI) throw error;
    return undefined;
  }
}
