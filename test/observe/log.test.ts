/** The log of a real server, by level and format. */

import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, test } from 'vitest';
import { ERROR_REPORTS_PER_S } from '../../src/core/constants.ts';
import type { Log } from '../../src/core/log.ts';
import { DebugLog } from '../../src/observe/debug.ts';
import type { Clock } from '../../src/shared-memory/clock.ts';
import { useDataDirectory } from '../support/data-directory.ts';
import { exchange, LONGEST_WINDOW_MS, requestBytes } from '../support/http.ts';
import { logRecords } from '../support/log-records.ts';
import { forwardedFor, sendGatewayCheck } from '../support/policy-config.ts';
import { freePort, ROOT_KEY, type ServerProcess, waitUntil } from '../support/server.ts';

const SMALL = ['--counters', '1024', '--acceptors', '1'];
const DEBUG = [...SMALL, '--log-level', 'debug'];
const own = useDataDirectory(DEBUG);

const ERROR = 'error response';
const OMITTED = 'error responses omitted: too many in one second';
const CHECK = { identifier: 'a', limit: 5, duration: LONGEST_WINDOW_MS };

/** Starts a server with a configuration file that has a setting and a policy. */
async function startWithFile(args: string[] = []) {
  const policies = {
    login: { gateway: ['nginx', 'envoy'], limit: 1, duration: LONGEST_WINDOW_MS },
  };
  const config = join(own.dataDir, 'weir.json');
  writeFileSync(config, JSON.stringify({ drainMs: 20, policies }));
  const dataDir = ['--data-dir', join(own.dataDir, 'data')];
  const env = { WEIR_ON_FULL: 'allow', WEIR_ROOT_KEY: ROOT_KEY };
  const listener = ['--gateway-port', '0'];
  return own.start({ args: [...listener, ...args, '--config', config, ...dataDir], env });
}

async function withRecords(server: ServerProcess, message: string, count: number) {
  await waitUntil(`the log has "${message}" ${count} times`, () => {
    return logRecords(server, message).length >= count;
  });
  return logRecords(server, message);
}

test('a policy that compares addresses as text is a warning at the start and at a reload', async () => {
  const config = join(own.dataDir, 'weir.json');
  const login = { gateway: 'nginx', limit: 1, duration: 1_000 };
  const write = (identify: string) => {
    writeFileSync(config, JSON.stringify({ policies: { login: { ...login, identify } } }));
  };
  write('header:cf-connecting-ip');
  const server = await own.start({
    args: [...SMALL, '--config', config, '--data-dir', join(own.dataDir, 'data')],
  });
  const warnings = () => server.stderr().match(/"level":40,[^\n]*policy \\"login\\"[^\n]*/g) ?? [];
  await waitUntil('the start warns', () => warnings().length > 0);
  expect(warnings()).toEqual([expect.stringContaining('use \\"ip:header:cf-connecting-ip\\"')]);
  write('header:true-client-ip');
  server.child.kill('SIGHUP');
  await waitUntil('the reload warns too', () => warnings().length === 2);
  expect(warnings()[1]).toContain('use \\"ip:header:true-client-ip\\"');
  write('ip:header:true-client-ip');
  server.child.kill('SIGHUP');
  await withRecords(server, 'SIGHUP: the policies were reloaded', 2);
  expect(warnings()).toHaveLength(2);
});

