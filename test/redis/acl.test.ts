/** The access rule of docs/cluster.md: weir needs no command that it does not name. */

import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { LONGEST_WINDOW_MS, sendCheck } from '../support/http.ts';
import { callOperationOk } from '../support/operations.ts';
import { isRedisMissing, type RedisServer, startRedis } from '../support/redis.ts';
import {
  removeDirectory,
  type ServerProcess,
  startServer,
  temporaryDirectory,
  waitUntil,
} from '../support/server.ts';

const ROOT = new URL('../../', import.meta.url).pathname;
const read = (path: string) => readFileSync(join(ROOT, path), 'utf8');

const ruleIn = (path: string) => /^user weir .*$/m.exec(read(path))![0];
const RULE = ruleIn('examples/cluster/redis.conf');
const allowed = (rule: string) => [...rule.matchAll(/\+(\S+)/g)].map(([, command]) => command);

/** Of all files of folders of src. */
function sourcesOf(...folders: string[]): string {
  const files = folders.flatMap((folder) => {
    const names = readdirSync(join(ROOT, folder), { recursive: true, encoding: 'utf8' });
    return names.filter((name) => name.endsWith('.ts')).map((name) => join(folder, name));
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

describe.skipIf(isRedisMissing)('a server with only these permissions', () => {
  const directory = temporaryDirectory();
  let redis: RedisServer;
  let server: ServerProcess;
  beforeAll(async () => {
    redis = await startRedis({ config: [RULE] });
    const url = redis.url.replace('redis://', 'redis://weir:password-of-this-example@');
    const args = ['--engine', 'redis', '--acceptors', '1', '--counters', '1024'];
    server = await startServer(directory, { args, env: { WEIR_REDIS_URL: url } });
  }, 60_000);
  afterAll(async () => {
    await server?.stop();
    await redis?.close();
    removeDirectory(directory);
  });

  const isReady = async () =>
    (await (await fetch(`${server.adminUrl}/readyz`)).text()).includes('"ready"');
  const expectNoRefusal = async () => expect(await redis.command('ACL', 'LOG')).toEqual([]);

  test('is refused no command, also after Redis has lost everything', async () => {
    await waitUntil('it is ready', isReady);
    const check = { limit: 100, duration: LONGEST_WINDOW_MS };
    const use = async (identifier: string) => {
      for (const algorithm of ['fixed', 'sliding', 'gcra']) {
        await sendCheck(server.port, { ...check, identifier, algorithm });
        await sendCheck(server.port, { ...check, identifier, algorithm, async: true });
      }
      await callOperationOk(server.port, 'ratelimits.inspect', { identifier });
      await callOperationOk(server.port, 'ratelimits.reset', { identifier });
      await callOperationOk(server.port, 'ratelimits.setOverride', {
        namespaceName: 'default',
        ...{ identifier, limit: 7, duration: LONGEST_WINDOW_MS },
      });
    };
    await use('first');
    await expectNoRefusal();
    await redis.stop();
    await redis.restart({ isEmpty: true });
    await waitUntil('it is ready again', isReady);
    await use('second');
    await expectNoRefusal();
  }, 120_000);
});
