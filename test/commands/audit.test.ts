/** `weir audit list` on a running server that has an entry of each kind. */

import { join } from 'node:path';
import { expect, test } from 'vitest';
import { listAuditEntries } from '../support/audit-log.ts';
import { callOperationOk } from '../support/operations.ts';
import { writeConfig } from '../support/policy-config.ts';
import { removeDirectory, startServer, temporaryDirectory, waitUntil } from '../support/server.ts';
import { callWeir, jsonLines } from '../support/weir-command.ts';

test('weir audit list shows the target, the author and the change of every kind of entry', async () => {
  const place = temporaryDirectory();
  const config = writeConfig(place, { login: { limit: 100, duration: 60_000 } });
  const args = ['--config', config, '--counters', '1024'];
  const server = await startServer(join(place, 'data'), { args });
  const weir = async (args: string[], input?: string) => {
    const options = input === undefined ? {} : { input };
    const { code, stdout, stderr } = await callWeir(server.url, args, options);
    expect([args, code, stderr]).toEqual([args, 0, '']);
    return stdout;
  };

  const override = ['user *', '--namespace', 'default', '--duration', '90s'];
  await weir(['overrides', 'set', ...override, '--limit', '100']);
  await weir(['overrides', 'set', ...override, '--limit', '200']);
  await weir(['overrides', 'delete', ...override.slice(0, 3)]);
  const permissions = ['--permission', 'ratelimit.*.limit', '--permission', 'read_audit'];
  const create = ['keys', 'create', '--name', 'my gateway', '--json', ...permissions];
  const { keyId } = JSON.parse(await weir(create));
  await weir(['keys', 'revoke', keyId]);
  const lines = ['api', 'web'].map((namespaceName) => {
    return JSON.stringify({ namespaceName, identifier: 'u', limit: 1, duration: 1_000 });
  });
  await weir(['overrides', 'import', '-'], lines.join('\n'));
  await weir(['acquire', 'a b', '--namespace', 'api', '--limit', '1', '--ttl', '1h']);
  const shown = await weir(['inspect', 'a b', '--namespace', 'api', '--json']);
  const { handle } = JSON.parse(shown).holds.list[0];
  await weir(['holds', 'end', 'a b', handle, '--namespace', 'api']);
  const count = async () => (await callOperationOk(server.port, 'audit.list')).total as number;
  const total = await count();
  writeConfig(place, { login: { limit: 200, duration: 60_000, onError: 'deny' } });
  server.child.kill('SIGHUP');
  await waitUntil('the changed policy has an entry', async () => (await count()) === total + 1);
  writeConfig(place, {});
  server.child.kill('SIGHUP');
  await waitUntil('the deleted policy has an entry', async () => (await count()) === total + 2);

  const entries = await listAuditEntries(server);
  const table = await weir(['audit', 'list']);
  expect(await jsonLines(server.url, ['audit', 'list'])).toEqual(entries);
  const matching = async (...filter: string[]) => {
    return (await jsonLines(server.url, ['audit', 'list', ...filter])).map(({ action }) => action);
  };
  const ofOverride = ['override.delete', 'override.update', 'override.create'];
  const inDefault = ['--namespace', 'default', '--last', '1h'];
  expect(await matching(...inDefault, '--target', 'USER *')).toEqual(ofOverride);
  expect(await matching(...inDefault, '--action', 'override.update')).toEqual(['override.update']);
  const ofPolicy = ['policy.delete', 'policy.update', 'policy.create'];
  expect(await matching('--by', 'configuration file')).toEqual(ofPolicy);
  expect(await matching('--by', 'configured root key')).toHaveLength(entries.length - 3);
  await server.stop();
  removeDirectory(place);

  const [header, ...rows] = table.trimEnd().split('\n');
  const titles = ['TIME', 'ID', 'ACTION', 'BY', 'TARGET', 'CHANGE'];
  expect(header.split(/ +/)).toEqual(titles);
  const starts = titles.map((title) => header.indexOf(title));
  const cells = rows.map((row) => {
    return starts.map((start, i) => row.slice(start, starts[i + 1]).trimEnd());
  });
  const rootId = entries.find(({ action }) => action === 'key.create')?.keyId;
  const root = `"configured root key" ${rootId}`;
  const file = 'configuration file';
  const namespaceId = (entries.find(({ action }) => action === 'namespace.create')?.target ??
    {}) as { namespaceId?: string };
  const policy = (limit: number, onError: string) => {
    return `cost=1 trustedHops=1 ipv6Prefix=64 missing=share onError=${onError} shadow=no legacyHeaders=no gateway=nginx windows=[{limit=${limit} duration=1m}] identify=[ip]`;
  };
  const grant = 'permissions=[ratelimit.*.limit, read_audit] expires=never';
  const expected = [
    ['policy.delete', file, 'login', policy(200, 'deny')],
    [
      'policy.update',
      file,
      'login',
      'onError: allow -> deny, windows: [{limit=100 duration=1m}] -> [{limit=200 duration=1m}]',
    ],
    ['hold.end', root, `api "a b" lease ${handle}`, 'released=1'],
    ['overrides.import', root, '2 namespaces', 'created=2 updated=0 unchanged=0'],
    ['key.revoke', root, `"my gateway" ${keyId}`, grant],
    ['key.create', root, `"my gateway" ${keyId}`, grant],
    ['override.delete', root, 'default "user *"', 'limit=200 duration=90s async=no'],
    ['override.update', root, 'default "user *"', 'limit: 100 -> 200'],
    ['override.create', root, 'default "user *"', 'limit=100 duration=90s async=no'],
    ['namespace.create', root, `default ${namespaceId.namespaceId}`, '-'],
    ['policy.create', file, 'login', policy(100, 'allow')],
  ];
  const byId = (one: unknown[], other: unknown[]) => Number(other[1]) - Number(one[1]);
  expect(cells.map(([, , ...rest]) => rest).toSorted()).toEqual(expected.toSorted());
  expect(cells).toEqual(cells.toSorted(byId));
  for (const [time] of cells) expect(time).toMatch(/^\d{4}-\d\d-\d\dT[\d:.]+Z$/);
});
