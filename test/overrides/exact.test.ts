import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { MemoryError } from '../../src/core/errors.ts';
import type { Identity } from '../../src/core/hash.ts';
import { copyExact, ExactTable, WritableExactTable } from '../../src/overrides/exact.ts';
import { NO_CONCURRENCY } from '../../src/overrides/id.ts';
import { trialCount } from '../support/guarantees.ts';
import { overrideId } from '../support/override-model.ts';

const publishTable = ({ buffer }: WritableExactTable, spare?: SharedArrayBuffer) => {
  return copyExact(buffer, spare);
};

const overrideFields = (limit: number) => {
  return { id: overrideId(limit), limit, durationMs: 1_000, isAsync: false };
};

/** Identities that collide in few slots, also in the last slot of the table. */
const identities = fc.record({
  h0: fc.constantFrom(0, 1, 2, 62, 63, -1, 0x7fffffff),
  h1: fc.integer({ min: 0, max: 3 }),
  h2: fc.integer({ min: 0, max: 1 }),
  h3: fc.integer({ min: 1, max: 2 }),
});
const values = fc.record({
  identity: identities,
  id: fc.bigInt({ min: 0n, max: 2n ** 96n - 1n }).map((id) => {
    return `rlor_${id.toString(16).padStart(24, '0')}`;
  }),
  limit: fc.integer({ min: 0, max: 1_000 }),
  durationMs: fc.integer({ min: 1_000, max: 2_000 }),
  isAsync: fc.boolean(),
  concurrency: fc.integer({ min: 0, max: 9 }),
  isRemoval: fc.boolean(),
});
const changes = fc
  .tuple(values, fc.boolean())
  .map(([{ concurrency, ...change }, hasConcurrency]) => {
    return { ...change, ...(hasConcurrency && { concurrency }) };
  });

describe('the table of exact overrides', () => {
  test('contains in each copy what was put and not removed, also when slots collide', () => {
    fc.assert(
      fc.property(fc.array(changes, { maxLength: 100 }), fc.array(identities), (all, others) => {
        const table = new WritableExactTable();
        const model = new Map<string, (typeof all)[number]>();
        const keyOf = ({ h0, h1, h2, h3 }: Identity) => [h0, h1, h2, h3].join();
        for (const change of all) {
          const { identity } = change;
          const key = keyOf(identity);
          if (!change.isRemoval) {
            table.put(identity, change);
            model.set(key, change);
          } else if (model.delete(key)) table.remove(identity);
          else expect(() => table.remove(identity)).toThrow('no entry to remove');
        }
        expect(table.records).toBe(model.size);
        if (model.size === 0) return;
        const copy = new ExactTable(publishTable(table));
        for (const identity of [...others, ...all.map((change) => change.identity)]) {
          const expected = model.get(keyOf(identity));
          const at = copy.find(identity);
          expect(at >= 0).toBe(expected !== undefined);
          if (expected === undefined) continue;
          const found = [copy.limit(at), copy.durationMs(at), copy.isAsync(at), copy.id(at)];
          const { limit, durationMs, isAsync, id } = expected;
          expect(found).toEqual([limit, durationMs, isAsync, id]);
          const { concurrency } = expected;
          expect(copy.concurrency(at)).toBe(concurrency ?? NO_CONCURRENCY);
          expect(table.get(identity)?.concurrency).toBe(concurrency);
        }
      }),
      { numRuns: trialCount(150, 1_000) },
    );
  });

  test('is copied into the spare buffer if it fits, else into a larger buffer', () => {
    const table = new WritableExactTable();
    const put = (h0: number) => table.put({ h0, h1: 1, h2: 1, h3: 1 }, overrideFields(h0));
    put(1);
    const small = publishTable(table);
    put(2);
    expect(publishTable(table, small)).toBe(small);
    for (let h0 = 0; h0 < 1_000; h0++) put(h0);
    const large = publishTable(table, small);
    expect(large.byteLength).toBeGreaterThan(small.byteLength);
    const copy = new ExactTable(large);
    for (let h0 = 0; h0 < 1_000; h0++) {
      expect(copy.limit(copy.find({ h0, h1: 1, h2: 1, h3: 1 }))).toBe(h0);
    }
    expect(copy.find({ h0: 1_000, h1: 1, h2: 1, h3: 1 })).toBe(-1);
  });

  test('is attached to only if it is complete', () => {
    const table = new WritableExactTable();
    table.put({ h0: 1, h1: 1, h2: 1, h3: 1 }, overrideFields(5));
    const exact = publishTable(table);
    const words = new Int32Array(exact);
    for (const [index, value] of [
      [0, 0],
      [1, 1_024],
    ]) {
      const before = words[index];
      words[index] = value;
      expect(() => new ExactTable(exact)).toThrow(MemoryError);
      words[index] = before;
    }
    expect(() => new ExactTable(exact)).not.toThrow();
  });
});
