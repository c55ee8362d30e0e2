/** Where the stats block of an acceptor counts requests of v1 on counters with unknown fields. */

import { ACCEPTOR_STAT, type AcceptorStatIndex } from '../../shared-memory/stats.ts';
import type { CounterOperationName } from './counter-operations.ts';

/** v2 rejects unknown fields. */
export type CounterOperationV1 = Extract<CounterOperationName, `ratelimits.${string}`>;

export const UNKNOWN_FIELD_STATS: Readonly<Record<CounterOperationV1, AcceptorStatIndex>> = {
  'ratelimits.limit': ACCEPTOR_STAT.unknownFieldsLimit,
  'ratelimits.refund': ACCEPTOR_STAT.unknownFieldsRefund,
  'ratelimits.reset': ACCEPTOR_STAT.unknownFieldsReset,
  'ratelimits.inspect': ACCEPTOR_STAT.unknownFieldsInspect,
  'ratelimits.explain': ACCEPTOR_STAT.unknownFieldsExplain,
  'ratelimits.findIdentifier': ACCEPTOR_STAT.unknownFieldsFindIdentifier,
  'ratelimits.reserve': ACCEPTOR_STAT.unknownFieldsReserve,
  'ratelimits.commit': ACCEPTOR_STAT.unknownFieldsCommit,
  'ratelimits.cancel': ACCEPTOR_STAT.unknownFieldsCancel,
  'ratelimits.acquire': ACCEPTOR_STAT.unknownFieldsAcquire,
  'ratelimits.renew': ACCEPTOR_STAT.unknownFieldsRenew,
  'ratelimits.release': ACCEPTOR_STAT.unknownFieldsRelease,
  'ratelimits.endHold': ACCEPTOR_STAT.unknownFieldsEndHold,
};
