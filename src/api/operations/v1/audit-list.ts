/**
 * GET /v1/audit.list: the audit log, from the store. v1 of Unkey's API does not have it. Failures
 * are ApiErrors, in the order 400, 403.
 */

import Type from 'typebox';
import {
  AUDIT_NAMESPACES_MAX,
  AUDIT_PERMISSIONS_MAX,
  AUDIT_SCANNED_MAX,
  IDENTIFIER_MAX_CHARACTERS,
  PAGE_MAX,
} from '../../../core/constants.ts';
import { ApiError } from '../../../core/errors.ts';
import { field, integer, text } from '../../../core/schema.ts';
import { publicEntry } from '../../../registry/audit-entries.ts';
import {
  AUDIT_ACTIONS,
  AUDIT_SOURCES,
  type AuditEntry,
  type WithRow,
} from '../../../registry/store/schema.ts';
import { TIME_MAX_MS } from '../../common/analytics.ts';
import { holdKind } from '../../common/holds.ts';
import { type Result, readOperation } from '../../common/operation.ts';
import type { OperationContext } from '../../common/operation-context.ts';
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

/** Entries that are read in one step. */
const PART = 32;

/** What reading a large entry costs, in texts that a search for identifiers compares. */
const TEXTS_OF_ENTRY = 128;

export function response() {
  const entry = Type.Object({
    id: amount('Number of the entry. A newer entry has a higher number.'),
    at: unixMs('Time of the change'),
    action: Type.Enum([...AUDIT_ACTIONS], { description: 'What was changed, and how.' }),
    keyId: Type.Union([Type.String(), Type.Null()], {
      description: 'Id of the API key that made the change. `null` if none did.',
    }),
    keyName: Type.Optional(
      named('Name of this key. Absent without a key, and in entries of older versions.'),
    ),
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
    total: amount('Number of entries in the log. Filters do not change it.'),
  });
}

function target() {
  return Type.Object(
    {
      keyId: Type.Optional(keyId('Id of a key.')),
      name: Type.Optional(named('Name of a key.')),
      overrideId: Type.Optional(idText('rlor', 'Id of an override.')),
      blockId: Type.Optional(idText('rlor', 'Id of a block.')),
      namespace: Type.Optional(
        named('Namespace of an override, a block, a policy or a hold, or a pattern of namespaces.'),
      ),
      namespaceId: Type.Optional(namespaceId('Id of a namespace. Absent for a pattern.')),
      identifier: Type.Optional(
        named('Identifier, pattern or CIDR block of an override. Identifier of a block or a hold.'),
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
          'Time from which a key is rejected, or `null`. Time at which a block or an override ' +
          'ends, absent without an end. In Unix milliseconds.',
      }),
    ),
  };
  const namespaceFields = {
    overrideCount: Type.Optional(
      amount('Number of the overrides of a deleted namespace, or of many that ended at a time.'),
    ),
  };
  const blockFields = {
    reason: Type.Optional(named('Why an identifier is blocked. Absent without a reason.')),
  };
  const holdFields = {
    released: Type.Optional(amount('Tokens that the end of a hold has released.')),
  };
  const note = 'A policy has the fields that `ratelimits.listPolicies` returns.';
  return Type.Object(
    { ...overrideFields, ...keyFields, ...namespaceFields, ...blockFields, ...holdFields },
    { additionalProperties: true, description: `${description} ${note}` },
  );
}

/**
 * The newest entries first; a cursor is the row of the last entry that was read. With filters, a
 * request reads AUDIT_SCANNED_MAX entries at most, in several turns of the event loop.
 */
export const listAudit = readOperation({
  name: 'audit.list',
  version: 'v1',
  requires: { permission: 'read_audit' },
  request: { ...filterFields(), ...pageFields(PAGE_MAX) },
  handle: async (context, query): Promise<Result<typeof response>> => {
    const { permissions, auditLog } = context;
    const { limit = PAGE_MAX, cursor, start = 0, end = TIME_MAX_MS } = query;
    if (start > end) {
      const message = `"start" must not be after "end"; got ${start} and ${end}`;
      throw new ApiError('BAD_REQUEST', message);
    }
    permissions.requireGlobal('read_audit');
    const below = cursor === undefined ? Number.MAX_SAFE_INTEGER : Number(cursor);
    const isFiltered = FILTERS.some((name) => query[name] !== undefined);
    const scannedMax = isFiltered ? AUDIT_SCANNED_MAX : limit;
    const entries: ReturnType<typeof publicEntry>[] = [];
    let scanned = 0;
    let lastRow = below;
    // One more tells whether there are more.
    for await (const entry of newestFirst(context, below, scannedMax + 1)) {
      if (scanned === scannedMax || entries.length === limit) {
        return { entries, cursor: String(lastRow), total: auditLog.auditCount };
      }
      scanned++;
      lastRow = entry.row;
      if (matches(entry, query)) entries.push(publicEntry(entry));
    }
    return { entries, total: auditLog.auditCount };
  },
});

/** Up to `max` entries before a row, read in parts. */
async function* newestFirst(
  { auditLog, turns }: OperationContext,
  below: number,
  max: number,
): AsyncIterable<WithRow<AuditEntry>> {
  let row = below;
  for (let left = max; left > 0; left -= PART) {
    const size = Math.min(left, PART);
    const read = await turns.run(
      () => auditLog.readAudit(row, size),
      (entries) => entries.length * TEXTS_OF_ENTRY,
    );
    yield* read;
    if (read.length < size) return;
    row = read.at(-1)!.row;
  }
}

function filterFields() {
  const time = () => integer(0, TIME_MAX_MS, 'a time in Unix milliseconds,');
  const name = (description: string) => field(text(1, IDENTIFIER_MAX_CHARACTERS), description);
  const actions = Type.Enum([...AUDIT_ACTIONS], { accepts: 'an action of the audit log' });
  return {
    action: Type.Optional(field(actions, 'Lists entries with this action only.')),
    by: Type.Optional(
      name('Lists the changes by this key (its id or name), user or source (as in `by`) only.'),
    ),
    namespace: Type.Optional(
      name('Lists the entries of this namespace, by its name, id or pattern, only.'),
    ),
    target: Type.Optional(
      name('Lists entries with this text in a value of `target` only, in either case.'),
    ),
    start: Type.Optional(field(time(), 'Begin of the listed time, in Unix milliseconds.')),
    end: Type.Optional(field(time(), 'End of the listed time, in Unix milliseconds.')),
  };
}

const FILTERS = ['action', 'by', 'namespace', 'target', 'start', 'end'] as const;

interface Filter {
  action?: string;
  by?: string;
  namespace?: string;
  target?: string;
  start?: number;
  end?: number;
}

function matches(entry: AuditEntry, { action, by, namespace, target, start, end }: Filter) {
  const { keyId, keyName, by: source, user } = entry;
  const targets = Object.values(entry.target).flat();
  const { namespace: name, namespaceId, namespaces = [] } = entry.target as TargetNamespaces;
  const sought = target?.toLowerCase();
  return (
    (action === undefined || entry.action === action) &&
    (by === undefined || [keyId, keyName, source, user].includes(by)) &&
    (namespace === undefined || [name, namespaceId, ...namespaces].includes(namespace)) &&
    (sought === undefined || targets.some((it) => String(it).toLowerCase().includes(sought))) &&
    entry.at >= (start ?? 0) &&
    entry.at <= (end ?? TIME_MAX_MS)
  );
}

interface TargetNamespaces {
  namespace?: string;
  namespaceId?: string;
  namespaces?: string[];
}
