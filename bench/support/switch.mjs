/** For `node --import`: adds switches to the code of weir when it is loaded. */

import { readdirSync, readFileSync } from 'node:fs';
import { register } from 'node:module';
import { SWITCHES } from './switch-hooks.mjs';

const dist = new URL('../../dist/', import.meta.url);
const sources = readdirSync(dist)
  .filter((name) => name.endsWith('.js'))
  .map((name) => readFileSync(new URL(name, dist), 'utf8'));
for (const [part, { text }] of Object.entries(SWITCHES)) {
  const found = sources.reduce((sum, source) => sum + source.split(text).length - 1, 0);
  // A switch that is not there would show that the part costs nothing.
  if (found !== 1) throw new Error(`the switch of ${part} has ${found} places in dist, not 1`);
}
register('./switch-hooks.mjs', import.meta.url);
