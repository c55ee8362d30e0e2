/**
 * Faults of Redis under load: three servers share their limits through a real Redis, which is slow,
 * gone, empty, full or wrong for a while, or whose primary or slots move. Every answer is recorded.
 * With WEIR_ON_ENGINE_DOWN=deny no window may exceed its limit, and after each fault all tokens that
 * are left can be used. The measurements are a table of docs/guarantees.md.
 */

import { setTimeout as sleep } from 'node:timers/promises';
import { afterAll, beforeAll, describe, expect, test, vi } from 'vitest';
import { KeySpace } from '../../../src/engine/redis/scripts/keys.ts';
import { slotOfKey } from '../../../src/redis/slot.ts';
import { IS_LONG, trialCount } from '../../support/guarantees.ts';
import {
  isRedisMissing,
  type RedisCluster,
  type RedisServer,
  type SentinelSet,
  startCluster,
  startRedis,
  startSentinels,
  waitUntilSynchronized,
} from '../../support/programs/redis.ts';
import { waitUntil } from '../../support/server.ts';
import { jsonLines } from '../../support/weir-command.ts';
import { isCompilerMissing, type SteppedRedis, startSteppedRedis } from '../redis/redis-clock.ts';
import { type ClusterLoad, type Costs, NOTHING_OVER, runFault } from './cluster-load.ts';
import { closeMachines, type Machine, startMachines } from './cluster-machines.ts';
import { type LyingProxy, startLyingProxy } from './lying-proxy.ts';

const SERVERS = 3;
const LIMIT = IS_LONG ? 1_000 : 300;
const LOAD = { spanning: Array<number>(4).fill(LIMIT), short: Array<number>(6).fill(40) };
const HOLD_MS = IS_LONG ? 2_000 : 500;
vi.setConfig({ testTimeout: 180_000 });
/** The most of a limit that a lease has. */
const LEASE_SHARE = 0.05;
/** The commands used here need Redis only. */
const NO_SERVER = 'http://127.0.0.1:1';
/** Without a fault of a server every check is answered, by the first server. */
const NO_ERROR = { ...NOTHING_OVER, repeated: 0 };
const NO_FAULT = { ...NO_ERROR, lost: 0 };
/** Slots with a bucket that are moved, each to the next node. */
const MOVES = trialCount(4, 192);
/** How long a slot is on both nodes. */
const MOVING_MS = 30;

interface RedisFault {
  name: string;
  /** Also in the short form. */
  isQuick?: boolean;
  begin: (load: ClusterLoad) => unknown;
  /** What happens, or how many ms pass, between `begin` and `end`. */
  during?: number | ((load: ClusterLoad) => Promise<unknown>);
  end?: (load: ClusterLoad) => unknown;
  expectCosts?: (costs: Costs) => void;
  isClockTrue?: boolean;
}

const isInThisForm = ({ isQuick = false }: RedisFault) => IS_LONG || isQuick;

/** Takes servers through a fault, and records what it costs. */
async function runOnce(machines: readonly Machine[], fault: RedisFault): Promise<Costs> {
  const { name, begin, during = HOLD_MS, end, isClockTrue = true } = fault;
  const { expectCosts = (costs) => expect(costs).toMatchObject(NO_FAULT) } = fault;
  const [costs] = await runFault(machines, {
    name: `Redis${name.startsWith("'") ? '' : ' '}${name}`,
    load: { ...LOAD, isClockTrue },
    act: async (load) => {
      await begin(load);
      if (typeof during === 'number') await sleep(during);
      else await during(load);
      await end?.(load);
    },
    expectCosts,
  });
  return costs;
}

/** What fits is denied only if a metric counts it, unless a lease was written off. */
function expectProven(costs: Costs, lostMax: number): void {
  expect(costs).toMatchObject(NO_ERROR);
  expect(costs.lost).toBeLessThanOrEqual(lostMax);
  const counted = costs.unproven + costs.withoutRedis + costs.recoveryDenials;
  if (costs.writtenOff === 0) expect(costs.deniedEarly).toBeLessThanOrEqual(counted);
  // The load went on after the change.
  expect(costs.checks).toBeGreaterThan(costs.withoutRedis);
}

/**
 * Machines that wait for each other however slow the computer is, unless `env` says otherwise.
 * @param url of Sentinels or of a cluster, to which servers connect without a proxy
 */
function start(
  redis: Pick<RedisServer, 'port'>,
  url?: string,
  env: Record<string, string> = {},
): Promise<Machine[]> {
  const address = url === undefined ? {} : { WEIR_REDIS_URL: url };
  const common = { WEIR_REDIS_PREFIX: 'weir', WEIR_RECOVERY: 'exact', ...address };
  return startMachines(redis, SERVERS, { env: { ...common, ...env }, network: { delayMs: 0.25 } });
}

