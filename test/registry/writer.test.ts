import { join } from 'node:path';
import Database from 'libsql';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import {
  IMPORT_MAX_BYTES,
  NAMESPACES_MAX,
  PENDING_BYTES_MAX,
  PENDING_CHANGES_MAX,
} from '../../src/core/constants.ts';
import { ApiError } from '../../src/core/errors.ts';
import { openLog } from '../../src/core/log.ts';
import { LocalLedger } from '../../src/registry/ledger.ts';
import { Registry } from '../../src/registry/registry.ts';
import { DataDirectory } from '../../src/registry/store/directory.ts';
import { SqliteStore } from '../../src/registry/store/sqlite.ts';
import type { Change } from '../../src/registry/store/store.ts';
import { Writer } from '../../src/registry/writer.ts';
import { LONGEST_WINDOW_MS, sendCheck, sendRequest } from '../support/http.ts';
import { callOperationOk } from '../support/operations.ts';
import { overrideId } from '../support/override-model.ts';
import { removeDirectory, startServer, temporaryDirectory, waitUntil } from '../support/server.ts';
import { addRecords, readRecords, withStore } from '../support/store.ts';

const manyNamespaces = (length: number) =>
  Array.from({ length }, (_, i) => ({ id: `rlns_${i}`, name: `n${i}`, createdMs: 0 }));

describe('a writer', () => {
  let path: string;
  let directory: DataDirectory;
  let store: SqliteStore;
  let registry: Registry;
  let writer: Writer;
  let published: { changes: readonly Change[]; rejected: string[] }[];
  /** Each one completes a publication that acceptors have not activated yet. */
  let activations: (() => void)[];

  const open = () => {
    directory = DataDirectory.open(path);
    store = SqliteStore.open(directory);
    registry = new Registry(store);
    published = [];
    activations = [];
    const publish = (changes: readonly Change[], rejected: string[]) => {
      published.push({ changes, rejected });
      return new Promise<void>((resolve) => activations.push(resolve));
    };
    writer = new Writer(registry, new LocalLedger(store), publish, openLog('silent'), () => 5);
  };
  const close = () => {
    store.close();
    directory.close();
  };
  beforeEach(() => {
    path = temporaryDirectory();
    open();
  });
  afterEach(() => {
    close();
    removeDirectory(path);
  });

  const names = () => readRecords(store, 'namespaces').map(({ name }) => name);
  const add = (name: string, bytes = 10) => {
    return writer.submit(bytes, () => ({ id: registry.addNamespace(name, 5).id }));
  };
  const activate = () => activations.shift()!();
  /** Waits until a group is published, and lets all acceptors activate it. */
  const activateNext = async () => {
    await waitUntil('a group is published', () => activations.length === 1);
    activate();
  };

  test('acknowledges a change when it is durable and active on every acceptor, not before', async () => {
    let isAcknowledged = false;
    const change = add('a').then(() => {
      isAcknowledged = true;
    });
    await waitUntil('it is published', () => activations.length === 1);
    expect(names()).toEqual(['a']);
    expect(isAcknowledged).toBe(false);
    activate();
    await change;
  });

  test('commits all changes that arrive during a commit as one group', async () => {
    const first = add('first');
    await waitUntil('it is published', () => activations.length === 1);
    const others = Array.from({ length: 50 }, (_, i) => add(`other ${i}`));
    writer.registerNamespace('by a check');
    activate();
    await first;
    await waitUntil('the others are published', () => activations.length === 1);
    expect(published.map(({ changes }) => changes.length)).toEqual([1, 51]);
    activate();
    await Promise.all(others);
    expect(names().length).toBe(52);
    expect(writer.groupCommits).toBe(2);
  });

  test('rolls back a failed change, and no other change of the group', async () => {
    const failure = new ApiError('FORBIDDEN', 'no');
    const outcomes = [
      add('a'),
      writer.submit(10, () => {
        registry.addNamespace('failed', 5);
        throw failure;
      }),
      add('b'),
    ];
    await activateNext();
    const settled = await Promise.allSettled(outcomes);
    expect(settled.map(({ status }) => status)).toEqual(['fulfilled', 'rejected', 'fulfilled']);
    expect(settled[1]).toMatchObject({ reason: failure });
    expect(names()).toEqual(['a', 'b']);
    expect(registry.namespaceByName('failed')).toBeUndefined();
  });

  test('rejects changes with a 503 while the store cannot be written, and accepts them later', async () => {
    const other = new Database(join(path, 'store.db'));
    other.exec('BEGIN IMMEDIATE');
    writer.registerNamespace('by a check');
    const missing = writer.submit(10, () => {
      throw new ApiError('NOT_FOUND', 'there is none');
    });
    await expect(add('a')).rejects.toMatchObject({ code: 'SERVICE_UNAVAILABLE' });
    await expect(missing).rejects.toMatchObject({ code: 'NOT_FOUND' });
    expect(registry.namespaces()).toEqual([]);
    other.exec('ROLLBACK');
    other.close();
    // The namespace of a check is written as soon as the store can be written.
    await activateNext();
    await waitUntil('it is stored', () => names().includes('by a check'));
    const again = add('a');
    await activateNext();
    await again;
    expect(names()).toEqual(['by a check', 'a']);
  });

  test('finds out without another change that the store can be written again', async () => {
    const other = new Database(join(path, 'store.db'));
    other.exec('BEGIN IMMEDIATE');
    await expect(add('a')).rejects.toThrow('(SQLITE_BUSY 5); nothing was changed');
    expect(store.writeError).toBe('SQLITE_BUSY 5');
    other.exec('ROLLBACK');
    other.close();
    await waitUntil('it was written', () => store.writeError === undefined);
  });

  test('rejects changes with a 503 when too many changes or bytes are pending', async () => {
    const first = add('first');
    await waitUntil('it is published', () => activations.length === 1);
    const waiting = Array.from({ length: PENDING_CHANGES_MAX }, (_, i) => add(`n${i}`));
    await expect(add('excess')).rejects.toMatchObject({ code: 'SERVICE_UNAVAILABLE' });
    activate();
    await first;
    await waitUntil('they are published', () => activations.length === 1);
    const large = add('large', PENDING_BYTES_MAX);
    await expect(add('small', 1)).rejects.toMatchObject({ code: 'SERVICE_UNAVAILABLE' });
    activate();
    await Promise.all(waiting);
    await activateNext();
    await large;
  });

  test('registers a namespace once, and publishes the names that exceed the maximum', async () => {
    addRecords(store, 'namespaces', manyNamespaces(NAMESPACES_MAX - 1));
    close();
    open();
    for (const name of ['n5', 'last', 'excess', 'last']) writer.registerNamespace(name);
    await activateNext();
    expect(published[0].changes.map(({ after }) => after)).toMatchObject([{ name: 'last' }]);
    expect(published[0].rejected).toEqual(['excess']);
    expect(names().at(-1)).toBe('last');
  });

  test('commits no more in one group than the size of one import', async () => {
    for (const one of [1, 2, 3].map((i) => add(`n${i}`, IMPORT_MAX_BYTES))) {
      await activateNext();
      await one;
    }
    expect(writer.groupCommits).toBe(3);
  });

  test('has the same state after a restart', async () => {
    const done = [
      add('a'),
      writer.submit(10, () => {
        const override = { limit: 5, durationMs: 1_000, isAsync: false, createdMs: 1 };
        const { id } = registry.namespaceByName('a')!;
        registry.putOverride({ id: overrideId(1), scope: id, identifier: 'x*', ...override });
        registry.putOverride({ id: overrideId(2), scope: id, identifier: 'xyz', ...override });
        registry.putOverride({ id: overrideId(3), scope: 'a*', identifier: 'xyz', ...override });
        return {};
      }),
    ];
    await activateNext();
    await Promise.all(done);
    const contents = () => [
      registry.namespaces(),
      [...registry.overrides()],
      registry.overrideCounts,
    ];
    const before = contents();
    expect(registry.overrideCounts).toEqual({ exact: 1, wildcard: 2, block: 0 });
    close();
    open();
    expect(contents()).toEqual(before);
  });
});

