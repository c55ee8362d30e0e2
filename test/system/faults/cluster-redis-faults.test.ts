/**
 * Faults of Redis under load: three servers share their limits through a real Redis, which is slow,
 * gone, empty, full or wrong for a while. Every answer is recorded. With WEIR_ON_ENGINE_DOWN=deny
 * no window may exceed its limit, and after each fault all tokens that are left can be used.
 */

import { setTimeout as sleep } from 'node:timers/promises';
import { afterAll, beforeAll, describe, expect, test, vi } from 'vitest';
import { IS_LONG, newSeed, recordMeasurement } from '../../support/guarantees.ts';
import { readMetric } from '../../support/http.ts';
import {
  isRedisMissing,
  type RedisCluster,
  type RedisServer,
  type SentinelSet,
  startCluster,
  startRedis,
  startSentinels,
} from '../../support/programs/redis.ts';
import { type ServerProcess, waitUntil } from '../../support/server.ts';
import { jsonLines } from '../../support/weir-command.ts';
import { isCompilerMissing, type SteppedRedis, startSteppedRedis } from '../redis/redis-clock.ts';
import { type FaultReport, type FaultSteps, runFault } from './cluster-faults.ts';
import { type RunningCluster, startServers } from './cluster-run.ts';
import { type LyingProxy, startLyingProxy } from './lying-proxy.ts';

const SERVERS = 3;
const LIMIT = IS_LONG ? 1_000 : 300;
const HOLD_MS = IS_LONG ? 2_000 : 500;
vi.setConfig({ testTimeout: 180_000 });
/** The most of a limit that a lease has. */
const LEASE_SHARE = 0.05;
/** The commands used here need Redis only. */
const NO_SERVER = 'http://127.0.0.1:1';
const NO_FAULT = { extra: 0, lost: 0, errors: [] };

interface RedisFault extends Pick<FaultSteps, 'begin' | 'end'> {
  name: string;
  /** Also in the short form. */
  isQuick?: boolean;
  during?: FaultSteps['during'];
}

/** Takes servers through a fault, and records what it costs. */
async function runAndRecord(
  servers: readonly ServerProcess[],
  { name, begin, during = HOLD_MS, end }: RedisFault,
): Promise<FaultReport> {
  const seed = newSeed();
  const part = `${name.replace(/\W+/g, '_').slice(0, 40)}`;
  const report = await runFault(servers, {
    ...{ name: part, seed, limit: LIMIT, begin, during },
    ...(end && { end }),
  });
  record(`Redis${name.startsWith("'") ? '' : ' '}${name}`, seed, report);
  return report;
}

function record(fault: string, seed: number, report: FaultReport): void {
  const { decisions, windows, admitted, limit, extra, deniedEarly, lost, normalMs } = report;
  const measured = [
    `allowed ${admitted} of ${limit}, ${extra} too many`,
    `denied ${deniedEarly} that fitted`,
    `lost ${lost}`,
    `${report.withoutRedis} without Redis`,
    `normal after ${(normalMs / 1_000).toFixed(1)} s`,
  ];
  const trials = `${decisions} decisions in ${windows} windows (seed ${seed})`;
  recordMeasurement('P1', fault, trials, measured.join('; '));
}