describe.skipIf(isRedisMissing)('three servers that deny what Redis does not decide', () => {
  let redis: RedisServer;
  let machines: Machine[];
  let liar: LyingProxy;
  beforeAll(async () => {
    redis = await startRedis({ config: ['enable-debug-command local'] });
    liar = await startLyingProxy(redis.port);
    // One of the faults is a Redis that deletes keys.
    machines = await start(liar, undefined, { WEIR_REDIS_EVICTION: 'accept' });
  }, 60_000);
  afterAll(async () => {
    await closeMachines(machines);
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
  const command = (words: string) => () => redis.command(...words.split(' '));
  const setDelay = (delayMs: number) => () => {
    for (const { proxy } of machines) proxy.set({ delayMs });
  };
  const longCounters = async () => (await redis.command('KEYS', 'weir:*:c:*:0')) as string[];
  const repeat = (times: number, one: () => Promise<unknown>) => async () => {
    for (let i = 0; i < times; i++) {
      await one();
      await sleep(HOLD_MS / times);
    }
  };

  const FAULTS: RedisFault[] = [
    { name: 'is slow: 120 ms a round trip', begin: setDelay(60), end: setDelay(0.25) },
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
      begin: command('CLIENT PAUSE 1000 ALL'),
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
    { name: 'is emptied (FLUSHALL)', begin: command('FLUSHALL') },
    {
      name: 'is read-only (it becomes a replica)',
      begin: command('REPLICAOF 127.0.0.1 1'),
      end: command('REPLICAOF NO ONE'),
    },
    {
      name: 'is emptied by becoming the replica of an empty server',
      begin: async () => {
        const empty = await startRedis();
        try {
          await redis.command('REPLICAOF', empty.host, String(empty.port));
          await waitUntilSynchronized(redis);
        } finally {
          await empty.close();
        }
      },
      end: command('REPLICAOF NO ONE'),
    },
    {
      name: 'has too few replicas (min-replicas-to-write)',
      begin: command('CONFIG SET min-replicas-to-write 1'),
      end: command('CONFIG SET min-replicas-to-write 0'),
    },
    {
      name: 'is full (maxmemory with noeviction)',
      begin: command('CONFIG SET maxmemory 1'),
      end: command('CONFIG SET maxmemory 0'),
    },
    {
      name: 'evicts keys (maxmemory with allkeys-random)',
      begin: command('CONFIG SET maxmemory-policy allkeys-random maxmemory 1'),
      end: command('CONFIG SET maxmemory 0 maxmemory-policy noeviction'),
    },
    { name: 'answers nonsense', isQuick: true, begin: () => liar.lie(1), end: () => liar.lie(0) },
    { name: 'answers 1 % nonsense', begin: () => liar.lie(0.01), end: () => liar.lie(0) },
    {
      name: 'loses its scripts and functions, 20 times',
      begin: repeat(20, async () => {
        await redis.command('SCRIPT', 'FLUSH');
        await redis.command('FUNCTION', 'FLUSH');
      }),
    },
    {
      name: 'loses the key of one counter (DEL)',
      isQuick: true,
      begin: async () => redis.command('DEL', (await longCounters())[0]),
    },
    {
      name: 'loses the keys of all counters, 5 times',
      begin: repeat(5, async () => redis.command('DEL', ...(await longCounters()), 'none')),
    },
    { name: 'loses the list of members (DEL)', begin: command('DEL weir:{0}:m') },
    {
      name: 'cuts all connections, 10 times',
      begin: repeat(10, command('CLIENT KILL TYPE normal')),
    },
    {
      name: 'is cut off from one server',
      begin: () => machines[0].proxy.set({ isBlackhole: true }),
      end: () => machines[0].proxy.heal(),
    },
    {
      name: 'is full, and its counters are used up meanwhile',
      isQuick: true,
      begin: command('CONFIG SET maxmemory 1'),
      during: async (load) => {
        await load.exhaust();
        expect(load.costs().lost).toBe(0);
        const other = { ...load.spanning[0], identifier: 'a_new_counter' };
        expect(await load.probe([other])).toBe(0);
      },
      end: command('CONFIG SET maxmemory 0'),
    },
  ];

  test.each(FAULTS.filter(isInThisForm))(
    'Redis $name: no window allows more than its limit, and no token is lost',
    (fault) => runOnce(machines, fault).then(() => {}),
  );

  // The last one: it ends a server.
  test('Redis is restarted empty, and one server is gone: its windows stay closed until it is forgotten', async () => {
    await expectClosedUntilForgotten(redis, machines, { isEmpty: true });
  });
});

/** Ends Redis and one server at the same time, restarts Redis, and forgets the server. */
async function expectClosedUntilForgotten(
  redis: RedisServer,
  machines: readonly Machine[],
  { isEmpty }: { isEmpty: boolean },
): Promise<void> {
  const env = { WEIR_ENGINE: 'redis', WEIR_REDIS_URL: redis.url };
  const gone = machines[SERVERS - 1];
  const members = await jsonLines(NO_SERVER, ['cluster', 'status'], { env });
  const { machine } = members.find(({ pid }) => pid === gone.server.child.pid) ?? {};
  let ofGone = 0;
  const restarted = isEmpty ? 'empty' : 'with its file';
  await runOnce(machines, {
    name: `is killed with one server, and restarted ${restarted} (WEIR_RECOVERY=exact, then forget)`,
    begin: () => killBoth(gone, redis),
    during: async (load) => {
      await redis.restart({ isEmpty });
      await load.waitForNewWindow();
      // Leases are used up, or returned.
      await load.waitUntilClosed();
      const before = load.tokens();
      await load.waitForNewWindow();
      await load.waitForNewWindow();
      expect(await load.probe()).toBe(0);
      expect(load.tokens()).toBe(before);
    },
    end: (load) => {
      ofGone = load.tokens(gone);
      return jsonLines(NO_SERVER, ['cluster', 'forget', String(machine)], { env });
    },
    expectCosts: ({ lost, allowed, over, shortOver, errors }) => {
      expect(lost).toBeLessThanOrEqual(isEmpty ? 0 : (allowed + lost) * LEASE_SHARE);
      expect(over).toBeLessThanOrEqual(isEmpty ? ofGone : 0);
      expect([shortOver, errors]).toEqual([0, 0]);
    },
  });
}

/** No check is under way to the server when it is killed. */
async function killBoth(server: Machine, redis: RedisServer): Promise<void> {
  server.isServing = false;
  await sleep(100);
  await Promise.all([server.kill(), redis.kill()]);
}

/** Starts servers for one test, and ends them and their Redis. */
async function withServers(
  redis: RedisServer,
  env: Record<string, string>,
  run: (machines: Machine[]) => Promise<unknown>,
): Promise<void> {
  let machines: Machine[] | undefined;
  try {
    machines = await start(redis, undefined, env);
    await run(machines);
  } finally {
    await closeMachines(machines);
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
      await withServers(redis, env, async (machines) => {
        let [before, deniedWithoutRedis] = [0, 0];
        const name = share === 'divided' ? 'local, divided' : policy;
        await runOnce(machines, {
          name: `is gone, and restarted empty (WEIR_ON_ENGINE_DOWN=${name})`,
          begin: async (load) => {
            await redis.kill();
            before = load.tokens();
          },
          during: async (load) => {
            await sleep(HOLD_MS);
            if (policy !== 'deny') await load.exhaust(load.spanning, SERVERS);
            await load.readCounts();
            ({ deniedWithoutRedis } = load.costs());
          },
          end: () => redis.restart({ isEmpty: true }),
          expectCosts: ({ lost, errors, over, mostByOne, allowed }) => {
            expect([lost, errors]).toEqual([0, 0]);
            if (policy === 'deny') expect(over).toBe(0);
            if (policy === 'local') expect(mostByOne).toBeLessThanOrEqual(LIMIT);
            if (share === 'divided') {
              expect(allowed).toBeLessThanOrEqual(LOAD.spanning.length * LIMIT + before);
            }
            if (policy === 'allow') expect(deniedWithoutRedis).toBe(0);
          },
        });
      });
    },
  );
});

