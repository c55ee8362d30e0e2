/**
 * What POST /v1/ratelimits.endHold asks the main thread: to record in the audit log that a hold has
 * ended. The acceptor has ended it, so that there is no entry without an end.
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