describe.skipIf(isRedisMissing)('three servers that deny what Redis does not decide', () => {
  let redis: RedisServer;
  let cluster: RunningCluster;
  let liar: LyingProxy;
  beforeAll(async () => {
    redis = await startRedis({ config: ['enable-debug-command local'] });
    liar = await startLyingProxy(redis.port);
    cluster = await startServers({ ...redis, port: liar.port }, SERVERS, { delayMs: 0.25 });
  }, 60_000);
  afterAll(async () => {
    await cluster?.close();
    await liar?.close();
    await redis?.close();
  });

  const setPersistence = async (fsync: string | undefined) => {
    await redis.command('CONFIG', 'SET', 'appendonly', fsync === undefined ? 'no' : 'yes');
    await redis.command('CONFIG', 'SET', 'appendfsync', fsync ?? 'everysec');
    await redis.command('CONFIG', 'REWRITE');
    await waitUntil('the append-only file is written', async () => {
      const info = String(await redis.command('INFO', 'persistence'));
      return /aof_rewrite_in_progress:0\r\naof_rewrite_scheduled:0/.test(info);
    });
  };
  const killedWithFile = (fsync: string): RedisFault => ({
    name: `is killed, and restarted with its file (appendfsync ${fsync})`,
    begin: async () => {
      await setPersistence(fsync);
      await redis.kill();
    },
    end: async () => {
      await redis.restart();
      await setPersistence(undefined);
    },
  });
  const longCounters = async () => (await redis.command('KEYS', 'weir:*:c:*:0')) as string[];
  const repeat = async (times: number, command: () => Promise<unknown>) => {
    for (let i = 0; i < times; i++) {
      await command();
      await sleep(HOLD_MS / times);
    }
  };

  const FAULTS: RedisFault[] = [
    {
      name: 'is slow: 120 ms a round trip',
      begin: () => {
        for (const proxy of cluster.proxies) proxy.set({ delayMs: 60 });
      },
      end: () => {
        for (const proxy of cluster.proxies) proxy.set({ delayMs: 0.25 });
      },
    },
    {
      name: 'is suspended for 1 s (SIGSTOP)',
      isQuick: true,
      during: 1_000,
      begin: () => redis.suspend(),
      end: () => redis.resume(),
    },
    {
      name: 'is paused for 1 s (CLIENT PAUSE)',
      during: 1_000,
      begin: () => redis.command('CLIENT', 'PAUSE', '1000', 'ALL'),
    },
    killedWithFile('everysec'),
    killedWithFile('always'),
    {
      name: 'is killed, and restarted empty',
      isQuick: true,
      begin: () => redis.kill(),
      end: () => redis.restart({ isEmpty: true }),
    },
    {
      name: 'is killed, and restarted with an old snapshot',
      begin: async () => {
        await redis.command('SAVE');
        await sleep(HOLD_MS);
        await redis.kill();
      },
      end: () => redis.restart(),
    },
    { name: 'is emptied (FLUSHALL)', begin: () => redis.command('FLUSHALL') },
    {
      name: 'is read-only (it becomes a replica)',
      begin: () => redis.command('REPLICAOF', '127.0.0.1', '1'),
      end: () => redis.command('REPLICAOF', 'NO', 'ONE'),
    },
    {
      name: 'is emptied by becoming the replica of an empty server',
      begin: async () => {
        const empty = await startRedis();
        try {
          await redis.command('REPLICAOF', empty.host, String(empty.port));
          await waitUntil('it is synchronized', async () => {
            const info = String(await redis.command('INFO', 'replication'));
            return info.includes('master_link_status:up');
          });
        } finally {
          await empty.close();
        }
      },
      end: () => redis.command('REPLICAOF', 'NO', 'ONE'),
    },
    {
      name: 'has too few replicas (min-replicas-to-write)',
      begin: () => redis.command('CONFIG', 'SET', 'min-replicas-to-write', '1'),
      end: () => redis.command('CONFIG', 'SET', 'min-replicas-to-write', '0'),
    },
    {
      name: 'is full (maxmemory with noeviction)',
      begin: () => redis.command('CONFIG', 'SET', 'maxmemory', '1'),
      end: () => redis.command('CONFIG', 'SET', 'maxmemory', '0'),
    },
    {
      name: 'evicts keys (maxmemory with allkeys-random)',
      begin: async () => {
        await redis.command('CONFIG', 'SET', 'maxmemory-policy', 'allkeys-random');
        await redis.command('CONFIG', 'SET', 'maxmemory', '1');
      },
      end: async () => {
        await redis.command('CONFIG', 'SET', 'maxmemory', '0');
        await redis.command('CONFIG', 'SET', 'maxmemory-policy', 'noeviction');
      },
    },
    { name: 'answers nonsense', isQuick: true, begin: () => liar.lie(1), end: () => liar.lie(0) },
    { name: 'answers 1 % nonsense', begin: () => liar.lie(0.01), end: () => liar.lie(0) },
    {
      name: 'loses its scripts and functions, 20 times',
      begin: () => {
        return repeat(20, async () => {
          await redis.command('SCRIPT', 'FLUSH');
          await redis.command('FUNCTION', 'FLUSH');
        });
      },
    },
    {
      name: 'loses the key of one counter (DEL)',
      isQuick: true,
      begin: async () => redis.command('DEL', (await longCounters())[0]),
    },
    {
      name: 'loses the keys of all counters, 5 times',
      begin: () => repeat(5, async () => redis.command('DEL', ...(await longCounters()), 'none')),
    },
    { name: 'loses the list of members (DEL)', begin: () => redis.command('DEL', 'weir:{0}:m') },
    {
      name: 'cuts all connections, 10 times',
      begin: () => repeat(10, () => redis.command('CLIENT', 'KILL', 'TYPE', 'normal')),
    },
    {
      name: 'is cut off from one server',
      begin: () => cluster.proxies[0].set({ isBlackhole: true }),
      end: () => cluster.proxies[0].heal(),
    },
  ];

  test.each(FAULTS.filter(({ isQuick }) => IS_LONG || isQuick))(
    'Redis $name: no window allows more than its limit, and no token is lost',
    async (fault) => {
      expect(await runAndRecord(cluster.servers, fault)).toMatchObject(NO_FAULT);
    },
  );

  test('Redis is full: counters that exist can be used up, and no other one is allowed anything', async () => {
    const report = await runAndRecord(cluster.servers, {
      name: 'is full, and its counters are used up meanwhile',
      begin: () => redis.command('CONFIG', 'SET', 'maxmemory', '1'),
      during: async (load) => {
        expect(await load.exhaust()).toBe(0);
        expect(await load.probe(['a_new_counter'])).toBe(0);
      },
      end: () => redis.command('CONFIG', 'SET', 'maxmemory', '0'),
    });
    expect(report).toMatchObject(NO_FAULT);
  });

  // The last one: it ends a server.
  test('Redis is restarted empty, and one server is gone: its windows stay closed until it is forgotten', async () => {
    await expectClosedUntilForgotten(redis, cluster, { isEmpty: true });
  });
});