describe.runIf(IS_LONG && !isRedisMissing)('three servers, of which one is lost with Redis', () => {
  test('Redis has its file: windows stay closed until the server is forgotten, and allow nothing twice', async () => {
    const redis = await startRedis({ config: ['appendonly yes'] });
    await withServers(redis, {}, (machines) => {
      return expectClosedUntilForgotten(redis, machines, { isEmpty: false });
    });
  });

  const LOST = [
    {
      isLost: true,
      allows: 'windows open again, and allow twice what the lost server had allowed',
    },
    { isLost: false, allows: 'no window allows more than its limit if all servers are alive' },
  ];
  test.each(LOST)('WEIR_RECOVERY=available: $allows', async ({ isLost }) => {
    const redis = await startRedis();
    await withServers(redis, { WEIR_RECOVERY: 'available' }, async (machines) => {
      const gone = machines[SERVERS - 1];
      let ofGone = 0;
      const lost = isLost ? ' with one server' : '';
      await runOnce(machines, {
        name: `is killed${lost}, and restarted empty (WEIR_RECOVERY=available)`,
        begin: () => (isLost ? killBoth(gone, redis) : redis.kill()),
        end: (load) => {
          if (isLost) ofGone = load.tokens(gone);
          return redis.restart({ isEmpty: true });
        },
        expectCosts: (costs) => {
          expect(costs).toMatchObject({ shortOver: 0, lost: 0, errors: 0 });
          expect(costs.over).toBeLessThanOrEqual(ofGone);
        },
      });
    });
  });
});

