/**
 * Switches the mutants of a work copy. `MUTATION_ACTIVE` names the active mutant. The first use of
 * each mutant is appended to the file `MUTATION_HITS`, if it is set. If this fails, the next use
 * tries again.
 */

import { appendFileSync } from 'node:fs';

const ACTIVE = Number(process.env.MUTATION_ACTIVE ?? -1);
let hitsFile = process.env.MUTATION_HITS;
let seen = new Set<number>();

/** Records from now on in this file. Processes and threads started later record there too. */
export function recordHitsIn(path: string): void {
  process.env.MUTATION_HITS = path;
  hitsFile = path;
  seen = new Set();
}

export function isMutantActive(id: number): boolean {
  if (hitsFile !== undefined && !seen.has(id)) recordHit(hitsFile, id);
  return id === ACTIVE;
}

function recordHit(path: string, id: number): void {
  try {
    appendFileSync(path, `${id}\n`);
    seen.add(id);
  } catch {
    // A test of a full disk, or of too many open files, must see its own faults only.
  }
}
