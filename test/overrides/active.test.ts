import { describe, expect, test } from 'vitest';
import { NOT_OVERRIDDEN } from '../../src/overrides/active.ts';
import { NO_USAGE_ROW } from '../../src/overrides/id.ts';
import type { OverrideEntry } from '../../src/overrides/sets.ts';
import { OverrideTables } from '../../src/overrides/tables.ts';
import { HASH_KEY, OverrideResolver, overrideId } from '../support/override-model.ts';

const UNUSED_TASK = new URL('file:///unused');

const entry = (row: number, identifier: string): OverrideEntry => ({
  row,
  namespace: 'n',
  isNamespacePattern: false,
  identifier,
  id: overrideId(row),
  limit: row,
  durationMs: 60_000,
  isAsync: false,
});

/** Published tables with an exact override in row 1 and a wildcard override in row 2. */
function publish() {
  const tables = new OverrideTables(HASH_KEY, UNUSED_TASK, () => {});
  tables.apply(undefined, entry(1, 'exact'));
  tables.apply(undefined, entry(2, 'user_*'));
  return { tables, resolver: new OverrideResolver(tables.compileSync()) };
}

describe('the resolution of overrides', () => {
  test('writes the id into a check that needs it, and no id into any other', () => {
    const { resolver } = publish();
    for (const [identifier, limit, id] of [
      ['exact', 1, overrideId(1)],
      ['user_1', 2, overrideId(2)],
      ['other', -1, undefined],
    ] as const) {
      expect(resolver.resolve('n', identifier)).toMatchObject({ limit, overrideId: id });
      const without = resolver.resolve('n', identifier, false);
      expect(without).toMatchObject({ limit, overrideId: undefined });
    }
  });

  test('says in which row the check is counted', () => {
    const { tables, resolver } = publish();
    const rows = () => ['exact', 'user_1', 'other'].map((it) => resolver.usageRow('n', it));
    expect(rows()).toEqual([NO_USAGE_ROW, NO_USAGE_ROW, NOT_OVERRIDDEN]);
    tables.apply(entry(1, 'exact'), { ...entry(1, 'exact'), usageRow: 0 });
    tables.apply(entry(2, 'user_*'), { ...entry(2, 'user_*'), usageRow: NO_USAGE_ROW - 1 });
    resolver.overrides.activate(tables.compileSync());
    expect(rows()).toEqual([0, NO_USAGE_ROW - 1, NOT_OVERRIDDEN]);
    expect(resolver.resolve('n', 'user_1').overrideId).toBe(overrideId(2));
  });

  test('says in which row an acquire is counted whose limit it replaces', () => {
    const { tables, resolver } = publish();
    const resolved = () =>
      ['exact', 'user_1', 'other'].map((it) => resolver.resolveAcquire('n', it));
    const own = { limit: -1, usageRow: NOT_OVERRIDDEN };
    expect(resolved()).toEqual([own, own, own]);
    const leases = { concurrency: 0, usageRow: 7 };
    tables.apply(entry(1, 'exact'), { ...entry(1, 'exact'), ...leases });
    tables.apply(entry(2, 'user_*'), { ...entry(2, 'user_*'), concurrency: 5, usageRow: 8 });
    resolver.overrides.activate(tables.compileSync());
    expect(resolved()).toEqual([{ limit: 0, usageRow: 7 }, { limit: 5, usageRow: 8 }, own]);
    // A set without it replaces the whole override.
    tables.apply(entry(1, 'exact'), { ...entry(1, 'exact'), usageRow: 7 });
    tables.apply(entry(2, 'user_*'), { ...entry(2, 'user_*'), usageRow: 8 });
    resolver.overrides.activate(tables.compileSync());
    expect(resolved()).toEqual([own, own, own]);
  });

  test('leaves the id as it was resolved when the tables are replaced and rewritten', () => {
    const { tables, resolver } = publish();
    const checks = [resolver.resolve('n', 'exact'), resolver.resolve('n', 'user_1')];
    // The third version is written into the buffers of the first.
    for (let version = 1; version <= 2; version++) {
      for (const [row, identifier] of [
        [1, 'exact'],
        [2, 'user_*'],
      ] as const) {
        const before = entry(row + 10 * (version - 1), identifier);
        tables.apply({ ...before, row }, { ...entry(row + 10 * version, identifier), row });
      }
      resolver.overrides.activate(tables.compileSync());
    }
    expect(checks.map((check) => check.overrideId)).toEqual([overrideId(1), overrideId(2)]);
    expect(resolver.resolve('n', 'exact').overrideId).toBe(overrideId(21));
    expect(resolver.resolve('n', 'user_1').overrideId).toBe(overrideId(22));
  });
});
