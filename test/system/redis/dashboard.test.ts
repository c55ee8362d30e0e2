import { describe, expect, test } from 'vitest';
import type { Snapshot } from '../../../src/observe/dashboard/snapshot.ts';
import { DashboardClient } from '../../support/dashboard.ts';
import { useDataDirectory } from '../../support/data-directory.ts';
import { LONGEST_WINDOW_MS, sendCheck } from '../../support/http.ts';
import { callOperationOk } from '../../support/operations.ts';
import { isRedisMissing, startRedis } from '../../support/programs/redis.ts';
import { waitUntil } from '../../support/server.ts';

describe.skipIf(isRedisMissing)('with WEIR_ENGINE=redis', () => {
  const own = useDataDirectory([
    ...['--engine', 'redis', '--acceptors', '1', '--workers', '1', '--counters', '1024'],
  ]);

  test('snapshots have leases and calls; operations run, and a revoked key is signed out', async () => {
    const redis = await startRedis();
    try {
      const server = await own.start({
        env: { WEIR_REDIS_URL: redis.url, WEIR_REDIS_TIMEOUT_MS: '1000' },
      });
      const created = await callOperationOk(server.port, 'keys.create', {
        name: 'k',
        permissions: ['*'],
      });
      const { key, keyId } = created as { key: string; keyId: string };
      const client = await DashboardClient.signIn(server.adminUrl, key);
      expect(client.session.server.engine).toBe('redis');
      const events = await client.openEvents();
      const check = { identifier: 'a', limit: 1e9, duration: LONGEST_WINDOW_MS };
      const last = () => {
        const snapshots = events.events.filter(({ event }) => event === 'snapshot');
        return snapshots.at(-1)?.data as unknown as Snapshot | undefined;
      };
      await waitUntil('a lease is shown', async () => {
        await sendCheck(server.port, check);
        return (last()?.redis?.leasesGranted.total ?? 0) > 0;
      });
      const { redis: figures, health } = last()!;
      expect(figures).toMatchObject({ connected: [true], machines: 1 });
      expect(figures!.calls.total).toBeGreaterThan(0);
      expect(health.checkpointAgeMs).toBeUndefined();
      const counters = { identifier: 'a', namespace: 'default' };
      const reset = await client.call('ratelimits.reset', counters);
      expect([reset.status, JSON.parse(reset.text)]).toEqual([200, { cleared: 1 }]);
      await callOperationOk(server.port, 'keys.revoke', { keyId });
      await waitUntil('the stream ends', events.isEnded);
      expect(events.events.at(-1)?.event).toBe('signed-out');
    } finally {
      await redis.close();
    }
  });
});
