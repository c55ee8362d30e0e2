/** Refund, reset and inspect: the results, and the order after queued deductions. */

import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { AMOUNT_MAX } from '../../src/core/constants.ts';
import {
  describeEngines,
  describeOnce,
  startEngineServer,
  testInMemory,
} from '../support/engine-modes.ts';
import {
  errorIn,
  exchange,
  LONGEST_WINDOW_MS,
  readMetrics,
  requestBytes,
  sendCheck,
  sendRequest,
} from '../support/http.ts';
import { callOperation, callOperationOk, errorOf, type Fields } from '../support/operations.ts';
import { removeDirectory, type SteppedServer, temporaryDirectory } from '../support/server.ts';
import { addKey, withStore } from '../support/store.ts';
import { startWithoutWorkerRestart } from '../support/worker-faults.ts';

/** The longest window of v2; it ends every 30 days. */
const MONTH_MS = 2_592_000_000;

describeEngines('decided %s:', (mode) => {
  const dataDir = temporaryDirectory();
  let server: SteppedServer;
  let limitOnly = '';
  beforeAll(async () => {
    withStore(dataDir, (store) => {
      limitOnly = addKey(store, { permissions: ['ratelimit.*.limit'] });
    });
    const args = ['--acceptors', '2', '--workers', '1', '--counters', '1024'];
    server = await startEngineServer(mode, dataDir, { args });
  });
  afterAll(async () => {
    expect(await server.stop()).toEqual({ code: 0, signal: null });
    removeDirectory(dataDir);
  });

  let serial = 0;
  const fresh = () => `user_${serial++}`;
  const body = (identifier: string) => ({ identifier, limit: 10, duration: LONGEST_WINDOW_MS });
  const remaining = async (identifier: string, changes: object = {}) => {
    return (await sendCheck(server.port, { ...body(identifier), cost: 0, ...changes })).remaining;
  };
  const use = (identifier: string, cost: number, changes: object = {}) => {
    return sendCheck(server.port, { ...body(identifier), cost, ...changes });
  };
  const refund = (fields: Fields) => {
    return callOperationOk(server.port, 'ratelimits.refund', {
      duration: LONGEST_WINDOW_MS,
      ...fields,
    });
  };
  const reset = (fields: Fields) => callOperationOk(server.port, 'ratelimits.reset', fields);
  const inspect = (fields: Fields) => callOperationOk(server.port, 'ratelimits.inspect', fields);
  const names = async () => {
    const { namespaces } = await callOperationOk(server.port, 'ratelimits.listNamespaces');
    return (namespaces as Fields[]).map(({ name }) => name);
  };
  /** Creates its namespace too, which every acceptor knows when this resolves. */
  const setOverride = (namespaceName: string, identifier: string, changes: Fields = {}) => {
    const fields = { namespaceName, identifier, limit: 5, duration: LONGEST_WINDOW_MS - 1 };
    return callOperationOk(server.port, 'ratelimits.setOverride', { ...fields, ...changes });
  };

  describe('a refund', () => {
    test('returns tokens to the window of its check, and they can be used again', async () => {
      const identifier = fresh();
      const { reset } = await use(identifier, 10);
      expect(await use(identifier, 1)).toMatchObject({ success: false });
      expect(await refund({ identifier, reset, cost: 4 })).toEqual({ refunded: 4 });
      expect(await remaining(identifier)).toBe(4);
      expect(await use(identifier, 4)).toMatchObject({ success: true, remaining: 0 });
    });

    test('returns no more tokens than were used, however often it is repeated', async () => {
      const identifier = fresh();
      const { reset } = await use(identifier, 3);
      expect(await refund({ identifier, reset, cost: AMOUNT_MAX })).toEqual({ refunded: 3 });
      expect(await refund({ identifier, reset, cost: 1 })).toEqual({ refunded: 0 });
      expect(await remaining(identifier)).toBe(10);
    });

    test('returns 0 for a cost of 0, or without a counter', async () => {
      const identifier = fresh();
      const { reset } = await use(identifier, 3);
      expect(await refund({ identifier, reset, cost: 0 })).toEqual({ refunded: 0 });
      expect(await refund({ identifier: fresh(), reset, cost: 1 })).toEqual({ refunded: 0 });
      const elsewhere = { identifier, namespace: 'never used', reset, cost: 1 };
      expect(await refund(elsewhere)).toEqual({ refunded: 0 });
      expect(await remaining(identifier)).toBe(7);
      expect(await names()).not.toContain('never used');
    });

    testInMemory('returns 0 for a window that has ended or has not begun', async () => {
      const identifier = fresh();
      const hour = { duration: 3_600_000 };
      const { reset: end } = await use(identifier, 3, hour);
      await server.stepClock(end - server.nowMs() + 60_000);
      const { reset: next } = await use(identifier, 3, hour);
      expect(next).toBe(end + hour.duration);
      for (const reset of [end, next + hour.duration]) {
        expect(await refund({ ...hour, identifier, reset, cost: 1 })).toEqual({ refunded: 0 });
      }
      expect(await refund({ ...hour, identifier, reset: next, cost: 1 })).toEqual({
        refunded: 1,
      });
    });

    test('finds the counter of a check whose window an override changed', async () => {
      const identifier = fresh();
      const namespace = `refunds ${mode}`;
      await setOverride(namespace, identifier);
      const { reset } = await use(identifier, 5, { namespace });
      expect(await refund({ namespace, identifier, reset, cost: 2 })).toEqual({ refunded: 2 });
      expect(await remaining(identifier, { namespace })).toBe(2);
      await callOperationOk(server.port, 'ratelimits.deleteOverride', {
        namespaceName: namespace,
        identifier,
      });
      const fields = { namespace, identifier, reset, cost: 1, duration: LONGEST_WINDOW_MS - 1 };
      expect(await refund(fields)).toEqual({ refunded: 1 });
    });

    test('is visible in v2, and accepts the id of a namespace', async () => {
      const identifier = fresh();
      const namespace = `ids ${mode}`;
      await setOverride(namespace, 'other');
      const { reset } = await use(identifier, 6, { namespace, duration: MONTH_MS });
      const { namespaces } = await callOperationOk(server.port, 'ratelimits.listNamespaces');
      const { id } = (namespaces as Fields[]).find(({ name }) => name === namespace)!;
      const refunded = await refund({
        ...{ namespace: id, identifier, reset, cost: 2, duration: MONTH_MS },
      });
      expect(refunded).toEqual({ refunded: 2 });
      const v2 = { namespace: id, identifier, limit: 10, duration: MONTH_MS, cost: 0 };
      const { data } = await callOperationOk(server.port, 'ratelimit.limit', v2);
      expect(data).toMatchObject({ remaining: 6 });
    });

    test('is counted in the metrics', async () => {
      const before = await readMetrics(server.adminUrl);
      const identifier = fresh();
      const { reset } = await use(identifier, 3);
      for (const cost of [2, 2]) await refund({ identifier, reset, cost });
      const after = await readMetrics(server.adminUrl);
      const grown = (name: string) => after.get(name)! - before.get(name)!;
      expect(grown('weir_refunds_total')).toBe(2);
      expect(grown('weir_refunded_tokens_total')).toBe(3);
    });

    test('of a GCRA check needs no window, and gives back at most what is used', async () => {
      const identifier = fresh();
      const gcra = { algorithm: 'gcra', burst: 5 };
      const { reset: end } = await use(identifier, 3);
      await use(identifier, 5, gcra);
      expect(await use(identifier, 1, gcra)).toMatchObject({ success: false });
      expect(await refund({ identifier, algorithm: 'gcra', cost: 2 })).toEqual({ refunded: 2 });
      expect(await use(identifier, 2, gcra)).toMatchObject({ success: true, remaining: 0 });
      // A "reset" is accepted, and means nothing.
      const all = { identifier, algorithm: 'gcra', reset: end + 1, cost: AMOUNT_MAX };
      expect(await refund(all)).toEqual({ refunded: 5 });
      expect(await refund(all)).toEqual({ refunded: 0 });
      expect(await remaining(identifier, gcra)).toBe(5);
      // The counter of the windows is another one.
      expect(await remaining(identifier)).toBe(7);
      expect(await refund({ identifier, algorithm: 'sliding', reset: end, cost: 9 })).toEqual({
        refunded: 3,
      });
    });

    test('of a GCRA check finds its counter by the duration of an override', async () => {
      const identifier = fresh();
      const namespace = `gcra refunds ${mode}`;
      const changes = { namespace, algorithm: 'gcra', burst: 5 };
      await setOverride(namespace, identifier, { limit: 8 });
      await use(identifier, 4, changes);
      const fields = { namespace, identifier, algorithm: 'gcra', cost: 3 };
      expect(await refund(fields)).toEqual({ refunded: 3 });
      expect(await remaining(identifier, changes)).toBe(4);
    });
  });

  describe('a reset', () => {
    test('removes the counters of one identifier, for all durations or for one', async () => {
      const [identifier, other] = [fresh(), fresh()];
      const durations = [LONGEST_WINDOW_MS, LONGEST_WINDOW_MS - 1, LONGEST_WINDOW_MS - 2];
      const useAll = async () => {
        for (const duration of durations) await use(identifier, 4, { duration });
      };
      const remainingOfAll = () => {
        return Promise.all(durations.map((duration) => remaining(identifier, { duration })));
      };
      await use(other, 4);
      await useAll();
      expect(await reset({ identifier, duration: LONGEST_WINDOW_MS - 1 })).toEqual({ cleared: 1 });
      expect(await remainingOfAll()).toEqual([6, 10, 6]);
      expect(await reset({ identifier })).toEqual({ cleared: 2 });
      expect(await remainingOfAll()).toEqual([10, 10, 10]);
      expect(await reset({ identifier })).toEqual({ cleared: 0 });
      expect(await remaining(other)).toBe(6);
      expect(await remaining(identifier, { namespace: 'elsewhere' })).toBe(10);
    });

    test('clears the counters of every window rule, unless it names one', async () => {
      const identifier = fresh();
      const durations = [LONGEST_WINDOW_MS, LONGEST_WINDOW_MS - 1];
      const rules = ['fixed', 'gcra'];
      const useAll = async () => {
        for (const duration of durations) {
          for (const algorithm of rules) await use(identifier, 4, { duration, algorithm });
        }
      };
      const leftOfAll = async () => {
        const found: number[] = [];
        for (const duration of durations) {
          for (const algorithm of rules)
            found.push(await remaining(identifier, { duration, algorithm }));
        }
        return found;
      };
      await useAll();
      expect(await leftOfAll()).toEqual([6, 6, 6, 6]);
      const [duration] = durations;
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
      const identifier = fresh();
      const namespace = `resets ${mode}`;
      await use(identifier, 3, { namespace });
      await setOverride(namespace, identifier);
      await use(identifier, 3, { namespace });
      const cleared = await reset({ namespace, identifier, duration: LONGEST_WINDOW_MS });
      expect(cleared).toEqual({ cleared: 2 });
      expect(await remaining(identifier, { namespace })).toBe(5);
    });

    test('allows a denied identifier again, in both versions', async () => {
      const identifier = fresh();
      const v2 = { namespace: 'default', identifier, limit: 2, duration: MONTH_MS };
      const isAllowed = async () => {
        return ((await callOperationOk(server.port, 'ratelimit.limit', v2)).data as Fields).success;
      };
      expect([await isAllowed(), await isAllowed(), await isAllowed()]).toEqual([
        true,
        true,
        false,
      ]);
      expect(await reset({ identifier, duration: MONTH_MS })).toEqual({ cleared: 1 });
      expect([await isAllowed(), await isAllowed(), await isAllowed()]).toEqual([
        true,
        true,
        false,
      ]);
    });
  });

  describe('an inspection', () => {
    test('shows the cells, usage, remaining and reset of all counters, or of one', async () => {
      const identifier = fresh();
      const namespace = `inspected ${mode}`;
      await setOverride(namespace, 'other');
      const { reset } = await use(identifier, 3, { namespace });
      const short = { namespace, duration: LONGEST_WINDOW_MS - 1, limit: 5 };
      const { reset: shortReset } = await use(identifier, 2, short);
      const usage = { used: 3, remaining: 7, reset };
      const long = {
        ...{ duration: LONGEST_WINDOW_MS, limit: 10, windowStart: reset - LONGEST_WINDOW_MS },
        ...{ current: 3, previous: 0, algorithms: { fixed: usage, sliding: usage } },
      };
      const shortUsage = { used: 2, remaining: 3, reset: shortReset };
      const all = await inspect({ namespace, identifier });
      expect(all).toMatchObject({ namespace, identifier });
      expect(all.counters).toEqual([
        expect.objectContaining({ algorithms: { fixed: shortUsage, sliding: shortUsage } }),
        long,
      ]);
      const one = await inspect({ namespace, identifier, duration: LONGEST_WINDOW_MS });
      expect(one).toEqual({ namespace, identifier, counters: [long] });
    });

    test('shows a GCRA counter beside that of the windows, and finds it by its algorithm', async () => {
      const identifier = fresh();
      await use(identifier, 3);
      const { reset } = await use(identifier, 4, { algorithm: 'gcra' });
      const { counters } = await inspect({ identifier });
      expect(counters).toHaveLength(2);
      const gcra = { used: 4, remaining: 6, reset };
      const expected = {
        ...{ duration: LONGEST_WINDOW_MS, limit: 10, fullAt: reset },
        algorithms: { gcra },
      };
      expect(counters).toContainEqual(expected);
      const found = await inspect({ identifier, algorithm: 'gcra' });
      expect(found.counters).toEqual([expected]);
    });

    test('changes nothing, and makes no counter', async () => {
      const [identifier, unused] = [fresh(), fresh()];
      await use(identifier, 3);
      const first = await inspect({ identifier });
      for (let i = 0; i < 5; i++) expect(await inspect({ identifier })).toEqual(first);
      expect(await remaining(identifier)).toBe(7);
      const nothing = { namespace: 'default', identifier: unused, counters: [] };
      expect(await inspect({ identifier: unused })).toEqual(nothing);
      expect(await inspect({ identifier: unused, duration: 60_000 })).toEqual(nothing);
      expect(await reset({ identifier: unused })).toEqual({ cleared: 0 });
    });

    test('of an unknown namespace is a 404, and creates none', async () => {
      for (const namespace of [`never used ${mode}`, 'ns_unknown']) {
        const fields = { namespace, identifier: 'a' };
        const answer = await callOperation(server.port, 'ratelimits.inspect', fields);
        expect([answer.status, errorIn(answer).code]).toEqual([404, 'NOT_FOUND']);
        expect(errorIn(answer).message).toContain(namespace);
        expect(await names()).not.toContain(namespace);
      }
    });

    test('shows the counter of a check that an override gave another window', async () => {
      const identifier = fresh();
      const namespace = `inspects ${mode}`;
      await use(identifier, 3, { namespace });
      const duration = LONGEST_WINDOW_MS - 1;
      await setOverride(namespace, identifier);
      await use(identifier, 2, { namespace });
      const fields = { namespace, identifier, duration: LONGEST_WINDOW_MS };
      const { counters } = await inspect(fields);
      expect(counters).toMatchObject([
        { duration, limit: 5, current: 2 },
        { duration: LONGEST_WINDOW_MS, limit: 10, current: 3 },
      ]);
    });

    test('sees the deductions of all checks that were answered before it', async () => {
      for (let i = 0; i < 30; i++) {
        const identifier = fresh();
        await use(identifier, 6, { async: true });
        const { counters } = await inspect({ identifier });
        expect([identifier, counters]).toMatchObject([identifier, [{ current: 6 }]]);
      }
    });
  });

  test('both run after the deductions of earlier checks, of any acceptor', async () => {
    const after: number[] = [];
    for (let i = 0; i < 50; i++) {
      const identifier = fresh();
      // Each request has a connection of its own, and so reaches any acceptor.
      const { reset: end } = await use(identifier, 6, { async: true });
      if (i % 2 === 0) {
        const refunded = await refund({ identifier, reset: end, cost: 6 });
        expect([identifier, refunded]).toEqual([identifier, { refunded: 6 }]);
      } else {
        expect(await reset({ identifier })).toEqual({ cleared: 1 });
      }
      after.push(await remaining(identifier));
    }
    expect(new Set(after)).toEqual(new Set([10]));
  });

  describeOnce(mode, 'an error', () => {
    const rejection = (operation: 'refund' | 'reset' | 'inspect', fields: Fields, key?: string) => {
      return errorOf(server.port, `ratelimits.${operation}`, fields, key);
    };
    const valid = {
      identifier: 'a',
      duration: LONGEST_WINDOW_MS,
      reset: LONGEST_WINDOW_MS,
      cost: 1,
    };
    const windowEnd = 'the "reset" in the response to the check';
    test.each<[Fields, string]>([
      [{ reset: LONGEST_WINDOW_MS + 1 }, '"reset" must be'],
      [{ reset: 0 }, '"reset" must be'],
      [{ reset: undefined }, `"reset" is required unless "algorithm" is "gcra": ${windowEnd}`],
      [{ reset: undefined, algorithm: 'sliding' }, '"reset" is required unless'],
      [{ reset: 0, algorithm: 'gcra' }, '"reset" must be'],
      [{ algorithm: 'all' }, '"algorithm" must be fixed, sliding or gcra; got "all"'],
      [{ cost: -1 }, '"cost" must be'],
      [{ cost: undefined }, '"cost" is required: an integer from 0'],
      [{ duration: 999 }, '"duration" must be an integer number of milliseconds from 1000'],
      [{ duration: undefined }, '"duration" is required: an integer number of milliseconds'],
      [{ identifier: 5 }, '"identifier" must be'],
      [{ namespace: '' }, '"namespace" must be'],
    ])('of a refund names the invalid field: %j', async (changes, message) => {
      const expected = [400, expect.stringContaining(message)];
      expect(await rejection('refund', { ...valid, ...changes })).toEqual(expected);
    });

    test('of a refund is for a cost of -0 too, and of a reset for an unknown algorithm', async () => {
      const body = JSON.stringify({ ...valid, cost: 7 }).replace('7}', '-0}');
      const answer = await sendRequest(server.port, { path: '/v1/ratelimits.refund', body });
      expect(errorIn(answer).message).toContain('"cost" must be an integer from 0');
      expect(await rejection('reset', { identifier: 'a', algorithm: 'token' })).toEqual([
        400,
        '"algorithm" must be fixed, sliding or gcra; got "token"',
      ]);
    });

    test.each([
      ['refund', 'refund'],
      ['reset', 'reset'],
      ['inspect', 'read_namespace'],
    ] as const)('of %s names the missing permission %s', async (operation, permission) => {
      const message = expect.stringContaining(`"ratelimit.*.${permission}"`);
      expect(await rejection(operation, valid, limitOnly)).toEqual([403, message]);
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
    const pieces = [
      bytes('refund', { ...about, reset: end, cost: 1 }),
      bytes('reset', about),
      bytes('reset', about),
    ];
    const answers = await exchange(server.port, [Buffer.concat(pieces)], 3);
    const bodies = answers.map((answer) => JSON.parse(answer.body));
    expect(bodies).toEqual([{ refunded: 1 }, { cleared: 1 }, { cleared: 0 }]);
  });
});

testInMemory('a correction behind a deduction that no worker makes is a 503', async () => {
  const dataDir = temporaryDirectory();
  const server = await startWithoutWorkerRestart(dataDir, ['--counters', '1024']);
  const body = { identifier: 'a', limit: 10, duration: LONGEST_WINDOW_MS };
  const { reset } = await sendCheck(server.port, { ...body, cost: 4 });
  await sendCheck(server.port, { ...body, cost: 3, async: true });
  const granted = { name: 'to revoke', permissions: ['ratelimit.*.reset'] };
  const { keyId, key } = await callOperationOk(server.port, 'keys.create', granted);
  const waiting = [
    callOperation(server.port, 'ratelimits.refund', { ...body, reset, cost: 4 }),
    callOperation(server.port, 'ratelimits.reset', { identifier: 'a' }),
    callOperation(server.port, 'ratelimits.inspect', { identifier: 'a' }),
  ];
  const revoked = callOperation(server.port, 'ratelimits.reset', { identifier: 'a' }, String(key));
  // A later request of the same loop, so the correction waits by then.
  await sendCheck(server.port, { ...body, cost: 0 });
  await callOperationOk(server.port, 'keys.revoke', { keyId });
  expect(errorIn(await revoked)).toMatchObject({ code: 'UNAUTHORIZED' });
  const answers = await Promise.all(waiting);
  for (const answer of answers) {
    expect([answer.status, answer.headers['retry-after']]).toEqual([503, '1']);
    expect(errorIn(answer).message).toContain('nothing was changed');
  }
  expect(await sendCheck(server.port, { ...body, cost: 0 })).toMatchObject({ remaining: 6 });
  server.child.kill('SIGKILL');
  await server.exited;
  removeDirectory(dataDir);
});
