/** The link against real servers: stand-alone, Sentinels and a cluster, and their faults. */

import { writeFileSync } from 'node:fs';
import { type AddressInfo, connect, createServer, type Socket } from 'node:net';
import { join } from 'node:path';
import { afterAll, afterEach, beforeAll, describe, expect, test } from 'vitest';
import { openRedis } from '../../../src/redis/connection.ts';
import { RedisError } from '../../../src/redis/errors.ts';
import type { RedisEvents, RedisLink } from '../../../src/redis/link.ts';
import { defineScript } from '../../../src/redis/script.ts';
import type { ServerFacts } from '../../../src/redis/server-facts.ts';
import { slotOfKey } from '../../../src/redis/slot.ts';
import { CERTIFICATE_A, CERTIFICATE_B, writeCertificate } from '../../support/certificates.ts';
import {
  installValkey,
  isRedisMissing,
  type RedisCluster,
  type RedisServer,
  startCluster,
  startRedis,
  startSentinels,
  waitUntilSynchronized,
} from '../../support/programs/redis.ts';
import { redisSettings } from '../../support/redis-settings.ts';
import { freePort, removeDirectory, temporaryDirectory, waitUntil } from '../../support/server.ts';
import { startLyingProxy } from '../faults/lying-proxy.ts';
import { startDelayProxy } from './delay-proxy.ts';
import { useRedis } from './use-redis.ts';

const ADD = defineScript('add', `return redis.call('INCRBY', KEYS[1], ARGV[1])`);
const NO_TLS = { ca: undefined, cert: undefined, key: undefined };
const PASSWORD = 'secret-of-the-tests';
const READY_MS = 20_000;
/** For calls that must succeed on a busy machine. */
const PATIENT_MS = 20_000;
/** Shorter than a connection may be silent. */
const SOON_MS = 100;

const rejections: unknown[] = [];
const noteRejection = (error: unknown) => rejections.push(error);
beforeAll(() => {
  process.on('unhandledRejection', noteRejection);
  process.on('uncaughtExceptionMonitor', noteRejection);
});
afterAll(() => {
  process.off('unhandledRejection', noteRejection);
  process.off('uncaughtExceptionMonitor', noteRejection);
});

const closers: (() => unknown)[] = [];
afterEach(async () => {
  for (const close of closers.splice(0).toReversed()) await close();
  expect(rejections.splice(0)).toEqual([]);
});
function closeLater<T extends { close: () => unknown }>(resource: T): T {
  closers.push(() => resource.close());
  return resource;
}

interface OpenOptions {
  password?: string;
  tls?: typeof NO_TLS | { ca: string; cert?: string; key?: string };
  redisWait?: number;
  events?: RedisEvents;
}
function open(url: string, options: OpenOptions = {}): RedisLink {
  const { password, tls = NO_TLS, redisWait = 0, events } = options;
  const changes = { password, tls: { ...NO_TLS, ...tls }, redisWait };
  return closeLater(openRedis(redisSettings(url, changes), events));
}

async function openReady(url: string, options?: OpenOptions): Promise<RedisLink> {
  const link = open(url, options);
  await link.ready(READY_MS);
  return link;
}

/** The error of a promise that must reject. */
async function failureOf(work: Promise<unknown>): Promise<RedisError> {
  try {
    await work;
  } catch (error) {
    expect(error).toBeInstanceOf(RedisError);
    expect((error as Error).message).not.toContain(PASSWORD);
    return error as RedisError;
  }
  throw new Error('it did not fail');
}

/** Subscribes channels. @returns what they receive, and how often each was subscribed */
function listen(link: RedisLink, channels: readonly string[]) {
  const heard = { messages: [] as [number, string][], subscribed: channels.map(() => 0) };
  link.subscribe(
    channels,
    (index, message) => heard.messages.push([index, message]),
    (index) => {
      heard.subscribed[index]++;
    },
  );
  return heard;
}

/** A link whose failures are noted. */
function openNoting(url: string, options: OpenOptions = {}) {
  const failures: RedisError[] = [];
  const link = open(url, { ...options, events: { onFailure: (error) => failures.push(error) } });
  const failureText = () => failures.map(({ message }) => message).join('\n');
  return { link, failures, failureText };
}

