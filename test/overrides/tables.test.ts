import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';
import fc from 'fast-check';
import { afterAll, describe, expect, test } from 'vitest';
import type { PublishedTables } from '../../src/overrides/active.ts';
import type { OverrideEntry } from '../../src/overrides/sets.ts';
import { OverrideTables } from '../../src/overrides/tables.ts';
import { trialCount } from '../support/guarantees.ts';
import { findOverride, HASH_KEY, OverrideResolver, overrideId } from '../support/override-model.ts';
import { removeDirectory, temporaryDirectory } from '../support/server.ts';

const TASK = new URL('../../dist/compile.js', import.meta.url);

const opened: OverrideTables[] = [];
const newTables = () => {
  const tables = new OverrideTables(HASH_KEY, TASK, (error) => {
    throw error;
  });
  opened.push(tables);
  return tables;
};
afterAll(async () => {
  for (const tables of opened) await tables.close();
});

const override = (
  row: number,
  namespace: string,
  identifier: string,
  isNamespacePattern = namespace.includes('*'),
): OverrideEntry => {
  const value = { id: overrideId(row), limit: row, durationMs: 1_000, isAsync: false };
  // Also 0, which denies all leases.
  const leases = row % 3 === 0 ? {} : { concurrency: row - 1 };
  return { row, namespace, isNamespacePattern, identifier, ...value, ...leases };
};

const text = (stars: boolean) =>
  fc
    .array(fc.constantFrom('a', 'b', '😀', ...(stars ? ['*', '*'] : [])), { maxLength: 4 })
    .map((characters) => characters.join(''));
/** The namespace is a pattern, or a name that may contain stars. */
const overrides = fc
  .uniqueArray(fc.tuple(text(true), text(true), fc.boolean()), {
    maxLength: 20,
    selector: ([n, i, isName]) => [n, i, isName || !n.includes('*')].join('\0'),
  })
  .map((all) => {
    return all.map(([n, i, isName], at) => override(at + 1, n, i, !isName && n.includes('*')));
  });
const checks = fc.array(fc.tuple(text(true), text(true)), { minLength: 10, maxLength: 10 });

