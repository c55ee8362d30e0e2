/** The overview: rates, latency and health, from the event stream. */

import { useMemo, useState } from 'preact/hooks';
import type { Count, Health, RedisFigures, Snapshot } from '../../observe/dashboard/snapshot.ts';
import { Chart } from '../common/chart.tsx';
import type { ViewProps } from '../common/context.ts';
import { Figure, Note, Select, Table } from '../common/controls.tsx';
import {
  formatBytes,
  formatDuration,
  formatLatency,
  formatMicroseconds,
  formatRate,
  formatShare,
  formatShort,
  formatWhole,
  percentile,
} from '../common/format.ts';
import { recentRate, sumHistograms } from '../common/live.ts';
import { linkTo } from '../common/router.ts';
import { Name } from '../common/text.tsx';
import { visibleText } from '../common/visible-text.ts';

/** Seconds over which current rates and percentiles are averaged. */
const RECENT_S = 10;
const PERCENTILES = [0.5, 0.9, 0.99, 0.999];
/** From this share of the capacity on, the table counts as nearly full. */
const NEARLY_FULL = 0.9;
const ALL = '';

export function OverviewView({ session, grant, live, route }: ViewProps) {
  const { history } = live;
  const latest = history.at(-1);
  if (latest === undefined) {
    return (
      <>
        <h1 tabIndex={-1}>Overview</h1>
        <p class="empty">Waiting for the first figures…</p>
      </>
    );
  }
  const bounds = session.server.latencyBoundsUs;
  return (
    <>
      <h1 tabIndex={-1}>Overview</h1>
      <Summary history={history} latest={latest} bounds={bounds} />
      {grant.mayInSome('read_analytics') ? (
        <Decisions history={history} latest={latest} chosen={route.query.get('namespace')} />
      ) : (
        <p class="empty">
          Figures of namespaces need the permission <code>read_analytics</code>.
        </p>
      )}
      <Latency history={history} bounds={bounds} />
      <HealthSection health={latest.health} hasCheckpoints={latest.redis === undefined} />
      {latest.redis && <RedisSection redis={latest.redis} history={history} bounds={bounds} />}
    </>
  );
}

interface SectionProps {
  history: readonly Snapshot[];
  bounds: readonly number[];
}

const requestsOf = ({ latency }: Snapshot) => latency.reduce((sum, count) => sum + count, 0);

function Summary({ history, latest, bounds }: SectionProps & { latest: Snapshot }) {
  const { health } = latest;
  const allowed = recentRate(history, RECENT_S, ({ namespaces }) => sumOf(namespaces, 'allowed'));
  const denied = recentRate(history, RECENT_S, ({ namespaces }) => sumOf(namespaces, 'denied'));
  const requests = recentRate(history, RECENT_S, requestsOf);
  const recent = sumHistograms(history.slice(-RECENT_S).map(({ latency }) => latency));
  const isReady = health.status === 'ready';
  const fill = health.counters.live / health.counters.capacity;
  return (
    <>
      {health.reasons.length > 0 && (
        <Note kind="warning">
          <ul>
            {health.reasons.map((reason) => (
              <li key={reason}>{reason}</li>
            ))}
          </ul>
        </Note>
      )}
      <dl class="figures">
        <Figure name="Status" value={health.status} kind={isReady ? 'good' : 'warn'} />
        <Figure name="Requests" value={`${formatRate(requests)}/s`} note="last 10 s" />
        <Figure
          name="Denied"
          value={allowed + denied === 0 ? '–' : formatShare(denied / (allowed + denied))}
          note={`${formatRate(denied)}/s`}
        />
        <Figure
          name="Latency p99"
          value={formatLatency(percentile(recent, bounds, 0.99))}
          note="inside weir"
        />
        <Figure
          name="Table"
          value={formatShare(fill)}
          note={`${formatShort(health.counters.live)} counters`}
          kind={fill >= NEARLY_FULL ? 'warn' : undefined}
        />
        <Figure name="Memory" value={formatBytes(health.memoryBytes)} note="resident" />
      </dl>
    </>
  );
}

function sumOf(namespaces: Snapshot['namespaces'], field: 'allowed' | 'denied'): number {
  return namespaces.reduce((sum, { recent }) => sum + recent[field], 0);
}

/** The decisions of a snapshot in a second; undefined for the first snapshot. */
function perSecond(
  { namespaces, intervalMs }: Snapshot,
  field: 'allowed' | 'denied',
  chosen: string,
): number | null {
  if (intervalMs === 0) return null;
  const counted = chosen === ALL ? namespaces : namespaces.filter(({ name }) => name === chosen);
  return (sumOf(counted, field) * 1_000) / intervalMs;
}