const add = (link: RedisLink, key = 'key') => link.call(ADD, [key], ['1'], PATIENT_MS);
/** Calls until one succeeds. */
async function addAtLast(link: RedisLink, key = 'key'): Promise<unknown> {
  let result: unknown;
  await waitUntil('a call succeeds', async () => {
    try {
      result = await link.call(ADD, [key], ['1'], 1_000);
      return true;
    } catch (error) {
      expect(error).toBeInstanceOf(RedisError);
      return false;
    }
  });
  return result;
}

const valkey = await installValkey();
const PROGRAMS = [
  { name: 'Redis', isMissing: isRedisMissing, options: {} },
  { name: 'Valkey', isMissing: valkey === undefined, options: valkey && { program: valkey } },
] as const;

describe.each(PROGRAMS)('with $name', ({ name, isMissing, options }) => {
  describe.skipIf(isMissing)('as one server', () => {
    let server: RedisServer;
    beforeAll(async () => {
      server = await startRedis({ ...options });
    });
    afterAll(() => server?.close());
    afterEach(() => server.command('FLUSHALL'));

    test('runs scripts, and loads them again when they are lost', async () => {
      const link = await openReady(server.url);
      expect(await add(link)).toBe(1);
      await server.command('SCRIPT', 'FLUSH');
      const all = await Promise.all(Array.from({ length: 50 }, () => add(link)));
      expect(all.toSorted((a, b) => Number(a) - Number(b))).toEqual(all.map((_, i) => i + 2));
      expect(link.bucketCount).toBe(1);
    });

    test('tells what the server is', async () => {
      const connected: ServerFacts[] = [];
      const link = await openReady(server.url, {
        events: { onConnected: (facts) => connected.push(facts) },
      });
      expect(link.servers).toEqual(connected);
      expect(connected).toEqual([
        {
          server: `127.0.0.1:${server.port}`,
          product: name,
          version: expect.stringMatching(/^\d+\.\d+\.\d+$/),
          runId: expect.stringMatching(/^[0-9a-f]{40}$/),
          isReplica: false,
          isClusterNode: false,
          isPersistent: false,
          evictionPolicy: 'noeviction',
        },
      ]);
    });

    test('receives messages on the connection of the calls, in any order with answers', async () => {
      const link = await openReady(server.url);
      const heard = listen(link, ['channel-a', 'channel-b']);
      await expect.poll(() => heard.subscribed).toEqual([1, 1]);
      const publish = defineScript('publish', `return redis.call('PUBLISH', KEYS[1], ARGV[1])`);
      const counts = await Promise.all(
        Array.from({ length: 100 }, (_, i) => {
          return i % 2 === 0
            ? link.call(publish, [`channel-${'ab'[(i / 2) % 2]}`], [String(i)], PATIENT_MS)
            : add(link);
        }),
      );
      expect(counts.filter((_, i) => i % 2 === 0)).toEqual(Array(50).fill(1));
      expect(counts.filter((_, i) => i % 2 === 1)).toEqual(
        Array.from({ length: 50 }, (_, i) => i + 1),
      );
      await expect.poll(() => heard.messages.length).toBe(50);
      expect(heard.messages).toEqual(heard.messages.map((_, i) => [i % 2, String(2 * i)]));
      const clients = String(await server.command('CLIENT', 'LIST'));
      expect(clients.split('\n').filter((line) => line.includes('name=weir'))).toHaveLength(1);
    });

    test('connects again after a message that its receiver calls invalid', async () => {
      const { link, failureText } = openNoting(server.url);
      const messages: string[] = [];
      let subscriptions = 0;
      link.subscribe(
        ['channel'],
        (_, message) => {
          if (message === 'nonsense') throw new RedisError('unexpectedReply', 'it is nonsense');
          messages.push(message);
        },
        () => subscriptions++,
      );
      await expect.poll(() => subscriptions).toBe(1);
      await server.command('PUBLISH', 'channel', 'nonsense');
      await expect.poll(() => subscriptions).toBe(2);
      expect(failureText()).toBe('it is nonsense');
      await server.command('PUBLISH', 'channel', 'sense');
      await expect.poll(() => messages).toEqual(['sense']);
    });

    test('waits for replicas, and says if too few have a change', async () => {
      const link = await openReady(server.url, { redisWait: 1 });
      const failure = await failureOf(add(link));
      expect(failure.kind).toBe('notReplicated');
      const replica = closeLater(
        await startRedis({ ...options, config: [`replicaof 127.0.0.1 ${server.port}`] }),
      );
      await waitUntilSynchronized(replica);
      await waitUntil('a call waits for the replica', async () => {
        return add(link).then(
          () => true,
          () => false,
        );
      });
      expect(Number(await replica.command('GET', 'key'))).toBeGreaterThan(0);
    });

    test('selects the database of the URL', async () => {
      const link = await openReady(`${server.url}/3`);
      await add(link, 'in-three');
      expect(await server.command('EXISTS', 'in-three')).toBe(0);
      const { failureText } = openNoting(`${server.url}/99`);
      await expect.poll(failureText).toContain('DB index is out of range');
    });
  });

  describe.skipIf(isMissing)('that fails', () => {
    test('reports that maxmemory is reached', async () => {
      const config = ['maxmemory 1mb', 'maxmemory-policy noeviction'];
      const server = closeLater(await startRedis({ ...options, config }));
      const link = await openReady(server.url);
      expect((await failureOf(add(link))).kind).toBe('outOfMemory');
    });

    test('fails calls at once while it is gone, and connects to its successor', async () => {
      const server = closeLater(await startRedis({ ...options }));
      const { link, failures } = openNoting(server.url);
      await link.ready(READY_MS);
      const heard = listen(link, ['channel']);
      await expect.poll(() => heard.subscribed).toEqual([1]);
      await add(link);
      const inFlight = Array.from({ length: 20 }, () => link.call(ADD, ['key'], ['1']));
      const results = Promise.allSettled(inFlight);
      await server.kill();
      for (const result of await results) {
        if (result.status === 'fulfilled') continue;
        expect(['lost', 'timeout', 'unreachable']).toContain(result.reason.kind);
      }
      await waitUntil('the loss is noticed', () => !link.isConnected());
      const failure = await failureOf(link.call(ADD, ['key'], ['1'], 10_000));
      expect(failure.kind).toBe('unreachable');
      expect(failures.length).toBeGreaterThan(0);
      await server.restart({ isEmpty: true });
      expect(await addAtLast(link)).toBe(1);
      await expect.poll(() => heard.subscribed).toEqual([2]);
      await server.command('PUBLISH', 'channel', 'again');
      await expect.poll(() => heard.messages).toEqual([[0, 'again']]);
    });

    test('times out calls of a server that is stopped, and gives up the connection', async () => {
      const server = closeLater(await startRedis({ ...options }));
      const { link, failures } = openNoting(server.url);
      await link.ready(READY_MS);
      server.suspend();
      const failure = await failureOf(link.call(ADD, ['key'], ['1']));
      expect(failure.kind).toBe('timeout');
      expect(failure.message).toContain('no answer within 50 ms');
      await waitUntil('the connection is given up', () => !link.isConnected());
      expect(failures.map(({ kind }) => kind)).toContain('timeout');
      server.resume();
      await addAtLast(link);
    });
  });
});

