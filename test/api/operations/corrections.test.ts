/** Refund, reset and inspect over HTTP. test/engine/engine.test.ts has their results. */

import { describe, expect, test } from 'vitest';
import { AMOUNT_MAX } from '../../../src/core/constants.ts';
import { useDataDirectory } from '../../support/data-directory.ts';
import { describeEngines, describeOnce, testInMemory } from '../../support/engine-modes.ts';
import {
  errorIn,
  exchange,
  LONGEST_WINDOW_MS,
  readMetrics,
  requestBytes,
} from '../../support/http.ts';
import type { Fields } from '../../support/operations.ts';
import { useServer } from '../../support/test-server.ts';
import { startWithoutWorkerRestart } from '../../support/worker-faults.ts';

describeEngines('decided %s:', (mode) => {
  const server = useServer({ mode, args: ['--acceptors', '2'] });

  let serial = 0;
  const fresh = () => `user_${serial++}`;
  const use = (identifier: string, cost: number, changes: object = {}) => {
    const body = { identifier, limit: 10, duration: LONGEST_WINDOW_MS };
    return server.check({ ...body, cost, ...changes });
  };
  const remaining = async (identifier: string, changes: object = {}) => {
    return (await use(identifier, 0, changes)).remaining;
  };
  const refund = (fields: Fields) => {
    return server.ok('ratelimits.refund', { duration: LONGEST_WINDOW_MS, ...fields });
  };
  const reset = (fields: Fields) => server.ok('ratelimits.reset', fields);
  const inspect = (fields: Fields) => server.ok('ratelimits.inspect', fields);
  /** Creates its namespace too, which every acceptor knows when this resolves. */
  const setOverride = (namespaceName: string, identifier: string, changes: Fields = {}) => {
    const fields = { namespaceName, identifier, limit: 5, duration: LONGEST_WINDOW_MS - 1 };
    return server.ok('ratelimits.setOverride', { ...fields, ...changes });
  };

  describe('a refund', () => {
    test('returns tokens to the window of its check, and they can be used again', async () => {
      const identifier = fresh();
      const before = await readMetrics(server.adminUrl);
      const { reset } = await use(identifier, 10);
      expect(await use(identifier, 1)).toMatchObject({ success: false });
      expect(await refund({ identifier, reset, cost: 4 })).toEqual({ refunded: 4 });
      expect(await use(identifier, 4)).toMatchObject({ success: true, remaining: 0 });
      expect(await refund({ identifier, reset, cost: AMOUNT_MAX })).toEqual({ refunded: 10 });
      const after = await readMetrics(server.adminUrl);
      const grown = (name: string) => after.get(name)! - before.get(name)!;
      expect(grown('weir_refunds_total')).toBe(2);
      expect(grown('weir_refunded_tokens_total')).toBe(14);
    });

    test('returns 0 for a cost of 0, for another window and without a counter', async () => {
      const identifier = fresh();
      const { reset } = await use(identifier, 3);
      for (const changes of [
        { cost: 0 },
        { reset: reset + LONGEST_WINDOW_MS },
        { identifier: fresh() },
        { namespace: 'never used' },
      ]) {
        expect(await refund({ identifier, reset, cost: 1, ...changes })).toEqual({ refunded: 0 });
      }
      expect(await remaining(identifier)).toBe(7);
      const names = (await server.namespaces()).map(({ name }) => name);
      expect(names).not.toContain('never used');
    });

    test('finds the counter of a check whose window an override changed', async () => {
      const [identifier, namespace] = [fresh(), 'refunds'];
      await setOverride(namespace, identifier);
      const { reset } = await use(identifier, 5, { namespace });
      expect(await refund({ namespace, identifier, reset, cost: 2 })).toEqual({ refunded: 2 });
      const gcra = { namespace, algorithm: 'gcra', burst: 5 };
      await use(identifier, 4, gcra);
      const ofGcra = { namespace, identifier, algorithm: 'gcra', cost: 3 };
      expect(await refund(ofGcra)).toEqual({ refunded: 3 });
      expect(await remaining(identifier, gcra)).toBe(4);
      const override = { namespaceName: namespace, identifier };
      await server.ok('ratelimits.deleteOverride', override);
      // Also by its id.
      const byId = { namespace: await server.namespaceId(namespace), identifier };
      const fields = { ...byId, reset, cost: 1, duration: LONGEST_WINDOW_MS - 1 };
      expect(await refund(fields)).toEqual({ refunded: 1 });
    });

    test('of a GCRA check needs no window, and gives back at most what is used', async () => {
      const identifier = fresh();
      const gcra = { algorithm: 'gcra', burst: 5 };
      const { reset: end } = await use(identifier, 3);
      await use(identifier, 5, gcra);
      expect(await refund({ identifier, algorithm: 'gcra', cost: 2 })).toEqual({ refunded: 2 });
      expect(await use(identifier, 2, gcra)).toMatchObject({ success: true, remaining: 0 });
      // A "reset" is accepted, and means nothing.
      const all = { identifier, algorithm: 'gcra', reset: end + 1, cost: AMOUNT_MAX };
      expect(await refund(all)).toEqual({ refunded: 5 });
      expect(await refund(all)).toEqual({ refunded: 0 });
      expect(await remaining(identifier, gcra)).toBe(5);
      // The counter of the windows is another one.
      expect(await refund({ identifier, algorithm: 'sliding', reset: end, cost: 9 })).toEqual({
        refunded: 3,
      });
    });
  });

  describe('a reset', () => {
    test('clears the counters of every duration and window rule, unless it names one', async () => {
      const identifier = fresh();
      const duration = LONGEST_WINDOW_MS;
      const counters = [duration, duration - 1].flatMap((duration) => {
        return ['fixed', 'gcra'].map((algorithm) => ({ duration, algorithm }));
      });
      const useAll = () => Promise.all(counters.map((counter) => use(identifier, 4, counter)));
      const leftOfAll = () => {
        return Promise.all(counters.map((counter) => remaining(identifier, counter)));
      };
      await useAll();
      expect(await leftOfAll()).toEqual([6, 6, 6, 6]);
      expect(await reset({ identifier, duration, algorithm: 'gcra' })).toEqual({ cleared: 1 });
      expect(await leftOfAll()).toEqual([6, 10, 6, 6]);
      // The fixed and the sliding window share counters.
      expect(await reset({ identifier, algorithm: 'sliding' })).toEqual({ cleared: 2 });
      expect(await leftOfAll()).toEqual([10, 10, 10, 6]);
      await useAll();
      expect(await reset({ identifier, duration })).toEqual({ cleared: 2 });
      expect(await leftOfAll()).toEqual([10, 10, 6, 2]);
      expect(await reset({ identifier })).toEqual({ cleared: 2 });
      expect(await leftOfAll()).toEqual([10, 10, 10, 10]);
    });

    test('removes the counter of a check with that duration, also if an override changes it', async () => {
      const [identifier, namespace] = [fresh(), 'resets'];
      await use(identifier, 3, { namespace });
      await setOverride(namespace, identifier);
      await use(identifier, 3, { namespace });
      const cleared = await reset({ namespace, identifier, duration: LONGEST_WINDOW_MS });
      expect(cleared).toEqual({ cleared: 2 });
      expect(await remaining(identifier, { namespace })).toBe(5);
    });
  });

  describe('an inspection', () => {
    test('shows all counters, or those of a duration or an algorithm', async () => {
      const [identifier, namespace] = [fresh(), 'inspected'];
      await setOverride(namespace, 'other');
      const { reset } = await use(identifier, 3, { namespace });
      const short = { namespace, duration: LONGEST_WINDOW_MS - 1, limit: 5 };
      const { reset: shortReset } = await use(identifier, 2, short);
      const { reset: fullAt } = await use(identifier, 4, { namespace, algorithm: 'gcra' });
      const usage = { used: 3, remaining: 7, reset };
      const terms = { duration: LONGEST_WINDOW_MS, limit: 10 };
      const long = {
        ...{ ...terms, windowStart: reset - LONGEST_WINDOW_MS },
        ...{ current: 3, previous: 0, algorithms: { fixed: usage, sliding: usage } },
      };
      const ofBucket = { used: 4, remaining: 6, reset: fullAt };
      const gcra = { ...terms, fullAt, algorithms: { gcra: ofBucket } };
      const shortUsage = { used: 2, remaining: 3, reset: shortReset };
      const all = await inspect({ namespace, identifier });
      const holds = { reserved: 0, inUse: 0, live: 0, list: [] };
      expect(all).toEqual({ namespace, identifier, counters: expect.any(Array), holds });
      expect(all.counters).toHaveLength(3);
      expect(all.counters).toMatchObject([
        { algorithms: { fixed: shortUsage, sliding: shortUsage } },
        ...[{}, {}],
      ]);
      expect(all.counters).toEqual(expect.arrayContaining([long, gcra]));
      const ofDuration = { namespace, identifier, duration: LONGEST_WINDOW_MS };
      expect((await inspect({ ...ofDuration, algorithm: 'fixed' })).counters).toEqual([long]);
      const ofGcra = await inspect({ namespace, identifier, algorithm: 'gcra' });
      expect(ofGcra.counters).toEqual([gcra]);
    });

    test('shows the counter of a check that an override gave another window', async () => {
      const [identifier, namespace] = [fresh(), 'inspects'];
      await use(identifier, 3, { namespace });
      await setOverride(namespace, identifier);
      await use(identifier, 2, { namespace });
      const duration = LONGEST_WINDOW_MS;
      const { counters } = await inspect({ namespace, identifier, duration });
      expect(counters).toMatchObject([
        { duration: duration - 1, limit: 5, current: 2 },
        { duration, limit: 10, current: 3 },
      ]);
    });
  });

  test('all run after the deductions of earlier checks, of any acceptor', async () => {
    for (let i = 0; i < 60; i++) {
      const identifier = fresh();
      // Each request has a connection of its own, and so reaches any acceptor.
      const { reset: end } = await use(identifier, 6, { async: true });
      if (i % 3 === 0) {
        expect(await refund({ identifier, reset: end, cost: 6 })).toEqual({ refunded: 6 });
      } else if (i % 3 === 1) {
        expect(await reset({ identifier })).toEqual({ cleared: 1 });
      } else {
        expect((await inspect({ identifier })).counters).toMatchObject([{ current: 6 }]);
      }
      expect([i, await remaining(identifier)]).toEqual([i, i % 3 === 2 ? 4 : 10]);
    }
  });

  describeOnce(mode, 'an error', () => {
    const end = LONGEST_WINDOW_MS;
    const valid = { identifier: 'a', duration: end, reset: end, cost: 1 };
    const windowEnd = 'the "reset" in the response to the check';
    test.each<[Fields, string]>([
      [{ reset: end + 1 }, '"reset" must be'],
      [{ reset: 0 }, '"reset" must be'],
      [{ reset: undefined }, `"reset" is required unless "algorithm" is "gcra": ${windowEnd}`],
      [{ reset: undefined, algorithm: 'sliding' }, '"reset" is required unless'],
      [{ reset: 0, algorithm: 'gcra' }, '"reset" must be'],
      [{ cost: -1 }, '"cost" must be'],
      [{ cost: undefined }, '"cost" is required: an integer from 0'],
      [{ duration: 999 }, '"duration" must be an integer number of milliseconds from 1000'],
      [{ duration: undefined }, '"duration" is required: an integer number of milliseconds'],
      [{ namespace: '' }, '"namespace" must be'],
    ])('of a refund names the invalid field: %j', async (changes, message) => {
      const error = await server.errorOf('ratelimits.refund', { ...valid, ...changes });
      expect(error).toEqual([400, expect.stringContaining(message)]);
    });

    test.each(['refund', 'reset', 'inspect'] as const)('of %s: the algorithm', async (name) => {
      const error = await server.errorOf(`ratelimits.${name}`, { ...valid, algorithm: 'all' });
      expect(error).toEqual([400, '"algorithm" must be fixed, sliding or gcra; got "all"']);
    });
  });

  // With Redis each of them waits, and a connection with a request behind it is closed.
  testInMemory('refund and reset may be pipelined where the queues are empty', async () => {
    const identifier = fresh();
    const { reset: end } = await use(identifier, 5);
    const bytes = (path: string, fields: object) => {
      return requestBytes({ path: `/v1/ratelimits.${path}`, body: JSON.stringify(fields) });
    };
    const about = { identifier, duration: LONGEST_WINDOW_MS };
    const refunding = bytes('refund', { ...about, reset: end, cost: 1 });
    const packet = Buffer.concat([refunding, bytes('reset', about), bytes('reset', about)]);
    const answers = await exchange(server.port, [packet], 3);
    const bodies = answers.map((answer) => JSON.parse(answer.body));
    expect(bodies).toEqual([{ refunded: 1 }, { cleared: 1 }, { cleared: 0 }]);
  });
});