/** Ends Redis and one server at the same time, restarts Redis, and forgets the server. */
async function expectClosedUntilForgotten(
  redis: RedisServer,
  { servers }: RunningCluster,
  { isEmpty }: { isEmpty: boolean },
): Promise<void> {
  const env = { WEIR_ENGINE: 'redis', WEIR_REDIS_URL: redis.url };
  const gone = servers[SERVERS - 1];
  const machines = await jsonLines(NO_SERVER, ['cluster', 'status'], { env });
  const { machine } = machines.find(({ pid }) => pid === gone.child.pid) ?? {};
  let ofGone = 0;
  const restarted = isEmpty ? 'empty' : 'with its file';
  const report = await runAndRecord(servers, {
    name: `is killed with one server, and restarted ${restarted} (WEIR_RECOVERY=exact, then forget)`,
    begin: async (load) => {
      await load.drop(gone);
      gone.child.kill('SIGKILL');
      await redis.kill();
    },
    during: async (load) => {
      await redis.restart({ isEmpty });
      await load.waitForNewWindow();
      // Leases are used up, or returned.
      await load.waitUntilClosed();
      const before = load.admitted();
      await load.waitForNewWindow();
      await load.waitForNewWindow();
      expect(await load.probe()).toBe(0);
      expect(load.admitted()).toBe(before);
    },
    end: (load) => {
      ofGone = load.admitted(gone);
      return jsonLines(NO_SERVER, ['cluster', 'forget', String(machine)], { env });
    },
  });
  if (isEmpty) expect(report.lost).toBe(0);
  else expect(report.lost).toBeLessThanOrEqual(report.limit * LEASE_SHARE);
  expect(report.extra).toBeLessThanOrEqual(isEmpty ? ofGone : 0);
  expect(report).toMatchObject({ extraShort: 0, errors: [] });
}

/** Starts a Redis and servers for one test, and ends them. */
async function withServers(
  redis: RedisServer,
  env: Record<string, string>,
  run: (cluster: RunningCluster) => Promise<void>,
): Promise<void> {
  try {
    const cluster = await startServers(redis, SERVERS, { delayMs: 0.25, env });
    try {
      await run(cluster);
    } finally {
      await cluster.close();
    }
  } finally {
    await redis.close();
  }
}

