/**
 * All operations of the API on counters. Acceptors execute them, by the handlers in `src/server`:
 * `api-routes.ts` lists these.
 */

import { byName } from '../common/operation.ts';
import { acquire } from './v1/acquire.ts';
import { cancel } from './v1/cancel.ts';
import { commit } from './v1/commit.ts';
import { endHold } from './v1/end-hold.ts';
import { explain } from './v1/explain.ts';
import { findIdentifier } from './v1/find-identifier.ts';
import { inspect } from './v1/inspect.ts';
import { limitV1 } from './v1/limit.ts';
import { refund } from './v1/refund.ts';
import { release } from './v1/release.ts';
import { renew } from './v1/renew.ts';
import { reserve } from './v1/reserve.ts';
import { reset } from './v1/reset.ts';
import { limitV2 } from './v2/limit.ts';
import { multiLimit } from './v2/multi-limit.ts';

/** By name. */
export const COUNTER_OPERATIONS = byName([
  limitV1,
  refund,
  reset,
  inspect,
  explain,
  findIdentifier,
  endHold,
  reserve,
  commit,
  cancel,
  acquire,
  renew,
  release,
  limitV2,
  multiLimit,
]);
export type CounterOperationName = keyof typeof COUNTER_OPERATIONS;
export const COUNTER_OPERATION_NAMES = Object.keys(COUNTER_OPERATIONS) as CounterOperationName[];
