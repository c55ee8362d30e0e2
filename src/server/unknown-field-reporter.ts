/**
 * Counts the requests of an acceptor with unknown fields, and reports each field of a key to the
 * main thread once, which logs it.
 */

import {
  ReportedFields,
  shownField,
  type UnknownField,
  type UnknownFieldListener,
} from '../api/common/unknown-fields.ts';
import {
  type CounterOperationV1,
  UNKNOWN_FIELD_STATS,
} from '../api/operations/unknown-field-stats.ts';
import type { AcceptorStats } from '../shared-memory/stats.ts';

export function createUnknownFieldReporter(
  stats: AcceptorStats,
  send: (field: UnknownField) => void,
): UnknownFieldListener<CounterOperationV1> {
  const reported = new ReportedFields();
  return (operation, keyId, names) => {
    stats.increment(UNKNOWN_FIELD_STATS[operation]);
    for (const name of names) {
      const field = shownField(name);
      if (reported.add(keyId, field)) send({ operation, keyId, field });
    }
  };
}
