/** Reads the audit log of a running server. */

import { callOperationOk, type Fields } from './operations.ts';
import type { ServerProcess } from './server.ts';

export interface AuditEntryFields extends Fields {
  id: number;
  at: number;
  action: string;
  keyId: string | null;
}

/** All entries, the newest first. */
export async function listAuditEntries({ port }: ServerProcess): Promise<AuditEntryFields[]> {
  const entries: AuditEntryFields[] = [];
  let cursor: unknown;
  do {
    const page = await callOperationOk(port, 'audit.list', cursor === undefined ? {} : { cursor });
    entries.push(...(page.entries as AuditEntryFields[]));
    cursor = page.cursor;
  } while (cursor !== undefined);
  return entries;
}
