/** The audit log in the API and in the log of the server. */

import { execFileSync } from 'node:child_process';
import { join } from 'node:path';
import Database from 'libsql';
import { beforeAll, describe, expect, test } from 'vitest';
import type { OperationContext } from '../../../../src/api/common/operation-context.ts';
import {
  response as auditResponse,
  listAudit,
} from '../../../../src/api/operations/v1/audit-list.ts';
import { Permissions } from '../../../../src/auth/permissions.ts';
import {
  AUDIT_ENTRIES_MAX,
  AUDIT_NAMESPACES_MAX,
  AUDIT_PERMISSIONS_MAX,
  AUDIT_SCANNED_MAX,
} from '../../../../src/core/constants.ts';
import { TurnBudget } from '../../../../src/core/turn-budget.ts';
import { DataDirectory } from '../../../../src/registry/store/directory.ts';
import { SqliteStore } from '../../../../src/registry/store/sqlite.ts';
import { type AuditEntryFields, listAuditEntries } from '../../../support/audit-log.ts';
import { useDataDirectory } from '../../../support/data-directory.ts';
import type { ApiClient, Fields, Operation } from '../../../support/operations.ts';
import { CLI_PATH, type ServerProcess, waitUntil } from '../../../support/server.ts';
import { addRecords, withStore } from '../../../support/store.ts';
import { SMALL, useServer } from '../../../support/test-server.ts';

const storePath = (dataDir: string) => join(dataDir, 'store.db');

/** The records of changes in the log of the server. */
const loggedEntries = (server: ServerProcess): AuditEntryFields[] => {
  const lines = server.stderr().split('\n');
  const audit = lines.filter((line) => line.endsWith('"msg":"audit"}'));
  return audit.map((line) => JSON.parse(line)).reverse();
};
const rootId = async (server: ApiClient, key?: string) => {
  const { keys } = await server.ok<{ keys: Fields[] }>('keys.list', {}, key);
  return keys.find(({ name }) => name === 'configured root key')!.keyId as string;
};
const setOverride = (namespaceName: string, identifier: string, limit: number) => {
  return { namespaceName, identifier, limit, duration: 60_000 };
};

