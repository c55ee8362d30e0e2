/** The figures of a namespace in a time: sums, charts, and its busiest identifiers. */

import { useRef } from 'preact/hooks';
import { addFigures, type Figures, NO_FIGURES } from '../../core/figures.ts';
import { type Bucket, bucketsIn, combine, type Span } from '../common/buckets.ts';
import { ErrorNote, Figure, useLoad, useTicks } from '../common/controls.tsx';
import { countsLeases, Short } from '../common/figures.tsx';
import { formatShare, formatSpan } from '../common/format.ts';
import type { Live } from '../common/live.ts';
import { secondBuckets } from '../common/minutes.ts';
import { call, type TimelinePoint } from '../common/operations.ts';
import { TimeBar, zoom } from '../common/range.tsx';
import type { Route } from '../common/router.ts';
import {
  fieldsOf,
  granularityOf,
  latestMs,
  type Range,
  type TimeRange,
  timeRangeOf,
} from '../common/time-range.ts';
import { Ranking } from './ranking.tsx';
import { RateChart } from './rate-chart.tsx';

const CHOICES: readonly Range[] = ['15m', '1h', '24h', '7d'];
const IDENTIFIERS_SHOWN = 10;
/** How often the figures are read again. */
const REFRESH_MS = 2_000;
const STEP_MS = { minute: 60_000, hour: 3_600_000 } as const;

/** What was counted in a time in which weir ran for `ms`. */
interface Counted extends Figures {
  ms: number;
}

interface NamespaceFiguresProps {
  namespaceName: string;
  live: Live;
  route: Route;
}

export function NamespaceFigures({ namespaceName, live, route }: NamespaceFiguresProps) {
  const time = timeRangeOf(route, live, CHOICES);
  const ticks = useTicks(REFRESH_MS);
  const loaded = useLoad(
    async () => {
      const range = { start: Math.floor(time.start), end: Math.ceil(time.end) + 1 };
      const nowMs = latestMs(live);
      const granularity = granularityOf(time, nowMs);
      const [{ points }, top] = await Promise.all([
        call('analytics.getTimeline', { namespaceName, granularity, ...range }),
        call('analytics.getIdentifiers', { namespaceName, limit: IDENTIFIERS_SHOWN, ...range }),
      ]);
      return { buckets: timelineBuckets(points, STEP_MS[granularity], time, live, nowMs), top };
    },
    [namespaceName, JSON.stringify(fieldsOf(time))],
    ticks,
  );
  const seconds = secondBuckets(live.history, ({ namespaces, intervalMs }): Counted => {
    const own = namespaces.find(({ name }) => name === namespaceName);
    return { ...(own?.recent ?? NO_FIGURES), ms: intervalMs };
  });
  // Buckets have their time, so they are shown in another one until those of it are loaded.
  const latest = useRef<readonly Bucket<Counted>[]>([]);
  if (loaded.data) latest.current = loaded.data.buckets;
  const buckets = combine(latest.current, seconds, time, sumCounted);
  return (
    <section aria-labelledby="figures">
      <h2 id="figures">Figures</h2>
      <TimeBar route={route} time={time} choices={CHOICES} />
      <ErrorNote error={loaded.error} />
      {loaded.data && (
        <Sums figures={sumCounted(bucketsIn(buckets, time).map(({ value }) => value))} />
      )}
      <Charts buckets={buckets} time={time} onZoom={(span) => zoom(route, time, span)} />
      {loaded.data && (
        <>
          <div class="columns">
            <Ranking
              caption="Most denied identifiers"
              unit="Denied#"
              namespaceName={namespaceName}
              identifiers={loaded.data.top.denied}
            />
            <Ranking
              caption="Most spending identifiers"
              unit="Tokens#"
              namespaceName={namespaceName}
              identifiers={loaded.data.top.spent}
            />
          </div>
          <p class="hint">
            Identifiers are counted by hour:{' '}
            {formatSpan(loaded.data.top.start, loaded.data.top.end)}.
          </p>
        </>
      )}
    </section>
  );
}

function sumCounted(all: readonly Counted[]): Counted {
  const none: Counted = { ...NO_FIGURES, ms: 0 };
  return all.reduce((sum, one) => ({ ...addFigures(sum, one), ms: sum.ms + one.ms }), none);
}

/** All minutes or hours up to now, also those without checks, which the server leaves out. */
function timelineBuckets(
  points: readonly TimelinePoint[],
  stepMs: number,
  { start, end }: Span,
  { minutes }: Live,
  nowMs: number,
): Bucket<Counted>[] {
  const byTime = new Map(points.map((point) => [point.time, point]));
  const down = new Set(
    minutes.filter(({ decisions }) => decisions?.ranMs === 0).map(({ at }) => at),
  );
  const buckets: Bucket<Counted>[] = [];
  for (let at = Math.floor(start / stepMs) * stepMs; at < Math.min(end, nowMs); at += stepMs) {
    const point = byTime.get(at);
    if (point === undefined && down.has(at)) continue;
    // Its counts are of all of it, also where the time that is shown ends earlier.
    const until = Math.min(at + stepMs, nowMs);
    const figures = point ?? NO_FIGURES;
    buckets.push({ start: at, end: until, value: { ...figures, ms: until - at } });
  }
  return buckets;
}

interface ChartsProps {
  buckets: readonly Bucket<Counted>[];
  time: TimeRange;
  onZoom: (span: Span) => void;
}

function Charts({ buckets, time, onZoom }: ChartsProps) {
  const hasLeases = buckets.some(({ value }) => countsLeases(value));
  const of = (allowed: keyof Figures, denied: keyof Figures) => ({
    buckets: buckets.map(({ start, end, value }) => ({
      ...{ start, end },
      value: { ms: value.ms, allowed: value[allowed], denied: value[denied] },
    })),
    span: time,
    onZoom,
  });
  return (
    <div class="charts">
      <RateChart title="Checks per second" {...of('allowed', 'denied')} />
      <RateChart title="Tokens per second" {...of('tokensAllowed', 'tokensDenied')} />
      {hasLeases && (
        <RateChart
          title="Leases per second"
          allowedName="Granted"
          {...of('leasesGranted', 'leasesDenied')}
        />
      )}
    </div>
  );
}

function Sums({ figures }: { figures: Figures }) {
  const { allowed, denied, tokensAllowed, tokensDenied } = figures;
  const checks = allowed + denied;
  return (
    <dl class="figures">
      <Figure name="Checks" value={<Short value={checks} />} />
      <Figure name="Denied" value={<Short value={denied} />} />
      <Figure
        name="Denied share"
        value={checks === 0 ? '–' : formatShare(denied / checks)}
        kind={denied > 0 ? 'bad' : undefined}
      />
      <Figure name="Tokens" value={<Short value={tokensAllowed} />} />
      <Figure name="Tokens denied" value={<Short value={tokensDenied} />} />
    </dl>
  );
}