/** At least one minute, so that the first points are not far apart. */
function liveRange(history: readonly Snapshot[]): [number, number] {
  const [first, last] = [history[0]?.at ?? 0, history.at(-1)?.at ?? 0];
  return [Math.min(first, last - 60_000), last];
}

/** The live rates of one namespace, or of all that the key may see. */
export function RateChart({
  history,
  namespace,
}: {
  history: readonly Snapshot[];
  namespace: string;
}) {
  const { times, series } = useMemo(() => {
    const valuesOf = (field: 'allowed' | 'denied') => {
      return history.map((snapshot) => perSecond(snapshot, field, namespace));
    };
    return {
      times: history.map(({ at }) => at),
      series: [
        { name: 'Allowed/s', color: 'allowed' as const, values: valuesOf('allowed') },
        { name: 'Denied/s', color: 'denied' as const, values: valuesOf('denied') },
      ],
    };
  }, [history, namespace]);
  const title = namespace === ALL ? 'All namespaces' : visibleText(namespace);
  return (
    <Chart
      title={title}
      times={times}
      series={series}
      format={formatShort}
      range={liveRange(history)}
    />
  );
}

function Decisions({
  history,
  latest,
  chosen,
}: {
  history: readonly Snapshot[];
  latest: Snapshot;
  chosen: string | null;
}) {
  const [namespace, setNamespace] = useState(chosen ?? ALL);
  const rows = latest.namespaces
    .map((figures) => {
      const rate = (field: 'allowed' | 'denied' | 'tokensAllowed') => {
        return recentRate(history, RECENT_S, ({ namespaces }) => {
          return namespaces.find(({ name }) => name === figures.name)?.recent[field] ?? 0;
        });
      };
      const [allowed, denied] = [rate('allowed'), rate('denied')];
      return { ...figures, allowed, denied, tokens: rate('tokensAllowed') };
    })
    .toSorted((a, b) => b.allowed + b.denied - a.allowed - a.denied);
  return (
    <section aria-labelledby="decisions">
      <div class="section-head">
        <h2 id="decisions">Decisions</h2>
        <Select
          label="Namespace"
          value={namespace}
          onChoose={setNamespace}
          options={[
            [ALL, 'All namespaces'],
            ...latest.namespaces.map(({ name }) => [name, visibleText(name)] as const),
          ]}
        />
      </div>
      <RateChart history={history} namespace={namespace} />
      {rows.length === 0 ? (
        <p class="empty">No namespace has had a check yet.</p>
      ) : (
        <Table
          caption="By namespace, last 10 s"
          columns={['Namespace', 'Allowed/s#', 'Denied/s#', 'Denied share#', 'Tokens/s#', 'Total#']}
        >
          {rows.map(({ id, name, allowed, denied, tokens, total }) => (
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
              <td class="number">{formatRate(allowed)}</td>
              <td class="number">{formatRate(denied)}</td>
              <td class="number">
                {allowed + denied === 0 ? '–' : formatShare(denied / (allowed + denied))}
              </td>
              <td class="number">{formatRate(tokens)}</td>
              <td class="number">{formatWhole(total.allowed + total.denied)}</td>
            </tr>
          ))}
        </Table>
      )}
    </section>
  );
}

const LATENCY_SERIES = [
  ['p50', 0.5, 'first'],
  ['p99', 0.99, 'second'],
  ['p99.9', 0.999, 'third'],
] as const;

function Latency({ history, bounds }: SectionProps) {
  const { times, series } = useMemo(() => {
    const largest = bounds.at(-1)!;
    return {
      times: history.map(({ at }) => at),
      series: LATENCY_SERIES.map(([name, share, color]) => ({
        name,
        color,
        values: history.map(({ latency }) => {
          const value = percentile(latency, bounds, share);
          return value === undefined ? null : Math.min(value, largest);
        }),
      })),
    };
  }, [history, bounds]);
  return (
    <section aria-labelledby="latency">
      <h2 id="latency">Latency</h2>
      <p class="hint">
        From the complete request to its response, inside weir. Each figure is the upper bound of
        its bucket.
      </p>
      <Chart
        title="Latency by second"
        times={times}
        series={series}
        format={formatLatency}
        formatAxis={formatMicroseconds}
        range={liveRange(history)}
      />
      <Table
        caption="Latency of check requests"
        columns={['Time', 'Requests#', ...PERCENTILES.map((share) => `p${share * 100}#`)]}
      >
        {[10, 60, 300].map((seconds) => {
          const counts = sumHistograms(history.slice(-seconds).map(({ latency }) => latency));
          return (
            <tr key={seconds}>
              <th scope="row">last {formatDuration(seconds * 1_000)}</th>
              <td class="number">{formatWhole(counts.reduce((sum, count) => sum + count, 0))}</td>
              {PERCENTILES.map((share) => (
                <td key={share} class="number">
                  {formatLatency(percentile(counts, bounds, share))}
                </td>
              ))}
            </tr>
          );
        })}
      </Table>
    </section>
  );
}

