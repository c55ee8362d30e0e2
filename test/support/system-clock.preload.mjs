/**
 * Preloaded into every thread of a server under test by `node --import`. Replaces the system clock
 * by the one that the JSON file CLOCK_FILE describes: at the true time `atMs` it shows `wallMs`,
 * and it runs at `rate` times the true rate (0 stops it). Every read of the clock reads the file.
 */

import { readFileSync } from 'node:fs';

const trueNow = Date.now;
const file = process.env.CLOCK_FILE;

Date.now = () => {
  const { atMs, wallMs, rate } = JSON.parse(readFileSync(file, 'utf8'));
  return Math.floor(wallMs + (trueNow() - atMs) * rate);
};
