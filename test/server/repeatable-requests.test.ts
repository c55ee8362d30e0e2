/** Requests with a `requestId`, over HTTP. */

import { existsSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { describeEngines, describeOnce, testInMemory } from '../support/engine-modes.ts';
import { LONGEST_WINDOW_MS } from '../support/http.ts';
import type { Fields, Operation } from '../support/operations.ts';
import { waitUntil } from '../support/server.ts';
import { useServer } from '../support/test-server.ts';

const WINDOW = { limit: 10, duration: LONGEST_WINDOW_MS };
const HOLD = { ttl: 60_000 };
/** The fields of a request of each operation, and a change of each of its parameters. */
const REQUESTS: [operation: Operation, request: Fields, changes: Fields[]][] = [
  [
    'ratelimits.limit',
    { ...WINDOW, cost: 2 },
    [{ limit: 11 }, { duration: 60_000 }, { cost: 1 }, { algorithm: 'gcra' }],
  ],
  [
    'ratelimits.reserve',
    { ...WINDOW, ...HOLD, cost: 2 },
    [{ limit: 11 }, { duration: 60_000 }, { cost: 1 }, { algorithm: 'sliding' }, { ttl: 60_001 }],
  ],
  [
    'ratelimits.acquire',
    { limit: 10, ...HOLD, cost: 2 },
    [{ limit: 11 }, { cost: 1 }, { ttl: 60_001 }],
  ],
];

describeEngines(
  'decided %s:',
  (mode) => {
    const server = useServer({ mode, args: ['--acceptors', '2'] });

    let serial = 0;
    const fresh = () => `fresh_${serial++}`;
    /** What the operation has counted for an identifier. */
    const used = async (operation: Operation, identifier: string, namespace = 'default') => {
      const own = { identifier, namespace };
      if (operation !== 'ratelimits.acquire') {
        return 10 - (await server.check({ ...own, ...WINDOW, cost: 0 })).remaining;
      }
      // A denied one, which shows what is in use.
      const fields = { ...own, limit: 1, cost: 2, ...HOLD };
      return (await server.ok<{ inUse: number }>('ratelimits.acquire', fields)).inUse;
    };
    const createKey = async () => {
      const fields = { name: 'k', permissions: ['ratelimit.*.limit'] };
      return (await server.ok<{ key: string }>('keys.create', fields)).key;
    };

    test.each(REQUESTS)(
      'a repetition of %s gets the same bytes, and counts nothing',
      async (operation, request) => {
        const body = { identifier: fresh(), ...request, requestId: fresh() };
        const before = await server.metric('weir_repeated_requests_total');
        const first = await server.call(operation, body);
        expect([first.status, JSON.parse(first.body).success]).toEqual([200, true]);
        // Others change the counter meanwhile.
        await server.ok(operation, { ...body, requestId: fresh() });
        for (let repetition = 0; repetition < 4; repetition++) {
          const again = await server.call(operation, body);
          expect([again.status, again.body]).toEqual([200, first.body]);
        }
        expect(await used(operation, body.identifier)).toBe(4);
        expect(await server.metric('weir_repeated_requests_total')).toBe(before + 4);
      },
    );

    test.each(REQUESTS)(
      'repetitions of %s at the same time, on both acceptors, count once',
      async (operation, request) => {
        for (let round = 0; round < 5; round++) {
          const body = { identifier: fresh(), ...request, requestId: 'at once' };
          // Each has a connection of its own.
          const calls = Array.from({ length: 20 }, () => server.call(operation, body));
          const answers = await Promise.all(calls);
          expect(new Set(answers.map((answer) => answer.body)).size).toBe(1);
          expect(await used(operation, body.identifier)).toBe(2);
        }
      },
    );

    test.each(REQUESTS)(
      '%s with another key, namespace, identifier or requestId is another request',
      async (operation, request) => {
        const [identifier, requestId] = [fresh(), 'shared'];
        const body = { identifier, ...request, requestId };
        await server.ok(operation, body);
        await server.ok(operation, body, await createKey());
        await server.ok(operation, { ...body, requestId: 'another' });
        expect(await used(operation, identifier)).toBe(6);
        await server.ok(operation, { ...body, namespace: 'another' });
        expect(await used(operation, identifier, 'another')).toBe(2);
        const other = fresh();
        await server.ok(operation, { ...body, identifier: other });
        expect(await used(operation, other)).toBe(2);
      },
    );

    test.each(REQUESTS)(
      '%s with the same requestId and another parameter is a conflict',
      async (operation, request, changes) => {
        const body = { identifier: fresh(), ...request, requestId: 'chosen' };
        const first = await server.call(operation, body);
        for (const change of changes) {
          const [status, message] = await server.errorOf(operation, { ...body, ...change });
          expect([change, status]).toEqual([change, 409]);
          expect(message).toContain(Object.keys(change)[0]);
          expect(message).toContain('got "chosen", which was allowed with other values');
        }
        expect(await used(operation, body.identifier)).toBe(2);
        // Defaults, and fields that weir does not use, are no difference.
        const same = { ...body, algorithm: 'fixed', namespace: 'default', other: 1 };
        expect((await server.call(operation, same)).body).toBe(first.body);
      },
    );

    test.each(REQUESTS)(
      'a denial of %s is decided anew, also with other parameters',
      async (operation, request) => {
        const body = { identifier: fresh(), ...request, cost: 11, requestId: 'denied' };
        for (let repetition = 0; repetition < 3; repetition++) {
          expect(await server.ok(operation, body)).toMatchObject({ success: false });
        }
        const lower = { ...body, cost: 3 };
        expect(await server.ok(operation, lower)).toMatchObject({ success: true });
        expect((await server.errorOf(operation, body))[0]).toBe(409);
        expect(await used(operation, body.identifier)).toBe(3);
      },
    );

    test.each(REQUESTS)(
      '%s with an invalid requestId is a 400, and counts nothing',
      async (operation, request) => {
        const identifier = fresh();
        for (const [requestId, got] of [
          ['', '""'],
          ['x'.repeat(65), 'a text of 65 characters'],
          [7, '7'],
          [null, 'null'],
        ]) {
          const [status, message] = await server.errorOf(operation, {
            identifier,
            ...request,
            requestId,
          });
          expect(status).toBe(400);
          expect(message).toContain(`"requestId" must be a text of 1 to 64 characters; got ${got}`);
        }
        expect(await used(operation, identifier)).toBe(0);
        await server.ok(operation, { identifier, ...request, requestId: '\u{1f511}'.repeat(64) });
        expect(await used(operation, identifier)).toBe(2);
      },
    );

    test('the operations do not share a requestId', async () => {
      const body = { identifier: fresh(), ...WINDOW, ...HOLD, cost: 2, requestId: 'same' };
      for (const [operation] of REQUESTS) {
        expect(await server.ok(operation, body)).toMatchObject({ success: true });
      }
      expect(await used('ratelimits.limit', body.identifier)).toBe(4);
    });

    test('an asynchronous check with a requestId is decided at once', async () => {
      const body = { identifier: fresh(), ...WINDOW, cost: 2, async: true, requestId: 'now' };
      expect(await server.ok('ratelimits.limit', body)).toMatchObject({ remaining: 8 });
      expect(await server.ok('ratelimits.limit', { ...body, async: false })).toMatchObject({
        remaining: 8,
      });
      expect(await used('ratelimits.limit', body.identifier)).toBe(2);
    });

    test('a repetition gets the limit of its override, also after the deletion', async () => {
      const [identifier, namespaceName] = [fresh(), 'overridden'];
      const override = { namespaceName, identifier };
      await server.ok('ratelimits.setOverride', { ...override, ...WINDOW, limit: 5 });
      const before = await server.metric('weir_overridden_checks_total');
      const own = { namespace: namespaceName, identifier, ...WINDOW, cost: 2, requestId: 'own' };
      const calls = () => {
        const holding = { ...own, ...HOLD };
        return [server.call('ratelimits.limit', own), server.call('ratelimits.reserve', holding)];
      };
      const [checked, reserved] = await Promise.all(calls());
      expect(JSON.parse(checked.body).limit).toBe(5);
      expect(JSON.parse(reserved.body).limit).toBe(5);
      await Promise.all(calls());
      expect(await server.metric('weir_overridden_checks_total')).toBe(before + 2);
      await server.ok('ratelimits.deleteOverride', override);
      const [again, reservedAgain] = await Promise.all(calls());
      expect([again.body, reservedAgain.body]).toEqual([checked.body, reserved.body]);
    });

    test('a repetition is no decision of its namespace', async () => {
      const namespace = 'decided';
      const own = { namespace, identifier: 'a', ...WINDOW, cost: 4, requestId: 'own' };
      // Every acceptor then counts in the row of the namespace.
      const other = { namespaceName: namespace, identifier: 'other', ...WINDOW };
      await server.ok('ratelimits.setOverride', other);
      const metric = (name: string) => server.metric(name);
      const decisions = (outcome: string) => {
        return metric(`weir_decisions_total{namespace="${namespace}",outcome="${outcome}"}`);
      };
      const durations = await metric('weir_check_duration_seconds_count');
      const reservations = await metric('weir_reservations_total');
      for (let repetition = 0; repetition < 3; repetition++) {
        await server.ok('ratelimits.limit', own);
        await server.ok('ratelimits.reserve', { ...own, ...HOLD });
      }
      expect([await decisions('allowed'), await decisions('denied')]).toEqual([2, 0]);
      expect(await metric('weir_check_duration_seconds_count')).toBe(durations + 2);
      expect(await metric('weir_reservations_total')).toBe(reservations + 1);
      await server.ok('ratelimits.limit', { ...own, cost: 3, requestId: 'denied' });
      await server.ok('ratelimits.limit', { ...own, cost: 3, requestId: 'denied' });
      expect(await decisions('denied')).toBe(2);
    });

    testInMemory('an answer is forgotten after 60 s', async () => {
      const body = { identifier: fresh(), ...WINDOW, cost: 2, requestId: 'old' };
      await server.ok('ratelimits.limit', body);
      await server.stepClock(50_000);
      expect(await server.ok('ratelimits.limit', body)).toMatchObject({ remaining: 8 });
      await server.stepClock(11_000);
      expect(await server.ok('ratelimits.limit', body)).toMatchObject({ remaining: 6 });
      expect(await server.ok('ratelimits.limit', body)).toMatchObject({ remaining: 6 });
    });

    describeOnce(mode, 'with events', () => {
      const withEvents = useServer({ args: ['--events', 'all'] });

      test('a repetition is none', async () => {
        const own = { identifier: 'a', ...WINDOW, ...HOLD, cost: 2, requestId: 'own' };
        for (let repetition = 0; repetition < 3; repetition++) {
          await withEvents.ok('ratelimits.limit', own);
          await withEvents.ok('ratelimits.reserve', own);
        }
        await withEvents.ok('ratelimits.limit', { identifier: 'last', ...WINDOW });
        const path = join(withEvents.dataDir, 'events.jsonl');
        const events = () => {
          const lines = existsSync(path) ? readFileSync(path, 'utf8').split('\n') : [];
          return lines.filter((line) => line !== '').map((line) => JSON.parse(line));
        };
        await waitUntil('all events are written', () => {
          return events().some(({ identifier }) => identifier === 'last');
        });
        const event = (remaining: number) =>
          expect.objectContaining({ identifier: 'a', remaining });
        expect(events()).toEqual([event(8), event(6), expect.anything()]);
      });
    });
  },
  ['in-place', 'worker'],
);
