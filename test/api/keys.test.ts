import { connect } from 'node:net';
import { afterAll, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import { KEYS_MAX } from '../../src/core/constants.ts';
import { errorIn, LONGEST_WINDOW_MS, requestBytes, sendRequest } from '../support/http.ts';
import { callOperation, callOperationOk, type Fields } from '../support/operations.ts';
import {
  ROOT_KEY,
  removeDirectory,
  type ServerProcess,
  startServer,
  temporaryDirectory,
  waitUntil,
} from '../support/server.ts';
import { fillWithKeys, withStore } from '../support/store.ts';

const dataDir = temporaryDirectory();
let server: ServerProcess;
const start = async (env: Record<string, string | undefined> = {}) => {
  server = await startServer(dataDir, { args: ['--acceptors', '2', '--counters', '1024'], env });
};
const stop = async () => expect(await server.stop()).toEqual({ code: 0, signal: null });
beforeAll(() => start());
afterAll(async () => {
  await stop();
  removeDirectory(dataDir);
});

interface CreatedKey {
  keyId: string;
  key: string;
}
const create = async (permissions: string[], fields: Fields = {}, key?: string) => {
  const made = await callOperationOk(
    server.port,
    'keys.create',
    { name: 'k', permissions, ...fields },
    key,
  );
  return made as unknown as CreatedKey;
};
const revoke = (keyId: string, key?: string) => {
  return callOperation(server.port, 'keys.revoke', { keyId }, key);
};
const checkWith = async (key: string) => {
  const body = JSON.stringify({ identifier: 'a', limit: 5, duration: LONGEST_WINDOW_MS, cost: 0 });
  const response = await sendRequest(server.port, {
    headers: { Authorization: `Bearer ${key}` },
    body,
  });
  return response.status;
};
const list = async () => {
  const { keys } = await callOperationOk(server.port, 'keys.list');
  return keys as (Fields & { keyId: string; name: string })[];
};
const namespaceOf = async (namespaceName: string) => {
  const override = { namespaceName, identifier: 'abc', limit: 5, duration: 1_000 };
  await callOperationOk(server.port, 'ratelimits.setOverride', override);
  const { namespaces } = await callOperationOk(server.port, 'ratelimits.listNamespaces');
  return (namespaces as { id: string; name: string }[]).find(({ name }) => name === namespaceName)!;
};

describe('a key', () => {
  test('is shown once, is active on every acceptor at once, and is listed without the key itself', async () => {
    const expires = Date.now() + 3_600_000;
    const { keyId, key } = await create(['ratelimit.*.limit', 'ratelimit.*.create_namespace'], {
      name: 'gateway 😀',
      expires,
    });
    expect(keyId).toMatch(/^key_[0-9a-f]{24}$/);
    expect(key).toMatch(/^weir_[\w-]{43}$/);
    for (let i = 0; i < 20; i++) expect(await checkWith(key)).toBe(200);
    const response = await callOperation(server.port, 'keys.list');
    expect(response.body).not.toContain(key);
    expect((await list()).find((one) => one.keyId === keyId)).toMatchObject({
      keyId,
      name: 'gateway 😀',
      permissions: ['ratelimit.*.limit', 'ratelimit.*.create_namespace'],
      expires,
      createdAt: expect.any(Number),
    });
    expect((await callOperation(server.port, 'keys.list', {}, key)).status).toBe(403);
  });

  test('that is revoked is rejected on every acceptor as soon as the response arrives', async () => {
    for (let i = 0; i < 200; i++) {
      const { keyId, key } = await create(['*']);
      // The acceptors have cached the headers as verified.
      await Promise.all(Array.from({ length: 4 }, () => checkWith(key)));
      expect((await revoke(keyId)).status).toBe(200);
      const after = await Promise.all(Array.from({ length: 6 }, () => checkWith(key)));
      expect(after).toEqual(after.map(() => 401));
      expect((await revoke(keyId)).status).toBe(404);
    }
  }, 240_000);

  test('that was created or revoked stays so after a restart', async () => {
    const kept = await create(['*'], { name: 'kept' });
    const gone = await create(['*'], { name: 'gone' });
    await revoke(gone.keyId);
    await stop();
    await start();
    expect([await checkWith(kept.key), await checkWith(gone.key)]).toEqual([200, 401]);
  });

  test('can create only keys with its own permissions', async () => {
    const { namespaces } = await callOperationOk(server.port, 'ratelimits.listNamespaces');
    expect(namespaces).toEqual([]);
    const { id } = await namespaceOf('n');
    const maker = await create(['keys.create', 'ratelimit.*.limit', `ratelimit.${id}.reset`]);
    for (const permission of [
      'keys.create',
      'ratelimit.*.limit',
      `ratelimit.${id}.limit`,
      `ratelimit.${id}.reset`,
    ]) {
      expect((await create([permission], {}, maker.key)).key).toMatch(/^weir_/);
    }
    for (const permission of ['*', 'keys.read', 'ratelimit.*.reset', `ratelimit.${id}.refund`]) {
      const fields = { name: 'k', permissions: ['keys.create', permission] };
      const response = await callOperation(server.port, 'keys.create', fields, maker.key);
      expect([response.status, errorIn(response).message]).toEqual([
        403,
        `the API key lacks the permission "${permission}"`,
      ]);
    }
  });

  test.each(['is revoked', 'expires'])(
    'that %s during a request counts nothing, and creates nothing',
    async (what) => {
      const fields = what === 'expires' ? { expires: Date.now() + 4_000 } : {};
      const permissions = ['ratelimit.*.limit', 'ratelimit.*.create_namespace', 'keys.create'];
      const { keyId, key } = await create(permissions, fields);
      const headers = { Authorization: `Bearer ${key}` };
      const checked = {
        namespace: 'never made',
        identifier: 'a',
        limit: 5,
        duration: LONGEST_WINDOW_MS,
      };
      const made = { name: 'never made', permissions: ['keys.create'] };
      const halves = [
        requestBytes({ headers, body: JSON.stringify(checked) }),
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
      if (what === 'is revoked') expect((await revoke(keyId)).status).toBe(200);
      else await waitUntil('it has expired', async () => (await checkWith(key)) === 401);
      for (const { socket, received, rest } of halves) {
        socket.write(rest);
        expect(await received).toContain('401 Unauthorized');
        socket.destroy();
      }
      const { namespaces } = await callOperationOk(server.port, 'ratelimits.listNamespaces');
      expect(namespaces).not.toContainEqual(expect.objectContaining({ name: 'never made' }));
      expect((await list()).map(({ name }) => name)).not.toContain('never made');
    },
  );

  test('has each of its permissions once', async () => {
    const { keyId } = await create(['keys.read', 'keys.create', 'keys.read']);
    const made = (await list()).find((one) => one.keyId === keyId);
    expect(made?.permissions).toEqual(['keys.read', 'keys.create']);
  });

  test('without a permission gets no information on a namespace, not even whether it exists', async () => {
    const { id } = await namespaceOf('there');
    const { key } = await create(['keys.read']);
    const messages = async (name: string, requestKey: string) => {
      const fields = { identifier: 'abc', limit: 5, duration: 1_000 };
      const body = JSON.stringify({ ...fields, namespace: name });
      const responses = [
        await sendRequest(server.port, {
          headers: { Authorization: `Bearer ${requestKey}` },
          body,
        }),
        await callOperation(
          server.port,
          'ratelimits.setOverride',
          { ...fields, namespaceName: name },
          requestKey,
        ),
        await callOperation(
          server.port,
          'ratelimits.getOverride',
          { identifier: 'abc', namespaceName: name },
          requestKey,
        ),
      ];
      return responses.map((response) => [response.status, errorIn(response).message]);
    };
    const errors = await messages('there', key);
    expect(errors).toEqual(await messages('nowhere', key));
    expect(errors[0]).toEqual([
      403,
      'the API key lacks the permission "ratelimit.*.limit" or "ratelimit.<namespaceId>.limit"',
    ]);
    // A key that may read the namespace gets the missing permission in the error.
    const reader = await create([`ratelimit.${id}.read_namespace`]);
    expect((await messages('there', reader.key))[0][1]).toContain(`"ratelimit.${id}.limit"`);
  });

  test('may revoke itself', async () => {
    const { keyId, key } = await create(['keys.revoke']);
    expect((await revoke(keyId, key)).status).toBe(200);
    expect(await checkWith(key)).toBe(401);
  });
});

/** The permissions that an error lists as accepted. */
const PERMISSIONS =
  '"*", "keys.create", "keys.read", "keys.revoke", "read_audit", "ratelimit.*.<action>" or' +
  ' "ratelimit.<namespaceId>.<action>", where <action> is limit, read_namespace, set_override,' +
  ' read_override, delete_override, refund, reset, read_analytics or, with * only,' +
  ' create_namespace';

test.each([
  ['ratelimit.*.limits', 'limit'],
  ['ratelimit.*.create_namespaces', 'create_namespace'],
  ['ratelimit.rlns_0.set_overide', 'set_override'],
  ['ratelimit.a.b.refnd', 'refund'],
  ['keys.creat', 'keys.create'],
  ['read_audits', 'read_audit'],
  ['ratelimit.*.everything', undefined],
  ['ratelimit.rlns_0.create_namespace', undefined],
  ['nothing', undefined],
])('the permission "%s" is refused with the nearest, if any', async (permission, near) => {
  const response = await callOperation(server.port, 'keys.create', {
    name: 'k',
    permissions: [permission],
  });
  expect([response.status, errorIn(response).message]).toEqual([
    400,
    `"permissions[0]" must be ${PERMISSIONS}; got "${permission}"${near ? `: did you mean ${near}?` : ''}`,
  ]);
});

describe('an invalid request for a key', () => {
  const name = 'k';
  const permissions = ['*'];
  const invalid: [string, Fields, number, string][] = [
    ['no name', { permissions }, 400, '"name" is required: a text of 1 to 256'],
    ['an empty name', { name: '', permissions }, 400, '"name" must be'],
    ['no permissions', { name }, 400, '"permissions" is required: an array of 1 to 1000 permis'],
    ['an empty array', { name, permissions: [] }, 400, 'an array of 1 to 1000 permissions'],
    ['not a text', { name, permissions: [5] }, 400, '"permissions[0]" must be a permission; got 5'],
    [
      'not a permission',
      { name, permissions: ['*', 'keys.*'] },
      400,
      `"permissions[1]" must be ${PERMISSIONS}; got "keys.*"`,
    ],
    [
      'a time in the past',
      { name, permissions, expires: 1 },
      400,
      '"expires" must be a Unix time in ms, in the future; got 1, which is 1970-01-01T00:00:00',
    ],
    [
      'a date',
      { name, permissions, expires: '2030' },
      400,
      '"expires" must be a Unix time in ms, an integer',
    ],
    [
      'an unknown namespace',
      { name, permissions: ['ratelimit.rlns_no.limit'] },
      404,
      'there is no namespace with the id "rlns_no"',
    ],
  ];
  test.each(invalid)('gets an error: %s', async (_what, fields, status, message) => {
    const response = await callOperation(server.port, 'keys.create', fields);
    expect(response.status).toBe(status);
    expect(errorIn(response).message).toContain(message);
  });
});

describe('a permission that names a namespace by its name', () => {
  const rejectionOf = async (permission: string, key?: string) => {
    const fields = { name: 'k', permissions: [permission] };
    const response = await callOperation(server.port, 'keys.create', fields, key);
    return [response.status, errorIn(response).message];
  };
  const messageOf = (permission: string, hint: string) => {
    return `"permissions[0]" must be ${PERMISSIONS}; got "${permission}"${hint}`;
  };
  const RULE = ': a namespace is named by its id, which begins with "rlns_"';
  const LIST = ' (weir namespaces list shows the ids)';

  test('gets the id, if the key may read the namespace', async () => {
    const ids = new Map<string, string>();
    for (const name of ['by.name', 'other']) ids.set(name, (await namespaceOf(name)).id);
    const permission = 'ratelimit.by.name.limit';
    const expected = [
      400,
      messageOf(permission, `${RULE}; the id of "by.name" is "${ids.get('by.name')}"`),
    ];
    expect(await rejectionOf(permission)).toEqual(expected);
    const readers = [
      ['keys.create', `ratelimit.${ids.get('by.name')}.read_namespace`],
      ['keys.create', `ratelimit.${ids.get('other')}.read_namespace`],
      ['keys.create'],
    ];
    for (const [i, granted] of readers.entries()) {
      const { key } = await create(granted);
      const withoutId = [400, messageOf(permission, RULE + LIST)];
      expect(await rejectionOf(permission, key)).toEqual(i === 0 ? expected : withoutId);
    }
  });

  test('gets a hint how to find the id, if the namespace does not exist', async () => {
    for (const name of ['nobody', 'a.b', 'no"body', '']) {
      const permission = `ratelimit.${name}.limit`;
      const [status, message] = await rejectionOf(permission);
      const hint = name === '' ? '' : RULE + LIST;
      const got = permission.replace('"', '\\"');
      expect([status, message]).toEqual([400, messageOf(got, hint)]);
    }
    for (const permission of ['ratelimit.nobody.nothing', 'ratelimit.*.nothing', 'nobody.limit']) {
      expect(await rejectionOf(permission)).toEqual([400, messageOf(permission, '')]);
    }
  });
});

describe('the last key with "*"', () => {
  let own: CreatedKey;
  beforeEach(async () => {
    await stop();
    await start();
    for (const { keyId, name } of await list()) {
      if (name !== 'configured root key') await revoke(keyId);
    }
    own = await create(['*'], { name: 'own' });
  });

  test('cannot be revoked, unless another one exists', async () => {
    await stop();
    // Without the configured key, the stored key is the last one.
    await start({ WEIR_ROOT_KEY: undefined });
    await create(['keys.create', 'keys.revoke'], { name: 'lesser' }, own.key);
    const rejected = await revoke(own.keyId, own.key);
    expect([rejected.status, errorIn(rejected).code]).toEqual([409, 'CONFLICT']);
    expect(errorIn(rejected).message).toContain('is the last key with the permission "*"');
    const other = await create(['*'], {}, own.key);
    expect((await revoke(own.keyId, own.key)).status).toBe(200);
    expect((await revoke(other.keyId, other.key)).status).toBe(409);
    await stop();
    await start();
  });

  test('cannot be revoked while all others expire earlier', async () => {
    await stop();
    await start({ WEIR_ROOT_KEY: undefined });
    const soon = await create(['*'], { expires: Date.now() + 3_600_000 }, own.key);
    const rejected = await revoke(own.keyId, own.key);
    expect(rejected.status).toBe(409);
    expect(errorIn(rejected).message).toContain('is the last key with "*" that lasts so long');
    expect((await revoke(soon.keyId, own.key)).status).toBe(200);
    await stop();
    await start();
  });

  test('may be the configured key, which only its setting removes', async () => {
    expect((await revoke(own.keyId)).status).toBe(200);
    const [{ keyId }] = await list();
    const response = await revoke(keyId);
    expect([response.status, errorIn(response).message]).toEqual([
      409,
      `${keyId} is the key of WEIR_ROOT_KEY: remove the setting and restart`,
    ]);
    expect(await checkWith(ROOT_KEY)).toBe(200);
  });
});

test('the number of keys is limited', async () => {
  await stop();
  withStore(dataDir, (store) => fillWithKeys(store, KEYS_MAX - 1));
  await start();
  const last = await create(['*']);
  const response = await callOperation(server.port, 'keys.create', {
    name: 'k',
    permissions: ['*'],
  });
  expect([response.status, errorIn(response).message]).toEqual([
    400,
    `the maximum of ${KEYS_MAX} keys is reached: revoke one`,
  ]);
  expect(await checkWith(last.key)).toBe(200);
  expect((await revoke(last.keyId)).status).toBe(200);
  expect((await create(['*'])).key).toMatch(/^weir_/);
});