describe.skipIf(isRedisMissing)('the data of a server', () => {
  const server = useRedis();
  const configure = (name: string, value: string) => {
    return server.command('CONFIG', 'SET', name, value);
  };
  const facts = async () => (await openReady(server.url)).servers[0];

  test('are saved to an append-only file, to snapshots, to nothing or to an unknown place', async () => {
    expect((await facts()).isPersistent).toBe(false);
    await configure('save', '3600 1');
    expect((await facts()).isPersistent).toBe(true);
    await configure('save', '');
    await configure('appendonly', 'yes');
    expect((await facts()).isPersistent).toBe(true);
    const config = ['user default on nopass ~* &* +@all -config'];
    const other = closeLater(await startRedis({ config }));
    expect((await openReady(other.url)).servers[0].isPersistent).toBeUndefined();
  });

  test('are deleted by its maxmemory-policy, which is read again on request', async () => {
    const link = await openReady(server.url);
    for (const evictionPolicy of ['volatile-ttl', 'noeviction']) {
      await configure('maxmemory-policy', evictionPolicy);
      await link.refresh();
      expect(link.servers[0]).toMatchObject({ evictionPolicy });
    }
  });
});

describe.skipIf(isRedisMissing)('the access to a server', () => {
  test('needs the right password, from the URL or a file', async () => {
    const server = closeLater(await startRedis({ password: PASSWORD }));
    const { port } = server;
    await add(await openReady(server.url));
    await add(await openReady(`redis://127.0.0.1:${port}`, { password: PASSWORD }));
    for (const url of [`redis://127.0.0.1:${port}`, `redis://:${PASSWORD}x@127.0.0.1:${port}`]) {
      const failure = await failureOf(open(url).ready(READY_MS));
      expect([url, failure.kind]).toEqual([url, 'denied']);
    }
  });

  test('has the permissions of its ACL user', async () => {
    const users = [
      `user weir on >${PASSWORD} ~weir:* &weir:* +@all -@admin`,
      `user poor on >${PASSWORD} ~other:* +@all`,
      `user blind on >${PASSWORD} ~* +@all -info`,
    ];
    const server = closeLater(await startRedis({ config: users }));
    const urlOf = (user: string) => `redis://${user}:${PASSWORD}@127.0.0.1:${server.port}`;
    const link = await openReady(urlOf('weir'));
    expect(await add(link, 'weir:key')).toBe(1);
    // CONFIG is refused to this user.
    expect(link.servers[0].isPersistent).toBeUndefined();
    expect((await failureOf(add(await openReady(urlOf('poor')), 'weir:key'))).kind).toBe('denied');
    expect((await failureOf(open(urlOf('blind')).ready(READY_MS))).message).toContain('NOPERM');
    expect((await failureOf(open(urlOf('nobody')).ready(READY_MS))).kind).toBe('denied');
  });

  test('comes back when a user that was removed is there again', async () => {
    const server = closeLater(await startRedis());
    const setUser = ['ACL', 'SETUSER', 'weir', 'on', `>${PASSWORD}`, '~*', '&*', '+@all'];
    await server.command(...setUser);
    const link = await openReady(`redis://weir:${PASSWORD}@127.0.0.1:${server.port}`);
    await server.command('ACL', 'DELUSER', 'weir');
    await waitUntil('the loss is noticed', () => !link.isConnected());
    await server.command(...setUser);
    await addAtLast(link);
  });

  describe('by TLS', () => {
    const directory = temporaryDirectory();
    const files = writeCertificate(directory, CERTIFICATE_A);
    const clientCa = join(directory, 'client-ca.pem');
    // The commands of the test itself come with the certificate of the server.
    writeFileSync(clientCa, `${CERTIFICATE_A.cert}${CERTIFICATE_B.cert}`);
    afterAll(() => removeDirectory(directory));

    test('needs the CA of the server', async () => {
      const server = closeLater(await startRedis({ tls: files }));
      await add(await openReady(server.url, { tls: { ca: CERTIFICATE_A.cert } }));
      for (const tls of [NO_TLS, { ca: CERTIFICATE_B.cert }]) {
        const { failureText } = openNoting(server.url, { tls });
        await expect.poll(failureText).toMatch(/self.signed certificate/i);
      }
      const plain = `redis://127.0.0.1:${server.port}`;
      await failureOf(openReadyWithin(plain));
    });

    test('reaches all nodes of a cluster', async () => {
      const cluster = closeLater(await startCluster(3, { tls: files, password: PASSWORD }));
      const link = await openReady(cluster.url, { tls: { ca: CERTIFICATE_A.cert } });
      const results = Array.from({ length: 30 }, (_, i) => add(link, `key-${i}`));
      expect(await Promise.all(results)).toEqual(results.map(() => 1));
      const heard = listen(link, ['channel-a', 'channel-b', 'channel-c']);
      await expect.poll(() => heard.subscribed).toEqual([1, 1, 1]);
    });

    test('shows a certificate to a server that requires one', async () => {
      const tls = { ...files, ca: clientCa, requiresClientCertificate: true };
      const server = closeLater(await startRedis({ tls }));
      const { cert, key } = CERTIFICATE_B;
      await add(await openReady(server.url, { tls: { ca: CERTIFICATE_A.cert, cert, key } }));
      await failureOf(openReadyWithin(server.url, { tls: { ca: CERTIFICATE_A.cert } }));
    });
  });
});

