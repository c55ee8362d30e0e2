/** Reservations and leases over HTTP. */

import { existsSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import Database from 'libsql';
import { describe, expect, test } from 'vitest';
import { NO_LEASE_ID, NO_RESERVATION_ID } from '../../src/api/texts/examples.ts';
import { AMOUNT_MAX } from '../../src/core/constants.ts';
import { STORE_FILE } from '../../src/registry/store/directory.ts';
import { describeEngines, describeOnce } from '../support/engine-modes.ts';
import { LONGEST_WINDOW_MS, waitForCheckpoint } from '../support/http.ts';
import type { Fields, Operation } from '../support/operations.ts';
import { waitUntil } from '../support/server.ts';
import { useServer } from '../support/test-server.ts';

const duration = LONGEST_WINDOW_MS;
const WINDOW = { limit: 100, duration };
const TTL_MS = 60_000;
/** A request of each operation. The holds that they name do not exist. */
const REQUESTS: Partial<Record<Operation, Fields>> = {
  'ratelimits.reserve': { identifier: 'a', ...WINDOW, cost: 1, ttl: TTL_MS },
  'ratelimits.commit': { reservationId: NO_RESERVATION_ID, cost: 1 },
  'ratelimits.cancel': { reservationId: NO_RESERVATION_ID },
  'ratelimits.acquire': { identifier: 'a', limit: 1, ttl: TTL_MS },
  'ratelimits.renew': { leaseId: NO_LEASE_ID, ttl: TTL_MS },
  'ratelimits.release': { leaseId: NO_LEASE_ID },
  'ratelimits.endHold': { identifier: 'a', handle: '1c-09f3' },
};

interface Reserved {
  success: boolean;
  reservationId: string;
  limit: number;
  remaining: number;
  reset: number;
  expiresAt: number;
}

interface Acquired {
  success: boolean;
  leaseId: string;
  inUse: number;
  limit: number;
  expiresAt: number;
}

describeEngines(
  'decided %s:',
  (mode) => {
    const server = useServer({ mode, args: ['--acceptors', '2'] });

    let serial = 0;
    const fresh = () => `user_${serial++}`;
    const reserve = (identifier: string, cost: number, changes: Fields = {}) => {
      const body = { identifier, ...WINDOW, cost, ttl: TTL_MS, ...changes };
      return server.ok<Reserved>('ratelimits.reserve', body);
    };
    const commit = (reservationId: string, cost: number) => {
      return server.ok('ratelimits.commit', { reservationId, cost });
    };
    const cancel = (reservationId: string) => server.ok('ratelimits.cancel', { reservationId });
    const acquire = (identifier: string, changes: Fields = {}) => {
      const body = { identifier, limit: 2, ttl: TTL_MS, ...changes };
      return server.ok<Acquired>('ratelimits.acquire', body);
    };
    const renew = (leaseId: string) => server.ok('ratelimits.renew', { leaseId, ttl: TTL_MS });
    const release = (leaseId: string) => server.ok('ratelimits.release', { leaseId });
    const remaining = async (identifier: string, changes: Fields = {}) => {
      return (await server.check({ identifier, ...WINDOW, cost: 0, ...changes })).remaining;
    };
    const createKey = async (...permissions: string[]) => {
      const { key } = await server.ok<{ key: string }>('keys.create', { name: 'k', permissions });
      return key;
    };

    test('a reservation counts its cost, and a commit returns what was not used', async () => {
      const identifier = fresh();
      const reserved = await reserve(identifier, 40);
      const expiresAt = expect.closeTo(server.nowMs() + TTL_MS, -4);
      expect(reserved).toEqual({
        ...{ success: true, reservationId: expect.stringMatching(/^rlrs_[\w-]{22}$/) },
        ...{ limit: 100, remaining: 60, reset: expect.any(Number), expiresAt },
      });
      expect(await remaining(identifier)).toBe(60);
      const committed = { success: true, charged: 15, released: 25, late: false };
      expect(await commit(reserved.reservationId, 15)).toEqual(committed);
      expect(await remaining(identifier)).toBe(85);
      // A repetition changes nothing, whatever its cost is.
      for (const cost of [15, 0, 99]) {
        expect(await commit(reserved.reservationId, cost)).toEqual(committed);
      }
      expect(await remaining(identifier)).toBe(85);
    });

    test('a commit above the reserved cost counts all of it, also beyond the limit', async () => {
      const identifier = fresh();
      const { reservationId } = await reserve(identifier, 90);
      expect(await commit(reservationId, 130)).toMatchObject({ charged: 130, released: 0 });
      expect(await remaining(identifier)).toBe(0);
      expect(await reserve(identifier, 1)).toMatchObject({ success: false });
    });

    test('a cancellation returns all tokens, once', async () => {
      const identifier = fresh();
      const { reservationId } = await reserve(identifier, 40);
      expect(await cancel(reservationId)).toEqual({ released: 40 });
      expect(await remaining(identifier)).toBe(100);
      await cancel(reservationId);
      await commit(reservationId, 7);
      expect(await remaining(identifier)).toBe(100);
    });

    test('a denied reservation has no id, and counts nothing', async () => {
      const identifier = fresh();
      await reserve(identifier, 90);
      expect(await reserve(identifier, 11)).toEqual({
        ...{ success: false, reservationId: null, expiresAt: null },
        ...{ limit: 100, remaining: 10, reset: expect.any(Number) },
      });
      expect(await remaining(identifier)).toBe(10);
    });

    describe('a reservation of several checks', () => {
      const list = (...checks: Fields[]) => {
        const items = checks.map((check) => ({ ...WINDOW, cost: 10, ...check }));
        return { checks: items, ttl: TTL_MS };
      };

      test('counts all of them under one id, and a commit corrects each', async () => {
        const [a, b] = [fresh(), fresh()];
        const body = list({ identifier: a }, { identifier: b, cost: 40, algorithm: 'gcra' });
        const reserved = await server.ok<Reserved>('ratelimits.reserve', body);
        const reset = expect.any(Number);
        expect(reserved).toEqual({
          ...{ success: true, reservationId: expect.stringMatching(/^rlrs_/) },
          checks: [
            { success: true, limit: 100, remaining: 90, reset },
            { success: true, limit: 100, remaining: 60, reset },
          ],
          expiresAt: expect.any(Number),
        });
        const { reservationId } = reserved;
        const committed = { success: true, charged: 25, released: 25, late: false };
        for (const costs of [
          [5, 20],
          [0, 0],
        ]) {
          const answer = await server.ok('ratelimits.commit', { reservationId, costs });
          expect(answer).toEqual(committed);
        }
        expect([await remaining(a), await remaining(b, { algorithm: 'gcra' })]).toEqual([95, 80]);
      });

      test('counts none of them if one is denied', async () => {
        const [a, b] = [fresh(), fresh()];
        const body = list({ identifier: a }, { identifier: b, cost: 101 });
        expect(await server.ok('ratelimits.reserve', body)).toMatchObject({
          ...{ success: false, reservationId: null, expiresAt: null },
          checks: [{ success: true }, { success: false }],
        });
        expect([await remaining(a), await remaining(b)]).toEqual([100, 100]);
      });

      test('returns the tokens of all by a cancellation', async () => {
        const [a, b] = [fresh(), fresh()];
        const body = list({ identifier: a }, { identifier: b }, { identifier: a });
        const { reservationId } = await server.ok<Reserved>('ratelimits.reserve', body);
        expect([await remaining(a), await remaining(b)]).toEqual([80, 90]);
        expect(await cancel(reservationId)).toEqual({ released: 30 });
        expect([await remaining(a), await remaining(b)]).toEqual([100, 100]);
      });

      test('needs one cost for each check, and changes nothing otherwise', async () => {
        const identifier = fresh();
        const { reservationId } = await server.ok<Reserved>(
          'ratelimits.reserve',
          list({ identifier }, { identifier: fresh() }),
        );
        const needed = '"costs" must be an array of 2 costs, one for each check of the reservation';
        for (const [costs, got] of [
          [{ cost: 5 }, 'got "cost" = 5'],
          [{ costs: [5] }, 'got "costs" with 1'],
          [{ cost: 5, costs: [1, 2] }, 'got "cost" = 5 and "costs" with 2'],
          [{}, 'got neither "cost" nor "costs"'],
        ] as const) {
          const error = await server.errorOf('ratelimits.commit', { reservationId, ...costs });
          expect(error).toEqual([400, `${needed}; ${got}`]);
        }
        expect(await remaining(identifier)).toBe(90);
      });

      test('names the check of an error', async () => {
        for (const [body, message] of [
          [
            list({ identifier: 'a' }, { identifier: 'b', limit: 0 }),
            /^"checks\[1\]\.limit" must be/,
          ],
          [list(), /^"checks" must be an array of 1 to 16 checks; got an array of 0/],
          [{ ...list({ identifier: 'a' }), limit: 5 }, /^"checks" must not have "limit" beside it/],
          [
            { ...list({ identifier: 'a' }), requestId: 'x' },
            /^"checks" must not have "requestId" beside it/,
          ],
          [list({ identifier: 'a', burst: 5 }), /^checks\[0\]: "burst"/],
        ] as const) {
          const error = await server.errorOf('ratelimits.reserve', body);
          expect(error).toEqual([400, expect.stringMatching(message)]);
        }
      });

      test('needs the permission in the namespace of each', async () => {
        const identifier = fresh();
        const own = { identifier, namespace: 'mine' };
        await server.check({ ...own, ...WINDOW, cost: 1 });
        const key = await createKey(`ratelimit.${await server.namespaceId('mine')}.limit`);
        const body = list(own, { identifier, namespace: 'others' });
        expect((await server.errorOf('ratelimits.reserve', body, key))[0]).toBe(403);
        await server.ok('ratelimits.reserve', list(own, own), key);
        expect(await remaining(identifier, { namespace: 'mine' })).toBe(79);
      });
    });

    test('each algorithm counts reservations', async () => {
      for (const algorithm of ['sliding', 'gcra']) {
        const identifier = fresh();
        const { reservationId } = await reserve(identifier, 40, { algorithm });
        expect(await remaining(identifier, { algorithm })).toBe(60);
        expect(await commit(reservationId, 10)).toMatchObject({ charged: 10, released: 30 });
        expect(await remaining(identifier, { algorithm })).toBe(90);
      }
      const gcra = { algorithm: 'gcra', burst: 30 };
      expect(await reserve(fresh(), 31, gcra)).toMatchObject({ success: false });
    });

    test('an override replaces the limit, and its use is counted', async () => {
      const [identifier, namespaceName] = [fresh(), 'overridden'];
      const override = { namespaceName, identifier };
      await server.ok('ratelimits.setOverride', { ...override, limit: 5, duration });
      const before = await server.metric('weir_overridden_checks_total');
      const reserved = await reserve(identifier, 4, { namespace: namespaceName });
      expect(reserved).toMatchObject({ success: true, limit: 5, remaining: 1 });
      const denied = await reserve(identifier, 4, { namespace: namespaceName });
      expect(denied).toMatchObject({ success: false, limit: 5 });
      expect(await server.metric('weir_overridden_checks_total')).toBe(before + 2);
      // The lease has its own limit.
      const lease = await acquire(identifier, { namespace: namespaceName, limit: 9, cost: 9 });
      expect(lease).toMatchObject({ success: true, limit: 9 });
    });

    test('a reservation is a decision of its namespace', async () => {
      const [identifier, namespace] = [fresh(), 'decided'];
      // Every acceptor then counts in the row of the namespace.
      const other = { namespaceName: namespace, identifier: 'other', limit: 1, duration };
      await server.ok('ratelimits.setOverride', other);
      const taken = await reserve(identifier, 60, { namespace });
      await reserve(identifier, 60, { namespace });
      await commit(taken.reservationId, 1);
      const decisions = ['allowed', 'denied'].map((outcome) => {
        const labels = `{namespace="${namespace}",outcome="${outcome}"}`;
        return server.metric(`weir_decisions_total${labels}`);
      });
      expect(await Promise.all(decisions)).toEqual([1, 1]);
    });

    test('a reservation that nobody ends returns its tokens, and a late commit counts', async () => {
      const identifier = fresh();
      const { reservationId } = await reserve(identifier, 40, { ttl: 1_000 });
      await server.stepClock(1_500);
      await waitUntil('its tokens return', async () => (await remaining(identifier)) === 100);
      const committed = await commit(reservationId, 15);
      expect(committed).toMatchObject({ success: true, charged: 15, late: true });
      expect(await remaining(identifier)).toBe(85);
      expect(await commit(reservationId, 15)).toEqual(committed);
      expect(await remaining(identifier)).toBe(85);
    });

    test('an ended reservation is unknown after 10 minutes', async () => {
      const { reservationId } = await reserve(fresh(), 1);
      await commit(reservationId, 1);
      await server.stepClock(11 * 60_000);
      for (const fields of [{ reservationId, cost: 1 }, { reservationId }]) {
        const [status] = await server.errorOf('ratelimits.commit', fields);
        expect(status).toBe(404);
      }
    });

    test('nothing returns after a reset', async () => {
      const identifier = fresh();
      const { reservationId } = await reserve(identifier, 40);
      await server.ok('ratelimits.reset', { identifier });
      await reserve(identifier, 30);
      expect(await commit(reservationId, 0)).toMatchObject({ released: 0 });
      expect(await remaining(identifier)).toBe(70);
    });

    test('leases limit what is in use at once', async () => {
      const identifier = fresh();
      const first = await acquire(identifier);
      const expiresAt = expect.closeTo(server.nowMs() + TTL_MS, -4);
      const lease = {
        success: true,
        leaseId: expect.stringMatching(/^rlls_[\w-]{22}$/),
        expiresAt,
      };
      expect(first).toEqual({ ...lease, inUse: 1, limit: 2 });
      expect(await acquire(identifier)).toEqual({ ...lease, inUse: 2, limit: 2 });
      const denied = { success: false, leaseId: null, expiresAt: null, inUse: 2 };
      expect(await acquire(identifier)).toEqual({ ...denied, limit: 2 });
      // A lower limit ends no lease.
      expect(await acquire(identifier, { limit: 1 })).toEqual({ ...denied, limit: 1 });
      expect(await acquire(fresh())).toMatchObject({ success: true, inUse: 1 });
      expect(await release(first.leaseId)).toEqual({ released: 1 });
      expect(await release(first.leaseId)).toEqual({ released: 0 });
      expect(await acquire(identifier, { cost: 3, limit: 4 })).toMatchObject({ inUse: 4 });
      expect(await acquire(identifier, { cost: AMOUNT_MAX, limit: AMOUNT_MAX })).toMatchObject({
        success: false,
      });
      // The tokens of leases are not those of checks.
      expect(await remaining(identifier)).toBe(100);
    });

    test('a decision on a lease is one of its namespace, apart from checks, and once', async () => {
      const [identifier, namespace] = [fresh(), 'leased'];
      await server.ok('ratelimits.setOverride', {
        ...{ namespaceName: namespace, identifier: 'other', limit: 1, duration },
      });
      const lease = { namespace, limit: 2, cost: 2, requestId: 'once' };
      const { leaseId } = await acquire(identifier, lease);
      expect(await acquire(identifier, lease)).toMatchObject({ leaseId });
      for (const requestId of ['twice', 'twice', undefined]) {
        await acquire(identifier, { ...lease, requestId });
      }
      const requests = ['granted', 'denied'].map((outcome) => {
        const labels = `{namespace="${namespace}",outcome="${outcome}"}`;
        return server.metric(`weir_lease_requests_total${labels}`);
      });
      expect(await Promise.all(requests)).toEqual([1, 3]);
      // Another test has stepped the clock, perhaps over the end of an hour.
      const start = server.nowMs() - 3_600_000;
      const query = { namespaceName: namespace, start };
      const shown = await server.ok<{ points: Record<string, number>[] }>(
        'analytics.getTimeline',
        query,
      );
      const none = { allowed: 0, denied: 0, tokensAllowed: 0, tokensDenied: 0 };
      for (const [name, count] of Object.entries({ ...none, leasesGranted: 1, leasesDenied: 3 })) {
        expect(shown.points.reduce((sum, point) => sum + point[name], 0)).toBe(count);
      }
      const identifiers = () => server.ok('analytics.getIdentifiers', query);
      await expect.poll(identifiers).toMatchObject({
        denied: [{ identifier, count: 3, error: 0 }],
        spent: [],
      });
    });

    test('a reset ends leases only with "leases": true', async () => {
      const identifier = fresh();
      await acquire(identifier);
      const error = await server.errorOf('ratelimits.reset', { identifier, leases: {} });
      expect(error).toEqual([400, '"leases" must be true or false; got an object']);
      expect(await server.ok('ratelimits.reset', { identifier })).toEqual({ cleared: 0 });
      expect(await acquire(identifier)).toMatchObject({ inUse: 2 });
      const all = { identifier, leases: true };
      expect(await server.ok('ratelimits.reset', all)).toEqual({ cleared: 0, leases: 2 });
      expect(await acquire(identifier)).toMatchObject({ inUse: 1 });
    });

    describe('an operator ends by its handle', () => {
      const handlesOf = async (fields: Fields) => {
        const shown = await server.ok<{ holds: { list: { handle: string }[] } }>(
          'ratelimits.inspect',
          fields,
        );
        return shown.holds.list.map(({ handle }) => handle);
      };
      const end = (fields: Fields) => server.ok('ratelimits.endHold', fields);

      test('a lease, whose place is free at once, and none of the others', async () => {
        const identifier = fresh();
        const [ended, kept] = [
          await acquire(identifier),
          await acquire(identifier, { ttl: 2 * TTL_MS }),
        ];
        const [handle] = await handlesOf({ identifier });
        const before = await server.metric('weir_lease_releases_total');
        expect(await end({ identifier, handle })).toEqual({ kind: 'lease', released: 1 });
        expect(await server.metric('weir_lease_releases_total')).toBe(before + 1);
        expect(await renew(ended.leaseId)).toMatchObject({ success: false });
        expect(await release(ended.leaseId)).toEqual({ released: 0 });
        expect(await renew(kept.leaseId)).toMatchObject({ success: true, inUse: 1 });
        expect(await acquire(identifier)).toMatchObject({ success: true, inUse: 2 });
      });

      test('a reservation, whose tokens return, and whose commit then counts nothing', async () => {
        const identifier = fresh();
        const { reservationId } = await reserve(identifier, 40);
        const [handle] = await handlesOf({ identifier });
        expect(await end({ identifier, handle })).toEqual({ kind: 'reservation', released: 40 });
        expect(await remaining(identifier)).toBe(100);
        expect(await commit(reservationId, 15)).toMatchObject({ charged: 0, released: 40 });
        expect(await remaining(identifier)).toBe(100);
      });

      test.each([
        ['first', 0],
        ['second', 1],
      ])('the %s check of a reservation alone, and the commit corrects the other', async (_, n) => {
        const identifiers = [fresh(), fresh()];
        const checks = identifiers.map((identifier) => ({ identifier, ...WINDOW, cost: 10 }));
        const body = { checks, ttl: TTL_MS };
        const { reservationId } = await server.ok<Reserved>('ratelimits.reserve', body);
        const identifier = identifiers[n];
        const [handle] = await handlesOf({ identifier });
        expect(await end({ identifier, handle })).toEqual({ kind: 'reservation', released: 10 });
        expect(await remaining(identifiers[1 - n])).toBe(90);
        expect(await handlesOf({ identifier: identifiers[1 - n] })).toHaveLength(1);
        await server.ok('ratelimits.commit', { reservationId, costs: [4, 4] });
        const left = [await remaining(identifier), await remaining(identifiers[1 - n])];
        expect(left).toEqual([100, 96]);
      });

      test('no hold that has ended, or is one of another identifier or namespace', async () => {
        const identifier = fresh();
        const { leaseId } = await acquire(identifier, { namespace: 'here' });
        await server.check({ identifier, ...WINDOW, cost: 1, namespace: 'elsewhere' });
        await server.namespaceId('here');
        const [handle] = await handlesOf({ identifier, namespace: 'here' });
        const other = handle.replace(/.$/, (digit) => (digit === '0' ? '1' : '0'));
        const error = async (fields: Fields) => {
          const all = { identifier, namespace: 'here', handle, ...fields };
          return server.errorOf('ratelimits.endHold', all);
        };
        const notFound = (name: string, of = identifier) => {
          return [404, `"${of}" has no live reservation or lease with the handle "${name}"`];
        };
        expect(await error({ identifier: 'nobody' })).toEqual(notFound(handle, 'nobody'));
        for (const namespace of ['elsewhere', 'unknown']) {
          expect(await error({ namespace })).toEqual(notFound(handle));
        }
        const texts = [
          other,
          handle.slice(0, -1),
          `0${handle}`,
          `${handle}0`,
          'zzzzzz-0000',
          '-',
          'x',
        ];
        for (const text of texts) expect(await error({ handle: text })).toEqual(notFound(text));
        expect(await renew(leaseId)).toMatchObject({ success: true });
        await release(leaseId);
        expect(await error({})).toEqual(notFound(handle));
      });

      test('no lease that has expired', async () => {
        const identifier = fresh();
        await acquire(identifier, { ttl: 1_000 });
        const [handle] = await handlesOf({ identifier });
        await server.stepClock(1_500);
        const [status] = await server.errorOf('ratelimits.endHold', { identifier, handle });
        expect(status).toBe(404);
      });

      test('a hold, with an entry in the audit log for each end, and for nothing else', async () => {
        const [identifier, namespace] = [fresh(), 'audited'];
        const entries = async () => {
          const page = await server.ok<{ entries: Fields[] }>('audit.list');
          return page.entries.filter(({ action }) => action === 'hold.end');
        };
        const before = await entries();
        await acquire(identifier, { namespace, limit: 9, cost: 5 });
        const namespaceId = await server.namespaceId(namespace);
        const [handle] = await handlesOf({ identifier, namespace });
        const { key } = await server.ok<{ key: string; keyId: string }>('keys.create', {
          ...{ name: 'operator', permissions: [`ratelimit.${namespaceId}.reset`] },
        });
        const hold = { identifier, namespace, handle };
        await server.errorOf('ratelimits.endHold', { ...hold, handle: 'g-0000' }, key);
        expect(await entries()).toEqual(before);
        await server.ok('ratelimits.endHold', hold, key);
        await server.errorOf('ratelimits.endHold', hold, key);
        const { keys } = await server.ok<{ keys: Fields[] }>('keys.list');
        expect(await entries()).toEqual([
          {
            ...{ id: expect.any(Number), at: expect.any(Number), action: 'hold.end' },
            keyId: keys.find(({ name }) => name === 'operator')?.keyId,
            keyName: 'operator',
            target: { ...hold, kind: 'lease', namespaceId },
            after: { released: 5 },
          },
          ...before,
        ]);
      });

      test('a hold while the store cannot be written, and gets an error that says so', async () => {
        const identifier = fresh();
        await acquire(identifier, { cost: 2 });
        const [handle] = await handlesOf({ identifier });
        const lock = new Database(join(server.dataDir, STORE_FILE), { timeout: 1_000 });
        lock.exec('BEGIN IMMEDIATE');
        const error = await server.errorOf('ratelimits.endHold', { identifier, handle });
        lock.close();
        expect(error).toEqual([
          503,
          expect.stringMatching(
            /^the hold has ended, but the audit log has no entry of it: the store cannot be written to at the moment [^;]*$/,
          ),
        ]);
        expect(await acquire(identifier, { cost: 2 })).toMatchObject({ success: true });
      });
    });

    test('a lease ends by itself unless it is renewed, and is then not granted again', async () => {
      const identifier = fresh();
      const [kept, lost] = [
        await acquire(identifier, { ttl: 1_000 }),
        await acquire(identifier, { ttl: 1_000 }),
      ];
      expect(await renew(kept.leaseId)).toEqual({
        ...{ success: true, inUse: 2, limit: 2 },
        expiresAt: expect.closeTo(server.nowMs() + TTL_MS, -4),
      });
      await server.stepClock(1_500);
      const ended = { success: false, inUse: null, limit: null, expiresAt: null };
      expect(await renew(lost.leaseId)).toEqual(ended);
      expect(await release(lost.leaseId)).toEqual({ released: 0 });
      expect(await acquire(identifier)).toMatchObject({ success: true, inUse: 2 });
      expect(await renew(kept.leaseId)).toMatchObject({ success: true, inUse: 2 });
    });

    test('a hold can be ended on another acceptor, also in a namespace that is new', async () => {
      for (let i = 0; i < 20; i++) {
        const namespace = `new_${i}`;
        // Each request has a connection of its own, and so reaches any acceptor.
        const { reservationId } = await reserve('a', 5, { namespace });
        expect(await commit(reservationId, 2)).toMatchObject({ charged: 2, released: 3 });
        const { leaseId } = await acquire('a', { namespace });
        expect(await release(leaseId)).toEqual({ released: 1 });
      }
    });

    describeOnce(mode, 'with events', () => {
      const withEvents = useServer({ args: ['--events', 'all'] });

      test('a reservation and an acquire are one, and a commit and a release are none', async () => {
        const [identifier, namespace] = ['writer', 'events'];
        const override = { namespaceName: namespace, identifier, limit: 9, duration };
        const { overrideId } = await withEvents.ok('ratelimits.setOverride', override);
        const fields = { namespace, identifier, ...WINDOW, ttl: TTL_MS };
        const traceparent = '00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01';
        const { body } = await withEvents.send({
          ...{ path: '/v1/ratelimits.reserve', headers: { traceparent } },
          body: JSON.stringify({ ...fields, cost: 4 }),
        });
        const { reservationId } = JSON.parse(body);
        await withEvents.ok('ratelimits.commit', { reservationId, cost: 1 });
        const lease = { namespace, identifier, limit: 3, cost: 2, ttl: TTL_MS };
        const { leaseId } = await withEvents.ok<Acquired>('ratelimits.acquire', lease);
        await withEvents.ok('ratelimits.acquire', lease);
        await withEvents.ok('ratelimits.release', { leaseId });
        await withEvents.ok('ratelimits.reserve', { ...fields, cost: 10 });
        const path = join(withEvents.dataDir, 'events.jsonl');
        const events = () => {
          const lines = existsSync(path) ? readFileSync(path, 'utf8').split('\n') : [];
          return lines.filter((line) => line !== '').map((line) => JSON.parse(line));
        };
        await waitUntil('all events are written', () => events().length >= 4);
        const decided = { time: expect.any(Number), namespace, identifier };
        const acquired = { ...decided, kind: 'lease', cost: 2, limit: 3, inUse: 2 };
        const event = { namespace, identifier, limit: 9, duration, override: overrideId };
        expect(events()).toEqual([
          expect.objectContaining({
            ...event,
            decision: 'allowed',
            cost: 4,
            remaining: 5,
            traceparent,
          }),
          { ...acquired, decision: 'allowed' },
          { ...acquired, decision: 'denied' },
          expect.objectContaining({ ...event, decision: 'denied', cost: 10, remaining: 8 }),
        ]);
      });
    });

    describeOnce(mode, 'without a free record', () => {
      const args = ['--holds', '1024'];
      const allowing = useServer({ args: [...args, '--on-full', 'allow'] });
      const denying = useServer({ args: [...args, '--on-full', 'deny'] });
      const own = { identifier: 'one', limit: 1_000, ttl: TTL_MS };

      /** Its identifier is in one shard, which has a sixteenth of the records, and some more. */
      const fill = async ({ ok }: typeof server) => {
        for (let leases = 0; leases < 200; leases++) {
          const { leaseId } = await ok<Acquired>('ratelimits.acquire', own);
          if (leaseId === null) return leases;
        }
        throw new Error('the table does not get full');
      };

      test('WEIR_ON_FULL=allow grants it without an id', async () => {
        const leases = await fill(allowing);
        expect(leases).toBeGreaterThan(64);
        const lease = { success: true, leaseId: null, inUse: leases, expiresAt: null };
        expect(await allowing.ok('ratelimits.acquire', own)).toMatchObject(lease);
        const fields = { ...own, ...WINDOW, cost: 40 };
        const reserved = { success: true, reservationId: null, remaining: 60, expiresAt: null };
        expect(await allowing.ok('ratelimits.reserve', fields)).toMatchObject(reserved);
        expect(await allowing.ok('ratelimits.reserve', { ...fields, cost: 61 })).toMatchObject({
          ...{ success: false, reservationId: null, remaining: 60 },
        });
      });

      test('WEIR_ON_FULL=deny denies it, and counts nothing', async () => {
        const leases = await fill(denying);
        const lease = { success: false, leaseId: null, inUse: leases, expiresAt: null };
        expect(await denying.ok('ratelimits.acquire', own)).toMatchObject(lease);
        const fields = { ...own, ...WINDOW, cost: 40 };
        const denied = { success: false, reservationId: null, expiresAt: null };
        expect(await denying.ok('ratelimits.reserve', fields)).toMatchObject(denied);
        // A list says what each check would be with room.
        const { ttl, limit: _, ...check } = { ...fields, ...WINDOW };
        for (const cost of [40, 101]) {
          const checks = [{ ...check, limit: 100, cost }];
          expect(await denying.ok('ratelimits.reserve', { checks, ttl })).toMatchObject({
            ...denied,
            checks: [{ success: cost <= 100, remaining: 100 }],
          });
        }
        expect(await denying.check({ ...own, ...WINDOW, cost: 0 })).toMatchObject({
          remaining: 100,
        });
      });
    });

    describeOnce(mode, 'with WEIR_ON_HOLD_EXPIRY=charge', () => {
      const charging = useServer({ hasSteppedClock: true, args: ['--on-hold-expiry', 'charge'] });

      test('an expired reservation stays counted until a late commit', async () => {
        const fields = { identifier: 'a', ...WINDOW, cost: 40, ttl: 1_000 };
        const { reservationId } = await charging.ok('ratelimits.reserve', fields);
        await charging.stepClock(1_500);
        const look = { identifier: 'a', ...WINDOW, cost: 0 };
        expect(await charging.check(look)).toMatchObject({ remaining: 60 });
        const committed = await charging.ok('ratelimits.commit', { reservationId, cost: 15 });
        expect(committed).toEqual({ success: true, charged: 15, released: 25, late: true });
        expect(await charging.check(look)).toMatchObject({ remaining: 85 });
      });
    });

    describeOnce(mode, 'after', () => {
      const restarted = useServer();
      const stops: [string, () => Promise<void>][] = [
        ['a restart', restarted.expectStop],
        [
          'kill -9, if they were in a checkpoint,',
          async () => {
            await waitForCheckpoint(restarted.adminUrl);
            restarted.child.kill('SIGKILL');
            await restarted.exited;
          },
        ],
      ];

      test.each(stops)('%s holds are as before', async (identifier, stop) => {
        const fields = { identifier, ...WINDOW, ttl: TTL_MS };
        const reserve = () => {
          return restarted.ok<Reserved>('ratelimits.reserve', { ...fields, cost: 40 });
        };
        const acquire = () => {
          return restarted.ok<Acquired>('ratelimits.acquire', { ...fields, limit: 1 });
        };
        const [live, ended] = [await reserve(), await reserve()];
        const commit = (reservation: Reserved, cost: number) => {
          const { reservationId } = reservation;
          return restarted.ok('ratelimits.commit', { reservationId, cost });
        };
        const committed = await commit(ended, 30);
        const { leaseId } = await acquire();
        await stop();
        await restarted.start();
        expect(await commit(ended, 1)).toEqual(committed);
        expect(await commit(live, 15)).toMatchObject({ charged: 15, released: 25, late: false });
        expect(await restarted.check({ ...fields, cost: 0 })).toMatchObject({ remaining: 55 });
        expect(await acquire()).toMatchObject({ success: false, inUse: 1 });
        const renewal = { leaseId, ttl: TTL_MS };
        expect(await restarted.ok('ratelimits.renew', renewal)).toMatchObject({ success: true });
        expect(await restarted.ok('ratelimits.release', { leaseId })).toEqual({ released: 1 });
      });
    });

    describeOnce(mode, 'a hold', () => {
      const unknownReservation = (id: string) => [404, expect.stringContaining(`"${id}"`)];
      const everywhere = 'ratelimit.*.limit';

      test('is unknown to a key without the permission in its namespace', async () => {
        const [identifier, namespace] = [fresh(), 'hidden'];
        const other = { namespaceName: 'other', identifier, limit: 1, duration };
        await server.ok('ratelimits.setOverride', other);
        const { reservationId } = await reserve(identifier, 40, { namespace });
        const { leaseId } = await acquire(identifier, { namespace });
        const [ours, theirs] = [
          await server.namespaceId(namespace),
          await server.namespaceId('other'),
        ];
        const keys = [
          await createKey(`ratelimit.${theirs}.limit`),
          await createKey('ratelimit.*.refund', `ratelimit.${ours}.read_namespace`),
        ];
        for (const key of keys) {
          const cases: [Operation, Fields][] = [
            ['ratelimits.commit', { reservationId, cost: 1 }],
            ['ratelimits.cancel', { reservationId }],
            ['ratelimits.release', { leaseId }],
          ];
          for (const [operation, fields] of cases) {
            const id = fields.leaseId ?? fields.reservationId;
            const error = await server.errorOf(operation, fields, key);
            expect([operation, error]).toEqual([operation, unknownReservation(id as string)]);
            // An id that was never given out gets the same words.
            const no = 'leaseId' in fields ? NO_LEASE_ID : NO_RESERVATION_ID;
            const absent = { ...fields, ['leaseId' in fields ? 'leaseId' : 'reservationId']: no };
            const [, message] = await server.errorOf(operation, absent, key);
            expect(error[1].replace(id as string, no)).toBe(message);
          }
          const renewed = await server.ok('ratelimits.renew', { leaseId, ttl: TTL_MS }, key);
          expect(renewed).toEqual({ success: false, inUse: null, limit: null, expiresAt: null });
        }
        expect(await remaining(identifier, { namespace })).toBe(60);
        expect(await acquire(identifier, { namespace })).toMatchObject({ inUse: 2 });
        // Any key that may limit there can end it.
        const key = await createKey(`ratelimit.${ours}.limit`);
        const committed = await server.ok('ratelimits.commit', { reservationId, cost: 1 }, key);
        expect(committed).toMatchObject({ charged: 1, released: 39 });
        const released = await server.ok('ratelimits.release', { leaseId }, key);
        expect(released).toEqual({ released: 1 });
      });

      test('of a deleted namespace is unknown', async () => {
        const [identifier, namespace] = [fresh(), 'deleted'];
        const { reservationId } = await reserve(identifier, 40, { namespace });
        const { leaseId } = await acquire(identifier, { namespace });
        await server.namespaceId(namespace);
        await server.ok('ratelimits.deleteNamespace', { namespaceName: namespace });
        const key = await createKey(everywhere);
        const error = await server.errorOf('ratelimits.cancel', { reservationId }, key);
        expect(error).toEqual(unknownReservation(reservationId));
        expect(await renew(leaseId)).toMatchObject({ success: false });
        // The next namespace of the name has none of its leases.
        expect(await acquire(identifier, { namespace })).toMatchObject({ inUse: 1 });
      });

      test('is not found by an id of the other kind, or by any other text', async () => {
        const { reservationId } = await reserve(fresh(), 40);
        const { leaseId } = await acquire(fresh());
        const texts = [leaseId, `${reservationId}A`, reservationId.toLowerCase(), 'x', '💧'];
        for (const id of texts) {
          const error = await server.errorOf('ratelimits.cancel', { reservationId: id });
          expect(error).toEqual(unknownReservation(id));
        }
        for (const id of [reservationId, NO_LEASE_ID]) {
          const error = await server.errorOf('ratelimits.release', { leaseId: id });
          expect(error).toEqual(unknownReservation(id));
          expect(await renew(id)).toMatchObject({ success: false });
        }
      });

      test('is made only by a key that may create its namespace', async () => {
        const key = await createKey(everywhere);
        for (const operation of ['ratelimits.reserve', 'ratelimits.acquire'] as const) {
          const fields = { ...REQUESTS[operation], namespace: 'not created' };
          const [status, message] = await server.errorOf(operation, fields, key);
          expect([status, message]).toEqual([404, expect.stringContaining('"not created"')]);
        }
        const names = (await server.namespaces()).map(({ name }) => name);
        expect(names).not.toContain('not created');
      });

      test('creates its namespace also without a cost, because its commit may count', async () => {
        const identifier = fresh();
        const { reservationId } = await reserve(identifier, 0, { namespace: 'without cost' });
        await commit(reservationId, 5);
        const check = { namespace: 'list without cost', identifier, ...WINDOW, cost: 0 };
        await server.ok('ratelimits.reserve', { checks: [check], ttl: TTL_MS });
        await waitUntil('the namespaces are registered', async () => {
          const names = (await server.namespaces()).map(({ name }) => name);
          return names.includes('without cost') && names.includes('list without cost');
        });
      });
    });

    describeOnce(mode, 'an error', () => {
      const id = NO_RESERVATION_ID;
      test.each<[Operation, Fields, string]>([
        ['ratelimits.reserve', { cost: undefined }, '"cost" is required: an integer from 0'],
        ['ratelimits.reserve', { cost: -1 }, '"cost" must be an integer from 0'],
        ['ratelimits.reserve', { ttl: undefined }, '"ttl" is required: an integer number of'],
        ['ratelimits.reserve', { ttl: 999 }, 'milliseconds from 1000 to 86400000; got 999'],
        ['ratelimits.reserve', { ttl: 86_400_001 }, '"ttl" must be'],
        ['ratelimits.reserve', { limit: 0 }, '"limit" must be an integer from 1'],
        ['ratelimits.reserve', { duration: 999 }, '"duration" must be'],
        ['ratelimits.reserve', { burst: 5 }, '"burst" must be left out unless'],
        ['ratelimits.reserve', { namespace: '' }, '"namespace" must be'],
        [
          'ratelimits.reserve',
          {
            ...{ identifier: undefined, limit: undefined, duration: undefined, cost: undefined },
            checks: [{ identifier: 'a', ...WINDOW, cost: 1, requestId: 'a' }],
          },
          'checks[0]: "requestId" must not be in a check of a list',
        ],
        ['ratelimits.commit', { reservationId: '' }, '"reservationId" of a reserve, a text of 1'],
        ['ratelimits.commit', { reservationId: 'a'.repeat(65) }, '"reservationId" must be'],
        ['ratelimits.commit', { cost: 0.5 }, '"cost" must be an integer from 0'],
        ['ratelimits.cancel', { reservationId: 5 }, '"reservationId" must be'],
        ['ratelimits.cancel', { reservationId: undefined }, '"reservationId" is required'],
        ['ratelimits.acquire', { cost: 0 }, '"cost" must be an integer from 1'],
        ['ratelimits.acquire', { limit: undefined }, '"limit" is required'],
        ['ratelimits.acquire', { ttl: '1' }, '"ttl" must be'],
        ['ratelimits.renew', { ttl: 0 }, '"ttl" must be'],
        ['ratelimits.renew', { leaseId: null }, '"leaseId" must be the "leaseId" of an acquire'],
        ['ratelimits.release', { leaseId: undefined }, '"leaseId" is required'],
        ['ratelimits.endHold', { handle: '' }, '"handle" must be the "handle" of an inspection'],
        ['ratelimits.endHold', { handle: 'a'.repeat(65) }, '"handle" must be'],
      ])('of %s with %o names the field', async (operation, changes, message) => {
        const error = await server.errorOf(operation, { ...REQUESTS[operation], ...changes });
        expect(error).toEqual([400, expect.stringContaining(message)]);
        expect(error[1]).not.toContain(id);
      });
    });
  },
  ['in-place', 'worker'],
);
