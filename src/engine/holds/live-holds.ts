/** What an inspection shows of the holds of one identity. */

import { LISTED_HOLDS_MAX } from '../../core/constants.ts';
import type { Identity } from '../../core/hash.ts';
import type { LiveHolds } from '../hold-engine.ts';
import { HOLD_KIND, handleOf } from '../hold-id.ts';
import type { HoldTable } from './hold-table.ts';
import { RECORD_DOUBLE } from './layout.ts';

/**
 * A hold that has expired is not shown, also if no worker has ended it yet. Other threads wait
 * meanwhile, and an identity may have very many holds, so not all of them are sorted.
 */
export function liveHolds(table: HoldTable, identity: Identity, nowMs: number): LiveHolds {
  const { memory } = table;
  const { shard } = memory;
  const expiresAt = (record: number) => memory.double(record, RECORD_DOUBLE.expiresAt);
  const tokens = { reserved: 0, inUse: 0 };
  let count = 0;
  let listed: number[] = [];
  let lastListedMs = Number.POSITIVE_INFINITY;
  const sortListed = () => {
    listed = listed.toSorted((a, b) => expiresAt(a) - expiresAt(b)).slice(0, LISTED_HOLDS_MAX);
  };
  table.lock();
  try {
    for (const record of table.liveOf(table.findCounter(identity))) {
      const expiryMs = expiresAt(record);
      if (expiryMs <= nowMs) continue;
      count++;
      const kind = table.isLease(record) ? 'inUse' : 'reserved';
      tokens[kind] += memory.double(record, RECORD_DOUBLE.amount);
      if (expiryMs >= lastListedMs) continue;
      listed.push(record);
      if (listed.length < 2 * LISTED_HOLDS_MAX) continue;
      sortListed();
      lastListedMs = expiresAt(listed[LISTED_HOLDS_MAX - 1]);
    }
    sortListed();
    return {
      reservedTokens: tokens.reserved,
      inUse: tokens.inUse,
      count,
      listed: listed.map((record) => ({
        kind: table.isLease(record) ? HOLD_KIND.lease : HOLD_KIND.reservation,
        handle: handleOf({ shard, record, secret: table.secretOf(record) }),
        tokens: memory.double(record, RECORD_DOUBLE.amount),
        limit: memory.double(record, RECORD_DOUBLE.limit),
        durationMs: memory.double(record, RECORD_DOUBLE.durationMs),
        rule: table.ruleOf(record),
        expiresAt: expiresAt(record),
      })),
    };
  } finally {
    table.unlock();
  }
}
