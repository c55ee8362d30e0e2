/** The official Python clients against a running server: unkey.py 0.9.0 for v1, 3.2.2 for v2. */

import { type ChildProcess, spawn } from 'node:child_process';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { LONGEST_WINDOW_MS } from '../../support/http.ts';
import {
  type PythonEnvironment,
  pythonEnvironment,
} from '../../support/programs/python-environment.ts';
import {
  ROOT_KEY,
  removeDirectory,
  type ServerProcess,
  startServer,
  temporaryDirectory,
} from '../../support/server.ts';

const v1 = await pythonEnvironment('unkey-v1', ['unkey.py==0.9.0']);
const v2 = await pythonEnvironment('unkey-v2', ['unkey.py==3.2.2']);

/** The result of a call, or the class and message of its exception. */
type Outcome = { result: unknown } | { exception: string; message: string };

/** A Python process that makes sequential calls with the client. */
class PythonClient {
  readonly #child: ChildProcess;
  readonly #lines: AsyncIterator<string>;
  #stderr = '';

  constructor(
    environment: PythonEnvironment | undefined,
    script: string,
    url: string,
    key: string,
  ) {
    const python = join(environment?.bin ?? '', 'python3');
    const path = new URL(script, import.meta.url).pathname;
    this.#child = spawn(python, [path, url, key], { stdio: ['pipe', 'pipe', 'pipe'] });
    this.#lines = createInterface(this.#child.stdout!)[Symbol.asyncIterator]();
    this.#child.stderr!.on('data', (data) => {
      this.#stderr += data;
    });
  }

  async call(operation: string, fields: object): Promise<Outcome> {
    this.#child.stdin!.write(`${JSON.stringify([operation, fields])}\n`);
    const { value, done } = await this.#lines.next();
    if (done) throw new Error(`the client process ended: ${this.#stderr}`);
    return JSON.parse(value);
  }

  stop(): Promise<void> {
    return new Promise((resolve) => {
      if (this.#child.exitCode !== null) return resolve();
      this.#child.once('exit', () => resolve());
      this.#child.stdin!.end();
    });
  }
}

const dataDir = temporaryDirectory();
let server: ServerProcess;
beforeAll(async () => {
  server = await startServer(dataDir, { args: ['--counters', '1024'] });
});
afterAll(async () => {
  expect(await server.stop()).toEqual({ code: 0, signal: null });
  removeDirectory(dataDir);
});

describe.skipIf(v1 === undefined)('unkey.py 0.9.0, for v1,', () => {
  const SCRIPT = 'unkey-0.9.0.py';
  let client: PythonClient;
  beforeAll(() => {
    client = new PythonClient(v1, SCRIPT, server.url, ROOT_KEY);
  });
  afterAll(() => client.stop());

  const namespace_name = 'python-v1';
  const check = (identifier: string, more: object = {}) => {
    const fields = { namespace: namespace_name, identifier, limit: 2, duration: LONGEST_WINDOW_MS };
    return client.call('limit', { ...fields, ...more });
  };
  const limits = { limit: 5, duration: LONGEST_WINDOW_MS };
  const override = (id: unknown, identifier: string) => {
    return { id, identifier, ...limits, async: false };
  };
  const set = async (identifier: string): Promise<unknown> => {
    const outcome = await client.call('set', { namespace_name, identifier, ...limits });
    expect(outcome).toEqual({ result: { overrideId: expect.stringMatching(/^rlor_/) } });
    return (outcome as { result: { overrideId: string } }).result.overrideId;
  };

  test('is allowed up to the limit and then denied, with the remaining tokens and the reset', async () => {
    const meta = { path: '/a', nested: [1, { b: 'é' }] };
    const resources = [{ type: 'project', id: 'p_1' }];
    const results = [await check('a', { meta, resources }), await check('a'), await check('a')];
    const expected = { limit: 2, reset: LONGEST_WINDOW_MS };
    expect(results).toEqual([
      { result: { ...expected, success: true, remaining: 1 } },
      { result: { ...expected, success: true, remaining: 0 } },
      { result: { ...expected, success: false, remaining: 0 } },
    ]);
    expect(await check('b', { cost: 2, async_: true })).toMatchObject({
      result: { success: true },
    });
  });

  test('sets an override that applies to the next check, and finds it by its pattern', async () => {
    const identifier = 'set_*&=+%é';
    const id = await set(identifier);
    const result = await check('set_1&=+%é');
    expect(result).toMatchObject({ result: { limit: 5, remaining: 4, success: true } });
    expect(await client.call('get', { namespace_name, identifier })).toEqual({
      result: override(id, identifier),
    });
  });

  test('lists overrides in pages', async () => {
    const before = await client.call('list', { namespace_name });
    const { total } = (before as { result: { total: number } }).result;
    const ids = [await set('listed_1'), await set('listed_2')];
    const found: unknown[] = [];
    let cursor: string | undefined;
    do {
      const page = await client.call('list', { namespace_name, limit: 1, cursor });
      const { result } = page as {
        result: { overrides: object[]; cursor?: string; total: number };
      };
      expect([result.overrides.length, result.total]).toEqual([1, total + 2]);
      found.push(...result.overrides);
      cursor = result.cursor;
    } while (cursor !== undefined);
    expect(found.slice(-2)).toEqual([override(ids[0], 'listed_1'), override(ids[1], 'listed_2')]);
    expect(found).toHaveLength(total + 2);
  });

  test('deletes an override, which is then an ErrNotFound', async () => {
    const texts = { namespace_name, identifier: 'deleted' };
    await set('deleted');
    expect(await client.call('delete', texts)).toEqual({ result: {} });
    for (const operation of ['get', 'delete']) {
      expect(await client.call(operation, texts)).toEqual({
        exception: 'ErrNotFound',
        message: 'there is no override of "deleted" in that namespace',
      });
    }
    expect(await check('deleted')).toMatchObject({ result: { limit: 2 } });
  });

  test('raises an ErrBadRequest for an invalid field, and an ErrUnauthorized for a wrong key', async () => {
    expect(await check('a', { duration: 60 })).toMatchObject({
      exception: 'ErrBadRequest',
      message: expect.stringContaining(
        '"duration" must be an integer number of milliseconds from 1000',
      ),
    });
    const unauthorized = new PythonClient(v1, SCRIPT, server.url, 'wrong');
    const fields = { identifier: 'a', limit: 1, duration: 1_000 };
    for (const operation of ['limit', 'set']) {
      const outcome = await unauthorized.call(operation, { ...fields, namespace_name });
      expect(outcome).toMatchObject({ exception: 'ErrUnauthorized' });
    }
    await unauthorized.stop();
  });
});

