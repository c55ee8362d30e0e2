/** The access rule of docs/cluster.md: weir needs no command that it does not name. */

import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterEach, describe, expect, test } from 'vitest';
import { LONGEST_WINDOW_MS, sendCheck } from '../../support/http.ts';
import { callOperation, callOperationOk } from '../../support/operations.ts';
import {
  isRedisMissing,
  type RedisServer,
  startCluster,
  startRedis,
} from '../../support/programs/redis.ts';
import type { ServerProcess } from '../../support/server.ts';
import { useServers, waitForStatus } from './servers.ts';

const ROOT = new URL('../../../', import.meta.url).pathname;
const read = (path: string) => readFileSync(join(ROOT, path), 'utf8');

const ruleIn = (path: string) => /^user weir .*$/m.exec(read(path))![0];
const RULE = ruleIn('examples/cluster/redis.conf');
const allowed = (rule: string) => [...rule.matchAll(/\+(\S+)/g)].map(([, command]) => command);

/** Of all files of folders of src. */
function sourcesOf(...folders: string[]): string {
  const files = folders.flatMap((folder) => {
    const names = readdirSync(join(ROOT, folder), { recursive: true, encoding: 'utf8' });
    return names.filter((name) => /\.(ts|lua)$/.test(name)).map((name) => join(folder, name));
  });
  return files.map(read).join('\n');
}

describe('the access rule', () => {
  test('of the example is that of docs/cluster.md', () => {
    const documented = ruleIn('docs/cluster.md').replace('>secret', '>password-of-this-example');
    expect(documented).toBe(RULE);
  });

  test('names every command that a script calls, and no other', () => {
    const text = sourcesOf('src/engine/redis', 'src/registry/shared');
    const called = [...text.matchAll(/\bcall\('([A-Z]+)'/g)].map(([, name]) => name.toLowerCase());
    // Of the connection; `publish` is chosen at run time.
    const others = ['hello', 'ping', 'info', 'config|get', 'script|load', 'evalsha', 'subscribe'];
    const expected = new Set([...called, ...others, 'publish']);
    expect(allowed(RULE).toSorted()).toEqual([...expected].toSorted());
  });
});

/** What docs/cluster.md adds for Redis Cluster. */
function clusterCommands(): string {
  const [, commands] = /^\| Redis Cluster \| `(.*)` \|$/m.exec(read('docs/cluster.md'))!;
  return commands.replaceAll('\\|', '|');
}

describe.skipIf(isRedisMissing)('a server with only these permissions', () => {
  const { start } = useServers(2);
  let close: (() => Promise<void>) | undefined;
  afterEach(() => close?.());

  const startReady = async (i: number, url: string) => {
    const server = await start(i, url.replace('://', '://weir:password-of-this-example@'));
    await waitForStatus(server, 'ready');
    return server;
  };
  const use = async ({ port }: ServerProcess, identifier: string) => {
    const check = { identifier, limit: 100, duration: LONGEST_WINDOW_MS };
    for (const algorithm of ['fixed', 'sliding', 'gcra']) {
      await sendCheck(port, { ...check, algorithm });
      await sendCheck(port, { ...check, algorithm, async: true });
    }
    const override = { namespaceName: 'default', identifier, limit: 7 };
    await callOperationOk(port, 'ratelimits.setOverride', {
      ...override,
      duration: LONGEST_WINDOW_MS,
    });
    // Corrections of a busy server may be late; that they are allowed is what counts here.
    await callOperation(port, 'ratelimits.inspect', { identifier });
    await callOperation(port, 'ratelimits.reset', { identifier });
  };
  const expectNoRefusal = async (redis: RedisServer) => {
    expect(await redis.command('ACL', 'LOG')).toEqual([]);
  };

  test('is refused no command, also after Redis has lost everything', async () => {
    const redis = await startRedis({ config: [RULE] });
    close = redis.close;
    const server = await startReady(0, redis.url);
    await use(server, 'first');
    await expectNoRefusal(redis);
    await redis.stop();
    await redis.restart({ isEmpty: true });
    await waitForStatus(server, 'ready');
    await use(server, 'second');

    await expectNoRefusal(redis);
  }, 120_000);

  test('is refused no command by a cluster, with those that the page adds', async () => {
    const cluster = await startCluster(3, { config: [`${RULE} ${clusterCommands()}`] });
    close = cluster.close;
    const server = await startReady(1, cluster.url);
    for (const identifier of ['one', 'two', 'three']) await use(server, identifier);
    for (const node of cluster.nodes) await expectNoRefusal(node);
  }, 120_000);
});
