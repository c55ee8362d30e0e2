/** Follows a page of the repository in a copy of it, as a reader does. */

import { mkdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
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
  isInstalled: boolean;
  /** Prepares the copy, as steps do that are not run. */
  prepare?: (copy: string) => void;
  /** Looks at the copy after the last step. */
  inspect?: (copy: string) => void;
}

/**
 * @param path of the page in the repository
 * @throws if a step fails, prints something else than the page shows, or is not stopped
 */
export async function followPage(
  path: string,
  { isInstalled, prepare, inspect }: FollowOptions,
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
    prepare?.(copy);
    runner = await PageRunner.open(copy);
    for (const step of steps) {
      try {
        await runner.follow(isInstalled ? withoutInstallation(step) : step);
      } catch (error) {
        throw new Error(`${path}, line ${step.line}`, { cause: error });
      }
    }
    runner.finish();
    inspect?.(copy);
  } finally {
    runner?.close();
    removeDirectory(directory);
  }
}

function withoutInstallation(step: PageStep): PageStep {
  if (step.kind !== 'run') return step;
  return { ...step, script: step.script.replace(/^npm ci && |^npm run build$/gm, '') };
}
