/** Writes the pages at `/docs` into a directory, which is its argument. `npm run build` runs it. */

import { mkdirSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { pageFiles } from './pages.ts';

const [directory] = process.argv.slice(2);
for (const [name, text] of pageFiles(process.cwd())) {
  const file = join(directory, name);
  mkdirSync(dirname(file), { recursive: true });
  writeFileSync(file, text);
}