/** Fails early: an attempt takes some ms, and its failure is known at the end. */
async function openReadyWithin(url: string, options: OpenOptions = {}): Promise<void> {
  await open(url, options).ready(1_000);
}

describe.skipIf(isRedisMissing)('a primary behind Sentinels', () => {
  test.each(['without TLS', 'by TLS'])(
    'is found, and followed over a failover, %s',
    async (how) => {
      const directory = temporaryDirectory();
      closers.push(() => removeDirectory(directory));
      const server = how === 'by TLS' && {
        tls: writeCertificate(directory, CERTIFICATE_A),
        password: PASSWORD,
      };
      const set = closeLater(await startSentinels(server ? { server } : {}));
      expect(set.url).toMatch(server ? /^rediss\+sentinel:/ : /^redis\+sentinel:/);
      const link = await openReady(set.url, server ? { tls: { ca: CERTIFICATE_A.cert } } : {});
      const heard = listen(link, ['channel']);
      await add(link);
      const first = await set.primary();
      await first.kill();
      expect(Number(await addAtLast(link))).toBeGreaterThan(0);
      const second = await set.primary();
      expect(second).not.toBe(first);
      expect(link.servers[0].server).toBe(`127.0.0.1:${second.port}`);
      await expect.poll(() => heard.subscribed[0]).toBeGreaterThan(1);
      await second.command('PUBLISH', 'channel', 'again');
      await expect.poll(() => heard.messages).toEqual([[0, 'again']]);
      if (!server) return;
      // Certificates are verified.
      const { failureText } = openNoting(set.url, { tls: { ca: CERTIFICATE_B.cert } });
      await expect.poll(failureText).toMatch(/self.signed certificate/i);
    },
  );

  test('fails calls after a failover from its one replica, if they wait for one, until it is back', async () => {
    const set = closeLater(await startSentinels());
    const link = await openReady(set.url, { redisWait: 1 });
    await add(link);
    const first = await set.primary();
    await first.kill();
    await waitUntil('the new primary is connected', async () => {
      return link.isConnected() && link.servers[0]?.server !== `127.0.0.1:${first.port}`;
    });
    expect((await failureOf(add(link))).kind).toBe('notReplicated');
    await first.restart();
    await addAtLast(link);
  });

  test('is left when the Sentinels name another one, and found by the last Sentinel', async () => {
    const set = closeLater(await startSentinels({ server: { password: PASSWORD } }));
    const link = await openReady(set.url);
    const first = await set.primary();
    await set.sentinels[0].command('SENTINEL', 'FAILOVER', set.name);
    await waitUntil('the link has followed', async () => {
      const primary = await set.primary();
      const servers = link.servers.map(({ server }) => server);
      return primary !== first && servers[0] === `127.0.0.1:${primary.port}`;
    });
    await addAtLast(link);

    // It is found if only one Sentinel is alive. An unknown name is said.
    await set.sentinels[0].kill();
    await set.sentinels[1].kill();
    await add(await openReady(set.url));
    const { failureText } = openNoting(set.url.replace(set.name, 'other'));
    await expect.poll(failureText).toContain('No such master');
  });
});