describe.skipIf(isRedisMissing)('three servers with Sentinels', () => {
  let set: SentinelSet;
  let machines: Machine[];
  beforeAll(async () => {
    set = await startSentinels({ replicas: 1 });
    machines = await start(set.servers[0], set.url);
  }, 90_000);
  afterAll(async () => {
    await closeMachines(machines);
    await set?.close();
  });

  let failed: RedisServer;
  // The other machines count the tokens of a lease that was written off as used, and restore this
  // count if the new primary has no record of it.
  const expectFailover = (costs: Costs) => {
    expectProven(costs, costs.writtenOff * LEASE_SHARE * LIMIT);
  };
  const failover = (name: string, fail: () => unknown): RedisFault => ({
    name: `fails over: ${name}`,
    begin: async () => {
      failed = await set.primary();
      await fail();
    },
    during: () => {
      return waitUntil('another server is the primary', async () => {
        return (await set.primary()) !== failed;
      });
    },
    expectCosts: expectFailover,
  });
  const FAULTS: RedisFault[] = [
    {
      ...failover('the primary is killed', () => failed.kill()),
      isQuick: true,
      end: () => failed.restart({ isEmpty: true }),
    },
    {
      ...failover('the primary is suspended, and comes back', () => failed.suspend()),
      end: () => failed.resume(),
    },
    failover('a Sentinel is told to', () => {
      return set.sentinels[0].command('SENTINEL', 'FAILOVER', set.name);
    }),
  ];
  test.each(FAULTS.filter(isInThisForm))(
    'Redis $name: no window allows more than its limit, and no token is lost',
    async (fault) => {
      const primary = await set.primary();
      const replicas = set.servers.filter((server) => server !== primary);
      await Promise.all(replicas.map(waitUntilSynchronized));
      await runOnce(machines, fault);
    },
  );
});

describe.skipIf(isRedisMissing)('three servers with a Redis Cluster', () => {
  let nodes: RedisCluster;
  let machines: Machine[];
  beforeAll(async () => {
    nodes = await startCluster(3, { isDurable: true });
    machines = await start(nodes.nodes[0], nodes.url);
  }, 90_000);
  afterAll(async () => {
    await closeMachines(machines);
    await nodes?.close();
  });

  test('Redis moves slots between its nodes: no window allows more, and no token is lost', {
    timeout: 600_000,
  }, async () => {
    const keys = new KeySpace('weir', true);
    await runOnce(machines, {
      name: `moves ${MOVES} slots between its nodes`,
      begin: async () => {
        for (let move = 0; move < MOVES; move++) {
          const slot = slotOfKey(keys.members((move * 5) % keys.bucketCount));
          const from = nodes.nodes.indexOf(await nodes.ownerOf(slot));
          const finish = await nodes.beginMove(slot, nodes.nodes[(from + 1) % 3]);
          await sleep(MOVING_MS);
          await finish();
        }
      },
      expectCosts: (costs) => expectProven(costs, 0),
    });
  });

  test.runIf(IS_LONG).each([false, true])(
    'Redis loses a node, which comes back (empty: %s): no window allows more, and no token is lost',
    async (isEmpty) => {
      const before = new Set(await counterKeys(nodes.nodes));
      let node = nodes.nodes[0];
      let most = 0;
      const costs = await runOnce(machines, {
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
      expect(most).toBeGreaterThan(0);
      expect(costs.withoutRedis).toBeGreaterThan(0);
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
    let machines: Machine[];
    beforeAll(async () => {
      redis = await startSteppedRedis();
      machines = await start(redis);
    }, 60_000);
    afterAll(async () => {
      await closeMachines(machines);
      await redis?.close();
    });

    const step = (name: string, ms: number): RedisFault => {
      return { name: `'s clock ${name}`, begin: () => redis.setClock(ms), isClockTrue: false };
    };
    const STEPS: RedisFault[] = [
      step('is a second ahead', 1_000),
      step('is five seconds ahead', 5_000),
      step('is a second back', 4_000),
      step('is an hour ahead', 3_600_000),
      step('is an hour back', 0),
      {
        ...step('steps 40 times by up to a minute', 0),
        begin: async () => {
          for (let i = 0; i < 40; i++) {
            redis.setClock(120_000 * (Math.random() - 0.5));
            await sleep(50);
          }
        },
        end: () => redis.setClock(60_000),
      },
    ];
    test.each(STEPS)(
      'Redis $name: no window allows more than its limit, and no token is lost',
      (fault) => runOnce(machines, fault).then(() => {}),
    );
  },
);
