/** What is logged about the settings of Redis, and what stops a start. */

import { afterEach, beforeEach, describe, expect, test, vi } from 'vitest';
import type { ServerFacts } from '../../src/redis/server-facts.ts';
import { ServerWatch } from '../../src/redis/server-watch.ts';
import type { EvictionMode } from '../../src/redis/settings.ts';

const FACTS: Omit<ServerFacts, 'server' | 'evictionPolicy'> = {
  product: 'Redis',
  version: '7.0.15',
  runId: '0'.repeat(40),
  isReplica: false,
  isClusterNode: false,
  isPersistent: true,
};

describe('the policy by which Redis deletes keys', () => {
  beforeEach(() => {
    vi.useFakeTimers();
  });
  afterEach(() => {
    vi.useRealTimers();
  });

  /** A Redis whose servers have these policies, and what is logged about it. */
  function watch(mode: EvictionMode, policies: Record<string, string | undefined>) {
    const lines: string[] = [];
    const line = (level: string) => (fields: object, text: string) => {
      lines.push(`${level} ${Object.values(fields).join(' ')}: ${text}`);
    };
    const log = { warn: line('warn'), error: line('error') };
    const link = {
      servers: [] as ServerFacts[],
      refresh: async () => {
        link.servers = Object.entries(policies).map(([server, evictionPolicy]) => {
          return { ...FACTS, server, evictionPolicy };
        });
      },
    };
    void link.refresh();
    const watch = new ServerWatch(link, mode, log as ConstructorParameters<typeof ServerWatch>[2]);
    return { watch, policies, lines };
  }

  test('stops a start with every server that has another one than noeviction', () => {
    const servers = { a: 'noeviction', b: 'allkeys-lru', c: undefined, d: 'volatile-ttl' };
    expect(() => watch('refuse', servers).watch.requireNoEviction()).toThrow(
      'the maxmemory-policy of Redis must be noeviction; got b: allkeys-lru, d: volatile-ttl' +
        ' (WEIR_REDIS_EVICTION=accept accepts it, but a full Redis then deletes',
    );
    for (const [mode, policies] of [
      ['refuse', { a: 'noeviction', c: undefined }],
      ['accept', servers],
    ] as const) {
      const { watch: accepted } = watch(mode, policies);
      expect([accepted.requireNoEviction(), accepted.evicting]).toEqual([undefined, []]);
    }
  });

  test('is an error in the log when it is found later, once for each change', async () => {
    const { watch: started, policies, lines } = watch('refuse', { a: 'noeviction' });
    started.start();
    expect(lines).toEqual([]);
    const later = async (changed: Record<string, string>) => {
      Object.assign(policies, changed);
      await vi.advanceTimersByTimeAsync(20_000);
      return lines.splice(0).map((line) => line.replace(/:.*/, ''));
    };
    expect(await later({ a: 'allkeys-lru' })).toEqual(['error a allkeys-lru']);
    expect(started.evicting).toEqual(['a: allkeys-lru']);
    expect(await later({ a: 'allkeys-lfu' })).toEqual(['error a allkeys-lfu']);
    expect(await later({ a: 'noeviction' })).toEqual([]);
    expect(started.evicting).toEqual([]);
    // After a failover.
    expect(await later({ b: 'allkeys-lru' })).toEqual(['error b allkeys-lru']);
    started.close();
    expect(await later({ a: 'allkeys-lru' })).toEqual([]);
  });

  test('is a warning in the log where it is accepted, and where Redis does not tell it', () => {
    for (const mode of ['accept', 'refuse'] as const) {
      const { watch: started, lines } = watch(mode, { a: undefined });
      started.start();
      expect(lines).toEqual([expect.stringMatching(/^warn a: Redis does not tell its maxmemory/)]);
      started.close();
    }
    const { watch: started, lines } = watch('accept', { a: 'allkeys-lru' });
    started.start();
    expect(lines).toEqual([expect.stringMatching(/^warn a allkeys-lru: Redis deletes counters/)]);
    started.close();
  });
});
