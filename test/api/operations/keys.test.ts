/** The operations on keys, on two acceptors: creation, revocation, and errors of both. */

import { connect } from 'node:net';
import { describe, expect, test } from 'vitest';
import { KEYS_MAX } from '../../../src/core/constants.ts';
import { useDataDirectory } from '../../support/data-directory.ts';
import { trialCount } from '../../support/guarantees.ts';
import { LONGEST_WINDOW_MS, requestBytes } from '../../support/http.ts';
import type { Fields } from '../../support/operations.ts';
import { ROOT_KEY, waitUntil } from '../../support/server.ts';
import { addKey, fillWithKeys, withStore } from '../../support/store.ts';
import { SMALL, useServer } from '../../support/test-server.ts';

const server = useServer({ args: ['--acceptors', '2'], hasSteppedClock: true });

interface CreatedKey {
  keyId: string;
  key: string;
}
const create = (permissions: string[], fields: Fields = {}, key?: string) => {
  const all = { name: 'k', permissions, ...fields };
  return server.ok<CreatedKey>('keys.create', all, key);
};
/** The error for a key with these fields. */
const rejection = (fields: Fields, key?: string) => {
  return server.errorOf('keys.create', { name: 'k', ...fields }, key);
};
const revoke = async (keyId: string, key?: string) => {
  return (await server.call('keys.revoke', { keyId }, key)).status;
};
const checkWith = async (key: string) => {
  const headers = { Authorization: `Bearer ${key}` };
  const body = JSON.stringify({ identifier: 'a', limit: 5, duration: LONGEST_WINDOW_MS, cost: 0 });
  return (await server.send({ headers, body })).status;
};
interface ListedKey extends Fields {
  keyId: string;
  name: string;
}
const list = async () => (await server.ok<{ keys: ListedKey[] }>('keys.list')).keys;
/** The id of a new namespace. */
const createNamespace = async (namespaceName: string): Promise<string> => {
  const override = { namespaceName, identifier: 'abc', limit: 5, duration: 1_000 };
  await server.ok('ratelimits.setOverride', override);
  return server.namespaceId(namespaceName);
};

