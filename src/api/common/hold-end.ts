/**
 * Records in the audit log that POST /v1/ratelimits.endHold has ended a hold, on the main thread.
 * The acceptor has ended the hold before, so that there is no entry without an end.
 */

import { holdEnd } from '../../registry/audit-entries.ts';
import type { OperationHandler } from './operation-context.ts';

export interface HoldEnd {
  /** The name of the namespace. */
  namespace: string;
  identifier: string;
  kind: string;
  handle: string;
  /** Tokens. */
  released: number;
}

export const recordHoldEnd: OperationHandler = ({ registry, audit }, input) => {
  const end = input as HoldEnd;
  audit(holdEnd(end, registry.namespaceByName(end.namespace)?.id));
  return {};
};
