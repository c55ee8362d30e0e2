/** The table of the constants that clients and operators meet. No setting changes them. */

import {
  AMOUNT_MAX,
  AUDIT_ENTRIES_MAX,
  BODY_MAX_BYTES,
  BUFFERED_BODY_BYTES_MAX,
  DURATION_MAX_MS,
  DURATION_MIN_MS,
  EXACT_OVERRIDES_MAX,
  EXPORT_PAGE_MAX,
  IDENTIFIER_MAX_CHARACTERS,
  IDENTITY_PARTS_MAX,
  IMPORT_MAX_BYTES,
  INFIX_OVERRIDES_MAX,
  KEY_MAX_CHARACTERS,
  KEYS_MAX,
  METRIC_NAMESPACES_MAX,
  MIDDLE_MAX_CHARACTERS,
  MULTI_LIMIT_MAX,
  MULTI_LIMIT_MAX_BYTES,
  NAMESPACE_MAX_CHARACTERS,
  NAMESPACES_MAX,
  PAGE_MAX,
  PENDING_BYTES_MAX,
  PENDING_CHANGES_MAX,
  PENDING_OPERATION_BYTES_MAX,
  PERMISSIONS_MAX,
  POLICIES_MAX,
  POLICY_WINDOWS_MAX,
  REQUEST_HEAD_MAX_BYTES,
  REQUEST_ID_MAX_CHARACTERS,
  REQUEST_IDS_MAX,
  UNSENT_RESPONSE_BYTES_MAX,
  V2_DURATION_MAX_MS,
  WILDCARD_OVERRIDES_MAX,
  WILDCARDS_PER_TEXT_MAX,
} from '../../src/core/constants.ts';
import { markdownTable } from './markdown.ts';
import { bytesText, daysText, grouped } from './quantities.ts';

const CONSTANTS: readonly [what: string, value: string][] = [
  ['limit, cost and tokens', `${grouped(AMOUNT_MAX)}, which is 2^53 − 1`],
  ['duration in v1', `${grouped(DURATION_MIN_MS)} ms to ${daysText(DURATION_MAX_MS)}`],
  ['duration in v2', `${grouped(DURATION_MIN_MS)} ms to ${daysText(V2_DURATION_MAX_MS)}`],
  ['identifier', characters(IDENTIFIER_MAX_CHARACTERS)],
  ['name of a namespace', characters(NAMESPACE_MAX_CHARACTERS)],
  ['`requestId`', characters(REQUEST_ID_MAX_CHARACTERS)],
  ['stored answers to requests with a `requestId`', grouped(REQUEST_IDS_MAX)],
  ['namespaces', grouped(NAMESPACES_MAX)],
  ['namespaces with metrics of their own', grouped(METRIC_NAMESPACES_MAX)],
  ['overrides without a wildcard', grouped(EXACT_OVERRIDES_MAX)],
  ['overrides with a wildcard or of a CIDR block', grouped(WILDCARD_OVERRIDES_MAX)],
  [
    'overrides of a namespace with text between wildcards; all namespace patterns count as one',
    `${grouped(INFIX_OVERRIDES_MAX)}; not counted: \`*text*\` with up to ` +
      characters(MIDDLE_MAX_CHARACTERS),
  ],
  ['namespace patterns with text between wildcards', grouped(INFIX_OVERRIDES_MAX)],
  ['wildcards in a pattern', grouped(WILDCARDS_PER_TEXT_MAX)],
  ['API keys', grouped(KEYS_MAX)],
  ['length of an API key in a request', characters(KEY_MAX_CHARACTERS)],
  ['permissions of a key', grouped(PERMISSIONS_MAX)],
  ['entries of the audit log', `${grouped(AUDIT_ENTRIES_MAX)}; the store deletes older ones`],
  ['policies', grouped(POLICIES_MAX)],
  ['windows of a policy', grouped(POLICY_WINDOWS_MAX)],
  ['parts of an identity in a policy', grouped(IDENTITY_PARTS_MAX)],
  ['request head', bytesText(REQUEST_HEAD_MAX_BYTES)],
  ['request body', bytesText(BODY_MAX_BYTES)],
  ['batch', `${grouped(MULTI_LIMIT_MAX)} checks and ${bytesText(MULTI_LIMIT_MAX_BYTES)}`],
  ['import of overrides', bytesText(IMPORT_MAX_BYTES)],
  ['items in a page of a list', `${grouped(PAGE_MAX)}; in an export ${grouped(EXPORT_PAGE_MAX)}`],
  ['incomplete bodies on each acceptor', bytesText(BUFFERED_BODY_BYTES_MAX)],
  ['pending operations on each acceptor', bytesText(PENDING_OPERATION_BYTES_MAX)],
  [
    'pending changes on all acceptors',
    `${grouped(PENDING_CHANGES_MAX)}, and ${bytesText(PENDING_BYTES_MAX)}`,
  ],
  ['large responses in transmission on each acceptor', bytesText(UNSENT_RESPONSE_BYTES_MAX)],
];

export function constantsTable(): string {
  return markdownTable(['what', 'maximum'], CONSTANTS);
}

function characters(count: number): string {
  return `${grouped(count)} characters`;
}
