/** The overview: rates, latency and health, from the event stream. */

import { useMemo } from 'preact/hooks';
import { type Figures, figuresOf } from '../../core/figures.ts';
import type { Snapshot } from '../../observe/dashboard/snapshot.ts';
import type { LatencySpan } from '../../observe/latency-history.ts';
import { Chart } from '../common/chart.tsx';
import type { ViewProps } from '../common/context.ts';
import { Figure, Select, Table } from '../common/controls.tsx';
import { FigureCells, figureHeadings, Short } from '../common/figures.tsx';
import {
  formatAge,
  formatBytes,
  formatDuration,
  formatLatency,
  formatMicroseconds,
  formatPerSecond,
  formatRate,
  formatShare,
  formatShort,
  percentile,
} from '../common/format.ts';
import { type Live, RECENT_S, recentRate, sumOf } from '../common/live.ts';
import { type PastMinute, pointsOf, timeOf } from '../common/minutes.ts';
import { linkTo, navigate } from '../common/router.ts';
import { Name } from '../common/text.tsx';
import { visibleText } from '../common/visible-text.ts';
import { HealthSection, RedisSection } from './health.tsx';
import { ALL, RateChart, RESOLUTION } from './rate-chart.tsx';

/** A row says since when it counts if more than this is missing. The server reads once a second. */
const UNCOVERED_MIN_MS = 2_000;
const PERCENTILES = [0.5, 0.9, 0.99, 0.999];

export function OverviewView({ session, grant, live, route }: ViewProps) {
  const { history, minutes } = live;
  const latest = history.at(-1);
  const bounds = session.server.latencyBoundsUs;
  return (
    <>
      <h1 tabIndex={-1}>Overview</h1>
      {latest === undefined ? (
        <p class="empty">Waiting for the first figures…</p>
      ) : (
        <Summary history={history} latest={latest} bounds={bounds} />
      )}
      {grant.mayInSome('read_analytics') ? (
        <Decisions live={live} namespace={route.query.get('namespace') ?? ALL} />
      ) : (
        <p class="empty">
          Figures of namespaces need the permission <code>read_analytics</code>.
        </p>
      )}
      <Latency
        history={history}
        minutes={minutes}
        spans={latest?.latencySpans ?? []}
        bounds={bounds}
      />
      {latest !== undefined && (
        <>
          <HealthSection health={latest.health} hasCheckpoints={latest.redis === undefined} />
          {latest.redis && <RedisSection redis={latest.redis} history={history} bounds={bounds} />}
        </>
      )}
    </>
  );
}

interface SectionProps {
  history: readonly Snapshot[];
  bounds: readonly number[];
}

function Summary({ history, latest, bounds }: SectionProps & { latest: Snapshot }) {
  const { health, latencySpans } = latest;
  const [{ coveredMs, counts }] = latencySpans;
  const allowed = recentRate(history, RECENT_S, ({ namespaces }) => sumOf(namespaces, 'allowed'));
  const denied = recentRate(history, RECENT_S, ({ namespaces }) => sumOf(namespaces, 'denied'));
  const requests = coveredMs === 0 ? 0 : (totalOf(counts) * 1_000) / coveredMs;
  const isReady = health.status === 'ready';
  const fill = health.counters.live / health.counters.capacity;
  return (
    <>
      {health.reasons.length > 0 && (
        // No live region: the ages in the texts change every second.
        <section class="note warning" aria-label="Why weir is degraded">
          <ul>
            {health.reasons.map((reason) => (
              <li key={reason}>{reason}</li>
            ))}
          </ul>
        </section>
      )}
      <dl class="figures">
        <Figure name="Status" value={health.status} kind={isReady ? 'good' : 'warn'} />
        <Figure
          name="Requests"
          value={<Short value={requests} format={formatRate} />}
          note="last 10 s"
        />
        <Figure
          name="Denied"
          value={allowed + denied === 0 ? '–' : formatShare(denied / (allowed + denied))}
          note={formatRate(denied)}
        />
        <Figure
          name="Latency p99"
          value={formatLatency(percentile(counts, bounds, 0.99))}
          note="inside weir"
        />
        <Figure
          name="Table"
          value={formatShare(fill)}
          note={`${formatShort(health.counters.live)} counters`}
          kind={health.counters.isNearlyFull ? 'warn' : undefined}
        />
        <Figure name="Memory" value={formatBytes(health.memoryBytes)} note="resident" />
      </dl>
    </>
  );
}

