/** The overview: rates, latency and health, from the event stream. */

import { type Figures, figuresOf } from '../../core/figures.ts';
import type { Health, Snapshot } from '../../observe/dashboard/snapshot.ts';
import { bucketsIn, type Span } from '../common/buckets.ts';
import type { ViewProps } from '../common/context.ts';
import { Figure, Select } from '../common/controls.tsx';
import { countsOf, type Decisions, decisionBuckets, sumDecisions } from '../common/decisions.ts';
import { countsLeases, figureColumns, Short } from '../common/figures.tsx';
import {
  formatBytes,
  formatLatency,
  formatPerSecond,
  formatRate,
  formatShare,
  formatSpan,
  percentile,
} from '../common/format.ts';
import { type Live, RECENT_S, recentRate, sumOf } from '../common/live.ts';
import type { PastMinute } from '../common/minutes.ts';
import { TimeBar, zoom } from '../common/range.tsx';
import { linkTo, linkWith, navigate } from '../common/router.ts';
import { type Column, SortedTable } from '../common/sorted-table.tsx';
import { DeniedSparkline } from '../common/sparkline.tsx';
import { Name, Time } from '../common/text.tsx';
import {
  fieldsOf,
  isChosen,
  type Range,
  type TimeRange,
  timeRangeOf,
} from '../common/time-range.ts';
import { visibleText } from '../common/visible-text.ts';
import { HealthSection, RedisSection } from './health.tsx';
import { LatencyChart, LatencySection, latencyBuckets, latencyIn, totalOf } from './latency.tsx';
import { RateChart } from './rate-chart.tsx';

/** Stands for all namespaces: no namespace has an empty name. */
const ALL = '';
/** The server sends the last hour of all namespaces. */
const CHOICES: readonly Range[] = ['15m', '1h'];

export function OverviewView({ session, grant, live, route }: ViewProps) {
  const { history } = live;
  const latest = history.at(-1);
  const bounds = session.server.latencyBoundsUs;
  const namespace = route.query.get('namespace') ?? ALL;
  const shownName = namespace === ALL ? 'all namespaces' : visibleText(namespace);
  const isPermitted = grant.mayInSome('read_analytics');
  const time = timeRangeOf(route, live, CHOICES);
  const decisions = decisionBuckets(live, time);
  const latency = latencyBuckets(live, time);
  const chosen = isChosen(time)
    ? sumDecisions(bucketsIn(decisions, time).map(({ value }) => value))
    : undefined;
  const onZoom = (span: Span) => zoom(route, time, span);
  return (
    <>
      <h1 tabIndex={-1}>Overview</h1>
      {latest === undefined ? (
        <p class="empty">Waiting for the first figures…</p>
      ) : (
        <Summary
          health={latest.health}
          bounds={bounds}
          {...(chosen === undefined
            ? recentFigures(history, latest)
            : { ...ratesOf(chosen), ...latencyIn(latency, time), note: 'in the chosen time' })}
        />
      )}
      <section aria-labelledby="traffic">
        <h2 id="traffic">Traffic</h2>
        <div class="toolbar">
          <TimeBar route={route} time={time} choices={CHOICES} />
          {isPermitted && (
            <NamespaceSelect
              {...{ live, namespace }}
              onChoose={(name) => navigate(linkWith(route, { namespace: name }))}
            />
          )}
        </div>
        <div class="charts">
          {isPermitted && (
            <RateChart
              title={`Checks per second, ${shownName}`}
              buckets={decisions.map(({ start, end, value }) => {
                return {
                  start,
                  end,
                  value: { ms: value.ms, ...countsOf(value, namespace || undefined) },
                };
              })}
              span={time}
              onZoom={onZoom}
            />
          )}
          <LatencyChart buckets={latency} bounds={bounds} span={time} onZoom={onZoom} />
        </div>
      </section>
      {isPermitted ? (
        <Namespaces live={live} time={time} chosen={chosen} />
      ) : (
        <p class="empty">
          Figures of namespaces need the permission <code>read_analytics</code>.
        </p>
      )}
      {latest !== undefined && (
        <>
          <LatencySection
            buckets={latency}
            bounds={bounds}
            spans={latest.latencySpans}
            time={time}
          />
          <HealthSection health={latest.health} hasCheckpoints={latest.redis === undefined} />
          {latest.redis && <RedisSection redis={latest.redis} history={history} bounds={bounds} />}
        </>
      )}
    </>
  );
}

/** Decisions in a second. */
interface Rates {
  allowed: number;
  denied: number;
}

function ratesOf(decisions: Decisions, namespace?: string): Rates {
  const { allowed, denied } = countsOf(decisions, namespace);
  const perSecond = decisions.ms === 0 ? 0 : 1_000 / decisions.ms;
  return { allowed: allowed * perSecond, denied: denied * perSecond };
}

function recentFigures(history: readonly Snapshot[], { latencySpans }: Snapshot) {
  const rate = (field: 'allowed' | 'denied') => {
    return recentRate(history, RECENT_S, ({ namespaces }) => sumOf(namespaces, field));
  };
  return {
    allowed: rate('allowed'),
    denied: rate('denied'),
    ...latencySpans[0],
    note: 'last 10 s',
  };
}

interface SummaryProps extends Rates {
  health: Health;
  bounds: readonly number[];
  /** Requests by bucket of the latency, and the time that they cover. */
  counts: readonly number[];
  coveredMs: number;
  /** The time of the figures. */
  note: string;
}

