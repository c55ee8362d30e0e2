/** The health of this weir, and of its connection to Redis. */

import type { Count, Health, RedisFigures, Snapshot } from '../../observe/dashboard/snapshot.ts';
import { Figure, Table } from '../common/controls.tsx';
import { Short } from '../common/figures.tsx';
import {
  formatAge,
  formatLatency,
  formatRate,
  formatShort,
  formatWhole,
  percentile,
} from '../common/format.ts';
import { RECENT_S, recentRate, requestsOf, sumHistograms } from '../common/live.ts';
import { Time } from '../common/text.tsx';

function countNote({ recent }: Count): string {
  return recent === 0 ? 'since the start' : `since the start, +${formatShort(recent)} now`;
}

/** A count that should stay 0. */
function FaultCount({ name, count }: { name: string; count: Count }) {
  const kind = count.recent > 0 ? 'bad' : undefined;
  return (
    <Figure name={name} value={<Short value={count.total} />} note={countNote(count)} kind={kind} />
  );
}

interface HealthProps {
  health: Health;
  /** With the engine `redis` there are none. */
  hasCheckpoints: boolean;
}

export function HealthSection({ health, hasCheckpoints }: HealthProps) {
  const { counters, queues, workers, connections, errors, checkpointAgeMs } = health;
  const queued = queues.reduce((sum, depth) => sum + depth, 0);
  const isComplete = workers.running >= workers.wanted;
  return (
    <section aria-labelledby="health">
      <h2 id="health">Health</h2>
      <dl class="figures">
        <Figure
          name="Counters"
          value={<Short value={counters.live} />}
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
          <Figure name="Checkpoint" value={formatAge(checkpointAgeMs)} note="old" />
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
        <FaultCount name="Unknown fields" count={health.unknownFields} />
      </dl>
      <PastFaults faults={health.pastFaults} />
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

/** When weir was degraded. */
function PastFaults({ faults }: { faults: Health['pastFaults'] }) {
  if (faults.length === 0) {
    return <p class="hint">No fault has ended in the last 24 hours, or since weir started.</p>;
  }
  return (
    <Table caption="Faults that have ended" columns={['Fault', 'From', 'Until', 'For#']}>
      {faults.map(({ reason, cause, start, end }) => (
        <tr key={`${reason} ${end}`}>
          <th scope="row">{cause}</th>
          <td>
            <Time ms={start} />
          </td>
          <td>
            <Time ms={end} />
          </td>
          <td class="number">{formatAge(end - start)}</td>
        </tr>
      ))}
    </Table>
  );
}

interface RedisProps {
  redis: RedisFigures;
  history: readonly Snapshot[];
  bounds: readonly number[];
}

export function RedisSection({ redis, history, bounds }: RedisProps) {
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
          value={<Short value={redis.leasesHeld} />}
          note={`${formatShort(redis.tokensHeld)} tokens`}
        />
        <Figure
          name="Leases granted"
          value={<Short value={redis.leasesGranted.total} />}
          note={countNote(redis.leasesGranted)}
        />
        <Figure
          name="Calls per request"
          value={requests === 0 ? '–' : formatShort(calls / requests)}
          note={`${formatRate(calls)} calls`}
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
