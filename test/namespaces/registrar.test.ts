import { join } from 'node:path';
import Database from 'libsql';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { allocateControl, Control } from '../../src/control.ts';
import { Hasher } from '../../src/counters/hash.ts';
import { NAMESPACES_MAX } from '../../src/limits.ts';
import { KnownNamespaces, type RegisteredNamespace } from '../../src/namespaces/known.ts';
import { NamespaceRegistrar } from '../../src/namespaces/registrar.ts';
import { openLog } from '../../src/observe/log.ts';
import { check, LASTING_MS, request } from '../support/http.ts';
import { removeDirectory, startServer, temporaryDirectory, until } from '../support/server.ts';
import { withStore } from '../support/store.ts';

const dataDir = temporaryDirectory();
afterAll(() => removeDirectory(dataDir));

const log = openLog('silent');
const hasher = new Hasher(Buffer.alloc(16));
const known = (register: (name: string) => void = () => {}) => {
  const control = new Control(allocateControl(1, 1));
  return new KnownNamespaces(
    (name) => hasher.namespace(name),
    (row) => control.acceptorLane(0).row(row),
    register,
  );
};

const manyNamespaces = (length: number) =>
  Array.from({ length }, (_, i) => ({ id: `rlns_${i}`, name: `n${i}`, createdMs: 0 }));

describe('namespaces', () => {
  test('are registered once, in one batch, and every acceptor hears of them', () => {
    withStore(dataDir, (store) => {
      const told: [RegisteredNamespace[], string[]][] = [];
      const registrar = new NamespaceRegistrar(
        store,
        log,
        () => 5,
        (...outcome) => told.push(outcome),
      );
      const acceptors = [
        known((name) => registrar.register(name)),
        known((name) => registrar.register(name)),
      ];
      for (const acceptor of acceptors) {
        for (const name of ['a', 'b']) expect(acceptor.create(name)?.id).toBeUndefined();
      }
      acceptors[1].create('c');
      registrar.flush();
      expect(told.length).toBe(1);
      expect(told[0][0].map(({ name }) => name)).toEqual(['a', 'b', 'c']);
      expect(store.namespaces().map(({ id }) => id)).toEqual(told[0][0].map(({ id }) => id));
      expect(registrar.registered()).toEqual(told[0][0]);
      acceptors[0].registered(told[0][0]);
      expect(acceptors[0].get('c')?.id).toMatch(/^rlns_[0-9a-f]{24}$/);
      registrar.register('a');
      registrar.flush();
      expect(store.namespaces().length).toBe(3);
    });
  });

  test('wait for a store that cannot write, and lose no name', () => {
    const directory = temporaryDirectory();
    withStore(directory, (store) => {
      const names = () => store.namespaces().map(({ name }) => name);
      const registrar = new NamespaceRegistrar(
        store,
        log,
        () => 5,
        () => {},
      );
      const other = new Database(join(directory, 'store.db'));
      other.exec('BEGIN IMMEDIATE');
      registrar.register('a');
      registrar.flush();
      registrar.register('b');
      registrar.flush();
      expect(names()).toEqual([]);
      other.exec('ROLLBACK');
      registrar.flush();
      expect(names()).toEqual(['a', 'b']);
    });
    removeDirectory(directory);
  });

  test('beyond the bound are rejected by the registrar and forgotten by the acceptor', () => {
    const directory = temporaryDirectory();
    withStore(directory, (store) => {
      const full = manyNamespaces(NAMESPACES_MAX - 1);
      store.addNamespaces(full);
      const acceptor = known();
      const registrar = new NamespaceRegistrar(
        store,
        log,
        () => 5,
        (registered, rejected) => {
          acceptor.registered(registered);
          acceptor.rejected(rejected);
        },
      );
      acceptor.registered(registrar.registered());
      expect(acceptor.create('mine')).toBeDefined();
      expect(acceptor.create('one more')).toBeUndefined();
      registrar.register('theirs');
      registrar.register('mine');
      registrar.flush();
      expect(store.namespaces().at(-1)?.name).toBe('theirs');
      expect(acceptor.get('theirs')?.id).toBeDefined();
      expect(acceptor.get('mine')).toBeUndefined();
    });
    removeDirectory(directory);
  });
});

describe('a server', () => {
  const directory = temporaryDirectory();
  const args = ['--counters', '1024', '--acceptors', '2'];
  beforeAll(() => {
    withStore(directory, (store) => {
      store.addNamespaces(manyNamespaces(NAMESPACES_MAX - 2));
    });
  });
  afterAll(() => removeDirectory(directory));

  test('creates a namespace at its first check with a cost, keeps it, and stops at the bound', async () => {
    const server = await startServer(directory, { args });
    const body = { identifier: 'a', limit: 5, duration: LASTING_MS };
    const send = (namespace: string, cost = 1) => {
      return request(server.port, { body: JSON.stringify({ ...body, namespace, cost }) });
    };
    expect((await send('looked at', 0)).status).toBe(200);
    expect((await send('one')).status).toBe(200);
    expect((await send('two')).status).toBe(200);
    // An acceptor that has not heard of both yet takes it for the last, until it is told.
    await until('both acceptors have no room for a third', async () => {
      const answers = await Promise.all(Array.from({ length: 20 }, () => send('three')));
      return answers.every(({ status, body }) => {
        return status === 400 && body.includes(`${NAMESPACES_MAX} namespaces`);
      });
    });
    expect(await check(server.port, { ...body, namespace: 'two' })).toMatchObject({ remaining: 3 });
    expect(await server.stop()).toEqual({ code: 0, signal: null });
    withStore(directory, (store) => {
      const names = store.namespaces().map(({ name }) => name);
      expect(names.slice(-2)).toEqual(['one', 'two']);
      expect(names.length).toBe(NAMESPACES_MAX);
    });
  });
});
