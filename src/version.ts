/** The version of weir, from package.json, which is one directory above this file and the build. */

import { readFileSync } from 'node:fs';

const manifest: { version: string } = JSON.parse(
  readFileSync(new URL('../package.json', import.meta.url), 'utf8'),
);

export const VERSION: string = manifest.version;