describe('at level debug the log', () => {
  test('has each setting and its source, and no secret', async () => {
    const server = await startWithFile(DEBUG);
    const records = await withRecords(server, 'setting', 20);
    const settingOf = (name: string) => {
      const { value, source } = records.find(({ setting }) => setting === name) ?? {};
      return [value, source];
    };
    expect(settingOf('WEIR_COUNTERS')).toEqual([1024, '--counters']);
    expect(settingOf('WEIR_ON_FULL')).toEqual(['allow', 'WEIR_ON_FULL']);
    expect(settingOf('WEIR_DRAIN_MS')).toEqual([20, expect.stringContaining('"drainMs" in ')]);
    expect(settingOf('WEIR_HOST')).toEqual(['127.0.0.1', 'default']);
    expect(settingOf('WEIR_ROOT_KEY')).toEqual(['[secret]', 'WEIR_ROOT_KEY']);
    expect(settingOf('WEIR_SOCKET')).toEqual([undefined, undefined]);
    expect(server.stderr()).not.toContain(ROOT_KEY);
  });

  test('has each operation with its key, result and duration', async () => {
    const server = await own.start();
    const { keyId } = await server.ok('keys.create', { name: 'k', permissions: ['*'] });
    await server.call('keys.revoke', { keyId: 'key_none' });
    await server.ok('keys.list');
    const records = await withRecords(server, 'operation', 3);
    const root = { keyId: records[0].keyId, ms: expect.any(Number) };
    expect(root.keyId).toMatch(/^key_/);
    expect(root.keyId).not.toBe(keyId);
    expect(records).toMatchObject([
      { ...root, operation: 'keys.create', status: 200 },
      { ...root, operation: 'keys.revoke', status: 404, code: 'NOT_FOUND' },
      { ...root, operation: 'keys.list', status: 200 },
    ]);
    expect([records[0].code, records[2].code]).toEqual([undefined, undefined]);
  });

  test('has publications with their changes, and the creation of namespaces', async () => {
    const server = await startWithFile(DEBUG);
    await server.check({ ...CHECK, namespace: 'fresh' });
    const [created] = await withRecords(server, 'a namespace was created', 1);
    expect(created).toMatchObject({ namespace: 'fresh', id: expect.stringMatching(/^rlns_/) });
    const override = { ...CHECK, namespaceName: 'fresh', identifier: 'abc' };
    await server.ok('ratelimits.setOverride', override);
    await server.ok('keys.create', { name: 'k', permissions: ['*'] });
    server.child.kill('SIGHUP');
    const active = await withRecords(server, 'a publication is active', 4);
    const none = {
      ...{ namespaces: 0, rejectedNamespaces: 0, keysAdded: 0, keysRemoved: 0 },
      ...{ exactOverrides: false, wildcardOverrides: false, ms: expect.any(Number) },
    };
    expect(active).toMatchObject([
      { ...none, version: 1, namespaces: 1 },
      { ...none, version: 2, exactOverrides: true },
      { ...none, version: 3, keysAdded: 1 },
      { ...none, version: 4, policies: 1 },
    ]);
  });

  test('has checkpoints, at most once per interval', async () => {
    const server = await own.start({ args: [...DEBUG, '--checkpoint-ms', '500'] });
    const startMs = performance.now();
    const message = 'counters were written to files';
    while (logRecords(server, message).length < 2) {
      for (let i = 0; i < 20; i++) await server.check({ ...CHECK, identifier: `${i}` });
      await new Promise((resolve) => setTimeout(resolve, 10));
    }
    const records = logRecords(server, message);
    expect(records.every(({ files }) => (files as number) > 0)).toBe(true);
    expect(records.length).toBeLessThanOrEqual((performance.now() - startMs) / 500 + 2);
  });

  test('has error responses, with path and gateway policy', async () => {
    const gatewayPort = await freePort();
    const server = await startWithFile([...DEBUG, '--gateway-port', `${gatewayPort}`]);
    const invalid = JSON.stringify({ ...CHECK, limit: -1 });
    const bad = await server.send({ body: invalid });
    const pieces = requestBytes({ path: '/v2/ratelimit.limit', body: invalid });
    await exchange(server.port, [pieces.subarray(0, -3), pieces.subarray(-3)]);
    await server.send({ path: '/nowhere/x?secret=1', method: 'GET' });
    await server.send({ path: '/v1/keys.list' });
    await sendGatewayCheck(gatewayPort, '/v1/check/login/private?path', {
      'Transfer-Encoding': 'gzip, chunked',
    });
    await sendGatewayCheck(gatewayPort, '/v1/auth-request/logout', forwardedFor('10.0.0.1'));
    await server.send({ path: '/v1//check/login/private', method: 'GET' });
    const records = await withRecords(server, ERROR, 7);
    const { requestId } = JSON.parse(bad.body).error;
    const recordOf = (status: number, code: string, path: string, policy?: string) => {
      const id = expect.stringMatching(/^req_/);
      const rest = { acceptor: 0, requestId: id, message: expect.any(String) };
      return expect.objectContaining({ status, code, path, ...(policy && { policy }), ...rest });
    };
    expect(records).toEqual([
      recordOf(400, 'BAD_REQUEST', '/v1/ratelimits.limit'),
      recordOf(400, 'BAD_REQUEST', '/v2/ratelimit.limit'),
      recordOf(404, 'NOT_FOUND', '/nowhere/x'),
      recordOf(405, 'METHOD_NOT_ALLOWED', '/v1/keys.list'),
      recordOf(400, 'BAD_REQUEST', '/v1/check/login', 'login'),
      recordOf(404, 'NOT_FOUND', '/v1/auth-request/logout', 'logout'),
      recordOf(404, 'NOT_FOUND', '/v1/check/login', 'login'),
    ]);
    expect(records[0].requestId).toBe(requestId);
    expect(server.stderr()).not.toContain('private');
    expect(server.stderr()).not.toContain('secret=');
  });

  test('has no key in a path, a field, a quoted value or the name of a namespace', async () => {
    const server = await own.start();
    const created = await server.ok('keys.create', { name: 'k', permissions: ['*'] });
    const keys = [ROOT_KEY, created.key as string];
    for (const key of keys) {
      await server.send({ path: `/${key}`, method: 'GET' });
      await server.send({ body: JSON.stringify({ ...CHECK, limit: key }) });
      const v2 = { ...CHECK, namespace: 'n', duration: 1_000, [key]: key };
      await server.send({ path: '/v2/ratelimit.limit', body: JSON.stringify(v2) });
      await server.send({ path: `/v1/keys.list?cursor=${key}`, method: 'GET' });
      await server.check({ ...CHECK, namespace: key });
    }
    // They are too few to be omitted.
    await withRecords(server, ERROR, 4 * keys.length);
    await withRecords(server, 'a namespace was created', keys.length);
    for (const key of keys) expect(server.stderr()).not.toContain(key);
  });

  test('has at most ERROR_REPORTS_PER_S error responses of an acceptor, and counts the others', async () => {
    const server = await own.start();
    const ERRORS = 200;
    const bytes = requestBytes({ method: 'GET', path: '/nowhere' });
    await exchange(server.port, Array(ERRORS).fill(bytes), ERRORS);
    const counted = () => {
      const omitted = logRecords(server, OMITTED).map((record) => record.omitted as number);
      return logRecords(server, ERROR).length + omitted.reduce((sum, count) => sum + count, 0);
    };
    await waitUntil('all are counted', () => counted() === ERRORS);
    const seconds = logRecords(server, OMITTED).length + 1;
    expect(logRecords(server, ERROR).length).toBeLessThanOrEqual(seconds * ERROR_REPORTS_PER_S);
    // In the next second, errors are logged again. The last of the others may have used up this one.
    await waitUntil('a later error is logged', async () => {
      await server.send({ path: '/later', method: 'GET' });
      return server.stderr().includes('/later');
    });
  });
});

