/** The fields `algorithm` and `burst` of checks, in both versions and in batches, over HTTP. */

import { describe, expect, test } from 'vitest';
import { describeEngines, describeOnce } from '../../support/engine-modes.ts';
import { errorIn } from '../../support/http.ts';
import type { Fields } from '../../support/operations.ts';
import { waitUntil } from '../../support/server.ts';
import { useServer } from '../../support/test-server.ts';

/** The longest duration of v2: of 10 tokens, none comes back during a test. */
const MONTH_MS = 2_592_000_000;
const LIMIT = 10;

describeEngines('decided %s:', (mode) => {
  const server = useServer({ mode });

  let serial = 0;
  /** A check of a new identifier that both versions accept. */
  const newCheck = (changes: Fields = {}): Fields => {
    const identifier = `user_${serial++}`;
    return { namespace: 'rules', identifier, limit: LIMIT, duration: MONTH_MS, ...changes };
  };
  const gcra = (changes: Fields = {}) => newCheck({ algorithm: 'gcra', ...changes });
  const limitV1 = (fields: Fields) => server.check(fields);
  const limitV2 = async (fields: Fields) => {
    const { data } = await server.ok('ratelimit.limit', fields);
    return data as Awaited<ReturnType<typeof limitV1>>;
  };
  const multiLimit = async (checks: Fields[]) => {
    const { data } = await server.ok('ratelimit.multiLimit', checks);
    return data as { passed: boolean; limits: Fields[] };
  };

  describe.each([
    ['v1', limitV1],
    ['v2', limitV2],
  ] as const)('GCRA in %s', (_version, limit) => {
    test('lets the burst pass at once, and no more, and counts no denied cost', async () => {
      const fields = gcra({ burst: 3 });
      expect(await limit({ ...fields, cost: 4 })).toMatchObject({ success: false, remaining: 3 });
      for (const left of [2, 1, 0]) {
        expect(await limit(fields)).toMatchObject({ success: true, limit: LIMIT, remaining: left });
      }
      expect(await limit(fields)).toMatchObject({ success: false, limit: LIMIT, remaining: 0 });
    });

    test('has a burst of the whole limit unless the check gives one', async () => {
      const fields = gcra();
      expect(await limit({ ...fields, cost: LIMIT })).toMatchObject({ success: true });
      expect(await limit(fields)).toMatchObject({ success: false });
    });
  });

  test('the limit of an override lowers the burst, and never raises it', async () => {
    for (const [limit, burst, allowed] of [
      [2, 5, 2],
      [20, 5, 5],
      [12, undefined, 12],
      [0, 5, 0],
    ]) {
      const fields = gcra({ burst });
      const { namespace, identifier, duration } = fields;
      const override = { namespace, identifier, limit, duration };
      await server.ok('ratelimit.setOverride', override);
      for (const check of [limitV1, limitV2]) {
        const answer = { success: allowed! > 0, limit, remaining: 0 };
        expect(await check({ ...fields, cost: allowed! + 1 })).toMatchObject({ success: false });
        if (allowed! > 0) expect(await check({ ...fields, cost: allowed })).toMatchObject(answer);
        else expect(await check(fields)).toMatchObject(answer);
        await server.ok('ratelimits.reset', { namespace, identifier });
      }
    }
  });

  test('an identifier has one GCRA counter of a duration in both versions and in batches', async () => {
    const fields = gcra({ burst: 6 });
    expect(await limitV1(fields)).toMatchObject({ remaining: 5 });
    expect(await limitV2(fields)).toMatchObject({ remaining: 4 });
    expect((await multiLimit([fields])).limits).toMatchObject([{ remaining: 3 }]);
  });

  test('an asynchronous check by GCRA is deducted after its answer', async () => {
    const fields = gcra({ burst: 5 });
    expect(await limitV1({ ...fields, async: true })).toMatchObject({ success: true });
    await waitUntil('it is deducted', async () => {
      return (await limitV1({ ...fields, cost: 0 })).remaining === 4;
    });
  });

  test('each version takes the other window, and has its own without one', async () => {
    // A denial tells them apart: a fixed window then says what is left, a sliding one 0.
    const remainingOf = async (limit: typeof limitV1, changes: Fields) => {
      const fields = newCheck({ limit: 3, cost: 2, ...changes });
      await limit(fields);
      const { success, remaining } = await limit(fields);
      expect(success).toBe(false);
      return remaining;
    };
    for (const [limit, standard] of [
      [limitV1, 1],
      [limitV2, 0],
    ] as const) {
      expect(await remainingOf(limit, {})).toBe(standard);
      expect(await remainingOf(limit, { algorithm: 'fixed' })).toBe(1);
      expect(await remainingOf(limit, { algorithm: 'sliding' })).toBe(0);
    }
  });

  describe('a batch', () => {
    test('with GCRA checks is all or nothing, also on one counter', async () => {
      const fields = gcra({ burst: 3, cost: 2 });
      const other = newCheck();
      const failed = await multiLimit([other, fields, fields]);
      expect(failed.passed).toBe(false);
      expect(failed.limits.map(({ passed }) => passed)).toEqual([true, true, false]);
      expect(failed.limits.map(({ remaining }) => remaining)).toEqual([LIMIT, 3, 1]);
      const again = () => multiLimit([other, fields, { ...fields, cost: 1 }]);
      let passed = await again();
      // With Redis the tokens of a failed batch may come back after its response.
      if (mode === 'redis') {
        await waitUntil('the batch passes', async () => {
          if (!passed.passed) passed = await again();
          return passed.passed;
        });
      }
      expect(passed.passed).toBe(true);
      expect(passed.limits.map(({ remaining }) => remaining)).toEqual([LIMIT - 1, 1, 0]);
    });

    test('has different counters for GCRA and a window of one identifier and duration', async () => {
      const fields = newCheck({ cost: 6 });
      const { passed, limits } = await multiLimit([fields, { ...fields, algorithm: 'gcra' }]);
      expect([passed, limits.map(({ remaining }) => remaining)]).toEqual([true, [4, 4]]);
    });
  });

  describeOnce(mode, 'an invalid field is a 400 that says what is accepted:', () => {
    const algorithms = '"algorithm" must be fixed, sliding or gcra; got';
    const onlyGcra = '"burst" must be left out unless "algorithm" is "gcra"; got 5';
    const bursts = '"burst" must be an integer from 1 to 9007199254740991; got';
    test.each<[Fields, string, string]>([
      [{ algorithm: 'token' }, 'algorithm', `${algorithms} "token"`],
      [{ algorithm: 'GCRA' }, 'algorithm', `${algorithms} "GCRA"`],
      [{ algorithm: null }, 'algorithm', `${algorithms} null`],
      [{ burst: 5 }, 'burst', `${onlyGcra} without an algorithm`],
      [{ algorithm: 'sliding', burst: 5 }, 'burst', `${onlyGcra} with "sliding"`],
      [
        { algorithm: 'gcra', burst: 11 },
        'burst',
        '"burst" must be an integer from 1 to the limit, which is 10; got 11',
      ],
      [{ algorithm: 'gcra', burst: 0 }, 'burst', `${bursts} 0`],
      [{ algorithm: 'gcra', burst: '5' }, 'burst', `${bursts} "5"`],
    ])('%j', async (changes, field, message) => {
      const valid = gcra();
      const invalid = { ...newCheck(), identifier: valid.identifier, ...changes };
      const v1 = await server.call('ratelimits.limit', invalid);
      expect([v1.status, errorIn(v1)]).toMatchObject([400, { code: 'BAD_REQUEST', message }]);
      const v2 = await server.call('ratelimit.limit', invalid);
      expect([v2.status, errorIn(v2)]).toMatchObject([
        400,
        { detail: message, errors: [{ location: `body.${field}`, message }] },
      ]);
      const batch = await server.call('ratelimit.multiLimit', [valid, invalid]);
      expect([batch.status, errorIn(batch)]).toMatchObject([
        400,
        { detail: `[1]: ${message}`, errors: [{ location: `body[1].${field}` }] },
      ]);
      expect((await limitV1({ ...valid, cost: 0 })).remaining).toBe(LIMIT);
    });
  });
});
