/** Series of the rate limit service. A server without it has none of them. */

import { RLS_HIT_PATHS_MAX } from '../core/constants.ts';
import { type AddedHits, HIT_COUNTS, OTHER_PATH } from '../rls/hit-counts.ts';
import { ACCEPTOR_STAT, type AcceptorStats, totalOf } from '../shared-memory/stats.ts';
import type { MetricSeries, Sample } from './series.ts';

/** The hits of all limits, as the threads have sent them: up to a second ago. */
export class HitTotals {
  readonly #totals = new Map<string, number[]>();

  add(added: AddedHits): void {
    for (const [path, counts] of added) {
      const isFull = this.#totals.size >= RLS_HIT_PATHS_MAX && !this.#totals.has(path);
      const name = isFull ? OTHER_PATH : path;
      const total = this.#totals.get(name) ?? HIT_COUNTS.map(() => 0);
      this.#totals.set(name, total);
      for (const [i, count] of counts.entries()) total[i] += count;
    }
  }

  samples(): Sample[] {
    return [...this.#totals].flatMap(([limit, counts]) => {
      return HIT_COUNTS.map((result, i): Sample => [{ limit, result }, counts[i]]);
    });
  }
}

export interface RlsSources {
  threads: readonly AcceptorStats[];
  hits: Pick<HitTotals, 'samples'>;
  rules: {
    /** How many times files were read, by result. */
    readonly loads: Readonly<Record<'success' | 'error', number>>;
    /** Why older rules apply. */
    readonly fault: string | undefined;
  };
}

export function registerRlsSeries(
  series: MetricSeries,
  { threads, hits, rules }: RlsSources,
): void {
  series.counter('weir_rls_calls_total', () => [
    [{ result: 'ok' }, totalOf(threads, ACCEPTOR_STAT.rlsOk)],
    [{ result: 'over_limit' }, totalOf(threads, ACCEPTOR_STAT.rlsOverLimit)],
    [{ result: 'fault' }, totalOf(threads, ACCEPTOR_STAT.rlsFaults)],
  ]);
  series.unlabeledCounter('weir_rls_unknown_domain_calls_total', () => {
    return totalOf(threads, ACCEPTOR_STAT.rlsUnknownDomains);
  });
  series.counter('weir_rls_hits_total', () => hits.samples());
  series.counter('weir_rls_rule_loads_total', () => {
    return Object.entries(rules.loads).map(([result, loads]): Sample => [{ result }, loads]);
  });
  series.unlabeledGauge('weir_rls_rules_current', () => (rules.fault === undefined ? 1 : 0));
  series.unlabeledGauge('weir_rls_connections', () => {
    return threads.reduce((sum, { connections }) => sum + connections, 0);
  });
}
