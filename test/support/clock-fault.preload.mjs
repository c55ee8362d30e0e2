/**
 * Preloaded into every thread of a server under test by `node --import`: the system's clock is what
 * the file CLOCK_FILE says, a JSON of `atMs` (of the true clock), `wallMs` (what it shows then) and
 * `rate` (of the true clock's; 0 is a clock that stands). It is read at every look at the clock.
 */

import { readFileSync } from 'node:fs';

const trueNow = Date.now;
const file = process.env.CLOCK_FILE;

Date.now = () => {
  const { atMs, wallMs, rate } = JSON.parse(readFileSync(file, 'utf8'));
  return Math.floor(wallMs + (trueNow() - atMs) * rate);
};
