/** Overrides with an end, in both versions of the API: the server's time is moved over it. */

import { describe, expect, test } from 'vitest';
import { AMOUNT_MAX } from '../../../src/core/constants.ts';
import { listAuditEntries } from '../../support/audit-log.ts';
import { LONGEST_WINDOW_MS } from '../../support/http.ts';
import type { Fields } from '../../support/operations.ts';
import { overrideId } from '../../support/override-model.ts';
import { DECIDE_MODES, waitUntil } from '../../support/server.ts';
import { addRecords, readRecords, withStore } from '../../support/store.ts';
import { useServer } from '../../support/test-server.ts';

const HOUR_MS = 3_600_000;
const VALUES = { limit: 5, duration: LONGEST_WINDOW_MS };
const NOT_IN_FUTURE = /"expires" must be a Unix time in ms, in the future; got \d+, which is /;

describe.each(DECIDE_MODES)('decided %s: an override with an end', (mode) => {
  const server = useServer({ hasSteppedClock: true, args: ['--acceptors', '2', '--decide', mode] });
  const inHours = (hours: number) => server.nowMs() + hours * HOUR_MS;
  const setV1 = (fields: Fields) => server.ok('ratelimits.setOverride', { ...VALUES, ...fields });
  const setV2 = async (fields: Fields) => {
    return (await server.ok('ratelimit.setOverride', { ...VALUES, ...fields })).data as Fields;
  };
  const limitOf = async (namespace: string, identifier: string) => {
    const terms = { limit: 1_000, duration: LONGEST_WINDOW_MS, cost: 0 };
    return (await server.check({ namespace, identifier, ...terms })).limit;
  };
  /** On every acceptor: consecutive connections may reach different ones. */
  const waitForLimit = (namespace: string, identifier: string, limit: number) => {
    return waitUntil(`the limit is ${limit}`, async () => {
      const limits = await Promise.all(
        Array.from({ length: 8 }, () => limitOf(namespace, identifier)),
      );
      return limits.every((one) => one === limit);
    });
  };
  const waitForRemoval = (namespaceName: string, identifier: string) => {
    return waitUntil('the record is removed', async () => {
      const { entries } = (await server.ok('audit.list')) as { entries: Fields[] };
      const isOf = ({ target }: Fields) =>
        (target as Fields).namespace === namespaceName &&
        (target as Fields).identifier === identifier;
      return entries.some((entry) => entry.by === 'expiry' && isOf(entry));
    });
  };

  test('is shown with it by all operations of v1 and v2, and one without an end is not', async () => {
    const expires = inHours(1);
    const { overrideId: id } = await setV1({ namespaceName: 'a', identifier: 'vip', expires });
    await setV2({ namespace: 'a', identifier: 'v*', expires: expires + 1 });
    await setV2({ namespace: 'a', identifier: '10.0.0.0/8', cidr: true });
    const of = { namespaceName: 'a' };
    const vip = { identifier: 'vip', ...VALUES, expires };
    expect(await server.ok('ratelimits.getOverride', { ...of, identifier: 'vip' })).toEqual({
      ...{ id, async: false, ...vip },
    });
    const { data } = await server.ok('ratelimit.getOverride', {
      namespace: 'a',
      identifier: 'vip',
    });
    expect(data).toEqual({ overrideId: id, ...vip });
    const ends = (list: unknown) => (list as Fields[]).map((one) => one.expires);
    const expected = [expires, expires + 1, undefined];
    const { overrides: v1 } = await server.ok('ratelimits.listOverrides', of);
    expect(ends(v1)).toEqual(expected);
    expect((v1 as Fields[])[2]).not.toHaveProperty('expires');
    const { data: v2 } = await server.ok('ratelimit.listOverrides', { namespace: 'a' });
    expect(ends(v2)).toEqual(expected);
    const { overrides } = await server.ok('ratelimits.exportOverrides');
    expect(ends((overrides as Fields[]).filter((it) => it.namespaceName === 'a'))).toEqual(
      expected,
    );
    const imported = await server.ok('ratelimits.importOverrides', { overrides });
    expect(imported).toMatchObject({ created: 0, updated: 0 });
    const explained = await server.ok('ratelimits.explain', { namespace: 'a', identifier: 'vip' });
    expect(explained.override).toMatchObject({ id, expires });
    expect(explained.otherOverrides).toMatchObject([{ identifier: 'v*', expires: expires + 1 }]);
    const block = { namespace: 'a', identifier: '10.0.0.1' };
    expect((await server.ok('ratelimits.explain', block)).override).not.toHaveProperty('expires');
    const [entry] = (await listAuditEntries(server)).filter(({ target }) => {
      return (target as Fields).identifier === 'v*';
    });
    expect(entry.after).toMatchObject({ expires: expires + 1 });
  });

  test('ends at its time on each acceptor: the next-best one applies, in the order of precedence', async () => {
    const id = await setV1({ namespaceName: 'b', identifier: 'user_1', expires: inHours(1) });
    await setV2({ namespace: 'b', identifier: 'user*', limit: 6, expires: inHours(2) });
    await setV2({ namespace: 'b*', identifier: '*', limit: 7, expires: inHours(3) });
    await server.stepClock(HOUR_MS - 60_000);
    expect(await limitOf('b', 'user_1')).toBe(5);
    await server.stepClock(60_000);
    await waitForLimit('b', 'user_1', 6);
    const gone = { namespaceName: 'b', identifier: 'user_1' };
    expect(await server.errorOf('ratelimits.getOverride', gone)).toEqual([
      404,
      'there is no override of "user_1" in that namespace',
    ]);
    expect((await server.errorOf('ratelimits.deleteOverride', gone))[0]).toBe(404);
    const explained = await server.ok('ratelimits.explain', {
      namespace: 'b',
      identifier: 'user_1',
    });
    expect(explained).toMatchObject({ override: { identifier: 'user*' }, matchingOverrides: 2 });
    await waitForRemoval('b', 'user_1');
    // Set again, it is another override.
    expect(await setV1(gone)).not.toEqual(id);
    await server.ok('ratelimits.deleteOverride', gone);
    await server.stepClock(2 * HOUR_MS);
    await waitForLimit('b', 'user_1', 1_000);
    const { overrides } = await server.ok('ratelimits.exportOverrides');
    expect((overrides as Fields[]).filter((it) => /^b/.test(`${it.namespaceName}`))).toEqual([]);
    await waitForRemoval('b*', '*');
  });

  test('of a CIDR block ends too', async () => {
    const block = { namespace: 'blocks', identifier: '203.0.113.0/24', cidr: true };
    await setV2({ ...block, expires: inHours(1) });
    expect(await limitOf('blocks', '203.0.113.9')).toBe(5);
    await server.stepClock(HOUR_MS);
    await waitForLimit('blocks', '203.0.113.9', 1_000);
  });

  test('is permanent again once it is set without an end, under its id', async () => {
    const of = { namespace: 'c', identifier: 'user' };
    const first = await setV2({ ...of, expires: inHours(1) });
    expect(await setV2(of)).toEqual(first);
    const { data } = await server.ok('ratelimit.getOverride', of);
    expect(data).not.toHaveProperty('expires');
    await server.stepClock(2 * HOUR_MS);
    expect(await limitOf('c', 'user')).toBe(5);
    // A later end replaces an earlier one.
    await setV2({ ...of, expires: inHours(1) });
    await setV2({ ...of, expires: inHours(3) });
    await server.stepClock(2 * HOUR_MS);
    expect(await limitOf('c', 'user')).toBe(5);
    await server.stepClock(HOUR_MS);
    await waitForLimit('c', 'user', 1_000);
  });

  test('is not brought back by a system clock that is set back, and lasts no longer', async () => {
    await setV2({ namespace: 'd', identifier: 'user', expires: inHours(1) });
    await setV2({ namespace: 'd', identifier: 'other', expires: inHours(5) });
    await server.stepClock(HOUR_MS);
    await waitForLimit('d', 'user', 1_000);
    await server.stepClock(-HOUR_MS);
    expect(await limitOf('d', 'user')).toBe(1_000);
    expect(await limitOf('d', 'other')).toBe(5);
    await server.stepClock(6 * HOUR_MS);
    await waitForLimit('d', 'other', 1_000);
  });

  test('has an end in the future, an integer', async () => {
    const v1 = { ...VALUES, namespaceName: 'e', identifier: 'user' };
    const v2 = { ...VALUES, namespace: 'e', identifier: 'user' };
    for (const expires of [1, server.nowMs() - 1_000]) {
      const errors = [
        await server.errorOf('ratelimits.setOverride', { ...v1, expires }),
        await server.errorOf('ratelimit.setOverride', { ...v2, expires }),
      ];
      for (const [status, message] of errors) {
        expect(status).toBe(400);
        expect(message).toMatch(new RegExp(`^${NOT_IN_FUTURE.source}`));
      }
      const overrides = [v1, { ...v1, identifier: 'second', expires }];
      const [, message] = await server.errorOf('ratelimits.importOverrides', { overrides });
      expect(message).toMatch(new RegExp(`^overrides\\[1\\]: ${NOT_IN_FUTURE.source}`));
    }
    for (const expires of [0, -1, 1.5, '1', null, 2 ** 53, 1e300]) {
      const [status, message] = await server.errorOf('ratelimit.setOverride', { ...v2, expires });
      expect([status, message]).toEqual([
        400,
        expect.stringContaining('"expires" must be a Unix time in ms, an integer from 1 to '),
      ]);
    }
    const { body } = await server.call('ratelimit.setOverride', { ...v2, expires: 1 });
    expect(JSON.parse(body).error.errors).toMatchObject([{ location: 'body.expires' }]);
    await server.ok('ratelimit.setOverride', { ...v2, expires: AMOUNT_MAX });
    const { data } = await server.ok('ratelimit.getOverride', {
      namespace: 'e',
      identifier: 'user',
    });
    expect(data).toMatchObject({ expires: AMOUNT_MAX });
  });

  test('ends without a trace of its own if its namespace is deleted before', async () => {
    await setV2({ namespace: 'deleted', identifier: 'user', expires: inHours(1) });
    const namespaceId = await server.namespaceId('deleted');
    await server.ok('ratelimits.deleteNamespace', { namespaceId });
    await setV2({ namespace: 'deleted', identifier: 'user', limit: 9 });
    await server.stepClock(2 * HOUR_MS);
    expect(await limitOf('deleted', 'user')).toBe(9);
  });
});