describe.skipIf(isRedisMissing)('a cluster', () => {
  let cluster: RedisCluster;
  beforeAll(async () => {
    cluster = await startCluster();
  });
  afterAll(() => cluster?.close());
  /** A key in each of 64 parts of the slots. */
  const keys: string[] = [];
  for (let i = 0; keys.filter(Boolean).length < 64; i++) {
    keys[Math.floor(slotOfKey(`{${i}}`) / 256)] ??= `{${i}}`;
  }

  test('is found through one node of the URL, and runs each script where its key is', async () => {
    const urls = [await freePort(), cluster.nodes[1].port].map((port) => `127.0.0.1:${port}`);
    const link = await openReady(`redis+cluster://${urls}`);
    expect(link.bucketCount).toBe(64);
    expect(await Promise.all(keys.map((key) => add(link, `${key}:a`)))).toEqual(keys.map(() => 1));
    expect(link.servers).toHaveLength(3);
    for (const node of cluster.nodes) {
      expect(Number(await node.command('DBSIZE'))).toBeGreaterThan(9);
    }
  });

  test('loses no call and no message while slots move', async () => {
    const link = await openReady(cluster.url);
    const channels = keys.map((key) => `${key}:channel`);
    const heard = listen(link, channels);
    await expect.poll(() => heard.subscribed.every((count) => count > 0)).toBe(true);
    const slots = [0, 20, 40, 63].map((i) => slotOfKey(keys[i]));
    let isMoving = true;
    let calls = 0;
    const load = async (key: string) => {
      let expected = 0;
      while (isMoving) {
        expected++;
        expect(await add(link, `${key}:moved`)).toBe(expected);
        calls++;
      }
    };
    const running = Promise.all([0, 20, 40, 63].map((i) => load(keys[i])));
    try {
      for (const slot of slots) {
        const to = cluster.nodes[(cluster.nodes.indexOf(await cluster.ownerOf(slot)) + 1) % 3];
        const finish = await cluster.beginMove(slot, to);
        await new Promise((resolve) => setTimeout(resolve, 20));
        await finish();
      }
    } finally {
      isMoving = false;
      await running;
    }
    expect(calls).toBeGreaterThan(slots.length);
    const publish = defineScript('publish', `return redis.call('SPUBLISH', KEYS[1], ARGV[1])`);
    for (const [index, channel] of channels.entries()) {
      await waitUntil(`channel ${index} is subscribed on its node`, async () => {
        return (await link.call(publish, [channel], ['done'], PATIENT_MS)) === 1;
      });
      await expect.poll(() => heard.messages).toContainEqual([index, 'done']);
    }
  }, 120_000);

  test('runs a script on the new node of a key that is not on the old one any more', async () => {
    const link = await openReady(cluster.url);
    const key = `${keys[5]}:new`;
    const slot = slotOfKey(key);
    const from = await cluster.ownerOf(slot);
    const to = cluster.nodes.find((node) => node !== from)!;
    const finish = await cluster.beginMove(slot, to);
    await to.command('SCRIPT', 'FLUSH');
    // The old node answers ASK, the new one NOSCRIPT.
    expect(await Promise.all([add(link, key), add(link, key), add(link, key)])).toEqual([1, 2, 3]);
    await finish();
    expect(await add(link, key)).toBe(4);
    expect(await to.command('GET', key)).toBe('4');
  });

  test('refuses a script while half of its keys are on another node, and then runs it', async () => {
    const link = await openReady(cluster.url);
    const [here, missing] = [`${keys[6]}:here`, `${keys[6]}:missing`];
    await add(link, here);
    const slot = slotOfKey(here);
    const from = await cluster.ownerOf(slot);
    const finish = await cluster.beginMove(slot, cluster.nodes.find((node) => node !== from)!);
    const failure = await failureOf(link.call(ADD, [here, missing], ['1']));
    expect(failure.kind).toBe('timeout');
    const late = link.call(ADD, [here, missing], ['1'], PATIENT_MS);
    const [sum] = await Promise.all([late, finish()]);
    expect(sum).toBe(2);
  });

  test('goes on with the other nodes when one is gone, and with it when it is back', async () => {
    const link = await openReady(cluster.url);
    const owners = await Promise.all(keys.map((key) => cluster.ownerOf(slotOfKey(key))));
    const gone = cluster.nodes[2];
    const lost = keys[owners.indexOf(gone)];
    const other = keys[owners.findIndex((owner) => owner !== gone)];
    await gone.kill();
    await waitUntil('the loss is noticed', () => !link.isConnected(lost));
    const failure = await failureOf(link.call(ADD, [`${lost}:c`], ['1']));
    expect(['unreachable', 'cluster']).toContain(failure.kind);
    expect(Number(await add(link, `${other}:c`))).toBeGreaterThan(0);
    await gone.restart();
    await addAtLast(link, `${lost}:c`);
  });

  test('is followed when a replica replaces its primary', async () => {
    const own = closeLater(await startCluster(3, { replicas: 1 }));
    const link = await openReady(own.url);
    const key = keys.find((name) => slotOfKey(name) < 16_384 / 3)!;
    const heard = listen(link, [`${key}:channel`]);
    await expect.poll(() => heard.subscribed).toEqual([1]);
    await add(link, key);
    await own.nodes[0].kill();
    expect(Number(await addAtLast(link, key))).toBeGreaterThan(0);
    await expect.poll(() => heard.subscribed[0]).toBeGreaterThan(1);
    await own.nodes[3].command('SPUBLISH', `${key}:channel`, 'again');
    await expect.poll(() => heard.messages).toEqual([[0, 'again']]);
  });

  test('is subscribed again where the server has ended a subscription unnoticed', async () => {
    const [node, other] = cluster.nodes;
    // A slot of the node without keys, which cannot be given away otherwise.
    const used = new Set(keys.map(slotOfKey));
    const channel = Array.from({ length: 100 }, (_, i) => `lost_${i}`).find((name) => {
      return slotOfKey(name) < 16_384 / 3 && !used.has(slotOfKey(name));
    })!;
    const slot = String(slotOfKey(channel));
    // Clients reach the node through a proxy that takes its messages about ended subscriptions away.
    const proxy = await startFilterProxy(node.port);
    await node.command('CONFIG', 'SET', 'cluster-announce-port', String(proxy.port));
    closers.push(() => node.command('CONFIG', 'SET', 'cluster-announce-port', '0'));
    await waitUntil('the other nodes announce the proxy', async () => {
      return JSON.stringify(await other.command('CLUSTER', 'SLOTS')).includes(`${proxy.port}`);
    });
    const link = await openReady(`redis+cluster://127.0.0.1:${other.port}`);
    const heard = listen(link, [channel]);
    await expect.poll(() => heard.subscribed).toEqual([1]);
    // The slot moves to another node and back. A node imports it first, because it then gets a
    // newer epoch: otherwise the gossip of the former owner may undo the move.
    const idOf = async (one: RedisServer) => String(await one.command('CLUSTER', 'MYID'));
    for (const [from, to] of [
      [node, other],
      [other, node],
    ]) {
      await to.command('CLUSTER', 'SETSLOT', slot, 'IMPORTING', await idOf(from));
      const id = await idOf(to);
      for (const one of [to, from]) await one.command('CLUSTER', 'SETSLOT', slot, 'NODE', id);
    }
    await expect.poll(() => proxy.taken()).toBe(1);
    await waitUntil('the channel is subscribed again', async () => {
      return (await node.command('SPUBLISH', channel, 'again')) === 1;
    });
    await expect.poll(() => heard.subscribed[0]).toBeGreaterThan(1);
    await expect.poll(() => heard.messages).toContainEqual([0, 'again']);
  });

  test('is not confused with one server', async () => {
    const single = closeLater(await startRedis());
    const asCluster = await failureOf(
      open(`redis+cluster://127.0.0.1:${single.port}`).ready(READY_MS),
    );
    expect(asCluster.kind).toBe('unsupported');
    const asSingle = await failureOf(
      open(`redis://127.0.0.1:${cluster.nodes[0].port}`).ready(READY_MS),
    );
    expect(asSingle.kind).toBe('unsupported');
  });
});

