/**
 * Explanations: the override that applies and why others do not, the terms of the check, and a
 * prediction that equals the next check. The property at the end compares both at random.
 */

import fc from 'fast-check';
import { beforeAll, describe, expect, test } from 'vitest';
import { EXPLAINED_OVERRIDES_MAX } from '../../../../src/core/constants.ts';
import { describeEngines, describeOnce } from '../../../support/engine-modes.ts';
import { newSeed, trialCount } from '../../../support/guarantees.ts';
import type { ApiClient, Fields } from '../../../support/operations.ts';
import { forwardedFor, sendGatewayCheck } from '../../../support/policy-config.ts';
import { ROOT_KEY } from '../../../support/server.ts';
import { useServer } from '../../../support/test-server.ts';

/** The longest duration of v2: no window ends during a test. */
const MONTH_MS = 2_592_000_000;
const DAY_MS = 86_400_000;
const NAMESPACE = 'explained';

interface Explanation {
  namespace: string;
  identifier: string;
  success?: boolean;
  cause: string;
  passesAt?: number;
  reason: string;
  at: number;
  isExact: boolean;
  override?: Fields;
  otherOverrides: Fields[];
  matchingOverrides: number;
  policy?: Fields;
  windows: (Fields & { terms: Record<string, { value: unknown; from: string; at?: number }> })[];
  counters: Fields[];
  recent: {
    since: number;
    last?: Fields & { count: number };
    lastDenied?: Fields & { count: number };
    leftOut?: number;
  };
  deniedThisHour?: Fields;
}

const explainOn = (server: ApiClient, fields: Fields, key?: string): Promise<Explanation> => {
  return server.ok<Explanation>('ratelimits.explain', fields, key);
};
const setOverrideOn = async (
  server: ApiClient,
  namespace: string,
  identifier: string,
  values: Fields = {},
) => {
  const fields = { namespaceName: namespace, identifier, limit: 5, duration: MONTH_MS };
  const set = await server.ok('ratelimits.setOverride', { ...fields, ...values });
  return set.overrideId as string;
};

const POLICIES = {
  two: {
    windows: [
      { limit: 3, duration: DAY_MS },
      { limit: 5, duration: MONTH_MS, algorithm: 'gcra' as const, burst: 4 },
    ],
    cost: 2,
  },
  shadow: { limit: 1, duration: MONTH_MS, shadow: true },
  networks: { limit: 9, duration: MONTH_MS },
  keys: { limit: 9, duration: MONTH_MS, identify: 'header:x-api-key' },
  skipping: { limit: 1, duration: MONTH_MS, skip: ['preflight', '/healthz'] },
};