describe('a server', () => {
  const directory = temporaryDirectory();
  const args = ['--counters', '1024', '--acceptors', '2'];
  beforeAll(() => {
    withStore(directory, (store) => {
      addRecords(store, 'namespaces', manyNamespaces(NAMESPACES_MAX - 2));
    });
  });
  afterAll(() => removeDirectory(directory));

  test('creates and stores a namespace at its first check with a cost, up to the maximum', async () => {
    const server = await startServer(directory, { args });
    const body = { identifier: 'a', limit: 5, duration: LONGEST_WINDOW_MS };
    const send = (namespace: string, cost = 1) => {
      return sendRequest(server.port, { body: JSON.stringify({ ...body, namespace, cost }) });
    };
    expect((await send('without cost', 0)).status).toBe(200);
    expect((await send('one')).status).toBe(200);
    expect((await send('two')).status).toBe(200);
    // One after the other: of concurrent names any two could reach the main thread first.
    await waitUntil('both are stored', async () => {
      const { total } = await callOperationOk(server.port, 'ratelimits.listNamespaces');
      return total === NAMESPACES_MAX;
    });
    // When the next change is acknowledged, every acceptor knows these namespaces.
    const override = {
      namespaceName: 'one',
      identifier: 'abc',
      limit: 1,
      duration: LONGEST_WINDOW_MS,
    };
    await callOperationOk(server.port, 'ratelimits.setOverride', override);
    const responses = await Promise.all(Array.from({ length: 20 }, () => send('three')));
    for (const { status, body } of responses) {
      expect(status).toBe(400);
      expect(body).toContain(`${NAMESPACES_MAX} namespaces`);
    }
    expect(await sendCheck(server.port, { ...body, namespace: 'two' })).toMatchObject({
      remaining: 3,
    });
    expect(await server.stop()).toEqual({ code: 0, signal: null });
    withStore(directory, (store) => {
      const names = readRecords(store, 'namespaces').map(({ name }) => name);
      // They come from two acceptors, so their order is not defined.
      expect(names.slice(-2).sort()).toEqual(['one', 'two']);
      expect(names.length).toBe(NAMESPACES_MAX);
    });
  });
});
