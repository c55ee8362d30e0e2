/** `weir events tail` on a running server. */

import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { describe, expect, test } from 'vitest';
import type { Fields } from '../support/operations.ts';
import { CLI_PATH, ROOT_KEY, waitUntil } from '../support/server.ts';
import { useServer } from '../support/test-server.ts';
import { callWeir, jsonLines } from '../support/weir-command.ts';

const server = useServer({ args: ['--acceptors', '1'] });
const DURATION = 2_592_000_000;
let serial = 0;

/** Each in a namespace of its own, whose records others do not use up. */
const useNamespace = () => {
  const namespace = `n${serial++}`;
  return {
    namespace,
    check: (identifier: string, fields: Fields = {}) => {
      return server.check({ namespace, identifier, limit: 1, duration: DURATION, ...fields });
    },
  };
};
const tail = async (...args: string[]) => {
  const { code, stdout, stderr } = await callWeir(server.url, ['events', 'tail', ...args]);
  expect([code, stderr]).toEqual([0, '']);
  return stdout;
};

describe('weir events tail', () => {
  test('prints what was decided, by which limit, and where it came from', async () => {
    const { namespace, check } = useNamespace();
    const override = { namespaceName: namespace, identifier: 'vip', limit: 2, duration: DURATION };
    const { overrideId } = await server.ok('ratelimits.setOverride', override);
    await check('vip', { cost: 3 });
    await check('a b', { cost: 2 });
    await server.ok('ratelimits.acquire', { namespace, identifier: 'j', limit: 1, ttl: 30_000 });
    await server.ok('ratelimits.acquire', { namespace, identifier: 'j', limit: 1, ttl: 30_000 });
    const lines = (await tail('--namespace', namespace, '--decision', 'denied', '--once'))
      .trimEnd()
      .split('\n')
      .map((line) => line.replace(/^\S+Z +/, ''));
    const source = 'cost 3, 2 left  2 per 30d, fixed  by the override';
    expect(lines).toEqual([
      `denied       ${namespace}  vip  ${source} ${overrideId}`,
      `denied       ${namespace}  "a b"  cost 2, 1 left  1 per 30d, fixed  by the request`,
      `denied       ${namespace}  j  lease of 1, 1 of 1 in use  by the request`,
    ]);
  });

  test('prints the newest records, as JSON with --json, and filters them', async () => {
    const { namespace, check } = useNamespace();
    for (const identifier of ['a', 'b', 'c']) await check(identifier, { cost: 2 });
    const args = ['events', 'tail', '--namespace', namespace, '--once'];
    const identifiers = async (...more: string[]) => {
      const records = (await jsonLines(server.url, [...args, ...more])) as Fields[];
      return records.map(({ identifier }) => identifier);
    };
    expect(await identifiers()).toEqual(['a', 'b', 'c']);
    expect(await identifiers('--lines', '2')).toEqual(['b', 'c']);
    expect(await identifiers('--lines', '0')).toEqual([]);
    expect(await identifiers('--identifier', 'b')).toEqual(['b']);
    expect(await identifiers('--source', 'override')).toEqual([]);
    const invalid = await callWeir(server.url, [...args, '--decision', 'maybe']);
    expect(invalid.stderr).toContain('"decision" must be allowed or denied; got "maybe"');
  });

  test('follows new records, each with all denials that it counts', async () => {
    const { namespace, check } = useNamespace();
    await check('before', { cost: 2 });
    const env = { ...process.env, WEIR_URL: server.url, WEIR_KEY: ROOT_KEY };
    const args = [CLI_PATH, 'events', 'tail', '--namespace', namespace, '--json'];
    const child = spawn(process.execPath, args, { env, stdio: ['ignore', 'pipe', 'inherit'] });
    let output = '';
    child.stdout.setEncoding('utf8').on('data', (text: string) => {
      output += text;
    });
    const records = () => {
      const lines = output.split('\n').slice(0, -1);
      return lines.map((line) => JSON.parse(line) as Fields & { count: number });
    };
    await waitUntil('the records so far are printed', () => records().length === 1);
    for (let i = 0; i < 30; i++) await check('after', { cost: 2 });
    const count = () =>
      records()
        .slice(1)
        .reduce((sum, record) => sum + record.count, 0);
    await waitUntil('all denials are printed', () => count() === 30);
    expect(new Set(records().map(({ id }) => id)).size).toBe(records().length);
    child.kill('SIGINT');
    await once(child, 'exit');
  });
});
