/** Follows the README of an example in a copy of the repository. */

import { mkdirSync, readFileSync, symlinkSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { followPage } from './page-follower.ts';

const ROOT = new URL('../../../', import.meta.url).pathname;

/** Makes a version of a package, which the repository has by another name, that of a folder. */
export function linkPackage(folder: string, name: string, installedAs: string): void {
  const path = join(folder, 'node_modules', name);
  mkdirSync(dirname(path), { recursive: true });
  symlinkSync(join(ROOT, 'node_modules', installedAs), path);
}

interface ExampleOptions {
  /** Files of the example that the README prints again. */
  printed?: readonly string[];
  /** Prepares the folder of the example, as steps do that are not run. */
  prepare?: (folder: string) => void;
}

/**
 * Runs every step of the README from the directory of the repository, after `npm ci`.
 * @param name the folder of the example
 * @throws if a step fails, prints something else than the README shows, or changes a printed file
 */
export function followExample(
  name: string,
  { printed = [], prepare }: ExampleOptions = {},
): Promise<void> {
  const folder = join('examples', name);
  const read = (root: string, file: string) => readFileSync(join(root, folder, file), 'utf8');
  return followPage(join(folder, 'README.md'), {
    isInstalled: true,
    prepare: (copy) => prepare?.(join(copy, folder)),
    inspect: (copy) => {
      for (const file of printed) {
        if (read(copy, file) === read(ROOT, file)) continue;
        throw new Error(`${file} of the example is not what its README prints: run npm run docs`);
      }
    },
  });
}