describe.runIf(IS_LONG && !isRedisMissing)('three servers without Redis', () => {
  const POLICIES = [
    { policy: 'local', share: 'whole', allows: 'three times the limit' },
    { policy: 'local', share: 'divided', allows: 'the limit, and what it had allowed before' },
    { policy: 'allow', share: 'whole', allows: 'everything' },
    { policy: 'deny', share: 'whole', allows: 'the limit' },
  ];
  test.each(POLICIES)(
    'WEIR_ON_ENGINE_DOWN=$policy, $share: a window allows $allows, and new ones are exact afterwards',
    async ({ policy, share }) => {
      const redis = await startRedis();
      const env = { WEIR_ON_ENGINE_DOWN: policy, WEIR_LOCAL_SHARE: share };
      await withServers(redis, env, async ({ servers }) => {
        let [before, deniedWithoutRedis] = [0, 0];
        const name = share === 'divided' ? 'local, divided' : policy;
        const report = await runAndRecord(servers, {
          name: `is gone, and restarted empty (WEIR_ON_ENGINE_DOWN=${name})`,
          begin: async (load) => {
            await redis.kill();
            before = load.admitted();
          },
          during: async (load) => {
            await sleep(HOLD_MS);
            if (policy !== 'deny') await load.exhaust(load.longIds, LIMIT, SERVERS * LIMIT);
            deniedWithoutRedis = await countDenied(servers);
          },
          end: () => redis.restart({ isEmpty: true }),
        });
        expect(report).toMatchObject({ lost: 0, errors: [] });
        if (policy === 'deny') expect(report.extra).toBe(0);
        if (policy === 'local') expect(report.mostByOne).toBeLessThanOrEqual(LIMIT);
        if (share === 'divided') {
          expect(report.admitted).toBeLessThanOrEqual(report.limit + before);
        }
        if (policy === 'allow') expect(deniedWithoutRedis).toBe(0);
      });
    },
  );
});

async function countDenied(servers: readonly ServerProcess[]): Promise<number> {
  const name = 'weir_engine_down_decisions_total{outcome="denied"}';
  const counts = await Promise.all(servers.map(({ adminUrl }) => readMetric(adminUrl, name)));
  return counts.reduce((sum, count) => sum + count, 0);
}

describe.runIf(IS_LONG && !isRedisMissing)('three servers, of which one is lost with Redis', () => {
  test('Redis has its file: windows stay closed until the server is forgotten, and allow nothing twice', async () => {
    const redis = await startRedis({ config: ['appendonly yes'] });
    await withServers(redis, {}, async (cluster) => {
      await expectClosedUntilForgotten(redis, cluster, { isEmpty: false });
    });
  });

  test('WEIR_RECOVERY=available: windows open again, and allow twice what the lost server had allowed', async () => {
    const redis = await startRedis();
    await withServers(redis, { WEIR_RECOVERY: 'available' }, async ({ servers }) => {
      const gone = servers[SERVERS - 1];
      let ofGone = 0;
      const report = await runAndRecord(servers, {
        name: 'is killed with one server, and restarted empty (WEIR_RECOVERY=available)',
        begin: async (load) => {
          await load.drop(gone);
          gone.child.kill('SIGKILL');
          await redis.kill();
        },
        end: (load) => {
          ofGone = load.admitted(gone);
          return redis.restart({ isEmpty: true });
        },
      });
      expect(report).toMatchObject({ extraShort: 0, lost: 0, errors: [] });
      expect(report.extra).toBeLessThanOrEqual(ofGone);
    });
  });

  test('WEIR_RECOVERY=available: no window allows more than its limit if all servers are alive', async () => {
    const redis = await startRedis();
    await withServers(redis, { WEIR_RECOVERY: 'available' }, async ({ servers }) => {
      const report = await runAndRecord(servers, {
        name: 'is killed, and restarted empty (WEIR_RECOVERY=available)',
        begin: () => redis.kill(),
        end: () => redis.restart({ isEmpty: true }),
      });
      expect(report).toMatchObject(NO_FAULT);
    });
  });
});

