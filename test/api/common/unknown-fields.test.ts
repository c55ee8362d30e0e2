/**
 * Fields that no operation of v1 has: they change nothing, but they are counted by operation, and
 * logged once for each key and field, in bounded memory. v2 rejects them.
 */

import { beforeAll, expect, test } from 'vitest';
import { ReportedFields, shownField } from '../../../src/api/common/unknown-fields.ts';
import { DOCUMENTED } from '../../../src/api/operations/documentation.ts';
import {
  AMOUNT_MAX,
  UNKNOWN_FIELDS_MAX,
  UNKNOWN_FIELDS_PER_KEY_MAX,
} from '../../../src/core/constants.ts';
import { LONGEST_WINDOW_MS, readMetrics } from '../../support/http.ts';
import { logRecords } from '../../support/log-records.ts';
import type { Fields, Operation } from '../../support/operations.ts';
import { ROOT_KEY, waitUntil } from '../../support/server.ts';
import { useServer } from '../../support/test-server.ts';

const MESSAGE = 'a request has an unknown field; ignored';
const COUNTER = { namespace: 'fields', identifier: 'user_1' };
const TERMS = { limit: 10, duration: LONGEST_WINDOW_MS };
const OVERRIDE = { namespaceName: 'fields', identifier: 'user_1' };

/** A valid request of each operation of v1, in an order in which each succeeds. */
const REQUESTS: Partial<Record<Operation, Fields>> = {
  'ratelimits.limit': { ...COUNTER, ...TERMS },
  'ratelimits.inspect': COUNTER,
  'ratelimits.explain': COUNTER,
  'ratelimits.findIdentifier': { identifier: COUNTER.identifier },
  'ratelimits.refund': { ...COUNTER, algorithm: 'gcra', duration: 60_000, cost: 1 },
  'ratelimits.reset': COUNTER,
  'ratelimits.reserve': { ...COUNTER, ...TERMS, cost: 1, ttl: 60_000 },
  'ratelimits.acquire': { ...COUNTER, limit: 10, ttl: 60_000 },
  'ratelimits.setOverride': { ...OVERRIDE, ...TERMS },
  'ratelimits.getOverride': OVERRIDE,
  'ratelimits.listOverrides': { namespaceName: 'fields' },
  'ratelimits.deleteOverride': OVERRIDE,
  'ratelimits.exportOverrides': {},
  'ratelimits.importOverrides': { overrides: [{ ...OVERRIDE, ...TERMS }] },
  'ratelimits.setBlock': { ...OVERRIDE, expires: AMOUNT_MAX },
  'ratelimits.listBlocks': {},
  'ratelimits.deleteBlock': OVERRIDE,
  'ratelimits.listNamespaces': {},
  'ratelimits.listPolicies': {},
  'keys.create': { name: 'made', permissions: ['keys.read'] },
  'keys.list': {},
  'audit.list': {},
  'analytics.getNamespaces': {},
  'analytics.getTimeline': { namespaceName: 'fields' },
  'analytics.getIdentifiers': { namespaceName: 'fields' },
  'analytics.getDecisions': { namespaceName: 'fields' },
  'analytics.searchIdentifiers': { prefix: 'user_' },
};

/** Their requests name a hold. */
const HOLD_OPERATIONS = ['commit', 'cancel', 'renew', 'release'].map((it) => `ratelimits.${it}`);

/** What they delete or end is gone for a second request. */
const DELETIONS = ['keys.revoke', 'ratelimits.deleteNamespace', 'ratelimits.endHold'];

const server = useServer({ args: ['--acceptors', '2'] });
beforeAll(() =>
  server.ok('ratelimits.setOverride', { ...OVERRIDE, ...TERMS, identifier: 'other' }),
);

const requestsWith = async (operation: string) => {
  const name = `weir_unknown_field_requests_total{operation="${operation}"}`;
  return (await readMetrics(server.adminUrl)).get(name);
};
/** Each of them can be repeated. */
const requestsOfHolds = async (): Promise<Partial<Record<Operation, Fields>>> => {
  const reserved = await server.ok('ratelimits.reserve', REQUESTS['ratelimits.reserve']);
  const acquired = await server.ok('ratelimits.acquire', REQUESTS['ratelimits.acquire']);
  const { reservationId } = reserved;
  const { leaseId } = acquired;
  return {
    'ratelimits.commit': { reservationId, cost: 1 },
    'ratelimits.cancel': { reservationId },
    'ratelimits.renew': { leaseId, ttl: 60_000 },
    'ratelimits.release': { leaseId },
  };
};
const loggedFields = () => logRecords(server, MESSAGE).map(({ field }) => field);

