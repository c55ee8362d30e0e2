/** The audit log in the API and in the log of the server. */

import { execFileSync } from 'node:child_process';
import { join } from 'node:path';
import Database from 'libsql';
import { describe, expect, test } from 'vitest';
import {
  AUDIT_ENTRIES_MAX,
  AUDIT_NAMESPACES_MAX,
  AUDIT_PERMISSIONS_MAX,
} from '../../src/core/constants.ts';
import { type AuditEntryFields, listAuditEntries } from '../support/audit-log.ts';
import { useDataDirectory } from '../support/data-directory.ts';
import { errorIn, sendRequest } from '../support/http.ts';
import {
  callOperation,
  callOperationOk,
  type Fields,
  type Operation,
} from '../support/operations.ts';
import { CLI_PATH, type ServerProcess, waitUntil } from '../support/server.ts';
import { addRecords, withStore } from '../support/store.ts';

const own = useDataDirectory(['--acceptors', '2', '--counters', '1024']);
const STORE = () => join(own.dataDir, 'store.db');

/** The records of changes in the log of the server. */
const loggedEntries = (server: ServerProcess): AuditEntryFields[] => {
  const lines = server.stderr().split('\n');
  const audit = lines.filter((line) => line.endsWith('"msg":"audit"}'));
  return audit.map((line) => JSON.parse(line)).reverse();
};
const rootId = async (server: ServerProcess) => {
  const { keys } = await callOperationOk(server.port, 'keys.list');
  return (keys as Fields[]).find(({ name }) => name === 'configured root key')!.keyId as string;
};
const setOverride = (namespaceName: string, identifier: string, limit: number) => {
  return { namespaceName, identifier, limit, duration: 60_000 };
};
/** No other process can write to the store until the connection is closed. */
const lockStore = () => {
  const other = new Database(STORE());
  other.exec('BEGIN IMMEDIATE');
  return other;
};

