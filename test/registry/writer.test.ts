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
  /** Publications that acceptors have not switched to yet. */
  let held: (() => void)[];

  const open = () => {
    directory = DataDirectory.open(path);
    store = SqliteStore.open(directory);
    registry = new Registry(store);
    published = [];
    held = [];
    const publish = (changes: readonly Change[], rejected: string[]) => {
      published.push({ changes, rejected });
      return new Promise<void>((resolve) => held.push(resolve));
    };
    writer = new Writer(registry, store, publish, openLog('silent'), () => 5);
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
  const release = () => held.shift()!();

  test('answers when the change is durable and every acceptor has switched, not before', async () => {
    let answered = false;
    const answer = add('a').then(() => {
      answered = true;
    });
    await waitUntil('it is published', () => held.length === 1);
    expect(names()).toEqual(['a']);
    expect(answered).toBe(false);
    release();
    await answer;
  });

  test('makes one round of all that comes while the last one goes on', async () => {
    const first = add('first');
    await waitUntil('it is published', () => held.length === 1);
    const others = Array.from({ length: 50 }, (_, i) => add(`other ${i}`));
    writer.registerNamespace('by a check');
    release();
    await first;
    await waitUntil('the others are published', () => held.length === 1);
    expect(published.map(({ changes }) => changes.length)).toEqual([1, 51]);
    release();
    await Promise.all(others);
    expect(names().length).toBe(52);
    expect(writer.groupCommits).toBe(2);
  });

  test('takes back what a refused change had done, and nothing else', async () => {
    const refusal = new ApiError('FORBIDDEN', 'no');
    const outcomes = [
      add('a'),
      writer.submit(10, () => {
        registry.addNamespace('refused', 5);
        throw refusal;
      }),
      add('b'),
    ];
    await waitUntil('it is published', () => held.length === 1);
    release();
    const settled = await Promise.allSettled(outcomes);
    expect(settled.map(({ status }) => status)).toEqual(['fulfilled', 'rejected', 'fulfilled']);
    expect(settled[1]).toMatchObject({ reason: refusal });
    expect(names()).toEqual(['a', 'b']);
    expect(registry.namespaceByName('refused')).toBeUndefined();
  });

  test('refuses every change with a 503 when the store cannot write, and then goes on', async () => {
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
    // What a check has brought is written as soon as the store can be.
    await waitUntil('it is tried again', () => held.length === 1);
    release();
    await waitUntil('it is there', () => names().includes('by a check'));
    const again = add('a');
    await waitUntil('it is published', () => held.length === 1);
    release();
    await again;
    expect(names()).toEqual(['by a check', 'a']);
  });

  test('holds so many changes and bytes at once, and refuses more with a 503', async () => {
    const first = add('first');
    await waitUntil('it is published', () => held.length === 1);
    const waiting = Array.from({ length: PENDING_CHANGES_MAX }, (_, i) => add(`n${i}`));
    await expect(add('one more')).rejects.toMatchObject({ code: 'SERVICE_UNAVAILABLE' });
    release();
    await first;
    await waitUntil('they are published', () => held.length === 1);
    const large = add('large', PENDING_BYTES_MAX);
    await expect(add('small', 1)).rejects.toMatchObject({ code: 'SERVICE_UNAVAILABLE' });
    release();
    await Promise.all(waiting);
    await waitUntil('the large one is published', () => held.length === 1);
    release();
    await large;
  });

  test('registers a namespace once, and tells of names for which there is no room', async () => {
    addRecords(store, 'namespaces', manyNamespaces(NAMESPACES_MAX - 1));
    close();
    open();
    for (const name of ['n5', 'theirs', 'mine', 'theirs']) writer.registerNamespace(name);
    await waitUntil('it is published', () => held.length === 1);
    release();
    expect(published[0].changes.map(({ after }) => after)).toMatchObject([{ name: 'theirs' }]);
    expect(published[0].rejected).toEqual(['mine']);
    expect(names().at(-1)).toBe('theirs');
  });

  test('does no more in one round than one import brings', async () => {
    const before = writer.groupCommits;
    const all = [1, 2, 3].map((i) => add(`n${i}`, IMPORT_MAX_BYTES));
    for (const one of all) {
      await waitUntil('a round is published', () => held.length === 1);
      release();
      await one;
    }
    expect(writer.groupCommits - before).toBe(3);
  });

  test('gives everything back to the next one', async () => {
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
    await waitUntil('it is published', () => held.length === 1);
    release();
    await Promise.all(done);
    const contents = () => [
      registry.namespaces(),
      [...registry.overrides()],
      registry.overrideCounts,
    ];
    const before = contents();
    expect(registry.overrideCounts).toEqual({ exact: 1, wildcard: 2 });
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

  test('creates a namespace at its first check with a cost, keeps it, and stops at the bound', async () => {
    const server = await startServer(directory, { args });
    const body = { identifier: 'a', limit: 5, duration: LONGEST_WINDOW_MS };
    const send = (namespace: string, cost = 1) => {
      return sendRequest(server.port, { body: JSON.stringify({ ...body, namespace, cost }) });
    };
    expect((await send('looked at', 0)).status).toBe(200);
    expect((await send('one')).status).toBe(200);
    expect((await send('two')).status).toBe(200);
    // Of three names at once any two may be the first to reach the main thread.
    await waitUntil('both are kept', async () => {
      const { total } = await callOperationOk(server.port, 'ratelimits.listNamespaces');
      return total === NAMESPACES_MAX;
    });
    // The next change is acknowledged when every acceptor knows of them as well.
    const override = {
      namespaceName: 'one',
      identifier: 'abc',
      limit: 1,
      duration: LONGEST_WINDOW_MS,
    };
    await callOperationOk(server.port, 'ratelimits.setOverride', override);
    const answers = await Promise.all(Array.from({ length: 20 }, () => send('three')));
    for (const { status, body } of answers) {
      expect(status).toBe(400);
      expect(body).toContain(`${NAMESPACES_MAX} namespaces`);
    }
    expect(await sendCheck(server.port, { ...body, namespace: 'two' })).toMatchObject({
      remaining: 3,
    });
    expect(await server.stop()).toEqual({ code: 0, signal: null });
    withStore(directory, (store) => {
      const names = readRecords(store, 'namespaces').map(({ name }) => name);
      // They come from two acceptors, of which either may be heard first.
      expect(names.slice(-2).sort()).toEqual(['one', 'two']);
      expect(names.length).toBe(NAMESPACES_MAX);
    });
  });
});