describe('the configured root key', () => {
  // Its characters have several spellings in JSON, URLs and paths.
  const KEY = 'aB/c+d=e//"\\%~0123456789abcdef';
  const log = (written: object[]) => {
    return { debug: (fields: object) => written.push(fields) } as unknown as Log;
  };

  test('is in no record of an acceptor, in any spelling and cut at any length', () => {
    const hex = (character: string) => `%${character.charCodeAt(0).toString(16)}`;
    const spellings = [
      KEY,
      JSON.stringify(KEY).slice(1, -1),
      encodeURIComponent(KEY),
      encodeURIComponent(KEY).toLowerCase().replaceAll('ab', 'aB'),
      [...KEY].map(hex).join(''),
      KEY.replaceAll('/', '%2F'),
      KEY.replace(/\/+/g, '/'),
    ];
    for (const spelling of spellings) {
      for (let length = 24; length <= spelling.length; length++) {
        const written: object[] = [];
        const text = `there is no GET /a/${spelling.slice(0, length)}...`;
        const debug = new DebugLog(log(written), undefined as unknown as Clock, KEY);
        debug.logAcceptorRecord(0, { text: 'm', fields: { message: text } });
        expect([text, written]).toEqual([
          text,
          [
            expect.objectContaining({
              message: expect.stringMatching(/^there is no GET \/a\/\[key\]/),
            }),
          ],
        ]);
      }
    }
  });
});

describe('at level info the log', () => {
  test('has audit entries and the steps of start and stop only', async () => {
    const server = await startWithFile(SMALL);
    await server.check({ ...CHECK, namespace: 'fresh' });
    await server.send({ path: '/nowhere', method: 'GET' });
    await server.ok('keys.list');
    expect(await server.stop()).toEqual({ code: 0, signal: null });
    const lines = server.stderr().trim().split('\n');
    const records = lines.map((line) => JSON.parse(line)).map(({ level, msg }) => [level, msg]);
    expect(records).toEqual(
      ['audit', 'loaded', 'serving', 'draining', 'stopped'].map((msg) => [30, msg]),
    );
  });
});

describe('in the format text the log', () => {
  test('has one line for each record, also where a client sends line ends', async () => {
    const server = await own.start({ args: [...DEBUG, '--log-format', 'text'] });
    const forged = '2026-01-01T00:00:00.000Z INFO  forged';
    const body = JSON.stringify({ ...CHECK, limit: `\n${forged}` });
    await server.send({ body });
    await server.check({ ...CHECK, namespace: `\n${forged}\u2028${forged}` });
    await waitUntil(
      'both records are logged',
      () => (server.stderr().match(/forged/g) ?? []).length >= 3,
    );
    expect(await server.stop()).toEqual({ code: 0, signal: null });
    const lines = server
      .stderr()
      .split(/[\n\r\u2028]/)
      .slice(0, -1);
    const record = /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z (DEBUG|INFO ) [a-zA-Z]/;
    expect(lines.filter((line) => !record.test(line))).toEqual([]);
    expect(lines.filter((line) => line.startsWith(forged))).toEqual([]);
    expect(lines.at(-1)).toMatch(/ INFO {2}stopped$/);
  });
});
