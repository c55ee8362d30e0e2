/** Reads the audit log of a running server. */

import { done, type Fields } from './api.ts';
import type { Running } from './server.ts';

export interface Entry extends Fields {
  id: number;
  at: number;
  action: string;
  keyId: string | null;
}

/** All entries, the newest first. */
export async function allEntries({ port }: Running): Promise<Entry[]> {
  const entries: Entry[] = [];
  let cursor: unknown;
  do {
    const page = await done(port, 'audit.list', cursor === undefined ? {} : { cursor });
    entries.push(...(page.entries as Entry[]));
    cursor = page.cursor;
  } while (cursor !== undefined);
  return entries;
}
