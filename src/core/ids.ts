/** Random ids with a prefix that names the kind of object. */

import { randomBytes } from 'node:crypto';

export function makeId(prefix: string): string {
  return prefix + randomBytes(ID_BYTES).toString('hex');
}

export const ID_BYTES = 12;
