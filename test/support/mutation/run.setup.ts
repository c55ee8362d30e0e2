/** In a work copy, before each test file: gives the test file a file of its own for its hits. */

import { relative } from 'node:path';
import { expect } from 'vitest';
import { recordHitsIn } from './switch.ts';

const { MUTATION_HITS_DIR, MUTATION_PROJECT = '' } = process.env;
if (MUTATION_HITS_DIR !== undefined) {
  const path = relative(process.cwd(), expect.getState().testPath ?? '');
  recordHitsIn(`${MUTATION_HITS_DIR}/${encodeURIComponent(`${MUTATION_PROJECT}:${path}`)}`);
}
