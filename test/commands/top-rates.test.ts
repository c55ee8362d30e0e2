/** The rates of `weir top`, from a model of a server whose hours end when a test says so. */

import { expect, test } from 'vitest';
import type { AnalyticsReader, ListedIdentifier } from '../../src/commands/analytics.ts';
import { IdentifierMeter, NamespaceMeter, SmoothedRates } from '../../src/commands/top-rates.ts';
import { ANALYTICS_IDENTIFIERS_MAX } from '../../src/core/constants.ts';
import { addFigures, type Figures, NO_FIGURES } from '../../src/core/figures.ts';

const HOUR_MS = 3_600_000;

class ModelServer implements AnalyticsReader {
  /** The current hour begins at this time. */
  hour = 500_000 * HOUR_MS;
  denied: ListedIdentifier[] = [];
  readonly #hours = new Map<number, Map<string, Figures>>();

  count(name: string, allowed: number, denied: number): void {
    const names = this.#hours.get(this.hour) ?? new Map<string, Figures>();
    const added = { ...NO_FIGURES, allowed, denied };
    this.#hours.set(this.hour, names.set(name, addFigures(names.get(name) ?? NO_FIGURES, added)));
  }

  namespaces: AnalyticsReader['namespaces'] = async ({ start, limit = 100 } = {}) => {
    const from = start ?? this.hour - 23 * HOUR_MS;
    const sums = new Map<string, Figures>();
    for (const [hour, names] of this.#hours) {
      if (hour < from) continue;
      for (const [name, figures] of names) {
        sums.set(name, addFigures(sums.get(name) ?? NO_FIGURES, figures));
      }
    }
    const namespaces = [...sums].map(([name, figures]) => ({ name, ...figures }));
    const shown = namespaces.slice(0, limit);
    return { start: from, end: this.hour + HOUR_MS, namespaces: shown, total: sums.size };
  };

  timeline: AnalyticsReader['timeline'] = async ({ start = 0, granularity }) => {
    const points = [...this.#hours].flatMap(([time, names]) => {
      const figures = names.get('a');
      return time < start || figures === undefined ? [] : [{ time, ...figures }];
    });
    return { namespace: { name: 'a' }, granularity, start, end: this.hour + HOUR_MS, points };
  };

  identifiers: AnalyticsReader['identifiers'] = async () => {
    const range = { start: this.hour, end: this.hour + HOUR_MS };
    const lists = { denied: this.denied, spent: [] };
    return { namespace: { name: 'a' }, ...range, complete: true, ...lists };
  };
}

const item = (identifier: string, count: number, error = 0) => ({ identifier, count, error });
/** The rates as a share of all: they depend on the time between two readings. */
const shares = (
  rates: readonly { allowed?: number | undefined; denied?: number | undefined }[],
) => {
  const all = rates.reduce((sum, { allowed = 0, denied = 0 }) => sum + allowed + denied, 0);
  return rates.map(({ allowed = 0, denied = 0 }) => {
    return [allowed / all, denied / all].map((share) => Math.round(share * 100));
  });
};

test.each([
  ['all namespaces', undefined],
  ['one namespace', { namespaceName: 'a' }],
] as const)(
  'the rates of %s include the checks before and after the end of an hour',
  async (_, of) => {
    const server = new ModelServer();
    const meter = new NamespaceMeter(server, of);
    server.count('a', 1_000, 1_000);
    const [first] = await meter.refresh();
    expect(first).toMatchObject({ name: 'a', allowed: undefined, hour: { allowed: 1_000 } });
    server.count('a', 10, 0);
    server.hour += HOUR_MS;
    server.count('a', 20, 70);
    const second = await meter.refresh();
    expect(shares(second)).toEqual([[30, 70]]);
    expect(second[0].hour).toMatchObject({ allowed: 20, denied: 70 });
    expect(shares(await meter.refresh())).toEqual([[Number.NaN, Number.NaN]]);
    server.count('a', 25, 75);
    const last = await meter.refresh();
    expect(shares(last)).toEqual([[25, 75]]);
    expect(last[0].hour).toMatchObject({ allowed: 45, denied: 145 });
  },
);