function countNote({ total, recent }: Count): string {
  return recent === 0 ? 'since the start' : `${formatWhole(total)}, +${formatWhole(recent)} now`;
}

/** A count that should stay 0. */
function FaultCount({ name, count }: { name: string; count: Count }) {
  const kind = count.recent > 0 ? 'bad' : undefined;
  return (
    <Figure name={name} value={formatShort(count.total)} note={countNote(count)} kind={kind} />
  );
}

interface HealthProps {
  health: Health;
  /** With the engine `redis` there are none. */
  hasCheckpoints: boolean;
}

function HealthSection({ health, hasCheckpoints }: HealthProps) {
  const { counters, queues, workers, connections, errors, checkpointAgeMs } = health;
  const queued = queues.reduce((sum, depth) => sum + depth, 0);
  const isComplete = workers.running >= workers.wanted;
  return (
    <section aria-labelledby="health">
      <h2 id="health">Health</h2>
      <dl class="figures">
        <Figure
          name="Counters"
          value={formatShort(counters.live)}
          note={`of ${formatShort(counters.capacity)}`}
        />
        <FaultCount name="Evictions" count={health.evictions} />
        <FaultCount name="Full-table decisions" count={health.fullTableDecisions} />
        <Figure name="Queued" value={formatWhole(queued)} note="entries that wait" />
        <Figure name="Acceptors" value={formatWhole(health.acceptors)} note="threads" />
        <Figure
          name="Shard workers"
          value={`${workers.running} of ${workers.wanted}`}
          note={`${formatWhole(workers.replaced)} replaced`}
          kind={isComplete ? undefined : 'bad'}
        />
        {checkpointAgeMs !== undefined && (
          <Figure
            name="Checkpoint"
            value={formatDuration(Math.round(checkpointAgeMs / 100) * 100)}
            note="old"
          />
        )}
        {hasCheckpoints && (
          <FaultCount name="Failed checkpoints" count={health.checkpointFailures} />
        )}
        <Figure
          name="Connections"
          value={formatWhole(connections.open)}
          note={`of ${formatWhole(connections.max)}`}
        />
        <FaultCount name="Shed requests" count={health.shed} />
      </dl>
      {Object.keys(errors).length > 0 && (
        <Table caption="Error responses" columns={['Code', 'Since the start#', 'Last second#']}>
          {Object.entries(errors).map(([code, { total, recent }]) => (
            <tr key={code}>
              <th scope="row">
                <code>{code}</code>
              </th>
              <td class="number">{formatWhole(total)}</td>
              <td class="number">{formatWhole(recent)}</td>
            </tr>
          ))}
        </Table>
      )}
    </section>
  );
}

function RedisSection({ redis, history, bounds }: SectionProps & { redis: RedisFigures }) {
  const connected = redis.connected.filter((isConnected) => isConnected).length;
  const requests = recentRate(history, RECENT_S, requestsOf);
  const calls = recentRate(history, RECENT_S, (snapshot) => snapshot.redis?.calls.recent ?? 0);
  const latency = sumHistograms(
    history.slice(-RECENT_S).flatMap((snapshot) => {
      return snapshot.redis === undefined ? [] : [snapshot.redis.calls.latency];
    }),
  );
  return (
    <section aria-labelledby="redis">
      <h2 id="redis">Redis</h2>
      <dl class="figures">
        <Figure
          name="Connected"
          value={`${connected} of ${redis.connected.length}`}
          note="shard workers"
          kind={connected === redis.connected.length ? 'good' : 'bad'}
        />
        <Figure name="Machines" value={formatWhole(redis.machines)} note="with this one" />
        <Figure
          name="Leases held"
          value={formatShort(redis.leasesHeld)}
          note={`${formatShort(redis.tokensHeld)} tokens`}
        />
        <Figure
          name="Leases granted"
          value={formatShort(redis.leasesGranted.total)}
          note={countNote(redis.leasesGranted)}
        />
        <Figure
          name="Calls per request"
          value={requests === 0 ? '–' : formatRate(calls / requests)}
          note={`${formatRate(calls)} calls/s`}
        />
        <Figure
          name="Call latency p99"
          value={formatLatency(percentile(latency, bounds, 0.99))}
          note={`p50 ${formatLatency(percentile(latency, bounds, 0.5))}`}
        />
        <FaultCount name="Failed calls" count={redis.calls.failures} />
        <FaultCount name="Decided without Redis" count={redis.withoutRedis} />
      </dl>
    </section>
  );
}