describe('the audit log', () => {
  test('records every change: the key, the values before and the values after', async () => {
    const server = await own.start();
    const root = await rootId(server);
    const from = Date.now();
    const expires = from + 3_600_000;
    const permissions = ['ratelimit.*.set_override', 'ratelimit.*.create_namespace'];
    const key = await callOperationOk(server.port, 'keys.create', {
      name: 'a 😀',
      permissions,
      expires,
    });
    const by = { keyId: key.keyId };
    const set = (fields: Fields, operation: Operation = 'ratelimits.setOverride') => {
      return callOperationOk(server.port, operation, fields, key.key as string);
    };
    const { overrideId } = await set(setOverride('api', 'user_*', 5));
    await set({ ...setOverride('api', 'user_*', 6), async: true });
    const { namespaces } = await callOperationOk(server.port, 'ratelimits.listNamespaces');
    const [{ id: namespaceId }] = namespaces as Fields[];
    const v2 = { namespace: 'api', identifier: 'user_*' };
    await set({ ...v2, limit: 0, duration: 1_000 }, 'ratelimit.setOverride');
    await callOperationOk(server.port, 'ratelimit.deleteOverride', v2);
    const ofPattern = await set(setOverride('a*', 'abc', 1));
    await callOperationOk(server.port, 'ratelimits.deleteOverride', {
      namespaceName: 'a*',
      identifier: 'abc',
    });
    await callOperationOk(server.port, 'keys.revoke', { keyId: key.keyId });

    const target = { overrideId, namespace: 'api', namespaceId, identifier: 'user_*' };
    const pattern = { overrideId: ofPattern.overrideId, namespace: 'a*', identifier: 'abc' };
    const granted = { permissions, permissionCount: 2, expires };
    const said = (limit: number, duration = 60_000, async = false) => ({ limit, duration, async });
    const expected: AuditEntryFields[] = [
      { keyId: root, action: 'key.revoke', target: { ...by, name: 'a 😀' }, before: granted },
      { keyId: root, action: 'override.delete', target: pattern, before: said(1) },
      { ...by, action: 'override.create', target: pattern, after: said(1) },
      { keyId: root, action: 'override.delete', target, before: said(0, 1_000) },
      {
        ...by,
        action: 'override.update',
        target,
        before: said(6, 60_000, true),
        after: said(0, 1_000),
      },
      { ...by, action: 'override.update', target, before: said(5), after: said(6, 60_000, true) },
      { ...by, action: 'override.create', target, after: said(5) },
      { ...by, action: 'namespace.create', target: { namespaceId, namespace: 'api' } },
      { keyId: root, action: 'key.create', target: { ...by, name: 'a 😀' }, after: granted },
    ].map((entry, i, all) => ({
      id: all.length - i,
      at: expect.any(Number),
      ...entry,
    })) as AuditEntryFields[];
    const response = await callOperation(server.port, 'audit.list');
    expect(JSON.parse(response.body)).toEqual({ entries: expected, total: expected.length });
    for (const { at } of await listAuditEntries(server)) {
      expect(at).toBeGreaterThanOrEqual(from - 1_000);
      expect(at).toBeLessThanOrEqual(Date.now() + 1_000);
    }
    // The log of the server has the same entries, and neither contains a key.
    const lines = loggedEntries(server);
    expect(lines).toMatchObject(expected);
    expect(lines.map(({ level }) => level)).toEqual(expected.map(() => 30));
    for (const text of [response.body, server.stderr()]) expect(text).not.toContain(key.key);
  });

  test('has no entry for a rejected request, nor for one that changes nothing', async () => {
    const server = await own.start();
    const made = await callOperationOk(server.port, 'keys.create', {
      name: 'k',
      permissions: ['keys.revoke', 'ratelimit.*.set_override'],
    });
    await callOperationOk(server.port, 'ratelimits.setOverride', setOverride('n', 'abc', 5));
    const before = await listAuditEntries(server);
    const key = made.key as string;
    const unchanged = setOverride('n', 'abc', 5);
    const { overrideId } = await callOperationOk(server.port, 'ratelimits.setOverride', unchanged);
    expect(before[0]).toMatchObject({ target: { overrideId } });
    const imports = { overrides: [unchanged] };
    await callOperationOk(server.port, 'ratelimits.importOverrides', imports);
    const other = { overrides: [setOverride('other', 'abc', 5)] };
    await callOperationOk(server.port, 'ratelimits.importOverrides', { ...other, dryRun: true });
    const rejected: [Operation, Fields | Fields[], string | undefined, number][] = [
      ['ratelimits.setOverride', setOverride('n', 'abc', 0), undefined, 400],
      ['ratelimits.setOverride', setOverride('new', 'abc', 1), key, 404],
      ['ratelimits.deleteOverride', { namespaceName: 'n', identifier: 'abc' }, key, 403],
      ['ratelimits.deleteOverride', { namespaceName: 'n', identifier: 'abd' }, undefined, 404],
      ['keys.create', { name: 'k', permissions: ['keys.create'] }, key, 403],
      ['keys.revoke', { keyId: 'key_none' }, key, 404],
      ['keys.revoke', { keyId: await rootId(server) }, key, 409],
      [
        'ratelimits.importOverrides',
        { overrides: [setOverride('n', 'new', 1), setOverride('new', 'abc', 1)] },
        key,
        404,
      ],
    ];
    for (const [operation, fields, requestKey, status] of rejected) {
      expect((await callOperation(server.port, operation, fields, requestKey)).status).toBe(status);
    }
    // Nor for a namespace that a check has created.
    const body = { namespace: 'checked', identifier: 'a', limit: 1, duration: 60_000 };
    expect((await sendRequest(server.port, { body: JSON.stringify(body) })).status).toBe(200);
    expect(await listAuditEntries(server)).toEqual(before);
    expect(loggedEntries(server).length).toBe(before.length);
  });

  test('has one entry for an import, with its counts and namespaces', async () => {
    const server = await own.start();
    const many = Array.from({ length: 2_000 }, (_, i) => setOverride(`n${i % 20}`, `user_${i}`, 1));
    await callOperationOk(server.port, 'ratelimits.importOverrides', { overrides: many });
    const again = [
      ...many.slice(0, 5),
      setOverride('n3', 'user_3', 2),
      setOverride('n*', 'abc', 1),
    ];
    await callOperationOk(server.port, 'ratelimits.importOverrides', { overrides: again.slice(1) });
    const listed = Array.from({ length: AUDIT_NAMESPACES_MAX }, (_, i) => `n${i}`);
    const action = 'overrides.import';
    expect(await listAuditEntries(server)).toMatchObject([
      {
        action,
        keyId: await rootId(server),
        target: { namespaces: ['n3', 'n*'], namespaceCount: 2 },
        counts: { created: 1, updated: 1, unchanged: 4 },
      },
      {
        action,
        target: { namespaces: listed, namespaceCount: 20 },
        counts: { created: 2_000, updated: 0, unchanged: 0 },
      },
    ]);
    expect(loggedEntries(server).length).toBe(2);
  });

  test('cuts a long list of permissions, and has their number', async () => {
    const namespaces = Array.from({ length: AUDIT_PERMISSIONS_MAX }, (_, i) => {
      return { id: `rlns_${i}`, name: `n${i}`, createdMs: 1 };
    });
    withStore(own.dataDir, (store) => addRecords(store, 'namespaces', namespaces));
    const server = await own.start();
    const permissions = [...namespaces.map(({ id }) => `ratelimit.${id}.limit`), 'read_audit'];
    await callOperationOk(server.port, 'keys.create', { name: 'k', permissions });
    const [entry] = await listAuditEntries(server);
    const listed = permissions.slice(0, AUDIT_PERMISSIONS_MAX);
    expect(entry.after).toEqual({
      permissions: listed,
      permissionCount: AUDIT_PERMISSIONS_MAX + 1,
      expires: null,
    });
  });

  test('is listed in pages, newest first, for keys with the permission', async () => {
    withStore(own.dataDir, (store) => {
      const entries = Array.from({ length: AUDIT_ENTRIES_MAX }, (_, i) => {
        const action = 'key.create' as const;
        return { at: i, action, keyId: null, by: 'command line' as const, target: {} };
      });
      addRecords(store, 'audit', entries);
    });
    const server = await own.start();
    const { key } = await callOperationOk(server.port, 'keys.create', {
      name: 'reader',
      permissions: ['read_audit'],
    });
    const list = (fields: Fields) =>
      callOperation(server.port, 'audit.list', fields, key as string);
    const page = async (fields: Fields) => JSON.parse((await list(fields)).body);
    const ids = ({ entries }: { entries: AuditEntryFields[] }) => entries.map(({ id }) => id);
    const first = await page({});
    const newest = AUDIT_ENTRIES_MAX + 1;
    expect(ids(first)).toEqual(Array.from({ length: 100 }, (_, i) => newest - i));
    expect(first).toMatchObject({ cursor: String(newest - 99), total: AUDIT_ENTRIES_MAX });
    // A new entry does not move those of the next pages.
    await callOperationOk(server.port, 'keys.create', { name: 'k', permissions: ['read_audit'] });
    const second = await page({ cursor: first.cursor, limit: 3, unknown: 'x' });
    expect(ids(second)).toEqual([newest - 100, newest - 101, newest - 102]);
    // The oldest two were removed for new entries.
    const last = await page({ cursor: '4', limit: 100 });
    expect([ids(last), last.cursor, last.total]).toEqual([[3], undefined, AUDIT_ENTRIES_MAX]);
    expect(await page({ cursor: '3' })).toMatchObject({ entries: [] });
    expect((await listAuditEntries(server)).length).toBe(AUDIT_ENTRIES_MAX);
    for (const fields of [{ limit: 0 }, { limit: 101 }, { limit: 'x' }, { cursor: 'x' }]) {
      expect((await list(fields)).status).toBe(400);
    }
    const { key: other } = await callOperationOk(server.port, 'keys.create', {
      name: 'other',
      permissions: ['keys.read'],
    });
    const rejected = await callOperation(server.port, 'audit.list', {}, other as string);
    expect([rejected.status, errorIn(rejected).message]).toEqual([
      403,
      'the API key lacks the permission "read_audit"',
    ]);
  });

  test('identifies the configured root key by the same id at every start', async () => {
    const ids: string[] = [];
    for (let i = 0; i < 2; i++) {
      const server = await own.start();
      ids.push(await rootId(server));
      await callOperationOk(server.port, 'ratelimits.setOverride', setOverride('n', 'abc', i + 1));
      expect((await listAuditEntries(server))[0].keyId).toBe(ids[0]);
      expect(await server.stop()).toEqual({ code: 0, signal: null });
    }
    expect(ids[0]).toMatch(/^key_[0-9a-f]{24}$/);
    expect(ids[1]).toBe(ids[0]);
    const server = await own.start({ env: { WEIR_ROOT_KEY: 'another-key-of-the-tests' } });
    const { keys } = await callOperationOk(
      server.port,
      'keys.list',
      {},
      'another-key-of-the-tests',
    );
    expect((keys as Fields[])[0].keyId).not.toBe(ids[0]);
  });

  test('records the first root key, and keys that the command line creates', async () => {
    const first = await own.start({ env: { WEIR_ROOT_KEY: undefined } });
    const target = { name: 'first root key', keyId: expect.stringMatching(/^key_/) };
    await waitUntil('it is logged', () => loggedEntries(first).length === 1);
    expect(loggedEntries(first)).toMatchObject([
      { action: 'key.create', by: 'first start', target },
    ]);
    expect(await first.stop()).toEqual({ code: 0, signal: null });
    const args = [
      'keys',
      'create',
      '--offline',
      '--json',
      '--name',
      'back in',
      '--permission',
      '*',
    ];
    const printed = execFileSync(process.execPath, [CLI_PATH, ...args, '--data-dir', own.dataDir]);
    const { keyId, key } = JSON.parse(printed.toString());
    const server = await own.start();
    const after = { permissions: ['*'], permissionCount: 1, expires: null };
    expect(await listAuditEntries(server)).toEqual([
      {
        id: 2,
        at: expect.any(Number),
        action: 'key.create',
        keyId: null,
        by: 'command line',
        target: { keyId, name: 'back in' },
        after,
      },
      {
        id: 1,
        at: expect.any(Number),
        action: 'key.create',
        keyId: null,
        by: 'first start',
        target,
        after,
      },
    ]);
    expect((await callOperation(server.port, 'audit.list')).body).not.toContain(key);
  });

  test('has no entry and no gap for changes that the store could not write', async () => {
    const server = await own.start();
    await callOperationOk(server.port, 'ratelimits.setOverride', setOverride('n', 'abc', 1));
    const before = await listAuditEntries(server);
    const other = lockStore();
    for (const [operation, fields] of [
      ['ratelimits.setOverride', setOverride('n', 'abc', 2)],
      ['ratelimits.deleteOverride', { namespaceName: 'n', identifier: 'abc' }],
      ['ratelimits.importOverrides', { overrides: [setOverride('m', 'abc', 2)] }],
      ['keys.create', { name: 'k', permissions: ['*'] }],
    ] as [Operation, Fields][]) {
      expect((await callOperation(server.port, operation, fields)).status).toBe(503);
    }
    expect(await listAuditEntries(server)).toEqual(before);
    other.close();
    await callOperationOk(server.port, 'ratelimits.setOverride', setOverride('n', 'abc', 3));
    const [entry, ...rest] = await listAuditEntries(server);
    expect(entry).toMatchObject({
      id: before[0].id + 1,
      before: { limit: 1 },
      after: { limit: 3 },
    });
    expect(rest).toEqual(before);
    await waitUntil(
      'the log has the entry',
      () => loggedEntries(server).length === before.length + 1,
    );
  });

  test('reports a damaged entry, and everything else continues', async () => {
    const first = await own.start();
    for (const limit of [1, 2, 3]) {
      await callOperationOk(first.port, 'ratelimits.setOverride', setOverride('n', 'abc', limit));
    }
    await first.stop();
    const database = new Database(STORE());
    database.exec('UPDATE audit SET crc = crc + 1 WHERE rowid = 2');
    database.close();
    const server = await own.start();
    expect((await callOperation(server.port, 'audit.list')).status).toBe(500);
    const said = `the store ${STORE()} cannot be trusted: a record of audit does not match`;
    await waitUntil('the log has the cause', () => server.stderr().includes(said));
    await callOperationOk(server.port, 'ratelimits.setOverride', setOverride('n', 'abc', 4));
    const list = (fields: Fields) => callOperationOk(server.port, 'audit.list', fields);
    expect((await list({ limit: 1 })).entries).toMatchObject([{ after: { limit: 4 } }]);
    expect((await list({ cursor: '2' })).entries).toMatchObject([{ action: 'namespace.create' }]);
  });
});
