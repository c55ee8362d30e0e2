/**
 * The operation that lists the audit log, from the store, on the main thread. v1 of Unkey's API
 * does not have it.
 */

import Type from 'typebox';
import { PAGE_MAX } from '../../core/constants.ts';
import { createValidator, QUERY } from '../../core/schema.ts';
import { publicEntry } from '../../registry/audit-entries.ts';
import type { OperationHandler } from '../common/operation-context.ts';
import { pageFields } from '../common/pages.ts';
import type { ResponseV1 } from './responses.ts';

export const listValidator = createValidator(Type.Object(pageFields(PAGE_MAX), QUERY));

/** The newest entries first; a cursor is the row of the last entry of the previous page. */
export const listAudit: OperationHandler<ResponseV1<'audit.list'>> = (
  { permissions, auditLog, validate },
  input,
) => {
  const { limit = PAGE_MAX, cursor } = validate(listValidator, input);
  permissions.requireGlobal('read_audit');
  const below = cursor === undefined ? Number.MAX_SAFE_INTEGER : Number(cursor);
  const entries = auditLog.readAudit(below, limit + 1);
  const page = entries.slice(0, limit);
  const next = entries.length > limit ? { cursor: String(page[limit - 1].row) } : {};
  return { entries: page.map(publicEntry), ...next, total: auditLog.auditCount };
};