describe('a key', () => {
  test('is shown once, is active on every acceptor at once, and is listed without the key', async () => {
    const permissions = ['ratelimit.*.limit', 'ratelimit.*.create_namespace'];
    const fields = { name: 'gateway 😀', expires: Date.now() + 3_600_000 };
    const { keyId, key } = await create([...permissions, permissions[0]], fields);
    expect(keyId).toMatch(/^key_[0-9a-f]{24}$/);
    expect(key).toMatch(/^weir_[\w-]{43}$/);
    for (let i = 0; i < 20; i++) expect(await checkWith(key)).toBe(200);
    const response = await server.call('keys.list');
    expect(response.body).not.toContain(key);
    // It has each permission once.
    const createdAt = expect.any(Number);
    expect(await list()).toContainEqual({ keyId, permissions, createdAt, ...fields });
    expect((await server.call('keys.list', {}, key)).status).toBe(403);
  });

  test('that is revoked is rejected on every acceptor as soon as the response arrives', async () => {
    const trials = trialCount(20, 200);
    for (let i = 0; i < trials; i++) {
      const { keyId, key } = await create(['*']);
      // The acceptors have cached the headers as verified.
      await Promise.all(Array.from({ length: 4 }, () => checkWith(key)));
      expect(await revoke(keyId)).toBe(200);
      const after = await Promise.all(Array.from({ length: 6 }, () => checkWith(key)));
      expect(after).toEqual(after.map(() => 401));
      expect(await revoke(keyId)).toBe(404);
    }
  }, 240_000);

  test('can create only keys with its own permissions', async () => {
    const id = await createNamespace('n');
    const maker = await create(['keys.create', 'ratelimit.*.limit', `ratelimit.${id}.reset`]);
    const granted = ['keys.create', 'ratelimit.*.limit'];
    for (const permission of [...granted, `ratelimit.${id}.limit`, `ratelimit.${id}.reset`]) {
      expect((await create([permission], {}, maker.key)).key).toMatch(/^weir_/);
    }
    for (const permission of ['*', 'keys.read', 'ratelimit.*.reset', `ratelimit.${id}.refund`]) {
      expect(await rejection({ permissions: ['keys.create', permission] }, maker.key)).toEqual([
        403,
        `the API key lacks the permission "${permission}"`,
      ]);
    }
  });

  test.each(['is revoked', 'expires'])(
    'that %s during a request counts nothing, and creates nothing',
    async (what) => {
      const fields = { expires: server.nowMs() + 3_600_000 };
      const permissions = ['ratelimit.*.limit', 'ratelimit.*.create_namespace', 'keys.create'];
      const { keyId, key } = await create(permissions, fields);
      const headers = { Authorization: `Bearer ${key}` };
      const name = 'never made';
      const check = { namespace: name, identifier: 'a', limit: 5, duration: LONGEST_WINDOW_MS };
      const made = { name, permissions: ['keys.create'] };
      const halves = [
        requestBytes({ headers, body: JSON.stringify(check) }),
        requestBytes({ headers, body: JSON.stringify(made), path: '/v1/keys.create' }),
      ].map((bytes) => {
        const socket = connect(server.port, '127.0.0.1');
        const received = new Promise<string>((resolve) => {
          socket.once('data', (data) => resolve(data.toString()));
        });
        socket.write(bytes.subarray(0, bytes.length - 10));
        return { socket, received, rest: bytes.subarray(bytes.length - 10) };
      });
      // The server has read the heads when it responds to later requests.
      for (let i = 0; i < 20; i++) await checkWith(key);
      if (what === 'is revoked') expect(await revoke(keyId)).toBe(200);
      else await server.stepClock(3_600_000);
      await waitUntil('it is rejected', async () => (await checkWith(key)) === 401);
      for (const { socket, received, rest } of halves) {
        socket.write(rest);
        expect(await received).toContain('401 Unauthorized');
        socket.destroy();
      }
      const { namespaces } = await server.ok('ratelimits.listNamespaces');
      expect(namespaces).not.toContainEqual(expect.objectContaining({ name }));
      expect((await list()).map((one) => one.name)).not.toContain(name);
    },
  );

  test('without a permission gets no information on a namespace, not even whether it exists', async () => {
    const id = await createNamespace('there');
    const { key } = await create(['keys.read']);
    const errors = (name: string, requestKey: string) => {
      const fields = { identifier: 'abc', limit: 5, duration: 1_000 };
      const named = { ...fields, namespaceName: name };
      return Promise.all([
        server.errorOf('ratelimits.limit', { ...fields, namespace: name }, requestKey),
        server.errorOf('ratelimits.setOverride', named, requestKey),
        server.errorOf('ratelimits.getOverride', named, requestKey),
      ]);
    };
    const hidden = await errors('there', key);
    expect(hidden).toEqual(await errors('nowhere', key));
    expect(hidden[0]).toEqual([
      403,
      'the API key lacks the permission "ratelimit.*.limit" or "ratelimit.<namespaceId>.limit"',
    ]);
    // A key that may read the namespace gets the missing permission in the error.
    const reader = await create([`ratelimit.${id}.read_namespace`]);
    expect((await errors('there', reader.key))[0][1]).toContain(`"ratelimit.${id}.limit"`);
  });
});

/** The permissions that an error lists as accepted. */
const PERMISSIONS =
  '"*", "keys.create", "keys.read", "keys.revoke", "read_audit", "ratelimit.*.<action>" or' +
  ' "ratelimit.<namespaceId>.<action>", where <action> is limit, read_namespace,' +
  ' delete_namespace, set_override, read_override, delete_override, refund, reset,' +
  ' read_analytics or, with * only, create_namespace';
const invalidPermission = (permission: string, hint: string) => {
  return `"permissions[0]" must be ${PERMISSIONS}; got "${permission}"${hint}`;
};

test.each([
  ['ratelimit.*.limits', 'limit'],
  ['ratelimit.*.create_namespaces', 'create_namespace'],
  ['ratelimit.rlns_0.create_namespace', undefined],
  ['ratelimit.rlns_0.set_overide', 'set_override'],
  ['keys.creat', 'keys.create'],
  ['ratelimit.*.everything', undefined],
  ['nothing', undefined],
])('the permission "%s" is refused with the nearest, if any', async (permission, near) => {
  const hint = near === undefined ? '' : `: did you mean ${near}?`;
  const message = invalidPermission(permission, hint);
  expect(await rejection({ permissions: [permission] })).toEqual([400, message]);
});

const name = 'k';
const all = ['*'];
const future = '"expires" must be a Unix time in ms, in the future; got 1, which is 1970-01-01T00:';
test.each<[Fields, number, string]>([
  [{ name: undefined, permissions: all }, 400, '"name" is required: a text of 1 to 256'],
  [{ name: '', permissions: all }, 400, '"name" must be'],
  [{ name }, 400, '"permissions" is required: an array of 1 to 1000 permis'],
  [{ permissions: [] }, 400, 'an array of 1 to 1000 permissions'],
  [{ permissions: [5] }, 400, '"permissions[0]" must be a permission; got 5'],
  [{ permissions: ['*', 'keys.*'] }, 400, `"permissions[1]" must be ${PERMISSIONS}; got "keys.*"`],
  [{ permissions: all, expires: 1 }, 400, future],
  [{ permissions: all, expires: '2030' }, 400, '"expires" must be a Unix time in ms, an integer'],
  [{ permissions: ['ratelimit.rlns_no.limit'] }, 404, 'no namespace with the id "rlns_no"'],
])('an invalid request for a key gets an error: %j', async (fields, status, message) => {
  expect(await rejection(fields)).toEqual([status, expect.stringContaining(message)]);
});

