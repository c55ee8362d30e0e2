/**
 * GET /v1/audit.list: the audit log, from the store. v1 of Unkey's API does not have it. Failures
 * are ApiErrors, in the order 400, 403.
 */

import Type from 'typebox';
import { AUDIT_NAMESPACES_MAX, AUDIT_PERMISSIONS_MAX, PAGE_MAX } from '../../../core/constants.ts';
import { publicEntry } from '../../../registry/audit-entries.ts';
import { AUDIT_ACTIONS, AUDIT_SOURCES } from '../../../registry/store/schema.ts';
import { holdKind } from '../../common/holds.ts';
import { type Result, readOperation } from '../../common/operation.ts';
import { overrideV1 } from '../../common/override-fields.ts';
import { pageFields } from '../../common/pages.ts';
import {
  amount,
  flagged,
  idText,
  keyId,
  listOf,
  named,
  namespaceId,
  pageState,
  unixMs,
} from '../../common/responses.ts';
import { importCounts } from './import-overrides.ts';

export function response() {
  const entry = Type.Object({
    id: amount('Number of the entry. A newer entry has a higher number.'),
    at: unixMs('Time of the change'),
    action: Type.Enum([...AUDIT_ACTIONS], { description: 'What was changed, and how.' }),
    keyId: Type.Union([Type.String(), Type.Null()], {
      description: 'Id of the API key that made the change. `null` if none did.',
    }),
    by: Type.Optional(
      Type.Enum([...AUDIT_SOURCES], {
        description: 'Source of the change. Only if `keyId` is `null`.',
      }),
    ),
    user: Type.Optional(
      named('Name of the user of the dashboard who made the change. Only if `by` is `user`.'),
    ),
    target: target(),
    before: Type.Optional(values('Values before the change. Absent for a new target.')),
    after: Type.Optional(values('Values after the change. Absent for a removed target.')),
    counts: Type.Optional(
      Type.Object(importCounts(), {
        description: 'Counts of an import, which has no `before` and `after`.',
      }),
    ),
  });
  return Type.Object({
    entries: listOf(entry, 'The entries, the newest first.'),
    ...pageState(),
  });
}

function target() {
  return Type.Object(
    {
      keyId: Type.Optional(keyId('Id of a key.')),
      name: Type.Optional(named('Name of a key.')),
      overrideId: Type.Optional(idText('rlor', 'Id of an override.')),
      namespace: Type.Optional(
        named('Namespace of an override, a policy or a hold, or a pattern of namespaces.'),
      ),
      namespaceId: Type.Optional(namespaceId('Id of a namespace. Absent for a pattern.')),
      identifier: Type.Optional(
        named('Identifier, pattern or CIDR block of an override, or identifier of a hold.'),
      ),
      cidr: Type.Optional(flagged('`true` if `identifier` is a CIDR block.')),
      kind: Type.Optional(holdKind()),
      handle: Type.Optional(named('Handle of a hold that was ended by it.')),
      namespaces: Type.Optional(
        listOf(
          Type.String(),
          `Namespaces of an import, or of overrides that ended: the first ${AUDIT_NAMESPACES_MAX}.`,
        ),
      ),
      namespaceCount: Type.Optional(amount('Number of these namespaces.')),
    },
    { description: 'What was changed, with its name at that time.' },
  );
}

function values(description: string) {
  const { limit, duration, concurrency, async } = overrideV1();
  const overrideFields = {
    limit: Type.Optional(limit),
    duration: Type.Optional(duration),
    concurrency,
    async: Type.Optional(async),
  };
  const keyFields = {
    permissions: Type.Optional(
      listOf(Type.String(), `Permissions of a key: the first ${AUDIT_PERMISSIONS_MAX}.`),
    ),
    permissionCount: Type.Optional(amount('Number of the permissions of a key.')),
    expires: Type.Optional(
      Type.Union([Type.Integer(), Type.Null()], {
        description:
          'Time from which a key is rejected, or `null`. Time at which an override ends, absent ' +
          'without an end. In Unix milliseconds.',
      }),
    ),
  };
  const namespaceFields = {
    overrideCount: Type.Optional(
      amount('Number of the overrides of a deleted namespace, or of many that ended at a time.'),
    ),
  };
  const holdFields = {
    released: Type.Optional(amount('Tokens that the end of a hold has released.')),
  };
  const note = 'A policy has the fields that `ratelimits.listPolicies` returns.';
  return Type.Object(
    { ...overrideFields, ...keyFields, ...namespaceFields, ...holdFields },
    { additionalProperties: true, description: `${description} ${note}` },
  );
}

/** The newest entries first; a cursor is the row of the last entry of the previous page. */
export const listAudit = readOperation({
  name: 'audit.list',
  version: 'v1',
  requires: { permission: 'read_audit' },
  request: pageFields(PAGE_MAX),
  handle: ({ permissions, auditLog }, { limit = PAGE_MAX, cursor }): Result<typeof response> => {
    permissions.requireGlobal('read_audit');
    const below = cursor === undefined ? Number.MAX_SAFE_INTEGER : Number(cursor);
    const entries = auditLog.readAudit(below, limit + 1);
    const page = entries.slice(0, limit);
    const next = entries.length > limit ? { cursor: String(page[limit - 1].row) } : {};
    return { entries: page.map(publicEntry), ...next, total: auditLog.auditCount };
  },
});
