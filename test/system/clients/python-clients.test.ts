/** The official Python clients against a running server: unkey.py 0.9.0 for v1, 3.2.2 for v2. */

import { type ChildProcess, spawn } from 'node:child_process';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { V2_DURATION_MAX_MS } from '../../../src/core/constants.ts';
import { LONGEST_WINDOW_MS } from '../../support/http.ts';
import { pythonEnvironment } from '../../support/programs/python-environment.ts';
import {
  ROOT_KEY,
  removeDirectory,
  type ServerProcess,
  startServer,
  temporaryDirectory,
} from '../../support/server.ts';

const v1 = await pythonEnvironment('unkey-v1', ['unkey.py==0.9.0']);
const v2 = await pythonEnvironment('unkey-v2', ['unkey.py==3.2.2']);

/** A Python process that makes sequential calls with the client. */
class PythonClient {
  readonly #child: ChildProcess;
  readonly #lines: AsyncIterator<string>;
  #stderr = '';

  constructor(bin: string, script: string, key = ROOT_KEY) {
    const path = new URL(script, import.meta.url).pathname;
    const args = [path, server.url, key];
    this.#child = spawn(join(bin, 'python3'), args, { stdio: ['pipe', 'pipe', 'pipe'] });
    this.#lines = createInterface(this.#child.stdout!)[Symbol.asyncIterator]();
    this.#child.stderr!.on('data', (data) => {
      this.#stderr += data;
    });
  }

  /** @returns the result of the call, or the class and the message of its exception */
  async call(operation: string, fields: object): Promise<Record<string, unknown>> {
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

/** What differs between the versions, and the part of a result that is the data of the response. */
const CLIENTS = [
  {
    name: 'unkey.py 0.9.0, for v1,',
    environment: v1,
    script: 'unkey-0.9.0.py',
    duration: LONGEST_WINDOW_MS,
    namespaceField: 'namespace_name',
    dataOf: (result: unknown) => result,
    idField: 'id',
    more: { async: false },
    reset: LONGEST_WINDOW_MS,
    ignored: { meta: { path: '/a', nested: [1, { b: 'é' }] }, resources: [{ type: 't', id: 'i' }] },
    exceptions: ['ErrNotFound', 'ErrBadRequest', 'ErrUnauthorized'],
  },
  {
    name: 'unkey.py 3.2.2, for v2,',
    environment: v2,
    script: 'unkey-3.2.2.py',
    duration: V2_DURATION_MAX_MS,
    namespaceField: 'namespace',
    dataOf: (result: unknown) => {
      expect(result).toEqual({
        meta: { requestId: expect.stringMatching(/^req_/) },
        data: expect.anything(),
      });
      return (result as { data: unknown }).data;
    },
    idField: 'overrideId',
    more: {},
    reset: expect.toSatisfy((ms) => ms > Date.now() && ms % V2_DURATION_MAX_MS === 0),
    ignored: {},
    exceptions: ['NotFound', 'BadRequest', 'Unauthorized'].map((it) => `${it}ErrorResponse`),
  },
];

for (const { name, environment, script, duration, dataOf, ...of } of CLIENTS) {
  describe.skipIf(environment === undefined)(name, () => {
    let client: PythonClient;
    beforeAll(() => {
      client = new PythonClient(environment!.bin, script);
    });
    afterAll(() => client.stop());

    const namespace = `python ${script}`;
    const texts = (identifier: string) => ({ [of.namespaceField]: namespace, identifier });
    const limits = { limit: 5, duration };
    const checkOf = (identifier: string) => ({ namespace, identifier, limit: 2, duration });
    const call = async (operation: string, fields: object) => {
      const outcome = await client.call(operation, fields);
      expect(outcome).toHaveProperty('result');
      return dataOf(outcome.result);
    };

    test('is allowed up to the limit and then denied, with remaining tokens and reset', async () => {
      const { reset } = of;
      for (const [success, remaining] of [
        [true, 1],
        [true, 0],
        [false, 0],
      ]) {
        const data = await call('limit', { ...checkOf('a'), ...of.ignored });
        expect(data).toEqual({ limit: 2, reset, success, remaining });
      }
    });

    test('sets, applies, reads, lists and deletes overrides', async () => {
      const overrides: object[] = [];
      for (const identifier of ['set_*&=+%é', 'listed']) {
        const data = await call('set', { ...texts(identifier), ...limits });
        const { overrideId } = data as { overrideId: string };
        overrides.push({ [of.idField]: overrideId, identifier, ...limits, ...of.more });
      }
      const applied = await call('limit', checkOf('set_1&=+%é'));
      expect(applied).toMatchObject({ limit: 5, remaining: 4, success: true });
      expect(await call('get', texts('set_*&=+%é'))).toEqual(overrides[0]);
      const listed: unknown[] = [];
      if (environment === v1) {
        let cursor: unknown;
        do {
          const fields = { [of.namespaceField]: namespace, limit: 1, cursor };
          const page = (await call('list', fields)) as { overrides: object[]; cursor?: string };
          listed.push(...page.overrides);
          cursor = page.cursor;
        } while (cursor !== undefined);
      } else {
        const { result } = await client.call('list', { namespace, limit: 1 });
        for (const { data } of result as { data: object[] }[]) listed.push(...data);
      }
      expect(listed).toEqual(overrides);
      expect(await call('delete', texts('listed'))).toEqual({});
      expect(await call('limit', checkOf('listed'))).toMatchObject({ limit: 2 });
    });

    test('raises the exception of the status, with the message of weir', async () => {
      const [notFound, badRequest, unauthorized] = of.exceptions;
      for (const operation of ['get', 'delete']) {
        expect(await client.call(operation, texts('none'))).toEqual({
          exception: notFound,
          message: expect.stringContaining('there is no'),
        });
      }
      expect(await client.call('limit', { ...checkOf('a'), duration: 60 })).toMatchObject({
        exception: badRequest,
        message: expect.stringContaining('"duration" must be an integer number of milliseconds'),
      });
      const other = new PythonClient(environment!.bin, script, 'wrong');
      expect(await other.call('limit', checkOf('a'))).toMatchObject({ exception: unauthorized });
      await other.stop();
    });

    test.runIf(environment === v2)('gets all checks of a multiLimit, or none', async () => {
      const both = [checkOf('many_1'), { ...checkOf('many_2'), cost: 2 }];
      expect(await call('multiLimit', both)).toMatchObject({ passed: true });
      expect(await call('multiLimit', both)).toMatchObject({
        passed: false,
        limits: [
          { identifier: 'many_1', passed: true, remaining: 1 },
          { identifier: 'many_2', passed: false, remaining: 0 },
        ],
      });
    });
  });
}
