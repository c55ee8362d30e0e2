/** `weir migrate` and `weir cluster`, as processes of their own, with a real Redis. */

import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { EXIT } from '../../../src/core/exit.ts';
import { KeySpace } from '../../../src/engine/redis/scripts/keys.ts';
import { slotOfKey } from '../../../src/redis/slot.ts';
import { LONGEST_WINDOW_MS, sendCheck } from '../../support/http.ts';
import { isRedisMissing, type RedisCluster, startCluster } from '../../support/programs/redis.ts';
import { waitUntil } from '../../support/server.ts';
import { addKey, withStore } from '../../support/store.ts';
import { jsonLines, runWeir } from '../../support/weir-command.ts';
import { useServers, waitForStatus } from './servers.ts';
import { useRedis } from './use-redis.ts';

const NO_SERVER = 'http://127.0.0.1:1';

describe.skipIf(isRedisMissing)('with a Redis', () => {
  const redis = useRedis();
  const {
    directories: [migrated, other],
    servers,
    start,
  } = useServers(2);
  let env: Record<string, string>;
  beforeAll(() => {
    env = { WEIR_ENGINE: 'redis', WEIR_REDIS_URL: redis.url };
    withStore(migrated, (store) => addKey(store, { name: 'migrated' }));
  });
  const weir = (...args: string[]) => runWeir(NO_SERVER, args, { env });
  const lines = (...args: string[]) => jsonLines(NO_SERVER, args, { env });
  const migrate = (...args: string[]) => weir('migrate', '--data-dir', migrated, ...args);

  test('weir migrate moves a store into Redis, once, and a server then uses it', async () => {
    expect(await migrate('--dry-run')).toMatchObject({
      code: EXIT.OK,
      stdout: expect.stringMatching(/^nothing was changed; .*: 1 key, 0 namespaces, /),
    });
    expect(await redis.command('DBSIZE')).toBe(0);
    expect((await migrate()).stdout).toContain('Redis now has the records of this store: 1 key,');
    const again = { code: EXIT.OK, stdout: expect.stringContaining('nothing was changed there') };
    expect(await migrate()).toMatchObject(again);
    withStore(other, (store) => addKey(store, {}));
    expect(await weir('migrate', '--data-dir', other)).toMatchObject({
      code: EXIT.USAGE,
      stderr: expect.stringContaining('Redis has another registry already'),
    });
    const { port } = await start(0, redis.url);
    const keys = await jsonLines(`http://127.0.0.1:${port}`, ['keys', 'list']);
    expect(keys.map(({ name }) => name)).toContain('migrated');
  });

  test('weir cluster lists the machines, and forgets one that is lost', async () => {
    await waitForStatus(servers[0], 'ready');
    await waitUntil('it has joined and has reported', async () => {
      const machines = await lines('cluster', 'status');
      return machines.length === 1 && machines[0].joined === 1 && machines[0].version !== undefined;
    });
    const [machine] = await lines('cluster', 'status');
    const { pid } = servers[0].child;
    expect(machine).toMatchObject({ pid, lag: 0, joined: 1, members: 1, isAwaited: false });
    expect(machine.machine).toMatch(/^[0-9a-f]{16}$/);
    const { stdout } = await weir('cluster', 'status');
    expect(stdout).toMatch(
      /^MACHINE +HOST +PID +WEIR +VERSION +LAG +LAST CONTACT +STATE +LEASES +TOKENS +GRANTED/,
    );
    expect(machine).toMatchObject({ leasesHeld: 0, tokensHeld: 0, leasesReturned: 0 });
    expect(stdout).toMatch(new RegExp(`${machine.machine} .* ${pid} .* joined `));

    servers[0].child.kill('SIGKILL');
    await servers[0].exited;
    expect((await weir('cluster', 'forget', String(machine.machine))).code).toBe(EXIT.OK);
    expect(await lines('cluster', 'status')).toEqual([]);
    expect(await weir('cluster', 'forget', String(machine.machine))).toMatchObject({
      code: EXIT.USAGE,
      stderr: expect.stringContaining('Redis knows no machine'),
    });
    expect((await weir('cluster', 'forget', 'all')).stderr).toContain('must be an id');
  });

  test('weir keys create --offline refuses a replica, which Redis would not follow', async () => {
    const args = ['--offline', '--data-dir', migrated, '--name', 'root', '--permission', '*'];
    expect(await weir('keys', 'create', ...args)).toMatchObject({
      code: EXIT.USAGE,
      stderr: expect.stringContaining('is a replica of the registry in Redis'),
    });
  });

  test('a Redis that cannot be reached, and missing settings, are named', async () => {
    const args = ['cluster', 'status'];
    const unreachable = { ...env, WEIR_REDIS_URL: 'redis://user:secret@127.0.0.1:1' };
    const failed = await runWeir(NO_SERVER, args, { env: unreachable });
    expect([failed.code, failed.stderr]).toEqual([
      EXIT.NO_ANSWER,
      expect.stringContaining('WEIR_REDIS_URL'),
    ]);
    expect(failed.stderr).not.toContain('secret');
    expect(await runWeir(NO_SERVER, args)).toMatchObject({
      code: EXIT.USAGE,
      stderr: expect.stringContaining('WEIR_ENGINE=redis'),
    });
  });
});