describe('the audit log', () => {
  const server = useServer({
    prepare: (store) => {
      const namespaces = Array.from({ length: AUDIT_PERMISSIONS_MAX }, (_, i) => {
        return { id: `rlns_${i}`, name: `stored${i}`, createdMs: 1 };
      });
      addRecords(store, 'namespaces', namespaces);
    },
  });
  let root: string;
  beforeAll(async () => {
    root = await rootId(server);
  });
  /** The entries that changes have added, and those that were there. */
  const entriesSince = async (before: AuditEntryFields[]) => {
    const entries = await listAuditEntries(server);
    expect(entries.slice(entries.length - before.length)).toEqual(before);
    return entries.slice(0, entries.length - before.length);
  };

  test('records every change: the key, the values before and the values after', async () => {
    const from = Date.now();
    const expires = from + 3_600_000;
    const permissions = ['ratelimit.*.set_override', 'ratelimit.*.create_namespace'];
    const key = await server.ok('keys.create', { name: 'a 😀', permissions, expires });
    const by = { keyId: key.keyId, keyName: 'a 😀' };
    const set = (fields: Fields, operation: Operation = 'ratelimits.setOverride') => {
      return server.ok(operation, fields, key.key as string);
    };
    const { overrideId } = await set(setOverride('api', 'user_*', 5));
    await set({ ...setOverride('api', 'user_*', 6), async: true });
    const { cursor } = await server.ok('ratelimits.listNamespaces', {
      limit: AUDIT_PERMISSIONS_MAX,
    });
    const { namespaces } = await server.ok('ratelimits.listNamespaces', { cursor });
    const { id: namespaceId } = (namespaces as Fields[]).find(({ name }) => name === 'api')!;
    const v2 = { namespace: 'api', identifier: 'user_*' };
    await set({ ...v2, limit: 0, duration: 1_000 }, 'ratelimit.setOverride');
    await server.ok('ratelimit.deleteOverride', v2);
    const ofPattern = await set(setOverride('a*', 'abc', 1));
    await server.ok('ratelimits.deleteOverride', { namespaceName: 'a*', identifier: 'abc' });
    await server.ok('keys.revoke', { keyId: key.keyId });

    const target = { overrideId, namespace: 'api', namespaceId, identifier: 'user_*' };
    const pattern = { overrideId: ofPattern.overrideId, namespace: 'a*', identifier: 'abc' };
    const granted = { permissions, permissionCount: 2, expires };
    const said = (limit: number, duration = 60_000, async = false) => ({ limit, duration, async });
    const byRoot = { keyId: root, keyName: 'configured root key' };
    const zero = said(0, 1_000);
    const six = said(6, 60_000, true);
    const ofKey = { keyId: key.keyId, name: 'a 😀' };
    const expected = [
      { ...byRoot, action: 'key.revoke', target: ofKey, before: granted },
      { ...byRoot, action: 'override.delete', target: pattern, before: said(1) },
      { ...by, action: 'override.create', target: pattern, after: said(1) },
      { ...byRoot, action: 'override.delete', target, before: zero },
      { ...by, action: 'override.update', target, before: six, after: zero },
      { ...by, action: 'override.update', target, before: said(5), after: six },
      { ...by, action: 'override.create', target, after: said(5) },
      { ...by, action: 'namespace.create', target: { namespaceId, namespace: 'api' } },
      { ...byRoot, action: 'key.create', target: ofKey, after: granted },
    ].map((entry, i, all) => ({ id: all.length - i, at: expect.any(Number), ...entry }));
    const response = await server.call('audit.list');
    expect(JSON.parse(response.body)).toEqual({ entries: expected, total: expected.length });
    for (const { at } of await listAuditEntries(server)) {
      expect(at).toBeGreaterThanOrEqual(from - 1_000);
      expect(at).toBeLessThanOrEqual(Date.now() + 1_000);
    }
    // The log of the server has the same entries, and neither contains a key.
    await waitUntil('all are logged', () => loggedEntries(server).length === expected.length);
    const lines = loggedEntries(server);
    expect(lines).toMatchObject(expected);
    expect(lines.map(({ level }) => level)).toEqual(expected.map(() => 30));
    for (const text of [response.body, server.stderr()]) expect(text).not.toContain(key.key);
  });

  test('has no entry for a rejected request, nor for one that changes nothing', async () => {
    const permissions = ['keys.revoke', 'ratelimit.*.set_override'];
    const key = (await server.ok('keys.create', { name: 'k', permissions })).key as string;
    const unchanged = setOverride('n', 'abc', 5);
    await server.ok('ratelimits.setOverride', unchanged);
    const before = await listAuditEntries(server);
    const { overrideId } = await server.ok('ratelimits.setOverride', unchanged);
    expect(before[0]).toMatchObject({ target: { overrideId } });
    await server.ok('ratelimits.importOverrides', { overrides: [unchanged] });
    const other = { overrides: [setOverride('other', 'abc', 5)] };
    await server.ok('ratelimits.importOverrides', { ...other, dryRun: true });
    const partly = { overrides: [setOverride('n', 'new', 1), setOverride('new', 'abc', 1)] };
    const rejected: [Operation, Fields, string | undefined, number][] = [
      ['ratelimits.setOverride', setOverride('n', 'abc', 0), undefined, 400],
      ['ratelimits.deleteOverride', { namespaceName: 'n', identifier: 'abc' }, key, 403],
      ['keys.create', { name: 'k', permissions: ['keys.create'] }, key, 403],
      ['keys.revoke', { keyId: root }, key, 409],
      ['ratelimits.importOverrides', partly, key, 404],
    ];
    for (const [operation, fields, requestKey, status] of rejected) {
      expect((await server.call(operation, fields, requestKey)).status).toBe(status);
    }
    // Nor for a namespace that a check has created.
    const body = { namespace: 'checked', identifier: 'a', limit: 1, duration: 60_000 };
    expect((await server.send({ body: JSON.stringify(body) })).status).toBe(200);
    expect(await entriesSince(before)).toEqual([]);
  });

  test('has one entry for an import, with its counts and namespaces', async () => {
    const before = await listAuditEntries(server);
    const many = Array.from({ length: 100 }, (_, i) => setOverride(`n${i % 20}`, `user_${i}`, 1));
    await server.ok('ratelimits.importOverrides', { overrides: many });
    const overrides = [
      ...many.slice(1, 5),
      setOverride('n3', 'user_3', 2),
      setOverride('n*', 'abc', 1),
    ];
    await server.ok('ratelimits.importOverrides', { overrides });
    const listed = Array.from({ length: AUDIT_NAMESPACES_MAX }, (_, i) => `n${i}`);
    const imported = (namespaces: string[], namespaceCount: number, counts: Fields) => {
      const target = { namespaces, namespaceCount };
      return { action: 'overrides.import', keyId: root, target, counts };
    };
    const expected = [
      imported(['n3', 'n*'], 2, { created: 1, updated: 1, unchanged: 4 }),
      imported(listed, 20, { created: 100, updated: 0, unchanged: 0 }),
    ];
    expect(await entriesSince(before)).toMatchObject(expected);
  });

  test('documents the fields of a block', async () => {
    await server.ok('ratelimits.setOverride', setOverride('blocked', 'other', 1));
    const fields = { namespaceName: 'blocked', identifier: 'a', reason: 'spam' };
    await server.ok('ratelimits.setBlock', { ...fields, expires: Date.now() + 3_600_000 });
    const [entry] = await listAuditEntries(server);
    const { target, after } = auditResponse().properties.entries.items.properties;
    expect(Object.keys(target.properties)).toEqual(
      expect.arrayContaining(Object.keys(entry.target as Fields)),
    );
    expect(Object.keys(after.properties)).toEqual(
      expect.arrayContaining(Object.keys(entry.after as Fields)),
    );
  });

  test('cuts a long list of permissions, and has their number', async () => {
    const ofNamespaces = Array.from({ length: AUDIT_PERMISSIONS_MAX }, (_, i) => {
      return `ratelimit.rlns_${i}.limit`;
    });
    await server.ok('keys.create', { name: 'k', permissions: [...ofNamespaces, 'read_audit'] });
    expect((await listAuditEntries(server))[0].after).toEqual({
      permissions: ofNamespaces,
      permissionCount: AUDIT_PERMISSIONS_MAX + 1,
      expires: null,
    });
  });
});

