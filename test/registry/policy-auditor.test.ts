/** The audit log has an entry for each change of a policy in the configuration file. */

import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import Database from 'libsql';
import { afterAll, expect, test } from 'vitest';
import { listAuditEntries } from '../support/audit-log.ts';
import { useDataDirectory } from '../support/data-directory.ts';
import { LONGEST_WINDOW_MS } from '../support/http.ts';
import { configText, type PolicySettings, writeConfig } from '../support/policy-config.ts';
import {
  removeDirectory,
  type ServerProcess,
  temporaryDirectory,
  waitUntil,
} from '../support/server.ts';

const ARGS = ['--acceptors', '1', '--counters', '1024'];
const own = useDataDirectory(ARGS);
const configDir = temporaryDirectory();
afterAll(() => removeDirectory(configDir));

type PolicySettingsByNamespace = Record<string, PolicySettings>;
/** Starts a server and waits until it has compared its policies with the recorded ones. */
const start = async (policies?: PolicySettingsByNamespace) => {
  const config = policies === undefined ? [] : ['--config', writeConfig(configDir, policies)];
  const server = await own.start({ args: [...ARGS, ...config] });
  await waitUntil('it has started', () => server.stderr().includes('"msg":"serving"'));
  return server;
};
const reload = async (server: ServerProcess, text: string, message: string) => {
  const before = server.stderr().length;
  writeFileSync(join(configDir, 'weir.json'), text);
  server.child.kill('SIGHUP');
  await waitUntil(message, () => server.stderr().slice(before).includes(message));
};
/** The action, the namespace and the limits before and after of each entry. */
const listPolicyChanges = async (server: ServerProcess) => {
  const limitOf = (fields: unknown) => {
    return (fields as { windows: { limit: number }[] } | undefined)?.windows[0].limit;
  };
  const entries = await listAuditEntries(server);
  for (const entry of entries) {
    expect(entry).toMatchObject({ keyId: null, by: 'configuration file' });
  }
  return entries.map(({ action, target, before, after }) => {
    return [action, (target as { namespace: string }).namespace, limitOf(before), limitOf(after)];
  });
};
const RELOADED = 'the policies were reloaded';

test('a reload records each policy that was added, changed or removed, and no other', async () => {
  const server = await start({ a: { limit: 1 }, b: { limit: 2 }, c: { limit: 3 } });
  const created = [
    ['policy.create', 'c', undefined, 3],
    ['policy.create', 'b', undefined, 2],
    ['policy.create', 'a', undefined, 1],
  ];
  expect(await listPolicyChanges(server)).toEqual(created);
  // The same policies in another order and with an explicit default.
  const same = { c: { limit: 3 }, a: { limit: 1, missing: 'share' as const }, b: { limit: 2 } };
  await reload(server, configText(same), RELOADED);
  await reload(server, '{"policies":{"a":{}}}', 'the policies were not reloaded');
  expect(await listPolicyChanges(server)).toEqual(created);
  await reload(server, configText({ a: { limit: 1 }, b: { limit: 7 }, d: { limit: 4 } }), RELOADED);
  const after = [
    ['policy.delete', 'c', 3, undefined],
    ['policy.create', 'd', undefined, 4],
    ['policy.update', 'b', 2, 7],
    ...created,
  ];
  expect(await listPolicyChanges(server)).toEqual(after);
  const [, , updated] = await listAuditEntries(server);
  expect(updated.after).toEqual({
    ...{ gateway: 'nginx', windows: [{ limit: 7, duration: LONGEST_WINDOW_MS }] },
    ...{ identify: ['ip'], cost: 1, trustedHops: 1, ipv6Prefix: 64, missing: 'share' },
    ...{ onError: 'allow', shadow: false, legacyHeaders: false },
  });
  expect(server.stderr().match(/"by":"configuration file".*"msg":"audit"/g)?.length).toBe(6);
});

const window = { limit: 9, duration: LONGEST_WINDOW_MS };
const algorithm = 'gcra';
test.each<[field: string, policies: PolicySettings[], recorded: unknown[]]>([
  [
    'windows',
    [{}, { algorithm }, { algorithm, burst: 4 }],
    [[window], [{ ...window, algorithm }], [{ ...window, algorithm, burst: 4 }]],
  ],
  // An array of one name says the same as the name, and so does another order.
  [
    'gateway',
    [{}, { gateway: ['nginx'] }, { gateway: ['nginx', 'envoy'] }, { gateway: ['envoy', 'nginx'] }],
    ['nginx', ['nginx', 'envoy']],
  ],
])(
  'each change of the %s of a policy is recorded, and no other',
  async (field, policies, recorded) => {
    const [first, ...others] = policies.map((policy) => ({ a: { limit: 9, ...policy } }));
    const server = await start(first);
    for (const other of others) await reload(server, configText(other), RELOADED);
    const valueIn = (fields: unknown) => (fields as Record<string, unknown> | undefined)?.[field];
    const entries = (await listAuditEntries(server)).toReversed();
    expect(entries.map(({ before, after }) => [valueIn(before), valueIn(after)])).toEqual(
      recorded.map((value, i) => [recorded[i - 1], value]),
    );
    // A restart finds what was stored, and no difference.
    expect(await server.stop()).toEqual({ code: 0, signal: null });
    const again = await start(others.at(-1));
    expect((await listPolicyChanges(again)).length).toBe(recorded.length);
  },
);

test('a start records changes that were made while no server ran, also after kill -9', async () => {
  const first = await start({ a: { limit: 1 }, b: { limit: 2 } });
  first.child.kill('SIGKILL');
  await first.exited;
  const again = await start({ a: { limit: 1 }, b: { limit: 2 } });
  expect((await listPolicyChanges(again)).length).toBe(2);
  expect(await again.stop()).toEqual({ code: 0, signal: null });
  const changed = await start({ b: { limit: 5 } });
  expect((await listPolicyChanges(changed)).slice(0, -2)).toEqual([
    ['policy.delete', 'a', 1, undefined],
    ['policy.update', 'b', 2, 5],
  ]);
  expect(await changed.stop()).toEqual({ code: 0, signal: null });
  const without = await start();
  expect((await listPolicyChanges(without)).slice(0, -4)).toEqual([
    ['policy.delete', 'b', 5, undefined],
  ]);
});

test('policies are active while the store cannot be written, and the next reload records them', async () => {
  const server = await start({ a: { limit: 1 } });
  const other = new Database(join(own.dataDir, 'store.db'));
  other.exec('BEGIN IMMEDIATE');
  await reload(server, configText({ a: { limit: 2 } }), RELOADED);
  expect(server.stderr()).toContain('the audit log lacks the last changes of policies');
  expect((await listPolicyChanges(server)).length).toBe(1);
  other.close();
  await reload(server, configText({ a: { limit: 3 } }), RELOADED);
  expect((await listPolicyChanges(server))[0]).toEqual(['policy.update', 'a', 1, 3]);
});