describe('a correction behind a deduction that no worker makes', () => {
  const own = useDataDirectory([]);

  testInMemory('is a 503', async () => {
    const server = own.adopt(await startWithoutWorkerRestart(own.dataDir, ['--counters', '1024']));
    const body = { identifier: 'a', limit: 10, duration: LONGEST_WINDOW_MS };
    const { reset } = await server.check({ ...body, cost: 4 });
    await server.check({ ...body, cost: 3, async: true });
    const granted = { name: 'to revoke', permissions: ['ratelimit.*.reset'] };
    const { keyId, key } = await server.ok('keys.create', granted);
    const waiting = [
      server.call('ratelimits.refund', { ...body, reset, cost: 4 }),
      server.call('ratelimits.reset', { identifier: 'a' }),
      server.call('ratelimits.inspect', { identifier: 'a' }),
    ];
    const revoked = server.call('ratelimits.reset', { identifier: 'a' }, String(key));
    // A later request of the same loop, so the correction waits by then.
    await server.check({ ...body, cost: 0 });
    await server.ok('keys.revoke', { keyId });
    expect(errorIn(await revoked)).toMatchObject({ code: 'UNAUTHORIZED' });
    for (const answer of await Promise.all(waiting)) {
      expect([answer.status, answer.headers['retry-after']]).toEqual([503, '1']);
      expect(errorIn(answer).message).toContain('nothing was changed');
    }
    expect(await server.check({ ...body, cost: 0 })).toMatchObject({ remaining: 6 });
  });
});