describe('after a start', () => {
  const server = useServer({
    prepare: (store) => {
      addRecords(store, 'namespaces', [{ id: 'rlns_1', name: 'stored', createdMs: 1 }]);
      const record = { scope: 'rlns_1', durationMs: 60_000, isAsync: false, createdMs: 1 };
      addRecords(store, 'overrides', [
        { ...record, id: overrideId(1), identifier: 'ended', limit: 1, expiresMs: 2_000 },
        { ...record, id: overrideId(2), identifier: 'end*', limit: 2, expiresMs: 2_000 },
        { ...record, id: overrideId(3), identifier: 'later', limit: 3, expiresMs: AMOUNT_MAX },
        { ...record, id: overrideId(4), identifier: 'permanent', limit: 4 },
      ]);
    },
  });

  test('overrides that have ended while no server ran are removed, and the others stay', async () => {
    const check = { namespace: 'stored', identifier: 'ended', limit: 9, duration: 60_000 };
    expect((await server.check(check)).limit).toBe(9);
    const { overrides } = await server.ok('ratelimits.listOverrides', { namespaceName: 'stored' });
    expect((overrides as Fields[]).map(({ identifier }) => identifier)).toEqual([
      'later',
      'permanent',
    ]);
    const ended = async () => {
      return (await listAuditEntries(server)).filter(({ by }) => by === 'expiry');
    };
    await waitUntil('they are removed', async () => (await ended()).length === 2);
    expect((await ended()).map(({ action, before }) => [action, before])).toEqual([
      ['override.delete', expect.objectContaining({ limit: 2, expires: 2_000 })],
      ['override.delete', expect.objectContaining({ limit: 1, expires: 2_000 })],
    ]);
    await server.expectStop();
    const stored = withStore(server.dataDir, (store) => readRecords(store, 'overrides'));
    expect(stored.map(({ limit }) => limit)).toEqual([3, 4]);
    await server.start();
  });
});
