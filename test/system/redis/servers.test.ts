/** The servers and the proxy that other tests rely on. */

import { createClient } from '@redis/client';
import { describe, expect, test } from 'vitest';
import {
  installValkey,
  isRedisMissing,
  startCluster,
  startRedis,
  startSentinels,
} from '../../support/programs/redis.ts';
import { waitUntil } from '../../support/server.ts';
import { startDelayProxy } from './delay-proxy.ts';

const valkey = await installValkey();
const PROGRAMS = [
  { name: 'Redis', isMissing: isRedisMissing, options: {} },
  { name: 'Valkey', isMissing: valkey === undefined, options: valkey && { program: valkey } },
];

describe.each(PROGRAMS)('$name', ({ name, isMissing, options }) => {
  describe.skipIf(isMissing)('as a process', () => {
    test('keeps an fsynced write over SIGKILL, and loses it if restarted empty', async () => {
      const server = await startRedis({ ...options, isDurable: true });
      try {
        await server.command('SET', 'key', 'value');
        await server.kill();
        await server.restart();
        expect(await server.command('GET', 'key')).toBe('value');
        await server.kill();
        await server.restart({ isEmpty: true });
        expect(await server.command('GET', 'key')).toBeNull();
      } finally {
        await server.close();
      }
    });

    // The tests of connections do both with Redis.
    const testValkey = name === 'Redis' ? () => {} : test;

    testValkey('fails over to a replica by its Sentinels', async () => {
      const set = await startSentinels({ server: { ...options } });
      try {
        const first = await set.primary();
        await first.kill();
        await waitUntil('another server is the primary', async () => {
          return (await set.primary()) !== first;
        });
      } finally {
        await set.close();
      }
    });

    testValkey('forms a cluster, and moves a slot with its keys', async () => {
      const cluster = await startCluster(3, { ...options });
      try {
        const slot = 12_182; // of the key "foo"
        const from = await cluster.ownerOf(slot);
        const to = cluster.nodes.find((node) => node !== from)!;
        await from.command('SET', 'foo', 'value');
        await cluster.moveSlots(slot, slot, to);
        expect(await to.command('GET', 'foo')).toBe('value');
        await expect(from.command('GET', 'foo')).rejects.toThrow(`MOVED ${slot}`);
      } finally {
        await cluster.close();
      }
    });
  });
});

describe.skipIf(isRedisMissing)('the proxy', () => {
  test('delays, blackholes, and cuts', async () => {
    const server = await startRedis();
    const proxy = await startDelayProxy(server.port, { delayMs: 20 });
    const client = createClient({ socket: { port: proxy.port, reconnectStrategy: false } });
    const errors: Error[] = [];
    client.on('error', (error) => errors.push(error));
    try {
      await client.connect();
      const start = performance.now();
      expect(await client.ping()).toBe('PONG');
      expect(performance.now() - start).toBeGreaterThanOrEqual(39);
      proxy.set({ isBlackhole: true });
      const late = client.ping().catch((error: Error) => error);
      const timeout = new Promise((resolve) => setTimeout(() => resolve('timeout'), 100));
      expect(await Promise.race([late, timeout])).toBe('timeout');
      proxy.heal();
      expect(await late).toBeInstanceOf(Error);
      expect(errors.length).toBeGreaterThan(0);
    } finally {
      client.destroy();
      await proxy.close();
      await server.close();
    }
  });
});
