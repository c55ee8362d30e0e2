/**
 * All operations of the API that the main thread executes, and what else it executes for acceptors.
 * An acceptor gets their routes from the main thread when it starts, and loads none of their code:
 * it forwards the raw body or query of a request, with the id of its key, to
 * `operation-executor.ts`.
 */

import { recordHoldEnd } from '../common/hold-end.ts';
import { byName, type MainRoute } from '../common/operation.ts';
import { explainFacts } from '../explain/facts.ts';
import { knownPlaces } from '../explain/places.ts';
import { getDecisions } from './v1/analytics-get-decisions.ts';
import { getIdentifiers } from './v1/analytics-get-identifiers.ts';
import { getNamespaces } from './v1/analytics-get-namespaces.ts';
import { getTimeline } from './v1/analytics-get-timeline.ts';
import { searchIdentifiers } from './v1/analytics-search-identifiers.ts';
import { listAudit } from './v1/audit-list.ts';
import { deleteBlock } from './v1/delete-block.ts';
import { deleteNamespace } from './v1/delete-namespace.ts';
import { deleteOverrideV1 } from './v1/delete-override.ts';
import { exportOverrides } from './v1/export-overrides.ts';
import { getOverrideV1 } from './v1/get-override.ts';
import { importOverrides } from './v1/import-overrides.ts';
import { createKey } from './v1/keys-create.ts';
import { listKeys } from './v1/keys-list.ts';
import { revokeKey } from './v1/keys-revoke.ts';
import { listBlocks } from './v1/list-blocks.ts';
import { listNamespaces } from './v1/list-namespaces.ts';
import { listOverridesV1 } from './v1/list-overrides.ts';
import { listPolicies } from './v1/list-policies.ts';
import { setBlock } from './v1/set-block.ts';
import { setOverrideV1 } from './v1/set-override.ts';
import { deleteOverrideV2 } from './v2/delete-override.ts';
import { getOverrideV2 } from './v2/get-override.ts';
import { listOverridesV2 } from './v2/list-overrides.ts';
import { setOverrideV2 } from './v2/set-override.ts';

/** By name. */
export const OPERATIONS = byName([
  setOverrideV1,
  getOverrideV1,
  listOverridesV1,
  deleteOverrideV1,
  exportOverrides,
  importOverrides,
  setBlock,
  listBlocks,
  deleteBlock,
  listNamespaces,
  deleteNamespace,
  listPolicies,
  createKey,
  listKeys,
  revokeKey,
  listAudit,
  getNamespaces,
  getTimeline,
  getDecisions,
  getIdentifiers,
  searchIdentifiers,
  setOverrideV2,
  getOverrideV2,
  listOverridesV2,
  deleteOverrideV2,
]);
export type OperationName = keyof typeof OPERATIONS;
export const OPERATION_NAMES = Object.keys(OPERATIONS) as OperationName[];

/** What acceptors need of the operations. */
export function mainRoutes(): MainRoute<OperationName>[] {
  return Object.values(OPERATIONS).map(
    ({ name, version, method, maxBytes, responseBytesEstimate }) => {
      return { name, version, method, maxBytes, responseBytesEstimate };
    },
  );
}

/**
 * Calls from acceptors to the main thread, by the name of the operation on counters that needs the
 * answer. No client makes these calls.
 */
const QUESTIONS = {
  'ratelimits.explain': { isWrite: false, execute: explainFacts },
  'ratelimits.findIdentifier': { isWrite: false, execute: knownPlaces },
  'ratelimits.endHold': { isWrite: true, execute: recordHoldEnd },
};
export type QuestionName = keyof typeof QUESTIONS;

/** All that the main thread executes. */
export const EXECUTED = { ...OPERATIONS, ...QUESTIONS };