function Decisions({ live, namespace }: { live: Live; namespace: string }) {
  const { history, minutes } = live;
  const namespaces = history.at(-1)?.namespaces ?? [];
  // The address may name a namespace without figures.
  const names = [...new Set([...namespaces.map(({ name }) => name), namespace])].filter(
    (name) => name !== ALL,
  );
  const rows = namespaces
    .map((figures) => {
      const rates = figuresOf((figure) => {
        return recentRate(history, RECENT_S, ({ namespaces }) => {
          return namespaces.find(({ name }) => name === figures.name)?.recent[figure] ?? 0;
        });
      });
      return { ...figures, rates };
    })
    .toSorted((a, b) => checksOf(b.rates) - checksOf(a.rates));
  return (
    <section aria-labelledby="decisions">
      <div class="section-head">
        <h2 id="decisions">Decisions</h2>
        <Select
          label="Namespace"
          value={namespace}
          onChoose={(name) =>
            navigate(linkTo('overview', '', name === ALL ? {} : { namespace: name }))
          }
          options={[
            [ALL, 'All namespaces'],
            ...names.map((name) => [name, visibleText(name)] as const),
          ]}
        />
      </div>
      <RateChart history={history} minutes={minutes} namespace={namespace} />
      {rows.length === 0 ? (
        history.length > 0 && <p class="empty">No namespace has had a check yet.</p>
      ) : (
        <Table
          caption="By namespace, last 10 s"
          columns={['Namespace', ...figureHeadings('/s'), 'Total#']}
        >
          {rows.map(({ id, name, rates, total }) => (
            <tr key={name}>
              <th scope="row">
                {id === undefined ? (
                  'all others'
                ) : (
                  <a href={linkTo('namespaces', name)}>
                    <Name text={name} />
                  </a>
                )}
              </th>
              <FigureCells figures={rates} format={formatPerSecond} />
              <td class="number">
                <Short value={checksOf(total)} />
              </td>
            </tr>
          ))}
        </Table>
      )}
    </section>
  );
}

function checksOf({ allowed, denied }: Figures): number {
  return allowed + denied;
}

const LATENCY_SERIES = [
  ['p50', 0.5, 'first'],
  ['p99', 0.99, 'second'],
  ['p99.9', 0.999, 'third'],
] as const;

interface LatencyProps extends SectionProps {
  minutes: readonly PastMinute[];
  spans: readonly LatencySpan[];
}

function Latency({ history, minutes, spans, bounds }: LatencyProps) {
  const { times, series, range } = useMemo(() => {
    const largest = bounds.at(-1)!;
    const points = pointsOf(minutes, history, {
      minute: ({ latency }) => latency,
      second: ({ latency }) => latency,
    });
    return {
      times: points.map(({ at }) => at),
      series: LATENCY_SERIES.map(([name, share, color]) => ({
        name,
        color,
        values: points.map(({ value: counts }) => {
          const value = counts === null ? undefined : percentile(counts, bounds, share);
          return value === undefined ? null : Math.min(value, largest);
        }),
      })),
      range: timeOf(points),
    };
  }, [history, minutes, bounds]);
  return (
    <section aria-labelledby="latency">
      <h2 id="latency">Latency</h2>
      <p class="hint">
        From the complete request to its response, inside weir. Each figure is the upper bound of
        its bucket.
      </p>
      <Chart
        title="Latency of check requests"
        note={minutes.length > 0 ? RESOLUTION : undefined}
        times={times}
        series={series}
        format={formatLatency}
        formatAxis={formatMicroseconds}
        range={range}
      />
      {spans.length > 0 && (
        <Table
          caption="Latency percentiles"
          columns={['Time', 'Requests#', ...PERCENTILES.map((share) => `p${share * 100}#`)]}
        >
          {spans.map(({ spanMs, coveredMs, counts }) => (
            <tr key={spanMs}>
              <th scope="row">
                last {formatDuration(spanMs)}
                {spanMs - coveredMs > UNCOVERED_MIN_MS && (
                  <small> started {formatAge(coveredMs)} ago</small>
                )}
              </th>
              <td class="number">
                <Short value={totalOf(counts)} />
              </td>
              {PERCENTILES.map((share) => (
                <td key={share} class="number">
                  {formatLatency(percentile(counts, bounds, share))}
                </td>
              ))}
            </tr>
          ))}
        </Table>
      )}
    </section>
  );
}

function totalOf(counts: readonly number[]): number {
  return counts.reduce((sum, count) => sum + count, 0);
}