describeEngines('decided %s:', (mode) => {
  const server = useServer({
    mode,
    args: ['--acceptors', '2'],
    policies: POLICIES,
  });
  // Creates the namespace, which every acceptor knows then.
  beforeAll(() => setOverride(NAMESPACE, 'unused'));

  let serial = 0;
  const fresh = () => `user_${serial++}`;
  const check = (identifier: string, changes: Fields = {}): Fields => {
    return { namespace: NAMESPACE, identifier, limit: 10, duration: MONTH_MS, ...changes };
  };
  const explain = (fields: Fields) => explainOn(server, fields);
  const setOverride = (namespace: string, identifier: string, values: Fields = {}) => {
    return setOverrideOn(server, namespace, identifier, values);
  };
  const deleteOverride = (namespaceName: string, identifier: string) => {
    return server.ok('ratelimits.deleteOverride', { namespaceName, identifier });
  };
  /** The value and the source of each term of a window. */
  const termsOf = ({ windows }: Explanation, window = 0) => {
    const entries = Object.entries(windows[window].terms);
    return Object.fromEntries(entries.map(([name, { value, from }]) => [name, [value, from]]));
  };

  describe('an explanation', () => {
    test('says when a denied check can pass, and when it never can', async () => {
      const identifier = fresh();
      const { reset } = await server.ok('ratelimits.limit', check(identifier, { cost: 8 }));
      const denied = await explain(check(identifier, { cost: 3, algorithm: 'fixed' }));
      expect(denied).toMatchObject({ success: false, cause: 'limit_reached', passesAt: reset });
      expect(denied.windows).toMatchObject([{ left: 2, remaining: 2, passesAt: reset }]);
      expect(denied.reason).toContain(
        'has 2 of 10 tokens left, and the cost is 3. It can pass at 2',
      );
      const never = await explain(check(identifier, { cost: 11 }));
      expect(never).toMatchObject({ success: false, cause: 'cost_above_limit' });
      expect(never.passesAt).toBeUndefined();
      expect(never.reason).toContain('the cost 11 is above the limit 10');
      const burst = check(identifier, { cost: 3, algorithm: 'gcra', burst: 2 });
      expect((await explain(burst)).reason).toContain('above the burst 2 of the gcra bucket');
      const { left, passesAt } = (await explain(check(identifier, { cost: 3 }))).windows[0];
      expect(left).toBe(2);
      expect(passesAt).toBeGreaterThan(reset as number);
      expect(denied.isExact).toBe(mode !== 'redis');
    });
  });

  describe('where the limit comes with each check, without recent decisions,', () => {
    const server = useServer({ mode, args: ['--recent-decisions', 'off'], policies: POLICIES });
    beforeAll(() => setOverrideOn(server, NAMESPACE, 'unused'));
    const explain = (fields: Fields) => explainOn(server, fields);
    const setOverride = (identifier: string, values: Fields) => {
      return setOverrideOn(server, NAMESPACE, identifier, values);
    };

    test('an explanation predicts the check that the counter last counted', async () => {
      const identifier = fresh();
      await server.ok('ratelimits.limit', check(identifier, { cost: 9 }));
      // The last counted check had another limit; denied ones and those without a cost do not count.
      const { reset } = await server.ok('ratelimits.limit', check(identifier, { limit: 12 }));
      await server.ok('ratelimits.limit', check(identifier, { limit: 8 }));
      await server.ok('ratelimits.limit', check(identifier, { limit: 99, cost: 0 }));
      const request = { namespace: NAMESPACE, identifier };
      const allowed = await explain({ ...request, cost: 2 });
      expect(allowed).toMatchObject({ success: true, cause: 'within_limit' });
      expect(allowed.windows).toMatchObject([{ left: 2, remaining: 0, reset }]);
      expect(termsOf(allowed)).toEqual({
        limit: [12, 'counter'],
        duration: [MONTH_MS, 'counter'],
        algorithm: ['sliding', 'default'],
        async: [false, 'default'],
        cost: [2, 'request'],
      });
      const denied = await explain({ ...request, cost: 3, algorithm: 'fixed' });
      expect(denied).toMatchObject({ success: false, cause: 'limit_reached', passesAt: reset });
      const source = `. 12 per 30d is the limit of the last counted check: `;
      const why = 'the request has none, and no override or policy sets one.';
      const assumed = ' The counter may be of fixed or sliding windows: sliding is assumed.';
      expect(denied.reason).toMatch(/^The check is denied: the fixed window of .* counted/);
      expect(denied.reason.endsWith(source + why)).toBe(true);
      expect(allowed.reason.endsWith(source + why + assumed)).toBe(true);
    });

    test('a limit of the request, an override and a policy still take precedence', async () => {
      const identifier = fresh();
      await server.ok('ratelimits.limit', check(identifier, { cost: 10 }));
      const own = await explain(check(identifier, { limit: 11 }));
      expect([own.success, termsOf(own).limit]).toEqual([true, [11, 'request']]);
      await setOverride(identifier, { limit: 12 });
      const overridden = await explain({ namespace: NAMESPACE, identifier });
      expect(termsOf(overridden).limit).toEqual([12, 'override']);
      await server.ok('ratelimits.limit', check(identifier, { namespace: 'two' }));
      const policy = await explain({ namespace: 'two', identifier });
      expect(policy.windows.map((_, i) => termsOf(policy, i).limit)).toEqual([
        [3, 'policy'],
        [5, 'policy'],
      ]);
    });

    test('an explanation predicts several counters each for itself, or those of an algorithm', async () => {
      const identifier = fresh();
      const gcra = { algorithm: 'gcra', limit: 6, burst: 5 };
      await server.ok('ratelimits.limit', check(identifier, { duration: DAY_MS, cost: 10 }));
      await server.ok('ratelimits.limit', check(identifier, { ...gcra, cost: 2 }));
      const request = { namespace: NAMESPACE, identifier, cost: 3 };
      const explained = await explain(request);
      expect(explained).not.toHaveProperty('success');
      expect(explained).toMatchObject({
        cause: 'no_limit',
        windows: [
          { success: false, left: 0, terms: { limit: { value: 10, from: 'counter' } } },
          // The other denial does not keep its tokens: the checks are not one batch.
          { success: true, left: 4, remaining: 1 },
        ],
      });
      expect(explained.reason).toContain('so each of the 2 counters is predicted for itself');
      expect(termsOf(explained, 1)).toMatchObject({
        ...{ limit: [6, 'counter'], algorithm: ['gcra', 'counter'], burst: [6, 'default'] },
      });
      const sliding = await explain({ ...request, algorithm: 'sliding' });
      expect(sliding).toMatchObject({ success: false, cause: 'limit_reached' });
      expect(termsOf(sliding)).toMatchObject({
        ...{ limit: [10, 'counter'], algorithm: ['sliding', 'request'] },
      });
      const bucket = await explain({ ...request, algorithm: 'gcra', burst: 5 });
      expect(bucket).toMatchObject({ success: true, windows: [{ left: 3 }] });
      expect(bucket.windows).toHaveLength(1);
    });

    test('a counter that was reset has no limit', async () => {
      const identifier = fresh();
      await server.ok('ratelimits.limit', check(identifier));
      await server.ok('ratelimits.reset', { namespace: NAMESPACE, identifier });
      const explained = await explain({ namespace: NAMESPACE, identifier });
      expect(explained).toMatchObject({ cause: 'no_limit', windows: [] });
    });
  });

  describe('where the limit comes with each check,', () => {
    const request = (identifier: string) => ({ namespace: NAMESPACE, identifier });

    test('an explanation predicts the last recorded check, and says when it was', async () => {
      const identifier = fresh();
      const from = Date.now() - 1_000;
      await server.ok('ratelimits.limit', check(identifier, { cost: 9 }));
      await server.ok('ratelimits.limit', check(identifier, { cost: 3 }));
      const explained = await explain(request(identifier));
      expect(explained).toMatchObject({ success: false, cause: 'limit_reached' });
      expect(termsOf(explained)).toEqual({
        limit: [10, 'decision'],
        duration: [MONTH_MS, 'decision'],
        algorithm: ['fixed', 'decision'],
        async: [false, 'default'],
        // The check that was denied is explained, and not a cheaper one.
        cost: [3, 'decision'],
      });
      const { at } = explained.windows[0].terms.limit;
      expect(at).toBeGreaterThan(from);
      expect(at).toBeLessThan(Date.now() + 1_000);
      expect(explained.reason).toMatch(
        /cost is 3\. .* The last check had this limit: 10 per \d+[a-z]+, fixed, at 20\S+Z\.$/,
      );
      const decision = { decision: 'denied', cost: 3, limit: 10, source: 'request' };
      expect(explained.recent).toMatchObject({ last: decision, lastDenied: decision });
      // Nothing that no check uses.
      expect(Object.keys(explained.counters[0].algorithms as Fields)).toEqual(['fixed']);
      expect(await explain({ ...request(identifier), cost: 1 })).toMatchObject({ success: true });
      const sliding = await explain({ ...request(identifier), algorithm: 'sliding', cost: 2 });
      expect(termsOf(sliding)).toMatchObject({ limit: [10, 'counter'] });
    });

    test('an explanation counts the denials of this hour', async () => {
      const identifier = fresh();
      for (let i = 0; i < 4; i++)
        await server.ok('ratelimits.limit', check(identifier, { limit: 1 }));
      const { deniedThisHour, recent } = await explain(request(identifier));
      const hour = 3_600_000;
      const isNewHour = Date.now() % hour < 60_000;
      if (!isNewHour) expect(deniedThisHour).toMatchObject({ count: 3 });
      expect(deniedThisHour).toMatchObject({ error: 0 });
      expect(recent.lastDenied?.count).toBeLessThanOrEqual(3);
    });

    test('an explanation says in a flood that denials have no record', async () => {
      // More than both acceptors record in ten seconds.
      const identifiers = Array.from({ length: 200 }, fresh);
      const flood = [...identifiers, ...identifiers].map((identifier) => {
        return server.ok('ratelimits.limit', check(identifier, { limit: 1, namespace: 'flood' }));
      });
      await Promise.all(flood);
      let unrecorded = 0;
      for (const identifier of identifiers) {
        const { recent } = await explain({ namespace: 'flood', identifier });
        if (recent.lastDenied === undefined) {
          unrecorded++;
          expect(recent.leftOut).toBeGreaterThan(0);
        } else {
          expect(recent).not.toHaveProperty('leftOut');
        }
      }
      expect(unrecorded).toBeGreaterThan(0);
    });

    test('of several windows that were checked together, each is predicted', async () => {
      const identifier = fresh();
      await server.ok('ratelimits.limit', check(identifier, { limit: 1 }));
      await server.ok('ratelimits.limit', check(identifier, { limit: 1 }));
      const daily = { duration: DAY_MS, limit: 1, algorithm: 'gcra' };
      await server.ok('ratelimits.limit', check(identifier, daily));
      await server.ok('ratelimits.limit', check(identifier, daily));
      const explained = await explain(request(identifier));
      expect(explained).toMatchObject({ success: false, cause: 'limit_reached' });
      expect([0, 1].map((window) => termsOf(explained, window))).toMatchObject([
        { duration: [DAY_MS, 'decision'], algorithm: ['gcra', 'decision'] },
        { duration: [MONTH_MS, 'decision'], algorithm: ['fixed', 'decision'] },
      ]);
      expect(explained.reason).toContain('The last checks had these limits: 1 per');
    });

    test('a check without a cost does not change the cost of the next one', async () => {
      const identifier = fresh();
      await server.ok('ratelimits.limit', check(identifier, { cost: 9 }));
      await server.ok('ratelimits.limit', check(identifier, { cost: 3 }));
      await server.ok('ratelimits.limit', check(identifier, { cost: 0 }));
      const explained = await explain(request(identifier));
      expect(termsOf(explained).cost).toEqual([3, 'decision']);
      expect(explained).toMatchObject({ success: false });
    });

    test('a limit that has changed since a denial is used, or said to have changed', async () => {
      const identifier = fresh();
      for (let i = 0; i < 2; i++) {
        await server.ok('ratelimits.limit', check(identifier, { limit: 1 }));
      }
      await server.ok('ratelimits.limit', check(identifier, { limit: 100 }));
      const explained = await explain(request(identifier));
      // It depends on the sample whether the allowed check is recorded.
      const isRecorded = termsOf(explained).limit[0] === 100;
      const note = 'The last allowed check had the limit 100: it may have changed.';
      expect([isRecorded, explained.reason.includes(note)]).toEqual([isRecorded, !isRecorded]);
    });

    test('of a denied list only the check that denies it is recorded as denied', async () => {
      const list = Array.from({ length: 20 }, () => fresh());
      const culprit = list[13];
      const checks = list.map((identifier) => {
        const limit = identifier === culprit ? 1 : 10;
        return { namespace: 'lists', identifier, limit, duration: MONTH_MS, cost: 2 };
      });
      await setOverride('lists', 'unused');
      await server.ok('ratelimit.multiLimit', checks);
      type Listed = { decisions: { identifier: string }[] };
      const query = { namespaceName: 'lists', decision: 'denied' };
      const { decisions } = await server.ok<Listed>('analytics.getDecisions', query);
      expect(decisions.map(({ identifier }) => identifier)).toEqual([culprit]);
    });

    test('an override that has ended does not set the limit of the next check', async () => {
      const identifier = fresh();
      await server.ok('ratelimits.limit', check(identifier, { cost: 10 }));
      const override = await setOverride(NAMESPACE, identifier, { limit: 5, duration: MONTH_MS });
      await server.ok('ratelimits.limit', check(identifier));
      const overridden = await explain(request(identifier));
      expect(termsOf(overridden)).toMatchObject({
        ...{ limit: [5, 'override'], algorithm: ['fixed', 'decision'] },
      });
      expect(overridden.recent.last).toMatchObject({ source: 'override', override, limit: 5 });
      await deleteOverride(NAMESPACE, identifier);
      const explained = await explain(request(identifier));
      expect(termsOf(explained).limit[1]).not.toBe('override');
      expect(termsOf(explained).limit[0]).toBe(10);
    });

    test('a key that may not read analytics gets no recent decisions', async () => {
      const identifier = fresh();
      await server.ok('ratelimits.limit', check(identifier, { cost: 10 }));
      await server.ok('ratelimits.limit', check(identifier, { limit: 8 }));
      const permissions = ['ratelimit.*.read_namespace', 'ratelimit.*.read_override'];
      const { key } = await server.ok<{ key: string }>('keys.create', { name: 'k', permissions });
      const explained = await explainOn(server, request(identifier), key);
      expect(explained).not.toHaveProperty('recent');
      expect(explained).not.toHaveProperty('deniedThisHour');
      expect(termsOf(explained).limit).toEqual([10, 'counter']);
    });
  });

  describeOnce(mode, 'an explanation in one mode', () => {
    test('names the override that applies, and the rule by which each other one lost', async () => {
      const identifier = fresh();
      const exact = await setOverride(NAMESPACE, identifier, { limit: 7, async: true });
      const others = [
        await setOverride(NAMESPACE, `${identifier}*`),
        await setOverride(NAMESPACE, `*${identifier}*`),
        await setOverride('expl*', identifier),
      ];
      const explained = await explain({ namespace: NAMESPACE, identifier });
      expect(explained).toMatchObject({
        override: {
          ...{ id: exact, namespace: NAMESPACE, identifier },
          ...{ limit: 7, duration: MONTH_MS, async: true },
        },
        otherOverrides: [
          { id: others[0], identifier: `${identifier}*`, rule: 'exact_identifier' },
          { id: others[1], identifier: `*${identifier}*`, rule: 'exact_identifier' },
          { id: others[2], namespace: 'expl*', rule: 'exact_namespace' },
        ],
        matchingOverrides: 4,
      });
      await deleteOverride('expl*', identifier);
    });

    test('shows a bounded number of other overrides, and counts all', async () => {
      const identifier = `many_${'x'.repeat(EXPLAINED_OVERRIDES_MAX + 5)}`;
      const prefixes = Array.from({ length: identifier.length - 4 }, (_, i) => {
        return `${identifier.slice(0, 5 + i)}*`;
      });
      const overrides = prefixes.map((prefix) => {
        return { namespaceName: NAMESPACE, identifier: prefix, limit: 5, duration: MONTH_MS };
      });
      await server.ok('ratelimits.importOverrides', { overrides });
      const explained = await explain({ namespace: NAMESPACE, identifier });
      expect(explained.otherOverrides).toHaveLength(EXPLAINED_OVERRIDES_MAX);
      expect(explained.matchingOverrides).toBe(identifier.length - 4);
      expect(explained.override).toMatchObject({ identifier: `${identifier}*` });
    });

    test('is of one version of the overrides, also while they change', async () => {
      const identifier = fresh();
      const pattern = await setOverride(NAMESPACE, `${identifier}*`, { limit: 6 });
      const winners = new Set<unknown>();
      let isChanging = true;
      const changes = (async () => {
        for (let i = 0; i < 10 || winners.size < 2; i++) {
          await setOverride(NAMESPACE, identifier, { limit: 7 });
          await deleteOverride(NAMESPACE, identifier);
        }
        isChanging = false;
      })();
      while (isChanging) {
        const { override, otherOverrides, matchingOverrides, windows } = await explain({
          namespace: NAMESPACE,
          identifier,
        });
        const isPattern = override?.id === pattern;
        winners.add(isPattern);
        expect(override?.limit).toBe(isPattern ? 6 : 7);
        expect(windows[0].terms.limit.value).toBe(override?.limit);
        expect(otherOverrides.map(({ id }) => id)).toEqual(isPattern ? [] : [pattern]);
        expect(matchingOverrides).toBe(isPattern ? 1 : 2);
      }
      await changes;
      expect(winners.size).toBe(2);
    });

    test('says where each term of the check comes from', async () => {
      const identifier = fresh();
      expect(termsOf(await explain(check(identifier)))).toEqual({
        limit: [10, 'request'],
        duration: [MONTH_MS, 'request'],
        algorithm: ['sliding', 'default'],
        async: [false, 'default'],
        cost: [1, 'default'],
      });
      await setOverride(NAMESPACE, identifier, { limit: 5, duration: DAY_MS, async: true });
      const gcra = { algorithm: 'gcra', cost: 3 };
      expect(termsOf(await explain(check(identifier, { ...gcra, burst: 6 })))).toEqual({
        limit: [5, 'override'],
        duration: [DAY_MS, 'override'],
        algorithm: ['gcra', 'request'],
        // Lowered to the limit of the override.
        burst: [5, 'override'],
        async: [true, 'override'],
        cost: [3, 'request'],
      });
      const without = termsOf(
        await explain({ namespace: NAMESPACE, identifier, ...gcra, burst: 2 }),
      );
      expect(without).toMatchObject({ limit: [5, 'override'], burst: [2, 'request'] });
    });

    test('decides nothing where no request, override, policy or counter has a limit', async () => {
      const explained = await explain({ namespace: NAMESPACE, identifier: fresh() });
      expect(explained).toMatchObject({ windows: [], counters: [] });
      expect(explained).not.toHaveProperty('success');
    });

    test.each([
      [{ limit: 5 }, '"duration" is required with "limit"'],
      [{ duration: 5_000 }, '"limit" is required with "duration"'],
      [{ burst: 2 }, '"burst" must be left out unless "algorithm" is "gcra"; got 2'],
      [{ limit: 5, duration: 5_000, algorithm: 'gcra', burst: 6 }, 'which is 5; got 6'],
      [{ limit: 0, duration: 5_000 }, '"limit" must be an integer from 1 to'],
      [{ algorithm: 'lazy' }, '"algorithm" must be fixed, sliding or gcra; got "lazy"'],
    ])('rejects terms that no check can have: %j', async (fields, message) => {
      const request = { namespace: NAMESPACE, identifier: 'a', ...fields };
      const error = await server.errorOf('ratelimits.explain', request);
      expect(error).toEqual([400, expect.stringContaining(message)]);
    });
  });

  describe('without a limit, in a namespace with a policy,', () => {
    const send = async (namespace: string, address: string) => {
      const headers = { ...forwardedFor(address), 'X-Weir-Key': ROOT_KEY };
      return (await sendGatewayCheck(server.port, `/v1/check/${namespace}`, headers)).status;
    };

    test('an explanation predicts all windows together, as the gateway gets it', async () => {
      const identifier = '203.0.113.1';
      const first = await explain({ namespace: 'two', identifier });
      expect(first).toMatchObject({ success: true, policy: { gateway: 'nginx', shadow: false } });
      expect(first.reason).toContain('each of the 2 windows has at least 2 tokens left');
      expect(termsOf(first)).toMatchObject({ limit: [3, 'policy'], cost: [2, 'policy'] });
      expect(termsOf(first, 1)).toMatchObject({
        ...{ algorithm: ['gcra', 'policy'], burst: [4, 'policy'], async: [false, 'default'] },
      });
      expect(await send('two', identifier)).toBe(200);
      const second = await explain({ namespace: 'two', identifier });
      expect(second).toMatchObject({
        ...{ success: false, cause: 'limit_reached' },
        windows: [
          { success: false, left: 1, remaining: 0, cause: 'limit_reached' },
          { success: true, left: 2, remaining: 2, cause: 'within_limit' },
        ],
      });
      expect(second.passesAt).toBe(second.windows[0].passesAt);
      expect(second.counters).toHaveLength(2);
      expect(await send('two', identifier)).toBe(429);
      // The cost of the request replaces that of the policy.
      expect(await explain({ namespace: 'two', identifier, cost: 1 })).toMatchObject({
        ...{ success: true, windows: [{ remaining: 0 }, { remaining: 1 }] },
      });
      // A request with terms is a check of the API.
      const other = await explain({ namespace: 'two', identifier, limit: 9, duration: DAY_MS });
      expect([other.policy, other.windows.length]).toEqual([undefined, 1]);
    });

    test('an override replaces all windows, with the algorithm of the first', async () => {
      const identifier = '203.0.113.2';
      await setOverride('two', identifier, { limit: 2, duration: DAY_MS });
      const before = await explain({ namespace: 'two', identifier });
      expect([before.success, before.windows.length]).toEqual([true, 1]);
      expect(termsOf(before)).toMatchObject({
        ...{ limit: [2, 'override'], algorithm: ['sliding', 'default'], cost: [2, 'policy'] },
      });
      expect(await send('two', identifier)).toBe(200);
      expect((await explain({ namespace: 'two', identifier })).success).toBe(false);
      expect(await send('two', identifier)).toBe(429);
    });

    test('an explanation names the requests that the policy skips', async () => {
      const explained = await explain({ namespace: 'skipping', identifier: fresh() });
      const skip = ['preflight', '/healthz'];
      expect(explained).toMatchObject({ success: true, policy: { gateway: 'nginx', skip } });
      expect(explained.reason).toMatch(
        / Requests that the policy skips get no check: preflight, \/healthz\.$/,
      );
    });

    test('a denial of a shadow policy is said to deny no request', async () => {
      const identifier = '203.0.113.3';
      expect(await send('shadow', identifier)).toBe(200);
      const explained = await explain({ namespace: 'shadow', identifier });
      expect(explained).toMatchObject({ success: false, policy: { shadow: true } });
      expect(explained.reason).toContain('shadow mode, so the gateway allows the request');
      expect(await send('shadow', identifier)).toBe(200);
    });
  });

  describe('in a namespace whose policy identifies clients by address,', () => {
    const namespace = 'networks';
    const headersOf = (address: string) => {
      return { ...forwardedFor(address), 'X-Weir-Key': ROOT_KEY };
    };
    const limitAt = async (address: string) => {
      const path = `/v1/check/${namespace}`;
      const { headers } = await sendGatewayCheck(server.port, path, headersOf(address));
      return Number(/q=(\d+)/.exec(headers['ratelimit-policy'] ?? '')?.[1]);
    };

    test('the override of a CIDR block applies to requests, and is explained', async () => {
      const cidr = true;
      const wide = await setOverride(namespace, '2001:db8::/32', { cidr, limit: 6 });
      const block = await setOverride(namespace, '2001:db8:7::/48', { cidr, limit: 7 });
      await setOverride(namespace, '203.0.113.0/24', { cidr, limit: 8 });
      expect(await limitAt('2001:db8:7::1')).toBe(7);
      expect(await limitAt('2001:db8:8::1')).toBe(6);
      expect(await limitAt('2001:db9::1')).toBe(9);
      expect(await limitAt('203.0.113.7')).toBe(8);
      expect(await limitAt('64:ff9b::203.0.113.7')).toBe(8);
      const explained = await explain({ namespace, identifier: '2001:db8:7::/64' });
      expect(explained.override).toMatchObject({ id: block, identifier: '2001:db8:7::/48', cidr });
      expect(explained.otherOverrides).toMatchObject([
        { id: wide, cidr, rule: 'longer_cidr_block', reason: expect.stringContaining('48 bits') },
      ]);
      expect(termsOf(explained)).toMatchObject({ limit: [7, 'override'] });
      expect(explained.windows[0].left).toBe(6);
    });

    test('an override that no request can match is rejected, and the error names the right one', async () => {
      for (const [identifier, instead] of [
        ['2001:db8::1', 'give "2001:db8::/64"'],
        ['203.0.113.0/24', 'set "203.0.113.0/24" with "cidr"'],
        ['user_1', 'give an address such as'],
      ]) {
        const values = { identifier, limit: 5, duration: MONTH_MS };
        const message = expect.stringMatching(
          new RegExp(`^no request has the identifier "${identifier}": .*; .*${instead}`),
        );
        const v1 = { namespaceName: namespace, ...values };
        expect(await server.errorOf('ratelimits.setOverride', v1)).toEqual([400, message]);
        const v2 = await server.call('ratelimit.setOverride', { namespace, ...values });
        expect(JSON.parse(v2.body)).toMatchObject({
          error: { status: 400, errors: [{ location: 'body.identifier', message }] },
        });
        const overrides = [v1];
        const [status, text] = await server.errorOf('ratelimits.importOverrides', { overrides });
        expect([status, text]).toEqual([400, expect.stringContaining('overrides[0]: no request')]);
      }
      const block = { identifier: '10.0.0.0/8', cidr: true, limit: 5, duration: MONTH_MS };
      const ofKeys = { namespaceName: 'keys', ...block };
      expect(await server.errorOf('ratelimits.setOverride', ofKeys)).toEqual([
        ...[400, expect.stringContaining('give an identifier or a pattern, without "cidr"')],
      ]);
      // The same text in a namespace without a policy, and in a pattern of namespaces.
      await setOverride(NAMESPACE, '2001:db8::1');
      await setOverride('net*', '2001:db9:99::1', { limit: 3 });
    });

    test('an explanation is that of the identifier that requests have', async () => {
      // It is valid for other namespaces, and no request of this one has its identifier.
      const never = await setOverride('net*', '2001:db9:99::1', { limit: 3 });
      const explained = await explain({ namespace, identifier: '2001:db9:99::1' });
      expect(explained.identifier).toBe('2001:db9:99::/64');
      expect(explained.override?.id).not.toBe(never);
      expect(explained.otherOverrides.map(({ id }) => id)).not.toContain(never);
      expect(explained.reason).toMatch(
        /^The policy identifies the client "2001:db9:99::1" by "2001:db9:99::\/64"\. The check is/,
      );
      await limitAt('2001:db9:99::1');
      const next = await explain({ namespace, identifier: '2001:db9:99::7' });
      expect(next.counters).toHaveLength(1);
      const impossible = await explain({ namespace, identifier: 'user_1' });
      expect(impossible).toMatchObject({ identifier: 'user_1', matchingOverrides: 0 });
      expect(impossible.reason).toContain(
        'No request has the identifier "user_1": the policy identifies clients by ip.',
      );
      // A request with terms is a check of the API, to which it does apply.
      const terms = { limit: 5, duration: MONTH_MS };
      const other = await explain({ namespace, identifier: '2001:db9:99::1', ...terms });
      expect(other.override?.id).toBe(never);
    });
  });

  test('the override and the prediction equal those of the next check, at random', async () => {
    const namespaces = fc.constantFrom('random.a', 'random.b');
    const identifiers = fc.constantFrom('ab', 'abc', 'b', 'ba');
    const target = {
      namespace: fc.oneof(namespaces, fc.constantFrom('random.*', 'rand*.a', '*a')),
      identifier: fc.oneof(identifiers, fc.constantFrom('a*', '*b', 'ab*', '*a*', 'a*c', 'b*')),
    };
    const terms = {
      duration: fc.constantFrom(DAY_MS, MONTH_MS),
      limit: fc.integer({ min: 1, max: 12 }),
    };
    const steps = fc.oneof(
      fc.record({ kind: fc.constant('set' as const), ...target, ...terms }),
      fc.record({ kind: fc.constant('delete' as const), ...target }),
      ...[1, 2, 3].map(() =>
        fc.record({
          ...{
            kind: fc.constant('check' as const),
            namespace: namespaces,
            identifier: identifiers,
          },
          ...{ ...terms, cost: fc.integer({ min: 0, max: 6 }) },
          algorithm: fc.constantFrom('fixed', 'sliding', 'gcra', undefined),
        }),
      ),
    );
    // Stored before the first question: a check stores its namespace some ms later.
    for (const namespace of ['random.a', 'random.b']) {
      await setOverride(namespace, 'unused');
      await server.ok('ratelimit.limit', check('first', { namespace }));
    }
    const allowed = new Set<boolean>();
    const overridden = new Set<boolean>();
    const property = fc.asyncProperty(
      fc.array(steps, { minLength: 20, maxLength: 40 }),
      async (sequence) => {
        for (const { kind, ...fields } of sequence) {
          if (kind === 'set') await server.ok('ratelimit.setOverride', fields);
          else if (kind === 'delete') {
            await server.call('ratelimit.deleteOverride', fields);
          } else {
            const { override, windows, ...explained } = await explain(fields);
            const { data } = await server.ok('ratelimit.limit', fields);
            const { success, limit, remaining, reset, overrideId } = data as Fields;
            allowed.add(success as boolean);
            overridden.add(overrideId !== undefined);
            expect([override?.id, windows[0].terms.limit.value]).toEqual([overrideId, limit]);
            expect([explained.success, windows[0].remaining]).toEqual([success, remaining]);
            // A bucket that is full when it is used has a reset that depends on the time.
            if (windows[0].terms.algorithm.value !== 'gcra') expect(windows[0].reset).toBe(reset);
          }
        }
      },
    );
    // Both decisions, with and without an override, also if the random steps have only one.
    const counter = { namespace: 'random.a', identifier: 'ab', duration: DAY_MS } as const;
    const spendAll = { ...counter, kind: 'check', limit: 2, cost: 2, algorithm: 'fixed' } as const;
    const set = { ...counter, kind: 'set', limit: 1 } as const;
    const examples: [[(typeof spendAll | typeof set)[]]] = [[[spendAll, spendAll, set, spendAll]]];
    await fc.assert(property, { seed: newSeed(), numRuns: trialCount(6, 12), examples });
    expect([allowed.size, overridden.size]).toEqual([2, 2]);
  });
});