/** A TCP server on loopback, which is closed after the test. @returns its port */
async function listenTcp(onConnection: (socket: Socket) => void): Promise<number> {
  const sockets = new Set<Socket>();
  const server = createServer({ noDelay: true }, (socket) => {
    sockets.add(socket);
    socket.on('error', () => {});
    onConnection(socket);
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  closers.push(() => {
    for (const socket of sockets) socket.destroy();
    return new Promise((resolve) => server.close(resolve));
  });
  return (server.address() as AddressInfo).port;
}

/** A proxy that takes messages about ended subscriptions out of what a server sends. */
async function startFilterProxy(port: number) {
  const message = />3\r\n\$12\r\nsunsubscribe\r\n\$\d+\r\n.*?\r\n:\d+\r\n/g;
  let taken = 0;
  const ownPort = await listenTcp((client) => {
    const server = connect({ port, host: '127.0.0.1', noDelay: true });
    server.on('error', () => {});
    server.on('close', () => client.destroy());
    client.on('close', () => server.destroy());
    client.on('data', (data) => server.write(data));
    server.on('data', (data) => {
      const text = data.toString('latin1');
      taken += text.match(message)?.length ?? 0;
      client.write(text.replace(message, ''), 'latin1');
    });
  });
  return { port: ownPort, taken: () => taken };
}

describe.skipIf(isRedisMissing)('the network', () => {
  test('may cut, blackhole and half-close connections', async () => {
    const server = closeLater(await startRedis());
    const proxy = closeLater(await startDelayProxy(server.port));
    const link = await openReady(`redis://127.0.0.1:${proxy.port}`);
    await add(link);
    for (const fault of ['cut', 'blackhole', 'halfClose'] as const) {
      if (fault === 'blackhole') proxy.set({ isBlackhole: true });
      else proxy[fault]();
      await waitUntil(`the connection ends by ${fault}`, () => !link.isConnected());
      if (fault === 'blackhole') proxy.heal();
      await addAtLast(link);
    }
  });

  test('may lose an answer, so that calls get those of others: the connection is made again', async () => {
    const server = closeLater(await startRedis());
    const proxy = closeLater(await startLyingProxy(server.port));
    const link = await openReady(`redis://127.0.0.1:${proxy.port}`);
    await add(link);
    proxy.lose();
    const addSoon = () => link.call(ADD, ['key'], ['1'], SOON_MS);
    expect((await failureOf(addSoon())).kind).toBe('timeout');
    // Each call comes before the connection counts as silent.
    await waitUntil('a call succeeds', () => {
      return addSoon().then(
        (sum) => typeof sum === 'number',
        () => false,
      );
    });
  });

  test('may not answer while a connection is opened', async () => {
    const server = closeLater(await startRedis());
    const proxy = closeLater(await startDelayProxy(server.port, { isBlackhole: true }));
    const link = open(`redis://127.0.0.1:${proxy.port}`);
    const failure = await failureOf(link.ready(5_000));
    expect(['timeout', 'unreachable']).toContain(failure.kind);
    proxy.heal();
    await addAtLast(link);
  });
});

/** A server that is not a Redis: it sends what `answer` returns for each chunk. @returns its URL */
async function startFake(answer: (text: string, count: number) => string): Promise<string> {
  const port = await listenTcp((socket) => {
    let count = 0;
    socket.on('data', (data) => socket.write(answer(String(data), count++)));
  });
  return `redis://127.0.0.1:${port}`;
}

const HELLO = '%1\r\n+server\r\n+redis\r\n';
const infoOf = (lines: string) => `$${lines.length}\r\n${lines}\r\n`;
/** Answers HELLO, and then INFO with these lines. */
const infoAnswer = (...lines: string[]) => {
  return (_: string, n: number) => (n === 0 ? HELLO : infoOf(`${lines.join('\r\n')}\r\n`));
};
const INFO = infoOf('redis_version:7.2.0\r\nrun_id:abc\r\nrole:master\r\naof_enabled:1\r\n');

describe('a server that answers nonsense', () => {
  test.each([
    ['HTTP', () => 'HTTP/1.1 400 Bad Request\r\n\r\n', 'unexpectedReply'],
    ['zeros', () => '\0'.repeat(100), 'unexpectedReply'],
    ['an enormous array', () => '*4294967299\r\n', 'unexpectedReply'],
    ['answers to no command', () => '+OK\r\n+OK\r\n+OK\r\n+OK\r\n', 'unexpectedReply'],
    [
      'INFO without a version',
      (_: string, n: number) => (n === 0 ? HELLO : infoOf('a:b')),
      'unexpectedReply',
    ],
    ['an array as INFO', (_: string, n: number) => (n === 0 ? HELLO : '*0\r\n'), 'unexpectedReply'],
    ['a server without HELLO', () => "-ERR unknown command 'HELLO'\r\n", 'unsupported'],
    [
      'an old Redis',
      infoAnswer('redis_version:6.2.14', 'run_id:abc', 'role:master'),
      'unsupported',
    ],
    [
      'an old Valkey',
      infoAnswer('redis_version:7.2.4', 'valkey_version:7.1.9', 'run_id:a', 'role:master'),
      'unsupported',
    ],
    [
      'a server that is loading',
      infoAnswer('redis_version:7.2.4', 'loading:1', 'run_id:a', 'role:master'),
      'loading',
    ],
    [
      'a replica',
      infoAnswer('redis_version:7.2.4', 'aof_enabled:1', 'run_id:a', 'role:slave'),
      'readOnly',
    ],
  ])('is not used: %s', async (_, answer, kind) => {
    const { link, failures } = openNoting(await startFake(answer));
    await expect.poll(() => failures.map((failure) => failure.kind)).toContain(kind);
    expect(link.isConnected()).toBe(false);
    expect((await failureOf(add(link))).kind).toBe('unreachable');
  });

  test.each([
    ['text', 'nonsense\r\n'],
    ['half an answer, and then nothing', '$100\r\nabc'],
    ['more answers than calls', ':1\r\n:2\r\n:3\r\n:4\r\n'],
  ])('fails its calls, and is connected again: %s', async (_, nonsense) => {
    let connections = 0;
    const url = await startFake((text) => {
      if (text.includes('HELLO')) {
        connections++;
        return HELLO;
      }
      if (text.includes('INFO')) return INFO;
      return text.includes('EVALSHA') ? nonsense : '';
    });
    const link = await openReady(url);
    await Promise.allSettled([link.call(ADD, ['key'], ['1']), link.call(ADD, ['key'], ['1'])]);
    await expect.poll(() => connections).toBeGreaterThan(1);
  });
});
