/** For `node --import`: adds a switch to the code of weir when it is loaded. */

import { readdirSync, readFileSync } from 'node:fs';
import { register } from 'node:module';
import { INSERTIONS } from './switch-hooks.mjs';

const dist = new URL('../../dist/', import.meta.url);
const sources = readdirSync(dist)
  .filter((name) => name.endsWith('.js'))
  .map((name) => readFileSync(new URL(name, dist), 'utf8'));
for (const [name, { text }] of Object.entries(INSERTIONS)) {
  const found = sources.reduce((sum, source) => sum + source.split(text).length - 1, 0);
  // Without its switch a part would seem to cost nothing.
  if (found !== 1) throw new Error(`the place of ${name} is ${found} times in dist, not once`);
}
register('./switch-hooks.mjs', import.meta.url);
