import { expect, test } from 'vitest';
import { OTHER_NAMESPACE } from '../../src/core/namespace.ts';
import { ACCEPTOR_STAT, WORKER_STAT } from '../../src/shared-memory/stats.ts';
import { ClusterMetrics } from '../support/cluster-metrics.ts';
import { parseMetrics } from '../support/http.ts';

const scrape = async (metrics: ClusterMetrics) => parseMetrics(await metrics.text());

test('every count of a shard worker about Redis is in one metric, added up over all workers', async () => {
  const metrics = new ClusterMetrics();
  const { tokenRequests, openedWindowTokens } = WORKER_STAT;
  const own = Object.entries(WORKER_STAT).filter(([, index]) => {
    return index >= tokenRequests && index < openedWindowTokens;
  });
  for (const [i, [, index]] of own.entries()) {
    metrics.control.workerStats(0).add(index, 2 ** i);
    metrics.control.workerStats(1).add(index, 2 ** (i + 12));
  }
  const values = [...(await scrape(metrics)).values()];
  for (const [i, [name]] of own.entries()) {
    const found = values.filter((value) => value === 2 ** i + 2 ** (i + 12));
    expect([name, found.length]).toEqual([name, 1]);
  }
});

test('a decision without Redis is counted by its outcome', async () => {
  const metrics = new ClusterMetrics();
  metrics.control.acceptorStats(0).add(ACCEPTOR_STAT.engineDownAllowed, 5);
  metrics.control.acceptorStats(1).add(ACCEPTOR_STAT.engineDownAllowed, 6);
  metrics.control.acceptorStats(1).add(ACCEPTOR_STAT.engineDownDenied, 7);
  const measured = await scrape(metrics);
  expect(measured.get('weir_engine_down_decisions_total{outcome="allowed"}')).toBe(11);
  expect(measured.get('weir_engine_down_decisions_total{outcome="denied"}')).toBe(7);
});

test('tokens that may be over their limits are counted by namespace, and no count ever falls', async () => {
  const metrics = new ClusterMetrics();
  const [sms, api, later, unknown] = [1, 2, 3, -7];
  for (const key of ['sms', 'api']) metrics.rows.rowOf({ name: key, key });
  metrics.control.workerStats(0).addOpenedTokens(sms, 5);
  metrics.control.workerStats(1).addOpenedTokens(api, 0);
  metrics.control.workerStats(1).addOpenedTokens(sms, 6);
  metrics.control.workerStats(1).addOpenedTokens(later, 3);
  metrics.control.workerStats(1).addOpenedTokens(unknown, 4);
  const counts = async () => {
    const measured = await scrape(metrics);
    return ['sms', 'api', 'later', OTHER_NAMESPACE].map((namespace) => {
      return measured.get(`weir_tokens_possibly_over_limit_total{namespace="${namespace}"}`);
    });
  };
  expect(await counts()).toEqual([11, 0, undefined, 7]);
  metrics.rows.rowOf({ name: 'later', key: 'later' });
  expect(await counts()).toEqual([11, 0, 3, 7]);
});

test('the durations of calls to Redis are one histogram of all shard workers', async () => {
  const metrics = new ClusterMetrics();
  metrics.control.workerStats(0).recordCallLatency(0.2);
  metrics.control.workerStats(1).recordCallLatency(3);
  const measured = await scrape(metrics);
  const bucket = (le: string) => {
    return measured.get(`weir_redis_call_duration_seconds_bucket{le="${le}"}`);
  };
  expect([bucket('0.00015'), bucket('0.00025'), bucket('0.0025'), bucket('0.005')]).toEqual([
    0, 1, 1, 2,
  ]);
  expect(measured.get('weir_redis_call_duration_seconds_sum')).toBeCloseTo(0.0032);
  expect(measured.get('weir_redis_call_duration_seconds_count')).toBe(2);
});

test('failed calls to Redis are counted by the kind of their error, over all shard workers', async () => {
  const metrics = new ClusterMetrics();
  metrics.control.workerStats(0).countCallError('timeout');
  metrics.control.workerStats(1).countCallError('timeout');
  metrics.control.workerStats(1).countCallError('unsupported');
  const measured = await scrape(metrics);
  const count = (kind: string) => measured.get(`weir_redis_errors_total{kind="${kind}"}`);
  expect([count('timeout'), count('unsupported'), count('denied')]).toEqual([2, 1, 0]);
});

test('a recovery that all shard workers have seen is counted once, by its outcome', async () => {
  const metrics = new ClusterMetrics();
  const { recoveriesComplete, recoveriesIncomplete } = WORKER_STAT;
  for (const worker of [0, 1]) {
    metrics.control.workerStats(worker).add(recoveriesComplete, 3 - worker);
    metrics.control.workerStats(worker).add(recoveriesIncomplete, worker);
  }
  const measured = await scrape(metrics);
  const count = (outcome: string) => measured.get(`weir_recoveries_total{outcome="${outcome}"}`);
  expect(['complete', 'incomplete'].map(count)).toEqual([3, 1]);
});

test('the differences of clocks are the largest of all shard workers, in seconds', async () => {
  const metrics = new ClusterMetrics();
  metrics.control.workerStats(0).set(WORKER_STAT.clockLagMs, 250);
  metrics.control.workerStats(1).set(WORKER_STAT.clockLagMs, 1_500);
  metrics.control.workerStats(0).set(WORKER_STAT.clockOffsetMs, 20);
  metrics.control.workerStats(1).set(WORKER_STAT.clockOffsetMs, -40);
  const measured = await scrape(metrics);
  expect(measured.get('weir_redis_clock_lag_seconds')).toBe(1.5);
  expect(measured.get('weir_redis_clock_offset_seconds')).toBe(-0.04);
});

test('gauges show the connections, the machines and the registry', async () => {
  const measured = await scrape(new ClusterMetrics());
  expect(measured.get('weir_redis_connected{worker="0"}')).toBe(1);
  expect(measured.get('weir_redis_connected{worker="1"}')).toBe(0);
  expect(measured.get('weir_cluster_machines')).toBe(3);
  expect(measured.get('weir_cluster_joined')).toBe(1);
  expect(measured.get('weir_cluster_recovering')).toBe(0);
  expect(measured.get('weir_registry_version')).toBe(41);
  expect(measured.get('weir_registry_age_seconds')).toBe(0.25);
});