describe('a permission that names a namespace by its name', () => {
  const RULE = ': a namespace is named by its id, which begins with "rlns_"';
  const LIST = ' (weir namespaces list shows the ids)';

  test('gets the id, if the key may read the namespace', async () => {
    const id = await createNamespace('by.name');
    const permission = 'ratelimit.by.name.limit';
    const withId = [400, invalidPermission(permission, `${RULE}; the id of "by.name" is "${id}"`)];
    const withoutId = [400, invalidPermission(permission, RULE + LIST)];
    expect(await rejection({ permissions: [permission] })).toEqual(withId);
    const other = `ratelimit.${await createNamespace('other')}.read_namespace`;
    for (const [granted, expected] of [
      [['keys.create', `ratelimit.${id}.read_namespace`], withId],
      [['keys.create', other], withoutId],
      [['keys.create'], withoutId],
    ] as [string[], unknown][]) {
      const { key } = await create(granted);
      expect(await rejection({ permissions: [permission] }, key)).toEqual(expected);
    }
  });

  test('gets a hint how to find the id, if the namespace does not exist', async () => {
    for (const [permission, hint] of [
      ['ratelimit.nobody.limit', RULE + LIST],
      ['ratelimit.a.b.limit', RULE + LIST],
      ['ratelimit.no"body.limit', RULE + LIST],
      ['ratelimit..limit', ''],
      ['ratelimit.nobody.nothing', ''],
      ['ratelimit.*.nothing', ''],
      ['nobody.limit', ''],
    ]) {
      const message = invalidPermission(permission.replace('"', '\\"'), hint);
      expect(await rejection({ permissions: [permission] })).toEqual([400, message]);
    }
  });
});

test('the configured key can be the last with "*", and only its setting removes it', async () => {
  const others = (await list()).filter((one) => one.name !== 'configured root key');
  for (const { keyId } of others) expect(await revoke(keyId)).toBe(200);
  const [{ keyId }] = await list();
  expect(await server.errorOf('keys.revoke', { keyId })).toEqual([
    409,
    `${keyId} is the key of WEIR_ROOT_KEY: remove the setting and restart`,
  ]);
  expect(await checkWith(ROOT_KEY)).toBe(200);
});

test('the number of keys is limited, and a created or revoked key stays so after a restart', async () => {
  const [kept, gone] = [await create(all), await create(all)];
  await revoke(gone.keyId);
  await server.expectStop();
  withStore(server.dataDir, (store) => fillWithKeys(store, KEYS_MAX - 1));
  await server.start();
  expect([await checkWith(kept.key), await checkWith(gone.key)]).toEqual([200, 401]);
  const last = await create(all);
  expect(await rejection({ permissions: all })).toEqual([
    400,
    `the maximum of ${KEYS_MAX} keys is reached: revoke one`,
  ]);
  expect(await checkWith(last.key)).toBe(200);
  expect(await revoke(last.keyId)).toBe(200);
  expect((await create(all)).key).toMatch(/^weir_/);
});

describe('without a configured key', () => {
  const own = useDataDirectory(SMALL);

  test('the last key with "*" cannot be revoked, unless another one lasts as long', async () => {
    const id = 'key_own';
    const key = withStore(own.dataDir, (store) => addKey(store, { id, permissions: all }));
    const server = await own.start({ env: { WEIR_ROOT_KEY: undefined } });
    const create = (fields: Fields) => {
      return server.ok<CreatedKey>('keys.create', { name, ...fields }, key);
    };
    const revocation = async (keyId: string, by = key) => {
      const { status, body } = await server.call('keys.revoke', { keyId }, by);
      return [status, status === 200 ? '' : JSON.parse(body).error.message];
    };
    await create({ permissions: ['keys.create', 'keys.revoke'] });
    const last = [409, expect.stringContaining('is the last key with the permission "*"')];
    expect(await revocation(id)).toEqual(last);
    const soon = await create({ permissions: all, expires: Date.now() + 3_600_000 });
    const lasting = [409, expect.stringContaining('is the last key with "*" that lasts so long')];
    expect(await revocation(id)).toEqual(lasting);
    expect(await revocation(soon.keyId)).toEqual([200, '']);
    const other = await create({ permissions: all });
    expect(await revocation(id)).toEqual([200, '']);
    expect(await revocation(other.keyId, other.key)).toEqual(last);
  });
});
