/** The version of weir. `package.json` is the one place that says it; every installation has it. */

import { readFileSync } from 'node:fs';

/** One directory above this file, and above the bundles in `dist`. */
const MANIFEST = new URL('../../package.json', import.meta.url);

export const VERSION: string = JSON.parse(readFileSync(MANIFEST, 'utf8')).version;