function Summary({ health, bounds, counts, coveredMs, allowed, denied, note }: SummaryProps) {
  const isReady = health.status === 'ready';
  const { live, capacity, isNearlyFull } = health.counters;
  const [lastFault] = health.pastFaults;
  return (
    <>
      {health.reasons.length > 0 && (
        // No live region: the ages in the texts change every second.
        <section class="note warning" aria-label="Why weir is degraded">
          <ul>
            {health.reasons.map((reason) => (
              <li key={reason}>{sentenceOf(reason)}</li>
            ))}
          </ul>
        </section>
      )}
      <dl class="figures">
        <Figure
          name="Status"
          value={health.status}
          note={
            lastFault && (
              <>
                last fault <Time ms={lastFault.end} />
              </>
            )
          }
          kind={isReady ? 'good' : 'warn'}
        />
        <Figure
          name="Requests"
          value={
            coveredMs === 0 ? (
              '–'
            ) : (
              <Short value={(totalOf(counts) * 1_000) / coveredMs} format={formatRate} />
            )
          }
          note={note}
        />
        <Figure
          name="Denied"
          value={allowed + denied === 0 ? '–' : formatShare(denied / (allowed + denied))}
          note={<Short value={denied} format={formatRate} />}
          kind={denied > 0 ? 'bad' : undefined}
        />
        <Figure
          name="Latency p99"
          value={formatLatency(percentile(counts, bounds, 0.99))}
          note="inside weir"
        />
        <Figure
          name="Table"
          value={formatShare(live / capacity)}
          note={
            <>
              <Short value={live} /> counters
            </>
          }
          kind={isNearlyFull ? 'warn' : undefined}
        />
        <Figure name="Memory" value={formatBytes(health.memoryBytes)} note="resident" />
      </dl>
    </>
  );
}

/** Reasons begin in lower case, because lines of the command line do. */
function sentenceOf(text: string): string {
  return text.charAt(0).toUpperCase() + text.slice(1);
}

interface NamespaceSelectProps {
  live: Live;
  namespace: string;
  onChoose: (name: string) => void;
}

function NamespaceSelect({ live, namespace, onChoose }: NamespaceSelectProps) {
  const known = live.history.at(-1)?.namespaces ?? [];
  // The address may name a namespace without figures.
  const names = new Set([...known.map(({ name }) => name), namespace]);
  names.delete(ALL);
  return (
    <Select
      label="Namespace"
      value={namespace}
      onChoose={onChoose}
      options={[
        [ALL, 'All namespaces'],
        ...[...names].map((name) => [name, visibleText(name)] as const),
      ]}
    />
  );
}

interface NamespacesProps {
  live: Live;
  time: TimeRange;
  /** The decisions of the time that the reader has chosen. */
  chosen: Decisions | undefined;
}

function Namespaces({ live: { history, minutes }, time, chosen }: NamespacesProps) {
  const namespaces = history.at(-1)?.namespaces ?? [];
  const hasLeases = namespaces.some(({ total }) => countsLeases(total));
  const rows = namespaces
    .map(({ id, name, total }): NamespaceRow => {
      const rates = chosen === undefined ? recentRatesOf(history, name) : ratesOf(chosen, name);
      return { id, name, total: checksOf(total), ...rates };
    })
    .toSorted((a, b) => checksOf(b) - checksOf(a));
  return (
    <section aria-labelledby="decisions">
      <h2 id="decisions">Decisions</h2>
      {rows.length === 0 ? (
        history.length > 0 && <p class="empty">No namespace has had a check yet.</p>
      ) : (
        <SortedTable
          caption={
            chosen === undefined
              ? 'By namespace, last 10 s'
              : `By namespace, ${formatSpan(time.start, time.end)}`
          }
          columns={columnsOf(time, minutes, hasLeases)}
          rows={rows}
          keyOf={({ name }) => name}
        />
      )}
    </section>
  );
}

/** Rates, and all checks since the start. */
type NamespaceRow = Partial<Figures> & { id: string | undefined; name: string; total: number };

function columnsOf(
  time: TimeRange,
  minutes: readonly PastMinute[],
  hasLeases: boolean,
): Column<NamespaceRow>[] {
  return [
    {
      name: 'Namespace',
      cell: ({ id, name }) =>
        id === undefined ? (
          'all others'
        ) : (
          <a href={linkTo('namespaces', name, fieldsOf(time))}>
            <Name text={name} />
          </a>
        ),
      value: ({ name }) => name,
    },
    ...figureColumns<NamespaceRow>(formatPerSecond, hasLeases, '/s'),
    {
      name: 'Denied, last hour',
      cell: ({ name }) => <DeniedSparkline minutes={minutes} name={name} />,
    },
    {
      name: 'Total#',
      cell: ({ total }) => <Short value={total} />,
      value: ({ total }) => total,
    },
  ];
}

function recentRatesOf(history: readonly Snapshot[], name: string): Figures {
  return figuresOf((figure) => {
    return recentRate(history, RECENT_S, ({ namespaces }) => {
      return namespaces.find((one) => one.name === name)?.recent[figure] ?? 0;
    });
  });
}

function checksOf({ allowed = 0, denied = 0 }: Partial<Figures>): number {
  return allowed + denied;
}