describe('the tables of overrides', () => {
  // All runs share the tables.
  const shared = newTables();
  const current: OverrideEntry[] = [];
  const publish = (all: readonly OverrideEntry[]) => {
    for (const old of current.splice(0)) shared.apply(old, undefined);
    for (const one of all) shared.apply(undefined, one);
    current.push(...all);
    return shared.compileSync();
  };

  test('give each check the override that takes precedence', () => {
    fc.assert(
      fc.property(overrides, checks, (all, texts) => {
        const resolver = new OverrideResolver(publish(all));
        for (const [namespace, identifier] of texts) {
          const expected = findOverride(all, namespace, identifier);
          expect(resolver.resolveLimit(namespace, identifier)).toBe(expected?.limit);
        }
      }),
      { numRuns: trialCount(200, 1_000) },
    );
  });

  test('give each acquire the concurrency of the override that a check would get', () => {
    fc.assert(
      fc.property(overrides, checks, (all, texts) => {
        const resolver = new OverrideResolver(publish(all));
        for (const [namespace, identifier] of texts) {
          const expected = findOverride(all, namespace, identifier);
          const found = resolver.resolveConcurrency(namespace, identifier);
          expect(found).toBe(expected?.concurrency);
          const { winner } = shared.match(namespace, identifier, 0);
          expect(winner?.concurrency).toBe(found);
        }
      }),
      { numRuns: trialCount(200, 1_000) },
    );
  });

  test('list all overrides that match a check, in order of precedence', () => {
    fc.assert(
      fc.property(overrides, checks, (all, texts) => {
        publish(all);
        for (const [namespace, identifier] of texts) {
          const left = [...all];
          const expected: string[] = [];
          for (;;) {
            const next = findOverride(left, namespace, identifier);
            if (next === undefined) break;
            expected.push(next.id);
            left.splice(left.indexOf(next), 1);
          }
          const { winner, losers, count } = shared.match(namespace, identifier, 3);
          expect(winner?.id).toBe(expected[0]);
          expect(losers.map(({ id }) => id)).toEqual(expected.slice(1, 4));
          expect(count).toBe(expected.length);
        }
      }),
      { numRuns: trialCount(100, 500) },
    );
  });

  test('say why each override that matches does not apply', () => {
    const tables = newTables();
    const exact = { ...override(1, 'n', 'user_1'), isAsync: true };
    const all = [exact, override(2, 'n', 'user_*'), override(3, '*', 'user_1')];
    for (const one of all) tables.apply(undefined, one);
    const { row: _, ...winner } = exact;
    expect(tables.match('n', 'user_1', 9)).toMatchObject({
      winner,
      losers: [
        { id: overrideId(2), precedence: { rule: 'exact_identifier' } },
        { id: overrideId(3), precedence: { rule: 'exact_namespace' } },
      ],
      count: 3,
    });
    tables.apply(exact, undefined);
    expect(tables.match('n', 'user_1', 9)).toMatchObject({
      winner: { id: overrideId(2) },
      count: 2,
    });
    expect(tables.match('n', 'user', 9)).toEqual({ winner: undefined, losers: [], count: 0 });
  });

  test('give a blocked identifier its block, and after the block what applied before', () => {
    const places = ['n', 'm'].flatMap((namespace) => ['a', '*', 'a*'].map((i) => [namespace, i]));
    const change = fc.record({
      place: fc.constantFrom(...places),
      isBlocking: fc.boolean(),
      isRemoval: fc.boolean(),
    });
    fc.assert(
      fc.property(fc.array(change, { minLength: 1, maxLength: 30 }), (changes) => {
        publish([]);
        const [overrides, blocks] = [
          new Map<string, OverrideEntry>(),
          new Map<string, OverrideEntry>(),
        ];
        const row = (texts: string[], isBlocking: boolean) =>
          1 + places.indexOf(texts) + (isBlocking ? 50 : 0);
        for (const { place, isBlocking, isRemoval } of changes) {
          const [namespace, identifier] = place;
          const model = isBlocking ? blocks : overrides;
          const one = override(row(place, isBlocking), namespace, identifier, false);
          const block = {
            ...one,
            limit: 0,
            concurrency: 0,
            isBlocking: true as const,
            expiresMs: 9,
          };
          const after = isRemoval ? undefined : isBlocking ? block : one;
          const before = model.get(place.join());
          if (before === undefined && after === undefined) continue;
          shared.apply(before, after);
          if (after === undefined) model.delete(place.join());
          else model.set(place.join(), after);
        }
        current.push(...blocks.values(), ...overrides.values());
        const resolver = new OverrideResolver(shared.compileSync());
        for (const [namespace, identifier] of [...places, ['n', 'b'], ['n', 'a1']]) {
          const place = `${namespace},${identifier}`;
          const next = findOverride([...overrides.values()], namespace, identifier);
          const block = blocks.get(place);
          expect(resolver.resolveLimit(namespace, identifier)).toBe((block ?? next)?.limit);
          const { winner, losers, count } = shared.match(namespace, identifier, 1);
          expect(winner?.id).toBe((block ?? next)?.id);
          if (block === undefined) continue;
          expect(losers.map(({ id }) => id)).toEqual(next === undefined ? [] : [next.id]);
          for (const { precedence } of losers) expect(precedence.rule).toBe('block');
          expect(count).toBeGreaterThan(losers.length);
        }
      }),
      { numRuns: trialCount(200, 1_000) },
    );
  });

  test('contain additions, changes and removals that a task compiles, and reuse their buffers', async () => {
    const tables = newTables();
    const resolver = new OverrideResolver();
    const all = new Map<number, OverrideEntry>();
    let buffers = 0;
    for (let i = 0; i < 120; i++) {
      const row = 1 + ((i * 7) % 40);
      const before = all.get(row);
      const name = row % 2 === 0 ? `user_${row}` : `user_${row % 10}*${row}`;
      const after = { ...override(row, row % 3 === 0 ? 'n*' : 'n', name), limit: i + 1 };
      const isRemoved = before !== undefined && i % 5 === 0;
      tables.apply(before, isRemoved ? undefined : after);
      if (isRemoved) all.delete(row);
      else all.set(row, after);
      const published: Partial<PublishedTables> = await tables.compile();
      resolver.overrides.activate(published);
      for (const kind of ['exact', 'trie'] as const) {
        const buffer = published[kind];
        if (!buffer) continue;
        const words = new Int32Array(buffer);
        // An unused word marks the buffers that have been counted.
        buffers += 1 - words[15];
        words[15] = 1;
      }
      for (let n = 0; n < 40; n++) {
        for (const identifier of [`user_${n}`, `user_${n % 10}-${n}`]) {
          const expected = findOverride([...all.values()], 'n', identifier);
          expect(resolver.resolveLimit('n', identifier)).toBe(expected?.limit);
          const concurrency = resolver.resolveConcurrency('n', identifier);
          expect(concurrency).toBe(expected?.concurrency);
        }
      }
    }
    // Two of each kind, and their predecessors, each of half the size of the next.
    expect(buffers).toBeLessThanOrEqual(2 * 2 * 4);
    for (const one of all.values()) tables.apply(one, undefined);
    const empty = await tables.compile();
    expect(empty).toEqual({ exact: null, trie: null });
    resolver.overrides.activate(empty);
    expect(resolver.resolveLimit('n', 'user_2')).toBeUndefined();
  });

  test.each([
    ['does not exist', undefined],
    ['does not load', 'throw new Error("loads badly")'],
    ['throws', 'export default () => { throw new Error("works badly") }'],
    ['exits', 'export default () => process.exit(3)'],
    ['does not end', 'export default () => { for (;;); }'],
  ])('are written by the main thread when the task %s', async (fault, source) => {
    const directory = temporaryDirectory();
    const file = join(directory, 'task.mjs');
    if (source !== undefined) writeFileSync(file, source);
    const failures: Error[] = [];
    const tables = new OverrideTables(HASH_KEY, pathToFileURL(file), (error) => {
      failures.push(error);
    });
    // After three failures the next changes do not use the task. One timeout is enough.
    const changes = fault === 'does not end' ? 1 : 5;
    for (let i = 1; i <= changes; i++) {
      tables.apply(undefined, override(i, 'n', `a*${i}`));
      tables.apply(undefined, override(10 + i, 'n', `a${i}`));
      const resolver = new OverrideResolver(await tables.compile());
      expect(resolver.resolveLimit('n', `abc${i}`)).toBe(i);
      expect(resolver.resolveLimit('n', `a${i}`)).toBe(10 + i);
      expect(failures.length).toBe(Math.min(i, 3));
    }
    await tables.close();
    removeDirectory(directory);
  });

  test('close without a crash while the thread of the task loads its file', async () => {
    // Node 20 aborts the process if a thread is terminated at this moment.
    const moments = trialCount(8, 50);
    for (let i = 0; i < moments; i++) {
      const tables = new OverrideTables(HASH_KEY, TASK, () => {});
      tables.warmUp();
      await new Promise((next) => setTimeout(next, (50 * i) / moments));
      await tables.close();
    }
  }, 300_000);
});
