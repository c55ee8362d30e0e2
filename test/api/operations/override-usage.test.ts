/** How often overrides were used, and when they last were, over the API. */

import { describe, expect, test } from 'vitest';
import { V2_DURATION_MAX_MS } from '../../../src/core/constants.ts';
import { useDataDirectory } from '../../support/data-directory.ts';
import { describeEngines } from '../../support/engine-modes.ts';
import { LONGEST_WINDOW_MS } from '../../support/http.ts';
import type { ApiClient, Fields } from '../../support/operations.ts';
import { forwardedFor, sendGatewayCheck } from '../../support/policy-config.ts';
import { SMALL, useServer } from '../../support/test-server.ts';

interface Usage {
  applied: number;
  lastAppliedAt?: number;
  since: number;
}
const usageOf = async (server: ApiClient, namespaceName: string, identifier: string) => {
  const fields = { namespaceName, identifier, usage: true };
  return (await server.ok<{ usage: Usage }>('ratelimits.getOverride', fields)).usage;
};
const set = (server: ApiClient, namespaceName: string, identifier: string, fields: Fields = {}) => {
  const values = { limit: 2, duration: LONGEST_WINDOW_MS, ...fields };
  return server.ok('ratelimits.setOverride', { namespaceName, identifier, ...values });
};
const checkOf = (namespace: string, identifier: string, fields: Fields = {}) => {
  return { namespace, identifier, limit: 100, duration: 60_000, ...fields };
};

describeEngines('decided %s, the use of an override', (mode) => {
  const server = useServer({
    mode,
    args: ['--acceptors', '2'],
    policies: { site: { limit: 100 }, shadow: { limit: 100, shadow: true } },
  });
  const check = (namespace: string, identifier: string, fields: Fields = {}) => {
    return server.check(checkOf(namespace, identifier, fields));
  };

  test('is the number of checks with a cost, allowed or denied, and the time of the last', async () => {
    const before = Date.now() - 1_000;
    await set(server, 'a', 'user_1');
    await set(server, 'a', 'user_*');
    await set(server, 'a', '10.0.0.0/8', { cidr: true });
    const since = (await usageOf(server, 'a', 'user_1')).since;
    expect(since).toBeGreaterThan(before);
    expect(await usageOf(server, 'a', 'user_1')).toEqual({ applied: 0, since });
    const answers = [];
    for (let i = 0; i < 3; i++) answers.push((await check('a', 'user_1')).success);
    expect(answers).toEqual([true, true, false]);
    await check('a', 'user_2');
    await check('a', '10.1.2.3', { async: true });
    await check('a', 'other');
    const used = await usageOf(server, 'a', 'user_1');
    expect(used).toEqual({ applied: 3, lastAppliedAt: expect.any(Number), since });
    expect(used.lastAppliedAt).toBeGreaterThanOrEqual(since);
    expect(used.lastAppliedAt).toBeLessThan(Date.now() + 1_000);
    expect((await usageOf(server, 'a', 'user_*')).applied).toBe(1);
    const { overrides } = await server.ok<{ overrides: { identifier: string; usage: Usage }[] }>(
      'ratelimits.listOverrides',
      { namespaceName: 'a', usage: true },
    );
    expect(overrides.map(({ identifier, usage }) => [identifier, usage.applied])).toEqual([
      ...[['user_1', 3]],
      ...[['user_*', 1]],
      ...[['10.0.0.0/8', 1]],
    ]);
  });

  test('does not include checks with cost 0, refunds, inspections and explanations', async () => {
    await set(server, 'looks', 'user_1', { limit: 5 });
    const { reset } = await check('looks', 'user_1', { cost: 0 });
    const selector = { namespace: 'looks', identifier: 'user_1' };
    const terms = { duration: LONGEST_WINDOW_MS };
    await check('looks', 'user_1');
    await server.ok('ratelimits.refund', { ...selector, ...terms, reset, cost: 1 });
    await server.ok('ratelimits.inspect', selector);
    await server.ok('ratelimits.explain', selector);
    await server.ok('ratelimits.reset', selector);
    expect((await usageOf(server, 'looks', 'user_1')).applied).toBe(1);
  });

  test('includes each check of a list, also if the list is denied', async () => {
    await set(server, 'list', 'user_*', { limit: 1, duration: V2_DURATION_MAX_MS });
    const list = ['user_1', 'user_2', 'other'].map((it) => checkOf('list', it));
    for (const passed of [true, false]) {
      const { data } = await server.ok<{ data: { passed: boolean } }>('ratelimit.multiLimit', list);
      expect(data.passed).toBe(passed);
    }
    expect((await usageOf(server, 'list', 'user_*')).applied).toBe(4);
  });

  test('includes the checks of a gateway, but not those of a policy that only shadows', async () => {
    for (const namespace of ['site', 'shadow']) {
      await set(server, namespace, '10.0.0.1', { limit: 1 });
      const [path, headers] = [`/v1/check/${namespace}`, forwardedFor('10.0.0.1')];
      for (let i = 0; i < 3; i++) await sendGatewayCheck(server.gatewayPort, path, headers);
    }
    expect((await usageOf(server, 'site', '10.0.0.1')).applied).toBe(3);
    expect((await usageOf(server, 'shadow', '10.0.0.1')).applied).toBe(0);
  });

  test('stays while values change, and begins again after a deletion', async () => {
    const target = { namespaceName: 'again', identifier: 'user_1' };
    await set(server, 'again', 'user_1');
    for (let i = 0; i < 4; i++) await check('again', 'user_1');
    await set(server, 'again', 'user_1', { limit: 9 });
    await check('again', 'user_1');
    expect((await usageOf(server, 'again', 'user_1')).applied).toBe(5);
    // The rows of deleted overrides are used again.
    for (let i = 0; i < 3; i++) {
      await server.ok('ratelimits.deleteOverride', target);
      await set(server, 'again', 'user_1');
      expect((await usageOf(server, 'again', 'user_1')).applied).toBe(0);
      await check('again', 'user_1');
      expect((await usageOf(server, 'again', 'user_1')).applied).toBe(1);
    }
  });
});

