/** The deletion of namespaces, and the order of their list. */

import { join } from 'node:path';
import Database from 'libsql';
import { describe, expect, test } from 'vitest';
import { REMOVED_OVERRIDES_MAX } from '../../../src/core/constants.ts';
import { STORE_FILE } from '../../../src/registry/store/directory.ts';
import { useDataDirectory } from '../../support/data-directory.ts';
import { describeEngines, describeOnce, testInMemory } from '../../support/engine-modes.ts';
import {
  LONGEST_WINDOW_MS,
  readMetrics,
  sendRequest,
  waitForCheckpoint,
} from '../../support/http.ts';
import type { ApiClient, Fields } from '../../support/operations.ts';
import { forwardedFor } from '../../support/policy-config.ts';
import { waitUntil } from '../../support/server.ts';
import { SMALL, useServer } from '../../support/test-server.ts';

const CHECK = { limit: 5, duration: LONGEST_WINDOW_MS };
const remaining = async (server: ApiClient, namespace: string, fields: object = {}) => {
  return (await server.check({ ...CHECK, namespace, identifier: 'user', ...fields })).remaining;
};
const setOverride = (server: ApiClient, namespaceName: string, identifier: string, limit = 9) => {
  const fields = { namespaceName, identifier, limit, duration: LONGEST_WINDOW_MS };
  return server.ok('ratelimits.setOverride', fields);
};
const remove = (server: ApiClient, namespaceName: string) => {
  return server.ok('ratelimits.deleteNamespace', { namespaceName });
};
const importOverrides = (server: ApiClient, namespaceName: string, count: number, from = 0) => {
  const fields = { namespaceName, limit: 9, duration: LONGEST_WINDOW_MS };
  const overrides = Array.from({ length: count }, (_, i) => {
    return { ...fields, identifier: i < 9 ? `user${from + i}*` : `user${from + i}` };
  });
  return server.ok('ratelimits.importOverrides', { overrides });
};
const groupCommits = async (server: ApiClient & { adminUrl: string }) => {
  return (await readMetrics(server.adminUrl)).get('weir_write_transactions_total')!;
};
const figuresOf = async (server: ApiClient, name: string) => {
  const { namespaces } = await server.ok<{ namespaces: Fields[] }>('analytics.getNamespaces');
  return namespaces.find((one) => one.name === name);
};
const spendersOf = async (server: ApiClient, namespaceName: string) => {
  const { spent } = await server.ok<{ spent: Fields[] }>('analytics.getIdentifiers', {
    namespaceName,
  });
  return spent.map(({ identifier, count }) => [identifier, count]);
};

