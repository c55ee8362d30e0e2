/** One namespace: its decisions over time, its busiest identifiers, its policy and overrides. */

import { useMemo } from 'preact/hooks';
import { NO_FIGURES } from '../../core/figures.ts';
import { Chart } from '../common/chart.tsx';
import type { ViewProps } from '../common/context.ts';
import { ErrorNote, Note, Table, Unavailable, useLoad, useTicks } from '../common/controls.tsx';
import { Copy } from '../common/copy.tsx';
import { formatDuration, formatShort, formatWhole } from '../common/format.ts';
import { useNamespaces } from '../common/namespaces.ts';
import { call, callAll, type TimelinePoint } from '../common/operations.ts';
import { granularityOf, type Range, RangeSelect, rangeOf, useRange } from '../common/range.tsx';
import { linkTo } from '../common/router.ts';
import { End, Name } from '../common/text.tsx';
import { DeleteNamespace } from './delete-namespace.tsx';
import { kindOf } from './override-dialogs.tsx';
import { PolicyDetails } from './policies.tsx';
import { Ranking } from './ranking.tsx';
import { RateChart } from './rate-chart.tsx';

const IDENTIFIERS_SHOWN = 10;
/** How often the figures over time are read again. */
const REFRESH_MS = 2_000;
const POLICIES_MAX = 1_000;
/** Overrides in this view; the view of overrides has all of them. */
const OVERRIDES_SHOWN = 20;

export function NamespaceView({ grant, live, route }: ViewProps) {
  const namespaceName = route.item;
  const known = useNamespaces(grant);
  const id =
    known.data?.find(({ name }) => name === namespaceName)?.id ??
    live.history.at(-1)?.namespaces.find(({ name }) => name === namespaceName)?.id;
  const [range, setRange] = useRange();
  return (
    <>
      <p class="breadcrumb">
        <a href={linkTo('namespaces')}>Namespaces</a>
      </p>
      <h1 tabIndex={-1}>
        <Name text={namespaceName} />
      </h1>
      {id !== undefined && (
        <p class="hint with-copy">
          <code>{id}</code>
          <Copy text={id} />
        </p>
      )}
      <ErrorNote error={known.error} />
      {!known.isLoading && id === undefined && (
        <Note kind="info">There is no namespace of this name, or you may not see it.</Note>
      )}
      {grant.may('read_analytics', id) ? (
        <>
          <section aria-labelledby="now">
            <h2 id="now">Now</h2>
            <RateChart history={live.history} minutes={[]} namespace={namespaceName} />
          </section>
          <History namespaceName={namespaceName} range={range} onChoose={setRange} />
        </>
      ) : (
        <Unavailable permission="read_analytics" what="see figures of this namespace" />
      )}
      {grant.may('read_namespace', id) && <PolicySection namespaceName={namespaceName} />}
      {id !== undefined && grant.may('read_override', id) && (
        <OverridesSection namespaceName={namespaceName} namespaceId={id} />
      )}
      {id !== undefined && grant.may('delete_namespace', id) && (
        <DeleteNamespace name={namespaceName} id={id} grant={grant} />
      )}
    </>
  );
}

interface HistoryProps {
  namespaceName: string;
  range: Range;
  onChoose: (range: Range) => void;
}

function History({ namespaceName, range, onChoose }: HistoryProps) {
  const ticks = useTicks(REFRESH_MS);
  const timeline = useLoad(
    async () => {
      const granularity = granularityOf(range);
      const time = rangeOf(range);
      const { points } = await call('analytics.getTimeline', {
        namespaceName,
        granularity,
        ...time,
      });
      return { points: withGaps(points, granularity, time), time };
    },
    [namespaceName, range],
    ticks,
  );
  const top = useLoad(
    async () => {
      const limit = IDENTIFIERS_SHOWN;
      return call('analytics.getIdentifiers', { namespaceName, limit, ...rangeOf(range) });
    },
    [namespaceName, range],
    ticks,
  );
  return (
    <section aria-labelledby="history">
      <div class="section-head">
        <h2 id="history">History</h2>
        <RangeSelect range={range} onChoose={onChoose} />
      </div>
      <ErrorNote error={timeline.error ?? top.error} />
      {timeline.data && (
        <Timeline
          points={timeline.data.points}
          granularity={granularityOf(range)}
          time={timeline.data.time}
        />
      )}
      {top.data && (
        <div class="columns">
          <Ranking
            caption="Most denied identifiers"
            unit="Denied#"
            namespaceName={namespaceName}
            identifiers={top.data.denied}
          />
          <Ranking
            caption="Most spending identifiers"
            unit="Tokens#"
            namespaceName={namespaceName}
            identifiers={top.data.spent}
          />
        </div>
      )}
    </section>
  );
}

