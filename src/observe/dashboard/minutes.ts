/**
 * What the charts of the dashboard begin with: the last hour by minute, from the analytics and from
 * the history of the latency. As in a snapshot, only the first namespaces are named, and the others
 * are added up. Without analytics there are no decisions.
 */

import type { RecentMinutes } from '../../analytics/analytics.ts';
import type { Run } from '../../analytics/database.ts';
import { GRANULARITY_MS } from '../../analytics/granularity.ts';
import {
  ANALYTICS_MINUTE_NAMESPACES_MAX,
  DASHBOARD_EVENT_INTERVAL_MS,
  LATENCY_HISTORY_MS,
  METRIC_NAMESPACES_MAX,
} from '../../core/constants.ts';
import { OTHER_NAMESPACE } from '../../core/namespace.ts';
import type { Registry } from '../../registry/registry.ts';
import type { StatsRows } from '../../registry/stats-rows.ts';
import type { Clock } from '../../shared-memory/clock.ts';
import type { LatencyHistory } from '../latency-history.ts';
import { namedOwners } from '../namespace-counts.ts';
import type { MinuteCounts, Minutes } from './snapshot.ts';

export interface MinutesSources {
  registry: Registry;
  statsRows: StatsRows;
  clock: Pick<Clock, 'nowMs' | 'monotonicMs'>;
  latencyHistory: LatencyHistory;
  /** Where analytics are on. */
  analytics?: {
    minutes(
      groups: readonly (readonly string[])[],
      from: number,
      to: number,
    ): RecentMinutes | undefined;
  };
}

const MINUTE_MS = GRANULARITY_MS.minute;
/** The minutes of the last hour, with the current one. */
const HOUR_MINUTES = LATENCY_HISTORY_MS / MINUTE_MS;

export class MinuteReader {
  readonly #sources: MinutesSources;
  #hour: { readMs: number; minutes: Minutes } | undefined;

  constructor(sources: MinutesSources) {
    this.#sources = sources;
  }

  /** The number of the current minute since the Unix epoch. */
  get current(): number {
    return Math.floor(this.#sources.clock.nowMs() / MINUTE_MS);
  }

  /** The last hour. Streams that open in the same second share it. */
  readHour(): Minutes {
    const nowMs = this.#sources.clock.monotonicMs();
    if (this.#hour === undefined || nowMs - this.#hour.readMs >= DASHBOARD_EVENT_INTERVAL_MS) {
      this.#hour = { readMs: nowMs, minutes: this.read(HOUR_MINUTES) };
    }
    return this.#hour.minutes;
  }

  /** @param count of minutes up to the current one */
  read(count: number): Minutes {
    const from = this.current - count + 1;
    const minutes = Array.from({ length: count }, (_, i) => from + i);
    const decisions = this.#decisions(minutes);
    return {
      nowMs: this.#sources.clock.nowMs(),
      at: minutes.map((minute) => minute * MINUTE_MS),
      latency: minutes.map((minute) => this.#latency(minute * MINUTE_MS)),
      ...(decisions && { decisions }),
    };
  }

  #latency(atMs: number): number[] | null {
    const { clock, latencyHistory } = this.#sources;
    const aheadMs = clock.nowMs() - clock.monotonicMs();
    return latencyHistory.between(atMs - aheadMs, atMs + MINUTE_MS - aheadMs) ?? null;
  }

  #decisions(minutes: readonly number[]): Minutes['decisions'] {
    const { registry, statsRows, analytics } = this.#sources;
    const named = namedOwners(statsRows);
    const others = statsRows.owners
      .slice(METRIC_NAMESPACES_MAX, ANALYTICS_MINUTE_NAMESPACES_MAX)
      .flatMap((owner) => owner?.key ?? []);
    const groups = [...named.map(({ key }) => [key]), [...others, OTHER_NAMESPACE]];
    const recent = analytics?.minutes(groups, minutes[0], minutes.at(-1)! + 1);
    if (recent === undefined) return undefined;
    const { runs, decisions } = recent;
    const namespaces = decisions.flatMap((points, group): MinuteCounts[] => {
      if (points.length === 0) return [];
      const name = named[group]?.name ?? OTHER_NAMESPACE;
      const id = registry.namespaceByName(name)?.id;
      const byTime = new Map(points.map((point) => [point.time, point]));
      const counts = (field: 'allowed' | 'denied') => {
        return minutes.map((minute) => byTime.get(minute)?.[field] ?? 0);
      };
      const own = { allowed: counts('allowed'), denied: counts('denied') };
      return [{ ...(id !== undefined && { id }), name, ...own }];
    });
    const ranMs = minutes.map((minute, i) => {
      const ms = ranIn(runs, minute * MINUTE_MS);
      // The end of a killed run is not known to the last second.
      const isCounted = namespaces.some(({ allowed, denied }) => allowed[i] + denied[i] > 0);
      return ms === 0 && isCounted ? MINUTE_MS : ms;
    });
    return { ranMs, namespaces };
  }
}

/** How long weir ran in a minute, in ms. */
function ranIn(runs: readonly Run[], atMs: number): number {
  return runs.reduce((sum, { start, until }) => {
    const ms = Math.min(until, atMs + MINUTE_MS) - Math.max(start, atMs);
    return sum + Math.max(0, ms);
  }, 0);
}