describe.runIf(IS_LONG && !isRedisMissing)('three servers with Sentinels', () => {
  let set: SentinelSet;
  let cluster: RunningCluster;
  beforeAll(async () => {
    set = await startSentinels({ replicas: 1 });
    cluster = await startServers(set.servers[0], SERVERS, { env: { WEIR_REDIS_URL: set.url } });
  }, 90_000);
  afterAll(async () => {
    await cluster?.close();
    await set?.close();
  });

  let failed: RedisServer;
  const waitForFailover = () => {
    return waitUntil('another server is the primary', async () => (await set.primary()) !== failed);
  };
  const failover = (name: string, fail: () => unknown): RedisFault => ({
    name,
    begin: async () => {
      failed = await set.primary();
      await fail();
    },
    during: waitForFailover,
  });
  const FAULTS: RedisFault[] = [
    {
      ...failover('fails over: the primary is killed', () => failed.kill()),
      end: () => failed.restart({ isEmpty: true }),
    },
    {
      ...failover('fails over: the primary is suspended, and comes back', () => failed.suspend()),
      end: () => failed.resume(),
    },
    failover('fails over: a Sentinel is told to', () => {
      return set.sentinels[0].command('SENTINEL', 'FAILOVER', set.name);
    }),
  ];
  test.each(FAULTS)(
    'Redis $name: no window allows more than its limit, and no token is lost',
    async (fault) => {
      for (const server of set.servers) {
        if (server === (await set.primary())) continue;
        await waitUntil('the replica is synchronized', async () => {
          const info = String(await server.command('INFO', 'replication'));
          return info.includes('role:slave') && info.includes('master_link_status:up');
        });
      }
      expect(await runAndRecord(cluster.servers, fault)).toMatchObject(NO_FAULT);
    },
  );
});

describe.runIf(IS_LONG && !isRedisMissing)('three servers with a Redis Cluster', () => {
  let nodes: RedisCluster;
  let cluster: RunningCluster;
  beforeAll(async () => {
    nodes = await startCluster(3, { isDurable: true });
    const env = { WEIR_REDIS_URL: nodes.url };
    cluster = await startServers(nodes.nodes[0], SERVERS, { env });
  }, 90_000);
  afterAll(async () => {
    await cluster?.close();
    await nodes?.close();
  });

  test.each([false, true])(
    'Redis loses a node, which comes back (empty: %s): no window allows more, and no token is lost',
    async (isEmpty) => {
      const before = new Set(await counterKeys(nodes.nodes));
      let node = nodes.nodes[0];
      let most = 0;
      const report = await runAndRecord(cluster.servers, {
        name: `loses a node of three, which comes back ${isEmpty ? 'empty' : 'with its file'}`,
        begin: async () => {
          for (const one of nodes.nodes) {
            const count = (await counterKeys([one])).filter((key) => !before.has(key)).length;
            if (count > most) node = one;
            most = Math.max(most, count);
          }
          await node.kill();
        },
        end: () => node.restart({ isEmpty }),
      });
      expect(report).toMatchObject(NO_FAULT);
      expect(most).toBeGreaterThan(0);
      expect(report.withoutRedis).toBeGreaterThan(0);
    },
  );
});

/** Keys of the counters on nodes of a cluster. */
async function counterKeys(nodes: readonly RedisServer[]): Promise<string[]> {
  const keys = await Promise.all(nodes.map((node) => node.command('KEYS', 'weir:*:c:*:0')));
  return (keys as string[][]).flat();
}

describe.runIf(IS_LONG && !isRedisMissing && !isCompilerMissing)(
  'three servers with a Redis whose clock steps',
  () => {
    let redis: SteppedRedis;
    let cluster: RunningCluster;
    beforeAll(async () => {
      redis = await startSteppedRedis();
      cluster = await startServers(redis, SERVERS, { delayMs: 0.25 });
    }, 60_000);
    afterAll(async () => {
      await cluster?.close();
      await redis?.close();
    });

    const STEPS = [
      { name: 'is a second ahead', ms: 1_000 },
      { name: 'is five seconds ahead', ms: 5_000 },
      { name: 'is a second back', ms: 4_000 },
      { name: 'is an hour ahead', ms: 3_600_000 },
      { name: 'is an hour back', ms: 0 },
    ];
    test.each(STEPS)(
      'its clock $name: no window allows more than its limit, and no token is lost',
      async ({ name, ms }) => {
        const report = await runAndRecord(cluster.servers, {
          name: `'s clock ${name}`,
          begin: () => redis.setClock(ms),
        });
        expect(report).toMatchObject(NO_FAULT);
      },
    );

    test('its clock steps back and forward by up to a minute: no window allows more than its limit', async () => {
      const report = await runAndRecord(cluster.servers, {
        name: "'s clock steps 40 times by up to a minute",
        begin: async () => {
          for (let i = 0; i < 40; i++) {
            redis.setClock(120_000 * (Math.random() - 0.5));
            await sleep(50);
          }
        },
        end: () => redis.setClock(60_000),
      });
      expect(report).toMatchObject(NO_FAULT);
    });
  },
);