const STEP_MS = { minute: 60_000, hour: 3_600_000 } as const;

/** Adds the points without checks, which the server leaves out. */
function withGaps(
  points: readonly TimelinePoint[],
  granularity: 'minute' | 'hour',
  { start, end }: { start: number; end: number },
): TimelinePoint[] {
  const step = STEP_MS[granularity];
  const byTime = new Map(points.map((point) => [point.time, point]));
  const all: TimelinePoint[] = [];
  for (let time = Math.ceil(start / step) * step; time <= end; time += step) {
    all.push(byTime.get(time) ?? { time, ...NO_FIGURES });
  }
  return all;
}

interface TimelineProps {
  points: readonly TimelinePoint[];
  granularity: string;
  time: { start: number; end: number };
}

function Timeline({ points, granularity, time }: TimelineProps) {
  const { times, series } = useMemo(
    () => ({
      times: points.map(({ time }) => time),
      series: [
        { name: 'Allowed', color: 'allowed' as const, values: points.map((it) => it.allowed) },
        { name: 'Denied', color: 'denied' as const, values: points.map((it) => it.denied) },
      ],
    }),
    [points],
  );
  return (
    <Chart
      title={`Decisions by ${granularity}`}
      times={times}
      series={series}
      format={formatShort}
      range={[time.start, time.end]}
    />
  );
}

function PolicySection({ namespaceName }: { namespaceName: string }) {
  const policy = useLoad(async () => {
    const { items } = await callAll(
      'ratelimits.listPolicies',
      {},
      ({ policies }) => policies,
      POLICIES_MAX,
    );
    return items.filter(({ namespace }) => namespace === namespaceName);
  }, [namespaceName]);
  return (
    <section aria-labelledby="policy">
      <h2 id="policy">Policy</h2>
      <ErrorNote error={policy.error} />
      {policy.data?.length === 0 && (
        <p class="empty">This namespace has no gateway policy. Each check names its own limit.</p>
      )}
      {policy.data?.map((one) => (
        <PolicyDetails key={one.namespace} policy={one} />
      ))}
    </section>
  );
}

function OverridesSection(props: { namespaceName: string; namespaceId: string }) {
  const { namespaceName, namespaceId } = props;
  const list = useLoad(
    () => call('ratelimits.listOverrides', { namespaceId, limit: OVERRIDES_SHOWN }),
    [namespaceId],
  );
  return (
    <section aria-labelledby="overrides">
      <h2 id="overrides">Overrides</h2>
      <ErrorNote error={list.error} />
      {list.data?.overrides.length === 0 && <p class="empty">This namespace has no overrides.</p>}
      {list.data !== undefined && list.data.overrides.length > 0 && (
        <Table
          caption="Overrides of this namespace"
          columns={['Identifier', 'Kind', 'Limit#', 'Window#', 'Concurrency#', 'Expires']}
        >
          {list.data.overrides.map(({ id, limit, duration, concurrency, expires, ...selector }) => (
            <tr key={id}>
              <th scope="row">
                <Name text={selector.identifier} />
              </th>
              <td>{kindOf(selector)}</td>
              <td class="number">{formatWhole(limit)}</td>
              <td class="number">{formatDuration(duration)}</td>
              <td class="number">{concurrency !== undefined && formatWhole(concurrency)}</td>
              <td>
                <End ms={expires} />
              </td>
            </tr>
          ))}
        </Table>
      )}
      <p>
        <a href={linkTo('overrides', '', { namespace: namespaceName })}>
          Search and change its overrides
        </a>
      </p>
    </section>
  );
}