describeEngines('a deleted namespace, decided %s,', (mode) => {
  const policies = { site: { windows: [CHECK] } };
  const server = useServer({ mode, args: ['--acceptors', '2'], policies });

  testInMemory('frees the memory of its counters, and of no others', async () => {
    await setOverride(server, 'memory', 'nobody');
    const live = async () => {
      await server.stepClock(5_000);
      return server.metric('weir_counters_live');
    };
    const settled = async (expected: (count: number) => boolean) => {
      let count = -1;
      await waitUntil('the counters are counted', async () => {
        count = await live();
        return expected(count);
      });
      return count;
    };
    const before = await settled((count) => count >= 0);
    for (let i = 0; i < 200; i++) await remaining(server, 'memory', { identifier: `u${i}` });
    await settled((count) => count === before + 200);
    await remove(server, 'memory');
    expect(await settled((count) => count <= before)).toBe(before);
  });

  test('leaves nothing to the next namespace of its name', async () => {
    await setOverride(server, 'gone', 'user', 7);
    await setOverride(server, 'gone', 'vip_*');
    await setOverride(server, 'gon*', 'by pattern');
    const id = await server.namespaceId('gone');
    for (let i = 0; i < 4; i++) await remaining(server, 'gone');
    for (const identifier of ['other', 'vip_1']) await remaining(server, 'gone', { identifier });
    expect(await figuresOf(server, 'gone')).toMatchObject({ id, allowed: 6 });

    expect(await remove(server, 'gone')).toEqual({ overrides: 2 });
    expect((await server.namespaces()).map(({ name }) => name)).not.toContain('gone');
    const identifiedBy = [{ namespaceId: id }, { namespaceName: 'gone' }];
    for (const fields of identifiedBy) {
      expect((await server.errorOf('ratelimits.deleteNamespace', fields))[0]).toBe(404);
      expect((await server.errorOf('analytics.getTimeline', fields))[0]).toBe(404);
      expect((await server.errorOf('ratelimits.listOverrides', fields))[0]).toBe(404);
    }
    expect(await figuresOf(server, 'gone')).toBeUndefined();

    expect(await remaining(server, 'gone')).toBe(4);
    expect(await remaining(server, 'gone', { identifier: 'other' })).toBe(4);
    expect(await remaining(server, 'gone', { identifier: 'vip_1' })).toBe(4);
    expect(await remaining(server, 'gone', { identifier: 'by pattern' })).toBe(8);
    const newId = await server.namespaceId('gone');
    expect(newId).not.toBe(id);
    const { total } = await server.ok('ratelimits.listOverrides', { namespaceName: 'gone' });
    expect(total).toBe(0);
    await setOverride(server, 'gone', 'user', 3);
    expect(await remaining(server, 'gone')).toBe(1);
    const query = { namespace: 'gone', identifier: 'user' };
    const explained = await server.ok('ratelimits.explain', { ...query, ...CHECK });
    expect(explained.override).toMatchObject({ namespace: 'gone', limit: 3 });
    expect(await figuresOf(server, 'gone')).toMatchObject({ id: newId, allowed: 5 });
    expect(await spendersOf(server, 'gone')).toContainEqual(['user', 2]);
    const allowed = 'weir_decisions_total{namespace="gone",outcome="allowed"}';
    expect(await server.metric(allowed)).toBe(5);
  });

  test('can be deleted and created again and again', async () => {
    for (let i = 0; i < 20; i++) {
      expect(await remaining(server, 'again', { cost: 5 })).toBe(0);
      await server.namespaceId('again');
      await remove(server, 'again');
    }
    expect((await server.namespaces()).filter(({ name }) => name === 'again')).toEqual([]);
  });

  describeOnce(mode, 'in one mode,', () => {
    test('frees its row of the metrics, and the figures of the next begin at 0', async () => {
      await setOverride(server, 'first', 'nobody');
      for (let i = 0; i < 3; i++) await remaining(server, 'first');
      await remove(server, 'first');
      await setOverride(server, 'second', 'nobody');
      await remaining(server, 'second');
      const metrics = await (await fetch(`${server.adminUrl}/metrics`)).text();
      expect(metrics).not.toContain('namespace="first"');
      expect(metrics).toContain('weir_decisions_total{namespace="second",outcome="allowed"} 1\n');
      expect(await figuresOf(server, 'second')).toMatchObject({ allowed: 1 });
    });

    test('is not that of a policy, and the error names it', async () => {
      expect(await server.errorOf('ratelimits.deleteNamespace', { namespaceName: 'site' })).toEqual(
        [409, 'the configuration file has the policy of the namespace "site": remove it first'],
      );
      const request = { method: 'GET', path: '/v1/check/site', headers: forwardedFor('1.2.3.4') };
      expect((await sendRequest(server.gatewayPort, request)).status).toBe(200);
    });

    test('may be `default`, which the next check creates again', async () => {
      expect(await remaining(server, 'default', { cost: 2 })).toBe(3);
      const id = await server.namespaceId('default');
      await remove(server, 'default');
      expect((await server.check({ ...CHECK, identifier: 'user' })).remaining).toBe(4);
      expect(await server.namespaceId('default')).not.toBe(id);
    });

    test('is granted by no permission any more, nor created by a key that may not', async () => {
      await setOverride(server, 'granted', 'nobody');
      const id = await server.namespaceId('granted');
      const permissions = [`ratelimit.${id}.limit`, `ratelimit.${id}.delete_namespace`];
      const made = await server.ok('keys.create', { name: 'one namespace', permissions });
      const key = made.key as string;
      const check = { ...CHECK, namespace: 'granted', identifier: 'user' };
      const name = { namespaceName: 'granted' };
      await server.ok('ratelimits.limit', check, key);
      await server.ok('ratelimits.deleteNamespace', name, key);
      await remaining(server, 'granted');
      await server.namespaceId('granted');
      expect((await server.errorOf('ratelimits.limit', check, key))[0]).toBe(403);
      expect((await server.errorOf('ratelimits.deleteNamespace', name, key))[0]).toBe(403);
      const { keys } = await server.ok<{ keys: Fields[] }>('keys.list');
      expect(keys.find(({ keyId }) => keyId === made.keyId)?.permissions).toEqual(permissions);
      const again = { name: 'another', permissions: [`ratelimit.${id}.limit`] };
      expect((await server.errorOf('keys.create', again))[0]).toBe(404);
    });

    test('has an entry in the audit log, with the number of its overrides', async () => {
      await setOverride(server, 'audited', 'one');
      await setOverride(server, 'audited', 'two');
      const namespaceId = await server.namespaceId('audited');
      await remove(server, 'audited');
      const { entries } = await server.ok<{ entries: Fields[] }>('audit.list', { limit: 1 });
      expect(entries[0]).toMatchObject({
        action: 'namespace.delete',
        target: { namespaceId, namespace: 'audited' },
        before: { overrideCount: 2 },
      });
      expect(entries[0].keyId).toMatch(/^key_/);
    });

    test('loses many overrides in several transactions, each with an entry', async () => {
      const count = 2 * REMOVED_OVERRIDES_MAX + 500;
      await importOverrides(server, 'many', count);
      const commits = await groupCommits(server);
      expect(await remove(server, 'many')).toEqual({ overrides: count });
      expect((await groupCommits(server)) - commits).toBe(3);
      expect(await remaining(server, 'many')).toBe(4);
      const { entries } = await server.ok<{ entries: Fields[] }>('audit.list', { limit: 3 });
      expect(entries.map(({ action, before }) => [action, before])).toEqual([
        ['namespace.delete', { overrideCount: count }],
        ['overrides.delete', { overrideCount: REMOVED_OVERRIDES_MAX }],
        ['overrides.delete', { overrideCount: REMOVED_OVERRIDES_MAX }],
      ]);
      expect(new Set(entries.map(({ keyId }) => keyId)).size).toBe(1);
    });

    test('can be deleted by two requests at a time, each of which takes some overrides', async () => {
      await importOverrides(server, 'twice', 2 * REMOVED_OVERRIDES_MAX + 500);
      const deletions = await Promise.all([remove(server, 'twice'), remove(server, 'twice')]);
      const sum = deletions.reduce((sum, { overrides }) => sum + (overrides as number), 0);
      expect(sum).toBe(2 * REMOVED_OVERRIDES_MAX + 500);
    });

    test('is deleted although another client adds overrides all the time', async () => {
      const count = 3 * REMOVED_OVERRIDES_MAX;
      await importOverrides(server, 'busy', count);
      let isDeleted = false;
      const add = async () => {
        for (let i = 1; !isDeleted; i++) await importOverrides(server, 'busy', count, count * i);
      };
      const adding = add();
      const { overrides } = await remove(server, 'busy');
      isDeleted = true;
      await adding;
      expect(overrides).toBeGreaterThanOrEqual(count);
    });

    test('stays with the rest of many overrides while the store cannot be written', async () => {
      const namespaceName = 'partly';
      let answer: [status: number, message: string] = [200, ''];
      // Once more, if all are deleted before the lock.
      for (let attempt = 0; attempt < 5 && answer[0] === 200; attempt++) {
        for (let i = 0; i < 4; i++) await importOverrides(server, namespaceName, 5_000, 5_000 * i);
        const commits = await groupCommits(server);
        const lock = new Database(join(server.dataDir, STORE_FILE), { timeout: 1_000 });
        const deletion = server.call('ratelimits.deleteNamespace', { namespaceName });
        while ((await groupCommits(server)) < commits + 2);
        lock.exec('BEGIN IMMEDIATE');
        const { status, body } = await deletion;
        lock.close();
        answer = [status, JSON.parse(body).error?.message];
      }
      expect(answer).toEqual([
        503,
        expect.stringMatching(
          /^\d+ overrides of the namespace are deleted, and the namespace is not; repeat the request: the store cannot be written to at the moment [^;]*$/,
        ),
      ]);
      await expect
        .poll(() => server.call('ratelimits.deleteNamespace', { namespaceName }))
        .toMatchObject({ status: 200 });
    });

    test('gives its tokens back to no check, and its name to a check without a cost', async () => {
      await setOverride(server, 'free', 'nobody');
      expect(await remaining(server, 'free', { cost: 5 })).toBe(0);
      await remove(server, 'free');
      expect(await remaining(server, 'free', { cost: 0 })).toBe(5);
      const fields = { namespace: 'free', identifier: 'user' };
      const refund = { ...fields, duration: CHECK.duration, reset: CHECK.duration, cost: 1 };
      expect(await server.ok('ratelimits.refund', refund)).toEqual({ refunded: 0 });
      expect(await server.ok('ratelimits.reset', fields)).toEqual({ cleared: 0 });
      expect((await server.namespaces()).map(({ name }) => name)).not.toContain('free');
    });
  });
});