test('a namespace that was beyond the list has no rate, and lost figures give no negative one', async () => {
  const server = new ModelServer();
  for (let i = 0; i <= 1_000; i++) server.count(`n${i}`, 5, 0);
  const listed = server.namespaces;
  const meter = new NamespaceMeter(server);
  await meter.refresh();
  server.namespaces = async (fields) => {
    const response = await listed(fields);
    const lost = { ...response.namespaces[0], allowed: 1 };
    return { ...response, namespaces: [lost, { ...lost, name: 'n1000' }] };
  };
  const rates = await meter.refresh();
  expect(rates.map(({ name, allowed }) => [name, allowed])).toEqual([
    ['n0', 0],
    ['n1000', undefined],
  ]);
});

test('identifiers are sorted by the growth of their proven counts', async () => {
  const server = new ModelServer();
  const meter = new IdentifierMeter(server, { namespaceName: 'a' });
  server.denied = [item('busy', 900), item('replaced', 80, 10)];
  expect((await meter.refresh()).denied[0]).toMatchObject({ perSecond: undefined, count: 900 });
  // `replaced` was evicted from the sketch, and its error has grown more than its count.
  server.denied = [item('busy', 905), item('new', 60, 50), item('replaced', 100, 60)];
  const { denied } = await meter.refresh();
  expect(denied.map(({ identifier }) => identifier)).toEqual(['new', 'busy', 'replaced']);
  expect(denied[0].perSecond! / denied[1].perSecond!).toBeCloseTo(2);
  expect(denied[2].perSecond).toBe(0);
  server.hour += HOUR_MS;
  server.denied = [item('busy', 10), item('new', 30)];
  const next = (await meter.refresh()).denied;
  expect(next.map(({ identifier }) => identifier)).toEqual(['new', 'busy']);
  expect(next[0].perSecond! / next[1].perSecond!).toBeCloseTo(3);
});

test('an identifier that enters a full list grew at least from its smallest count', async () => {
  const server = new ModelServer();
  const meter = new IdentifierMeter(server, { namespaceName: 'a' });
  const full = Array.from({ length: ANALYTICS_IDENTIFIERS_MAX }, (_, i) =>
    item(`i${i}`, 1_000 - i),
  );
  server.denied = full;
  await meter.refresh();
  server.denied = [...full.slice(1), item('entered', 971), item('i0', 1_010)];
  const { denied } = await meter.refresh();
  expect(denied.slice(0, 2).map(({ identifier }) => identifier)).toEqual(['entered', 'i0']);
  expect(denied[0].perSecond! / denied[1].perSecond!).toBeCloseTo(2);
});

test('identifiers that are cut off at the same place are added up', async () => {
  const server = new ModelServer();
  const meter = new IdentifierMeter(server, { namespaceName: 'a' });
  const cut = (count: number) => ({ ...item('long', count), cutOff: true });
  server.denied = [cut(5), item('long', 4), cut(3)];
  const { denied } = await meter.refresh();
  expect(denied.map(({ count, cutOff }) => [count, cutOff])).toEqual([
    [8, true],
    [4, undefined],
  ]);
});

test('rows keep their places during a burst, and change them when rates have changed for long', () => {
  const rates = new SmoothedRates();
  const highest = (a: number, b: number, atMs: number) => {
    const [ofA, ofB] = rates.update(
      [
        ['a', a],
        ['b', b],
      ],
      atMs,
    );
    return ofA > ofB ? 'a' : 'b';
  };
  expect(highest(100, 90, 0)).toBe('a');
  // Rates of one second vary around a mean.
  const noise = [95, 105, 97, 104, 96, 103];
  const places = noise.map((b, i) => highest(100 + (i % 2), b, (i + 1) * 1_000));
  expect(new Set(places)).toEqual(new Set(['a']));
  expect(highest(100, 400, 7_000)).toBe('b');
  expect(highest(100, 0, 8_000)).toBe('b');
  expect(highest(100, 0, 30_000)).toBe('a');
  // A key that was away begins with its rate.
  expect(rates.update([['a', 1]], 31_000)).toHaveLength(1);
  expect(rates.update([['b', 50]], 32_000)).toEqual([50]);
});
