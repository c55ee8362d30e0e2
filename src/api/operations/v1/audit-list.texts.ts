/** The texts and the examples of GET /v1/audit.list. */

import { AUDIT_ENTRIES_MAX, AUDIT_SCANNED_MAX } from '../../../core/constants.ts';
import { KEY_ID, NAMESPACE_ID, OVERRIDE_ID, ok, PAGE_TOO_LARGE } from '../../texts/examples.ts';
import { numberText } from '../../texts/number-text.ts';
import { documented } from '../../texts/operation-texts.ts';
import { listAudit, response } from './audit-list.ts';

export const listAuditTexts = documented(listAudit, response, {
  tag: 'Audit log',
  summary: 'List the audit log',
  description: [
    `Lists the newest ${numberText(AUDIT_ENTRIES_MAX)} changes to keys, namespaces, overrides ` +
      'and policies, and holds that were ended by their handles, the newest first. The fields ' +
      'of `target`, `before` and `after` depend on `action`.',
    'An entry is written in the same transaction as its change. A request that is rejected or ' +
      'changes nothing has no entry. An import has one entry, and so has the deletion of a ' +
      'namespace with its overrides. A namespace that a check creates has no entry; one that ' +
      '`setOverride` creates has one. The entry of a hold is written after its end. The log on ' +
      'standard error has the same entries.',
    'Filters combine: an entry must match all. A request with filters reads ' +
      `${AUDIT_SCANNED_MAX} entries at most, so a page may have fewer entries than \`limit\`, or ` +
      'none. There are more as long as it has a `cursor`.',
  ],
  examples: {
    page: {
      summary: 'The newest change',
      request: { limit: 1 },
      ...ok({
        entries: [
          {
            id: 5,
            at: 1795179540600,
            action: 'override.update',
            keyId: KEY_ID,
            keyName: 'configured root key',
            target: {
              overrideId: OVERRIDE_ID,
              namespace: 'api',
              namespaceId: NAMESPACE_ID,
              identifier: 'user_*',
            },
            before: { limit: 100, duration: 60_000, async: false },
            after: { limit: 200, duration: 60_000, async: false },
          },
        ],
        cursor: '5',
        total: 5,
      }),
    },
    invalid: {
      summary: 'A page that is too large',
      request: { limit: 101 },
      ...PAGE_TOO_LARGE(100),
    },
  },
});
