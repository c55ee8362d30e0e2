import { expect, test } from 'vitest';
import { addKey, addRecords } from '../../../support/store.ts';
import { useServer } from '../../../support/test-server.ts';

let keyOfB: string;
const server = useServer({
  prepare: (store) => {
    addRecords(store, 'namespaces', [{ id: 'rlns_b', name: 'b', createdMs: 1 }]);
    keyOfB = addKey(store, { permissions: ['ratelimit.rlns_b.read_namespace'] });
  },
  policies: {
    a: { limit: 1, duration: 1_000 },
    b: { limit: 2, duration: 2_000, gateway: ['envoy', 'caddy'] },
    c: { limit: 3, duration: 3_000, missing: 'refuse' },
    d: { limit: 4, duration: 4_000, algorithm: 'gcra', burst: 2 },
  },
});

interface Page {
  policies: { namespace: string }[];
  gateway: { url: string };
  cursor?: string;
  total: number;
}
const list = (fields = {}, key?: string) => server.ok<Page>('ratelimits.listPolicies', fields, key);

test('active policies are listed with all defaults, and with the listener for gateways', async () => {
  const { policies, gateway, total, cursor } = await list();
  expect([total, cursor]).toEqual([4, undefined]);
  expect(policies[0]).toEqual({
    namespace: 'a',
    gateway: 'nginx',
    windows: [{ limit: 1, duration: 1_000 }],
    cost: 1,
    identify: ['ip'],
    trustedHops: 1,
    ipv6Prefix: 64,
    missing: 'share',
    onError: 'allow',
    shadow: false,
    legacyHeaders: false,
  });
  expect(policies[1]).toMatchObject({ namespace: 'b', gateway: ['caddy', 'envoy'] });
  // By the current word, also if the file has a former one.
  expect(policies[2]).toMatchObject({ namespace: 'c', missing: 'deny' });
  expect(policies[3]).toMatchObject({
    namespace: 'd',
    windows: [{ limit: 4, duration: 4_000, algorithm: 'gcra', burst: 2 }],
  });
  expect(gateway.url).toBe(`http://127.0.0.1:${server.gatewayPort}`);
  expect((await fetch(`${gateway.url}/v1/check/a`)).status).toBe(200);
});

test('policies are listed in pages, and only for keys with the permission', async () => {
  const first = await list({ limit: 2 });
  expect(first.policies.map(({ namespace }) => namespace)).toEqual(['a', 'b']);
  const { policies, cursor } = await list({ limit: 2, cursor: first.cursor });
  expect([policies.map(({ namespace }) => namespace), cursor]).toEqual([['c', 'd'], undefined]);
  const theirs = await list({}, keyOfB);
  expect(theirs.policies.map(({ namespace }) => namespace)).toEqual(['b']);
  const [, message] = await server.errorOf('ratelimits.listPolicies', { limit: 0 });
  expect(message).toContain('"limit" must be an integer from 1 to 100');
});

test('namespaces of policies exist before the first check', async () => {
  const names = (await server.namespaces()).map(({ name }) => name);
  expect(names.sort()).toEqual(['a', 'b', 'c', 'd']);
});
