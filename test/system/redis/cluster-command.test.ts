/** `weir migrate` and `weir cluster`, as processes of their own, with a real Redis. */

import { hostname } from 'node:os';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { EXIT } from '../../../src/core/exit.ts';
import { KeySpace } from '../../../src/engine/redis/scripts/keys.ts';
import { slotOfKey } from '../../../src/redis/slot.ts';
import { LONGEST_WINDOW_MS, sendCheck } from '../../support/http.ts';
import { isRedisMissing, type RedisCluster, startCluster } from '../../support/programs/redis.ts';
import { type ServerProcess, waitUntil } from '../../support/server.ts';
import { addKey, withStore } from '../../support/store.ts';
import { jsonLines, runWeir } from '../../support/weir-command.ts';
import { useServers, waitForStatus } from './servers.ts';
import { useRedis } from './use-redis.ts';

const NO_SERVER = 'http://127.0.0.1:1';

describe.skipIf(isRedisMissing)('with a Redis', () => {
  const redis = useRedis();
  const {
    directories: [migrated, , , other],
    servers,
    start,
  } = useServers(4);
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
    expect(machine).toMatchObject({ pid, lag: 0, state: 'joined', joined: 1, members: 1 });
    expect(machine.machine).toMatch(/^[0-9a-f]{16}$/);
    const { stdout } = await weir('cluster', 'status');
    expect(stdout).toMatch(
      /^MACHINE +HOST +PID +WEIR +VERSION +LAG +LAST CONTACT +STATE +LEASES +TOKENS +GRANTED/,
    );
    expect(machine).toMatchObject({ leases: 0, tokens: 0, granted: 0, returned: 0 });
    const { host, weir: version, version: registry, lag, state, leases, tokens } = machine;
    const shown = [machine.machine, host, pid, version, registry, lag, '', state, leases, tokens];
    const [, row] = stdout.split('\n').map((line) => line.split(/ {2,}/));
    expect(row.toSpliced(6, 1, '')).toEqual(
      [...shown, machine.granted, machine.returned].map(String),
    );
    expect(row[6]).toMatch(/^\d+(ms|s) ago$/);

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

  test('weir cluster shows a stopped machine without leases, and who an awaited one was', async () => {
    const exact = { WEIR_RECOVERY: 'exact' };
    await Promise.all([1, 2].map((i) => start(i, redis.url, exact)));
    const [, stopped, awaiting] = servers;
    for (const server of [stopped, awaiting]) await waitForStatus(server, 'ready');
    const find = async ({ child: { pid } }: ServerProcess) => {
      return (await lines('cluster', 'status')).find((one) => one.pid === pid);
    };
    const check = { identifier: 'leased', limit: 1_000, duration: LONGEST_WINDOW_MS };
    await waitUntil('it has counted its lease', async () => {
      // Redis may be too slow to decide the first ones.
      await sendCheck(stopped.port, check);
      return (await find(stopped))?.leases === 1;
    });
    stopped.child.kill('SIGTERM');
    await stopped.exited;
    const listed = await find(stopped);
    expect(listed).toMatchObject({ state: 'stopped', granted: expect.any(Number) });
    expect(Object.keys(listed!)).not.toContain('leases');
    const { stdout } = await weir('cluster', 'status');
    expect(stdout).toMatch(
      new RegExp(`${listed!.machine} .* ago +stopped +- +- +${listed!.granted} `),
    );

    const killed = await start(1, redis.url, exact);
    await waitForStatus(killed, 'ready');
    const { machine } = (await find(killed))!;
    expect(killed.stderr()).toContain(`"machine":"${machine}"`);
    killed.child.kill('SIGKILL');
    await killed.exited;
    expect(await redis.command('DEL', 'weir:{0}:m')).toBe(1);
    await waitUntil('a recovery waits for it', async () => {
      return (await find(killed))?.state === 'awaited';
    });
    expect(await find(killed)).toMatchObject({ machine, host: hostname(), state: 'awaited' });
    await waitForStatus(awaiting, 'degraded');
  }, 60_000);

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
      return machines.every(({ leases }) => Number(leases) > 0);
    });
    for (const { leases, tokens, granted } of await status()) {
      expect(Number(tokens)).toBeGreaterThanOrEqual(Number(leases));
      expect(Number(granted)).toBeGreaterThanOrEqual(Number(leases));
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
    expect(listed).toMatchObject({ state: 'joining', joined: 0, members: 1 });
    expect((await weir('cluster', 'status')).stdout).toMatch(
      new RegExp(`${machine} .* joining 0/1 `),
    );
    expect((await weir('cluster', 'forget', String(machine))).code).toBe(EXIT.OK);
    expect((await status()).map((one) => one.machine)).not.toContain(machine);
  }, 120_000);
});
