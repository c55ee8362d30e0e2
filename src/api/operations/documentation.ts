/**
 * All operations of the API with their texts and examples, in the order of the documentation. The
 * generator of the documentation, tests and types use them; no thread of a server loads them.
 */

import type { Result } from '../common/operation.ts';
import { acquireTexts } from './v1/acquire.texts.ts';
import { getDecisionsTexts } from './v1/analytics-get-decisions.texts.ts';
import { getIdentifiersTexts } from './v1/analytics-get-identifiers.texts.ts';
import { getNamespacesTexts } from './v1/analytics-get-namespaces.texts.ts';
import { getTimelineTexts } from './v1/analytics-get-timeline.texts.ts';
import { searchIdentifiersTexts } from './v1/analytics-search-identifiers.texts.ts';
import { listAuditTexts } from './v1/audit-list.texts.ts';
import { cancelTexts } from './v1/cancel.texts.ts';
import { commitTexts } from './v1/commit.texts.ts';
import { deleteBlockTexts } from './v1/delete-block.texts.ts';
import { deleteNamespaceTexts } from './v1/delete-namespace.texts.ts';
import { deleteOverrideV1Texts } from './v1/delete-override.texts.ts';
import { endHoldTexts } from './v1/end-hold.texts.ts';
import { explainTexts } from './v1/explain.texts.ts';
import { exportOverridesTexts } from './v1/export-overrides.texts.ts';
import { findIdentifierTexts } from './v1/find-identifier.texts.ts';
import { getOverrideV1Texts } from './v1/get-override.texts.ts';
import { importOverridesTexts } from './v1/import-overrides.texts.ts';
import { inspectTexts } from './v1/inspect.texts.ts';
import { createKeyTexts } from './v1/keys-create.texts.ts';
import { listKeysTexts } from './v1/keys-list.texts.ts';
import { revokeKeyTexts } from './v1/keys-revoke.texts.ts';
import { limitV1Texts } from './v1/limit.texts.ts';
import { listBlocksTexts } from './v1/list-blocks.texts.ts';
import { listNamespacesTexts } from './v1/list-namespaces.texts.ts';
import { listOverridesV1Texts } from './v1/list-overrides.texts.ts';
import { listPoliciesTexts } from './v1/list-policies.texts.ts';
import { refundTexts } from './v1/refund.texts.ts';
import { releaseTexts } from './v1/release.texts.ts';
import { renewTexts } from './v1/renew.texts.ts';
import { reserveTexts } from './v1/reserve.texts.ts';
import { resetTexts } from './v1/reset.texts.ts';
import { setBlockTexts } from './v1/set-block.texts.ts';
import { setOverrideV1Texts } from './v1/set-override.texts.ts';
import { deleteOverrideV2Texts } from './v2/delete-override.texts.ts';
import { getOverrideV2Texts } from './v2/get-override.texts.ts';
import { limitV2Texts } from './v2/limit.texts.ts';
import { listOverridesV2Texts } from './v2/list-overrides.texts.ts';
import { multiLimitTexts } from './v2/multi-limit.texts.ts';
import { setOverrideV2Texts } from './v2/set-override.texts.ts';

export const DOCUMENTED = [
  limitV1Texts,
  limitV2Texts,
  multiLimitTexts,
  reserveTexts,
  commitTexts,
  cancelTexts,
  acquireTexts,
  renewTexts,
  releaseTexts,
  refundTexts,
  resetTexts,
  inspectTexts,
  explainTexts,
  findIdentifierTexts,
  endHoldTexts,
  setOverrideV1Texts,
  getOverrideV1Texts,
  listOverridesV1Texts,
  deleteOverrideV1Texts,
  exportOverridesTexts,
  importOverridesTexts,
  setOverrideV2Texts,
  getOverrideV2Texts,
  listOverridesV2Texts,
  deleteOverrideV2Texts,
  setBlockTexts,
  listBlocksTexts,
  deleteBlockTexts,
  listNamespacesTexts,
  deleteNamespaceTexts,
  listPoliciesTexts,
  createKeyTexts,
  listKeysTexts,
  revokeKeyTexts,
  listAuditTexts,
  getNamespacesTexts,
  getTimelineTexts,
  getDecisionsTexts,
  getIdentifiersTexts,
  searchIdentifiersTexts,
] as const;

type Documented = (typeof DOCUMENTED)[number];
export type ApiOperation = Documented['name'];

/** The object that an operation returns. */
export type ResponseOf<Name extends ApiOperation> = Result<
  () => Extract<Documented, { name: Name }>['response']
>;
