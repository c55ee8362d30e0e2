/**
 * The counts of decisions by namespace, for metrics and the dashboard. The namespaces in the first
 * METRIC_NAMESPACES_MAX rows of the stats blocks are named; the others share OTHER_NAMESPACE, a
 * name that no namespace can have. A new namespace appears when it is durable.
 */

import { METRIC_NAMESPACES_MAX } from '../core/constants.ts';
import { OTHER_NAMESPACE } from '../core/namespace.ts';
import type { RowOwner, StatsRows } from '../registry/stats-rows.ts';
import { OTHER_NAMESPACES_ROW } from '../shared-memory/stats.ts';

export interface NamespaceCounts {
  name: string;
  /** @param stat one of NAMESPACE_STAT */
  total: (stat: number) => number;
}

/** The namespaces that are named in metrics. */
export function namedOwners({ owners }: StatsRows): RowOwner[] {
  return owners.slice(0, METRIC_NAMESPACES_MAX).filter((owner) => owner !== undefined);
}

/** The others are the last. */
export function namespaceCounts(rows: StatsRows): NamespaceCounts[] {
  const { owners } = rows;
  const named = owners.slice(0, METRIC_NAMESPACES_MAX).flatMap((owner, row) => {
    if (owner === undefined) return [];
    return [{ name: owner.name, total: (stat: number) => rows.countOf(row, stat) }];
  });
  const total = (stat: number) => {
    let sum = rows.sum(OTHER_NAMESPACES_ROW, stat);
    // Deleted namespaces included: a counter must not fall.
    for (let row = METRIC_NAMESPACES_MAX; row < owners.length; row++) sum += rows.sum(row, stat);
    return sum;
  };
  return [...named, { name: OTHER_NAMESPACE, total }];
}