describe.skipIf(isRedisMissing)('with a Redis Cluster of three nodes', () => {
  const { servers, start } = useServers(2);
  let redis: RedisCluster;
  let env: Record<string, string>;
  beforeAll(async () => {
    redis = await startCluster(3);
    env = { WEIR_ENGINE: 'redis', WEIR_REDIS_URL: redis.url };
    await Promise.all([0, 1].map((i) => start(i, redis.url)));
  }, 120_000);
  afterAll(() => redis.close());
  const weir = (...args: string[]) => runWeir(NO_SERVER, args, { env });
  const isReady = ({ joined, version }: Record<string, unknown>) => {
    return joined === 1 && version !== undefined;
  };
  const status = () => jsonLines(NO_SERVER, ['cluster', 'status'], { env });

  test('weir cluster lists machines and their leases over all buckets', async () => {
    for (const server of servers) await waitForStatus(server, 'ready');
    await waitUntil('both machines have joined everywhere, and have reported', async () => {
      const machines = await status();
      return machines.length === 2 && machines.every(isReady);
    });
    for (let n = 0; n < 20; n++) {
      const check = { identifier: `leased_${n}`, limit: 1_000, duration: LONGEST_WINDOW_MS };
      for (const { port } of servers) await sendCheck(port, check);
    }
    await waitUntil('each machine has counted its leases', async () => {
      const machines = await status();
      return machines.every(({ leasesHeld }) => Number(leasesHeld) > 0);
    });
    for (const { leasesHeld, tokensHeld, leasesGranted } of await status()) {
      expect(Number(tokensHeld)).toBeGreaterThanOrEqual(Number(leasesHeld));
      expect(Number(leasesGranted)).toBeGreaterThanOrEqual(Number(leasesHeld));
    }

    const [lost] = servers;
    const { machine } = (await status()).find(({ pid }) => pid === lost.child.pid)!;
    lost.child.kill('SIGKILL');
    await lost.exited;
    const key = new KeySpace('weir', true).members(0);
    const node = await redis.ownerOf(slotOfKey(key));
    // Unknown to the first bucket, as after its loss of memory.
    expect(await node.command('HDEL', key, `m:${machine}.0`)).toBe(1);
    const listed = (await status()).find((one) => one.machine === machine);
    expect(listed).toMatchObject({ joined: 0, members: 1 });
    expect((await weir('cluster', 'status')).stdout).toMatch(
      new RegExp(`${machine} .* joining 0/1 `),
    );
    expect((await weir('cluster', 'forget', String(machine))).code).toBe(EXIT.OK);
    expect((await status()).map((one) => one.machine)).not.toContain(machine);
  }, 120_000);
});
