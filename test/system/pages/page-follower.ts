/** Follows a page of the repository in a copy of it, as a reader does. */

import { mkdirSync, readFileSync, symlinkSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { afterAll, vi } from 'vitest';
import { copyWorkingTree, linkPackages } from '../../support/programs/npm.ts';
import { removeDirectory, temporaryDirectory } from '../../support/server.ts';
import { PageRunner } from './page-runner.ts';
import { type PageStep, stepsOf } from './page-steps.ts';

const ROOT = new URL('../../../', import.meta.url).pathname;

/** For a test that follows a page. One that installs packages took 106 s on a busy machine. */
export const PAGE_TIMEOUT_MS = 480_000;

interface FollowOptions {
  /**
   * Whether the copy has the packages and the build of the repository: the commands of the page run
   * without `npm ci`, and `npm start` without a build.
   */
  isInstalled?: boolean;
  /** Files beside the page that its commands print again. */
  printed?: readonly string[];
  /** Prepares the folder of the page in the copy, as steps do that are not run. */
  prepare?: (folder: string) => void;
}

/**
 * Runs every step of the page from the directory of the copy.
 * @param path of the page in the repository
 * @throws if a step fails, prints something else than the page shows, changes a printed file, or is
 *   not stopped
 */
export async function followPage(
  path: string,
  { isInstalled = true, printed = [], prepare }: FollowOptions = {},
): Promise<void> {
  const steps = stepsOf(readFileSync(join(ROOT, path), 'utf8'));
  if (steps.every(({ kind }) => kind !== 'run')) throw new Error(`${path} has no commands`);
  const directory = temporaryDirectory();
  const copy = join(directory, 'weir');
  let runner: PageRunner | undefined;
  try {
    mkdirSync(copy);
    copyWorkingTree(copy);
    if (isInstalled) linkPackages(copy);
    prepare?.(join(copy, dirname(path)));
    runner = await PageRunner.open(copy);
    for (const step of steps) {
      try {
        await runner.follow(isInstalled ? withoutInstallation(step) : step);
      } catch (error) {
        throw new Error(`${path}, line ${step.line}`, { cause: error });
      }
    }
    runner.finish();
    for (const file of printed.map((name) => join(dirname(path), name))) {
      const [now, before] = [copy, ROOT].map((root) => readFileSync(join(root, file), 'utf8'));
      if (now !== before) throw new Error(`${path} prints another ${file}: run npm run docs`);
    }
  } finally {
    runner?.close();
    removeDirectory(directory);
  }
}

function withoutInstallation(step: PageStep): PageStep {
  if (step.kind !== 'run') return step;
  return { ...step, script: step.script.replace(/^npm ci && |^npm run build$/gm, '') };
}

/**
 * Gives readers programs that no distribution has, while the tests of the block run.
 * @param paths by the name of the program; undefined for one that is not installed
 */
export function usePrograms(paths: Record<string, string | undefined>): void {
  // The path of a page excludes node_modules, which contains them.
  const directory = temporaryDirectory();
  for (const [name, path] of Object.entries(paths)) {
    if (path !== undefined) symlinkSync(path, join(directory, name));
  }
  vi.stubEnv('PATH', `${directory}:${process.env.PATH}`);
  afterAll(() => {
    vi.unstubAllEnvs();
    removeDirectory(directory);
  });
}