describe('the field `usage`', () => {
  const server = useServer();

  test('is only in responses to requests for it, in v1, in v2 and in an export', async () => {
    await set(server, 'n', 'user_1');
    await server.check(checkOf('n', 'user_1'));
    const v1 = { namespaceName: 'n' };
    const v2 = { namespace: 'n' };
    const identifier = 'user_1';
    type Item = { usage?: Usage };
    const items = async (usage: Fields): Promise<Item[]> => [
      await server.ok<Item>('ratelimits.getOverride', { ...v1, identifier, ...usage }),
      ...(await server.ok<{ overrides: Item[] }>('ratelimits.listOverrides', { ...v1, ...usage }))
        .overrides,
      ...(await server.ok<{ overrides: Item[] }>('ratelimits.exportOverrides', usage)).overrides,
      (await server.ok<{ data: Item }>('ratelimit.getOverride', { ...v2, identifier, ...usage }))
        .data,
      ...(await server.ok<{ data: Item[] }>('ratelimit.listOverrides', { ...v2, ...usage })).data,
    ];
    const usage = { applied: 1, lastAppliedAt: expect.any(Number), since: expect.any(Number) };
    expect((await items({ usage: true })).map((it) => it.usage)).toEqual(Array(5).fill(usage));
    for (const fields of [{}, { usage: false }]) {
      for (const item of await items(fields)) expect(item).not.toHaveProperty('usage');
    }
    const fields = { ...v1, identifier, usage: 'yes' };
    const [, message] = await server.errorOf('ratelimits.getOverride', fields);
    expect(message).toBe('"usage" must be true or false; got "yes"');
  });
});

describe('a restart', () => {
  const own = useDataDirectory(SMALL);

  test('keeps the use of overrides, and deletes that of overrides that are gone', async () => {
    const first = await own.start();
    for (const identifier of ['user_1', 'user_2']) {
      await set(first, 'n', identifier);
      await first.check(checkOf('n', identifier));
    }
    const before = await usageOf(first, 'n', 'user_1');
    await first.stop();
    const second = await own.start();
    expect(await usageOf(second, 'n', 'user_1')).toEqual(before);
    await second.check(checkOf('n', 'user_1'));
    const { applied, lastAppliedAt, since } = await usageOf(second, 'n', 'user_1');
    expect([applied, since]).toEqual([2, before.since]);
    expect(lastAppliedAt).toBeGreaterThan(before.lastAppliedAt!);
    await second.ok('ratelimits.deleteOverride', { namespaceName: 'n', identifier: 'user_2' });
    await set(second, 'n', 'user_2');
    expect((await usageOf(second, 'n', 'user_2')).applied).toBe(0);
    await second.stop();
    const third = await own.start();
    expect((await usageOf(third, 'n', 'user_1')).applied).toBe(2);
  });

  test('begins again with WEIR_ANALYTICS=off, and says since when checks were counted', async () => {
    const options = { env: { WEIR_ANALYTICS: 'off' } };
    const first = await own.start(options);
    await set(first, 'n', 'user_1');
    await first.check(checkOf('n', 'user_1'));
    const before = await usageOf(first, 'n', 'user_1');
    expect(before.applied).toBe(1);
    await first.stop();
    const second = await own.start(options);
    const { applied, since } = await usageOf(second, 'n', 'user_1');
    expect(applied).toBe(0);
    expect(since).toBeGreaterThan(before.lastAppliedAt!);
  });
});