describe('the stored audit log', () => {
  const own = useDataDirectory(SMALL);

  test('is listed in pages, newest first, for keys with the permission', async () => {
    withStore(own.dataDir, (store) => {
      const entries = Array.from({ length: AUDIT_ENTRIES_MAX }, (_, i) => {
        const action = 'key.create' as const;
        return { at: i, action, keyId: null, by: 'command line' as const, target: {} };
      });
      addRecords(store, 'audit', entries);
    });
    const server = await own.start();
    const create = async (permissions: string[]) => {
      const made = await server.ok('keys.create', { name: 'k', permissions });
      return made.key as string;
    };
    const key = await create(['read_audit']);
    const page = async (fields: Fields) => {
      const { entries, ...rest } = await server.ok('audit.list', fields, key);
      return { ids: (entries as AuditEntryFields[]).map(({ id }) => id), ...rest };
    };
    const newest = AUDIT_ENTRIES_MAX + 1;
    const total = AUDIT_ENTRIES_MAX;
    const ids = Array.from({ length: 100 }, (_, i) => newest - i);
    expect(await page({})).toEqual({ ids, cursor: String(newest - 99), total });
    // A new entry does not move those of the next pages.
    const other = await create(['keys.read']);
    expect(await page({ cursor: String(newest - 99), limit: 3, unknown: 'x' })).toMatchObject({
      ids: [newest - 100, newest - 101, newest - 102],
    });
    // The oldest two were removed for new entries.
    expect(await page({ cursor: '4', limit: 100 })).toEqual({ ids: [3], total });
    expect(await page({ cursor: '3' })).toMatchObject({ ids: [] });
    for (const fields of [{ limit: 0 }, { limit: 101 }, { limit: 'x' }, { cursor: 'x' }]) {
      expect((await server.call('audit.list', fields, key)).status).toBe(400);
    }
    expect(await server.errorOf('audit.list', {}, other)).toEqual([
      403,
      'the API key lacks the permission "read_audit"',
    ]);
  });

  test('filters by what, who, where and when, and reads a bounded number of entries', async () => {
    const by = 'command line' as const;
    withStore(own.dataDir, (store) => {
      const entries = Array.from({ length: 2 * AUDIT_SCANNED_MAX }, (_, i) => {
        const target = {
          namespace: `n${i % 2}`,
          namespaceId: `rlns_${i % 2}`,
          identifier: `U_${i}`,
        };
        return { at: 1_000 + i, action: 'override.create' as const, keyId: null, by, target };
      });
      addRecords(store, 'audit', entries);
    });
    const server = await own.start();
    const key = await server.ok('keys.create', { name: 'k', permissions: ['*'] });
    await server.ok('ratelimits.importOverrides', { overrides: [setOverride('n_import', 'a', 1)] });
    const page = async (fields: Fields) => {
      const { entries, cursor } = await server.ok('audit.list', fields);
      return { ids: (entries as AuditEntryFields[]).map(({ id }) => id), cursor };
    };
    const newest = 2 * AUDIT_SCANNED_MAX + 2;
    expect((await page({ action: 'key.create' })).ids).toEqual([newest - 1]);
    const root = await rootId(server);
    for (const author of [root, 'configured root key']) {
      expect((await page({ by: author })).ids).toEqual([newest, newest - 1]);
    }
    expect((await page({ namespace: 'n_import' })).ids).toEqual([newest]);
    expect((await page({ target: (key.keyId as string).toUpperCase() })).ids).toEqual([newest - 1]);
    expect((await page({ by, namespace: 'rlns_1', start: 1_998, limit: 1 })).ids).toEqual([1_000]);
    // The oldest entry is not among those that the first pages read.
    const oldest: Fields = { target: 'u_0', end: 1_000 };
    const pages = [await page(oldest)];
    while (pages.at(-1)!.cursor)
      pages.push(await page({ ...oldest, cursor: pages.at(-1)!.cursor }));
    expect(pages).toEqual([
      { ids: [], cursor: String(newest - AUDIT_SCANNED_MAX + 1) },
      { ids: [], cursor: String(newest - 2 * AUDIT_SCANNED_MAX + 1) },
      { ids: [1] },
    ]);
    for (const fields of [{ action: 'x' }, { start: 'x' }, { by: '' }]) {
      expect((await server.call('audit.list', fields)).status).toBe(400);
    }
    expect((await page({ start: 1_998, end: 1_998 })).ids).toEqual([999]);
    expect(await server.errorOf('audit.list', { start: 1_011, end: 1_010 })).toEqual([
      400,
      '"start" must not be after "end"; got 1011 and 1010',
    ]);
  });

  test('is read with filters in several turns of the event loop', async () => {
    withStore(own.dataDir, (store) => {
      const entries = Array.from({ length: AUDIT_SCANNED_MAX }, (_, i) => {
        const action = 'key.create' as const;
        return { at: i, action, keyId: null, by: 'command line' as const, target: {} };
      });
      addRecords(store, 'audit', entries);
    });
    const directory = DataDirectory.open(own.dataDir);
    const store = SqliteStore.open(directory);
    // Each step uses a turn up.
    const turns = new TurnBudget(1, 1);
    const context = {
      ...{ auditLog: store, turns, permissions: new Permissions(['*']) },
      validate: (validator: typeof listAudit.validator, input: unknown) => {
        return validator.validate(input);
      },
    } as unknown as OperationContext;
    let turnCount = 0;
    let timer: NodeJS.Immediate;
    const countTurn = () => {
      turnCount++;
      timer = setImmediate(countTurn);
    };
    countTurn();
    const { entries } = (await listAudit.execute(context, { end: 0 })) as { entries: Fields[] };
    clearImmediate(timer!);
    store.close();
    directory.close();
    expect(entries).toMatchObject([{ id: 1 }]);
    expect(turnCount).toBeGreaterThanOrEqual(Math.floor(AUDIT_SCANNED_MAX / 50));
  });

  test('reports a damaged entry', async () => {
    const first = await own.start();
    const root = await rootId(first);
    expect(root).toMatch(/^key_[0-9a-f]{24}$/);
    for (const limit of [1, 2, 3]) {
      await first.ok('ratelimits.setOverride', setOverride('n', 'abc', limit));
    }
    expect(await first.stop()).toEqual({ code: 0, signal: null });
    const database = new Database(storePath(own.dataDir));
    database.exec('UPDATE audit SET crc = crc + 1 WHERE rowid = 2');
    database.close();
    const server = await own.start();
    expect((await server.call('audit.list')).status).toBe(500);
    const said = `the store ${storePath(own.dataDir)} cannot be trusted: a record of audit does not`;
    await waitUntil('the log has the cause', () => server.stderr().includes(said));
    await server.ok('ratelimits.setOverride', setOverride('n', 'abc', 4));
    const list = (fields: Fields) => server.ok('audit.list', fields);
    expect((await list({ limit: 1 })).entries).toMatchObject([
      { keyId: root, after: { limit: 4 } },
    ]);
    expect((await list({ cursor: '2' })).entries).toMatchObject([{ action: 'namespace.create' }]);
  });

  test('has the first root key, and keys that the command line creates', async () => {
    const first = await own.start({ env: { WEIR_ROOT_KEY: undefined } });
    const target = { name: 'first root key', keyId: expect.stringMatching(/^key_/) };
    const action = 'key.create';
    await waitUntil('it is logged', () => loggedEntries(first).length === 1);
    expect(loggedEntries(first)).toMatchObject([{ action, by: 'first start', target }]);
    expect(await first.stop()).toEqual({ code: 0, signal: null });
    const args = ['keys', 'create', '--offline', '--json', '--name', 'back in'];
    const where = ['--permission', '*', '--data-dir', own.dataDir];
    const printed = execFileSync(process.execPath, [CLI_PATH, ...args, ...where]);
    const { keyId, key } = JSON.parse(printed.toString());
    const WEIR_ROOT_KEY = 'another-key-of-the-tests';
    const server = await own.start({ env: { WEIR_ROOT_KEY } });
    const after = { permissions: ['*'], permissionCount: 1, expires: null };
    const made = { at: expect.any(Number), action, keyId: null, after };
    const response = await server.call('audit.list', {}, WEIR_ROOT_KEY);
    expect(JSON.parse(response.body).entries).toEqual([
      { id: 2, by: 'command line', target: { keyId, name: 'back in' }, ...made },
      { id: 1, by: 'first start', target, ...made },
    ]);
    expect(response.body).not.toContain(key);
  });
});