describe('a deletion', () => {
  const own = useDataDirectory(SMALL);

  test('is complete after a restart, also if the process was killed right after it', async () => {
    const first = await own.start({ args: [...SMALL, '--checkpoint-ms', '100'] });
    for (const name of ['stays', 'gone', 'again']) {
      await setOverride(first, name, 'someone');
      await remaining(first, name, { cost: 5 });
    }
    expect(await spendersOf(first, 'gone')).toEqual([['user', 5]]);
    await waitForCheckpoint(first.adminUrl);
    await remove(first, 'gone');
    await remove(first, 'again');
    await remaining(first, 'again', { cost: 2 });
    const id = await first.namespaceId('again');
    first.child.kill('SIGKILL');
    await first.exited;
    const second = await own.start();
    expect((await second.namespaces()).map(({ name }) => name)).toEqual(['stays', 'again']);
    expect(await second.namespaceId('again')).toBe(id);
    for (const [name, left] of [
      ['stays', 0],
      ['gone', 4],
    ] as const) {
      expect([name, await remaining(second, name)]).toEqual([name, left]);
    }
    expect(await remaining(second, 'again', { identifier: 'new' })).toBe(4);
    await second.namespaceId('gone');
    expect(await spendersOf(second, 'gone')).not.toContainEqual(['user', 6]);
    expect((await spendersOf(second, 'again')).flat()).not.toContain(5);
  });
});

