/** What control groups of both kinds have in common: their processes, and their removal. */

import { rmdirSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';

/** Words before a command that make it run in a group. */
export function commandPrefixFor(path: string): string[] {
  return ['sh', '-c', `echo $$ > ${join(path, 'cgroup.procs')} && exec "$@"`, 'sh'];
}

/** Removes a group whose processes have ended: they stay in it for a moment. */
export async function removeGroup(path: string): Promise<void> {
  for (let i = 0; i < 100; i++) {
    try {
      rmdirSync(path);
      return;
    } catch {
      await sleep(50);
    }
  }
  throw new Error(`${path} cannot be removed`);
}
