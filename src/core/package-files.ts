/** Files of the package at run time. The build is one folder below its directory or deeper. */

import { existsSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';

/**
 * @param path of the file in the package
 * @returns its absolute path
 * @throws if there is no package.json
 */
export function packageFile(path: string): string {
  const start = dirname(fileURLToPath(import.meta.url));
  for (let folder = start; ; folder = dirname(folder)) {
    if (existsSync(join(folder, 'package.json'))) return join(folder, path);
    if (folder === dirname(folder)) throw new Error(`there is no package.json above ${start}`);
  }
}