describe('the list of namespaces', () => {
  const own = useDataDirectory([...SMALL, '--acceptors', '4']);

  test('has one order, which stays, if several acceptors create them at the same time', async () => {
    const server = await own.start();
    const names = Array.from({ length: 60 }, (_, i) => `n${i}`);
    await Promise.all(names.map((name) => remaining(server, name)));
    type Page = { namespaces: { id: string; name: string }[]; cursor?: string; total: number };
    const list = async (at: ApiClient) => {
      const pages: Page[] = [];
      do {
        const { cursor } = pages.at(-1) ?? {};
        const fields = { limit: 17, ...(cursor !== undefined && { cursor }) };
        pages.push(await at.ok<Page>('ratelimits.listNamespaces', fields));
      } while (pages.at(-1)?.cursor !== undefined);
      return pages.flatMap((page) => page.namespaces.map(({ name }) => name));
    };
    const areStored = async () => {
      return (await server.ok<Page>('ratelimits.listNamespaces')).total === names.length;
    };
    await waitUntil('all are stored', areStored);
    const order = await list(server);
    expect(order.toSorted()).toEqual(names.toSorted());
    // One that is created later follows, also where it has a name that was deleted.
    await remove(server, order[0]);
    await remaining(server, order[0]);
    await waitUntil('it is stored again', areStored);
    await server.ok('ratelimits.setOverride', { ...CHECK, namespaceName: 'z', identifier: 'abc' });
    const expected = [...order.slice(1), order[0], 'z'];
    expect(await list(server)).toEqual(expected);
    await server.stop();
    expect(await list(await own.start())).toEqual(expected);
  });
});
