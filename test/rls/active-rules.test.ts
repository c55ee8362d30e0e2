/** A domain is a namespace: its overrides, counters, figures and events, by the HTTP API. */

import { existsSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { describeEngines } from '../support/engine-modes.ts';
import type { Fields } from '../support/operations.ts';
import { useRlsServer } from '../support/rls/rls-server.ts';
import { waitUntil } from '../support/server.ts';

const DAY_MS = 86_400_000;
const YEAR_MS = 365 * DAY_MS;

describeEngines('a domain, decided %s,', (mode) => {
  const server = useRlsServer({
    mode,
    args: ['--events', 'all'],
    env: { WEIR_RLS_COMPATIBLE: 'true' },
    files: {
      'd.yaml': `
domain: d
descriptors:
  - { key: k, rate_limit: { unit: year, requests_per_unit: 5, name: named } }
  - { key: s, shadow_mode: true, rate_limit: { unit: year, requests_per_unit: 1 } }
  - { key: u, rate_limit: { unlimited: true } }
  - { key: n }
`,
    },
  });
  const setOverride = (identifier: string, limit: number, more: Fields = {}) => {
    const fields = { namespaceName: 'd', identifier, limit, duration: YEAR_MS, ...more };
    return server.ok('ratelimits.setOverride', fields);
  };

  test('is a namespace from the start on, and a domain without rules is none', async () => {
    expect(await server.rls.ask('other', ['k=1'])).toEqual(['OK', 'OK']);
    await server.namespaceId('d');
    expect((await server.namespaces()).map(({ name }) => name)).toEqual(['d']);
  });

  test('has overrides, which come before all other limits', async () => {
    const cases = [
      ['k=over', 'OK 6/7 YEAR named'],
      ['u=over', 'OK 6/7 YEAR'],
      ['n=over', 'OK 6/7 YEAR'],
      ['x=over,y=%|=', 'OK 6/7 YEAR'],
    ] as const;
    for (const [of] of cases) {
      const identifier = of === 'x=over,y=%|=' ? 'x=over|y=%25%7C%3D' : of;
      await setOverride(identifier, 7);
    }
    for (const [of, status] of cases)
      expect(await server.rls.ask('d', [of])).toEqual(['OK', status]);
    const own = { of: 'k=over', limit: [9, 'DAY'] } as const;
    expect(await server.rls.ask('d', [{ ...own, limit: [9, 'DAY'] }])).toEqual([
      'OK',
      'OK 5/7 YEAR',
    ]);
    const without = { of: 'k=none', limit: [9, 'DAY'] } as const;
    expect(await server.rls.ask('d', [{ ...without, limit: [9, 'DAY'] }])).toEqual([
      'OK',
      'OK 8/9 DAY',
    ]);
  });

  test('has overrides of patterns, and of durations that no unit has', async () => {
    await setOverride('k=vip-*', 100, { duration: 3 * DAY_MS });
    expect(await server.rls.ask('d', ['k=vip-1'])).toEqual(['OK', 'OK 99']);
    await setOverride('k=vip-1', 1);
    expect(await server.rls.ask('d', ['k=vip-1'])).toEqual(['OK', 'OK 0/1 YEAR named']);
  });

  test('has counters that can be inspected, explained and reset', async () => {
    await server.rls.call('d', [{ of: 'k=api', hits: 2 }]);
    const counter = { namespace: 'd', identifier: 'k=api' };
    const { counters } = await server.ok<{ counters: Fields[] }>('ratelimits.inspect', counter);
    expect(counters).toMatchObject([{ duration: YEAR_MS, limit: 5, current: 2 }]);
    const terms = { ...counter, limit: 5, duration: YEAR_MS };
    const explained = await server.ok('ratelimits.explain', terms);
    expect(explained).toMatchObject({ success: true, matchingOverrides: 0 });
    await server.ok('ratelimits.reset', counter);
    expect(await server.rls.ask('d', ['k=api'])).toEqual(['OK', 'OK 4/5 YEAR named']);
  });

  test('has figures and events of its decisions', async () => {
    const path = join(server.dataDir, 'events.jsonl');
    const events = () => {
      const text = existsSync(path) ? readFileSync(path, 'utf8') : '';
      const all: Fields[] = text
        .split('\n')
        .slice(0, -1)
        .map((line) => JSON.parse(line));
      return all
        .filter(({ identifier }) => /^[ks]=event/.test(String(identifier)))
        .map(({ time, reset, ...event }) => event);
    };
    await server.rls.call('d', [{ of: 'k=event', hits: 3 }, 's=event']);
    await server.rls.call('d', [{ of: 'k=event', hits: 3 }, 's=event']);
    await server.rls.call('d', [{ of: 'k=event2', hits: 0 }]);
    await waitUntil('the events are written', () => events().length === 5);
    const decided = { namespace: 'd', duration: YEAR_MS };
    const k = { ...decided, identifier: 'k=event', cost: 3, limit: 5 };
    const s = { ...decided, identifier: 's=event', cost: 1, limit: 1 };
    expect(events()).toEqual([
      { ...k, decision: 'allowed', remaining: 2 },
      { ...s, decision: 'allowed', remaining: 0 },
      { ...k, decision: 'denied', remaining: expect.any(Number) },
      { ...s, decision: 'denied', remaining: 0, shadow: true },
      { ...k, identifier: 'k=event2', cost: 0, decision: 'allowed', remaining: 5 },
    ]);
    const figures = async () => {
      const { namespaces } = await server.ok<{ namespaces: Fields[] }>('analytics.getNamespaces');
      return namespaces;
    };
    await waitUntil(
      'the figures of the domain are known',
      async () => (await figures()).length > 0,
    );
    expect(await figures()).toMatchObject([{ name: 'd', allowed: expect.any(Number) }]);
  });
});