test('every operation of v1 counts requests with unknown fields, and only those', async () => {
  const v1 = DOCUMENTED.flatMap(({ name, version }) => (version === 'v1' ? name : []));
  const names = [...Object.keys(REQUESTS), ...DELETIONS, ...HOLD_OPERATIONS];
  expect(names.toSorted()).toEqual(v1.toSorted());
  const requests = { ...REQUESTS, ...(await requestsOfHolds()) };
  for (const [name, fields] of Object.entries(requests)) {
    const operation = name as Operation;
    await server.ok(operation, fields);
    expect([name, await requestsWith(name)]).toEqual([name, 0]);
    const misspelt = { ...fields, algoritm: 'gcra', expires: 1 };
    const hasExpires = ['keys.create', 'ratelimits.setOverride', 'ratelimits.setBlock'];
    if (hasExpires.includes(name)) Object.assign(misspelt, { expires: AMOUNT_MAX });
    if (name === 'ratelimits.deleteOverride') {
      await server.ok('ratelimits.setOverride', { ...OVERRIDE, ...TERMS });
    }
    if (name === 'ratelimits.deleteBlock') {
      await server.ok('ratelimits.setBlock', { ...OVERRIDE, expires: AMOUNT_MAX });
    }
    await server.ok(operation, misspelt);
    expect([name, await requestsWith(name)]).toEqual([name, 1]);
  }
  const { keyId } = await server.ok('keys.create', { name: 'gone', permissions: ['*'] });
  await server.ok('keys.revoke', { keyId, algoritm: 'gcra' });
  await server.ok('ratelimits.acquire', REQUESTS['ratelimits.acquire']);
  const shown = await server.ok('ratelimits.inspect', COUNTER);
  const [{ handle }] = (shown.holds as { list: { handle: string }[] }).list;
  await server.ok('ratelimits.endHold', { ...COUNTER, handle, algoritm: 'gcra' });
  await server.ok('ratelimits.deleteNamespace', { namespaceName: 'fields', algoritm: 'gcra' });
  for (const name of DELETIONS) expect([name, await requestsWith(name)]).toEqual([name, 1]);
  const series = [...(await readMetrics(server.adminUrl)).keys()].filter((name) => {
    return name.startsWith('weir_unknown_field_requests_total');
  });
  expect(series).toHaveLength(v1.length);
});

test('the field of an item of an import is counted once, and logged', async () => {
  const before = (await requestsWith('ratelimits.importOverrides')) ?? 0;
  const items = ['a', 'b'].map((identifier) => {
    return { ...OVERRIDE, ...TERMS, identifier, expiresAt: 1 };
  });
  await server.ok('ratelimits.importOverrides', { overrides: items });
  expect(await requestsWith('ratelimits.importOverrides')).toBe(before + 1);
  await waitUntil('it is logged', () => loggedFields().includes('expiresAt'));
});

test('a field is logged once for each key, also by several acceptors', async () => {
  const permissions = ['ratelimit.*.limit', 'ratelimit.*.create_namespace'];
  const { keyId, key } = await server.ok('keys.create', { name: 'client', permissions });
  const body = { ...COUNTER, ...TERMS, rateLimitType: 'x' };
  for (const token of [ROOT_KEY, key as string]) {
    for (let i = 0; i < 8; i++) await server.call('ratelimits.limit', body, token);
  }
  const records = () => logRecords(server, MESSAGE).filter((it) => it.field === 'rateLimitType');
  await waitUntil('both keys are logged', () => records().length === 2);
  expect(records()).toMatchObject([
    { level: 40, operation: 'ratelimits.limit' },
    { level: 40, operation: 'ratelimits.limit', keyId },
  ]);
  expect(await requestsWith('ratelimits.limit')).toBe(1 + 16);
});

test('the names in the log are escaped and cut, and contain no key', async () => {
  const long = `${'x'.repeat(200)}`;
  for (const name of ['line\nend\u0000', long, ROOT_KEY]) {
    await server.check({ ...COUNTER, ...TERMS, [name]: 1 });
  }
  await waitUntil('all are logged', () => loggedFields().includes('[key]'));
  expect(loggedFields()).toEqual(
    expect.arrayContaining(['line\\nend\\u0000', `${'x'.repeat(64)}...`]),
  );
  expect(server.stderr()).not.toContain(ROOT_KEY);
  expect(shownField('\ud800')).toBe('\\ud800');
});

test('meta and resources are known, and v2 rejects what it does not know', async () => {
  const before = await requestsWith('ratelimits.limit');
  const known = { meta: { a: 1 }, resources: [{ id: 'a', extra: 1 }], algorithm: 'gcra', burst: 3 };
  await server.check({ ...COUNTER, ...TERMS, ...known });
  expect(await requestsWith('ratelimits.limit')).toBe(before);
  const check = { ...COUNTER, ...TERMS, duration: 60_000, algoritm: 'gcra' };
  const error = await server.errorOf('ratelimit.limit', check);
  expect(error).toEqual([400, expect.stringContaining('"algoritm" is not a field')]);
});

test('a thread remembers a bounded number of fields, and few of one key', () => {
  const reported = new ReportedFields();
  const add = (key: string, count: number) => {
    const added = Array.from({ length: count }, (_, i) => reported.add(key, `field_${i}`));
    return added.filter((isNew) => isNew).length;
  };
  expect(add('key_0', UNKNOWN_FIELDS_MAX)).toBe(UNKNOWN_FIELDS_PER_KEY_MAX);
  expect(add('key_0', UNKNOWN_FIELDS_MAX)).toBe(0);
  let total = UNKNOWN_FIELDS_PER_KEY_MAX;
  for (let key = 1; key < UNKNOWN_FIELDS_MAX; key++) total += add(`key_${key}`, 3);
  expect(total).toBe(UNKNOWN_FIELDS_MAX);
});
