/** /readyz and /metrics of real servers that share a real Redis. */

import { beforeAll, describe, expect, test } from 'vitest';
import {
  METRICS,
  type MetricName,
  metricDeclaration,
} from '../../../src/observe/metric-declarations.ts';
import { LONGEST_WINDOW_MS, readMetrics, sendCheck } from '../../support/http.ts';
import { isRedisMissing } from '../../support/programs/redis.ts';
import { waitUntil } from '../../support/server.ts';
import { readiness, useServers, waitForStatus } from './servers.ts';
import { useRedis } from './use-redis.ts';

const CHECK = { limit: 1_000_000, duration: LONGEST_WINDOW_MS };

describe.skipIf(isRedisMissing)('two servers with one Redis', () => {
  const redis = useRedis({ config: ['appendonly yes', 'appendfsync no'] });
  const { servers, start } = useServers(3);
  beforeAll(async () => {
    await Promise.all([0, 1].map((i) => start(i, redis.url)));
  }, 60_000);

  test('are ready when they know each other', async () => {
    for (const server of servers) {
      expect(await waitForStatus(server, 'ready')).toMatchObject({
        redis: { connected: true, joined: true, recovering: false },
      });
      await waitUntil('it knows both machines', async () => {
        return (await readiness(server))[1].redis.machines === 2;
      });
    }
  });

  test('have all metrics of Redis, which count what they do', async () => {
    const [server] = servers;
    const name = (of: MetricName) => {
      return metricDeclaration(of).type === 'histogram' ? `${of}_count` : of;
    };
    const declared = (Object.keys(METRICS) as MetricName[]).filter((of) => {
      return metricDeclaration(of).engine === 'redis';
    });
    for (let i = 0; i < 50; i++) {
      await sendCheck(server.port, { ...CHECK, identifier: 'busy' });
      await sendCheck(server.port, { ...CHECK, identifier: `rare_${i}` });
    }
    const measured = await readMetrics(server.adminUrl);
    const names = new Set([...measured.keys()].map((key) => key.replace(/\{.*/, '')));
    expect(declared.filter((of) => !names.has(name(of)))).toEqual([]);
    const calls = measured.get('weir_redis_calls_total')!;
    expect(measured.get('weir_token_requests_total')).toBeGreaterThan(0);
    expect(calls).toBeGreaterThan(0);
    expect(measured.get('weir_redis_call_duration_seconds_count')).toBeLessThanOrEqual(calls);
    expect(measured.get('weir_redis_call_duration_seconds_sum')).toBeGreaterThan(0);
    expect(measured.get('weir_leases_granted_total')).toBeGreaterThan(0);
    expect(measured.get('weir_leased_tokens_total')).toBeGreaterThanOrEqual(
      measured.get('weir_leases_granted_total')!,
    );
    expect(measured.get('weir_redis_call_failures_total')).toBeLessThan(calls);
  });

  test('are degraded while Redis may delete keys, and a start is refused', async () => {
    const policy = (name: string) => redis.command('CONFIG', 'SET', 'maxmemory-policy', name);
    await policy('allkeys-lru');
    const { reasons, redis: seen } = await waitForStatus(servers[0], 'degraded');
    expect([reasons, seen.connected]).toEqual([
      [expect.stringContaining(`(127.0.0.1:${redis.port}: allkeys-lru)`)],
      true,
    ]);
    await expect(start(2, redis.url)).rejects.toThrow(
      `the maxmemory-policy of Redis must be noeviction; got 127.0.0.1:${redis.port}: allkeys-lru`,
    );
    await policy('noeviction');
    for (const server of servers.slice(0, 2)) await waitForStatus(server, 'ready');
  }, 60_000);

  test('are degraded, and ready for balancers, while Redis is gone', async () => {
    const [server] = servers;
    await redis.stop();
    const identifier = 'while_redis_is_gone';
    await waitUntil('the server notices', async () => {
      expect((await sendCheck(server.port, { ...CHECK, identifier })).success).toBe(true);
      return (await readiness(server))[1].status === 'degraded';
    });
    const [status, body] = await readiness(server);
    expect([status, body.redis.connected]).toEqual([200, false]);
    const cause = 'Redis does not respond to 1 of 1 shard workers: WEIR_ON_ENGINE_DOWN=local';
    expect(body.reasons?.join()).toContain(cause);
    await sendCheck(server.port, { ...CHECK, identifier });
    const measured = await readMetrics(server.adminUrl);
    const allowed = 'weir_engine_down_decisions_total{outcome="allowed"}';
    expect(measured.get(allowed)).toBeGreaterThan(0);
    expect(measured.get('weir_degraded{reason="redis_down"}')).toBe(1);
    expect(measured.get('weir_redis_breaker_openings_total')).toBeGreaterThan(0);
    expect(measured.get('weir_redis_connected{worker="0"}')).toBe(0);
    await redis.restart();
    for (const one of servers) await waitForStatus(one, 'ready');
  }, 60_000);
});