describe.skipIf(v2 === undefined)('unkey.py 3.2.2, for v2,', () => {
  const SCRIPT = 'unkey-3.2.2.py';
  const DURATION_MS = 2_592_000_000;
  let client: PythonClient;
  beforeAll(() => {
    client = new PythonClient(v2, SCRIPT, server.url, ROOT_KEY);
  });
  afterAll(() => client.stop());

  const namespace = 'python-v2';
  const fields = (identifier: string) => {
    return { namespace, identifier, limit: 2, duration: DURATION_MS };
  };
  const check = (identifier: string, more: object = {}) => {
    return client.call('limit', { ...fields(identifier), ...more });
  };
  const responseWith = (data: unknown) => {
    return { result: { meta: { requestId: expect.stringMatching(/^req_/) }, data } };
  };
  const limits = { limit: 5, duration: DURATION_MS };
  const set = async (identifier: string): Promise<string> => {
    const outcome = await client.call('set', { namespace, identifier, ...limits });
    expect(outcome).toEqual(responseWith({ overrideId: expect.stringMatching(/^rlor_/) }));
    return (outcome as { result: { data: { overrideId: string } } }).result.data.overrideId;
  };

  test('is allowed up to the limit and then denied, with the remaining tokens and the reset', async () => {
    const results = [await check('a'), await check('a'), await check('a')];
    const reset = expect.toSatisfy((value) => value > Date.now() && value % DURATION_MS === 0);
    const expected = { limit: 2, reset };
    expect(results).toEqual([
      responseWith({ ...expected, success: true, remaining: 1 }),
      responseWith({ ...expected, success: true, remaining: 0 }),
      responseWith({ ...expected, success: false, remaining: 0 }),
    ]);
  });

  test('gets all checks of a multiLimit allowed, or none charged', async () => {
    const both = [fields('many_1'), { ...fields('many_2'), cost: 2 }];
    const passed = await client.call('multiLimit', both);
    expect(passed).toMatchObject(responseWith({ passed: true }));
    const denied = await client.call('multiLimit', both);
    const results = [
      expect.objectContaining({ identifier: 'many_1', passed: true, remaining: 1 }),
      expect.objectContaining({ identifier: 'many_2', passed: false, remaining: 0 }),
    ];
    expect(denied).toEqual(responseWith({ passed: false, limits: results }));
  });

  test('sets an override that applies to the next check, and finds it by its pattern', async () => {
    const overrideId = await set('set_*');
    expect(await check('set_1')).toMatchObject(
      responseWith({ limit: 5, remaining: 4, overrideId }),
    );
    const identifier = 'set_*';
    const found = await client.call('get', { namespace, identifier });
    expect(found).toEqual(responseWith({ overrideId, identifier, ...limits }));
  });

  test('lists overrides page by page', async () => {
    const before = await client.call('list', { namespace });
    const ids = [await set('listed_1'), await set('listed_2'), await set('listed_3')];
    const { result } = (await client.call('list', { namespace, limit: 1 })) as {
      result: { data: { overrideId: string }[]; pagination: object }[];
    };
    const idsOf = (pages: typeof result) => {
      return pages.flatMap(({ data }) => data.map(({ overrideId }) => overrideId));
    };
    const { result: earlier } = before as { result: typeof result };
    expect(idsOf(result)).toEqual([...idsOf(earlier), ...ids]);
    expect(result.map(({ data }) => data.length)).toEqual(result.map(() => 1));
    expect(result.at(-1)!.pagination).toEqual({ hasMore: false });
  });

  test('deletes an override, which is then a NotFoundErrorResponse', async () => {
    await set('deleted');
    const texts = { namespace, identifier: 'deleted' };
    expect(await client.call('delete', texts)).toEqual(responseWith({}));
    for (const operation of ['get', 'delete']) {
      expect(await client.call(operation, texts)).toEqual({
        exception: 'NotFoundErrorResponse',
        message: 'there is no override of "deleted" in that namespace',
      });
    }
  });

  test('raises the exception of the status for an invalid field or a wrong key', async () => {
    expect(await check('a', { duration: 60 })).toMatchObject({
      exception: 'BadRequestErrorResponse',
      message: expect.stringContaining(
        '"duration" must be an integer number of milliseconds from 1000',
      ),
    });
    const unauthorized = new PythonClient(v2, SCRIPT, server.url, 'wrong');
    const outcome = await unauthorized.call('limit', fields('a'));
    expect(outcome).toMatchObject({ exception: 'UnauthorizedErrorResponse' });
    await unauthorized.stop();
  });
});
