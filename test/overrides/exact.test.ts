import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { MemoryError } from '../../src/core/errors.ts';
import type { Identity } from '../../src/core/hash.ts';
import { copyExact, ExactTable, WritableExactTable } from '../../src/overrides/exact.ts';
import { overrideId } from '../support/override-model.ts';

const publishTable = ({ buffer, records }: WritableExactTable, spare?: SharedArrayBuffer) => {
  return copyExact(buffer, records, spare);
};

const overrideFields = (limit: number) => {
  return { id: overrideId(limit), limit, durationMs: 1_000, isAsync: false };
};

/** Identities that want few slots, the last of the table among them. */
const identity = fc.record({
  h0: fc.constantFrom(0, 1, 2, 62, 63, -1, 0x7fffffff),
  h1: fc.integer({ min: 0, max: 3 }),
  h2: fc.integer({ min: 0, max: 1 }),
  h3: fc.integer({ min: 1, max: 2 }),
});
const change = fc.record({
  of: identity,
  id: fc.bigInt({ min: 0n, max: 2n ** 96n - 1n }).map((id) => {
    return `rlor_${id.toString(16).padStart(24, '0')}`;
  }),
  limit: fc.integer({ min: 0, max: 1_000 }),
  durationMs: fc.integer({ min: 1_000, max: 2_000 }),
  isAsync: fc.boolean(),
  isRemoval: fc.boolean(),
});

describe('the table of exact overrides', () => {
  test('has what was put into it and not removed, in every copy, whatever wants the same slot', () => {
    fc.assert(
      fc.property(fc.array(change, { maxLength: 200 }), fc.array(identity), (changes, asked) => {
        const table = new WritableExactTable();
        const model = new Map<string, (typeof changes)[number]>();
        const keyOf = ({ h0, h1, h2, h3 }: Identity) => [h0, h1, h2, h3].join();
        for (const one of changes) {
          const key = keyOf(one.of);
          if (!one.isRemoval) {
            table.put(one.of, one);
            model.set(key, one);
          } else if (model.delete(key)) table.remove(one.of);
          else expect(() => table.remove(one.of)).toThrow('has not what is to be removed');
        }
        expect(table.records).toBe(model.size);
        if (model.size === 0) return;
        const read = new ExactTable(publishTable(table));
        for (const id of [...asked, ...changes.map((one) => one.of)]) {
          const expected = model.get(keyOf(id));
          const at = read.find(id);
          expect(at >= 0).toBe(expected !== undefined);
          if (expected === undefined) continue;
          const said = [read.limit(at), read.durationMs(at), read.isAsync(at), read.id(at)];
          const { limit, durationMs, isAsync, id: name } = expected;
          expect(said).toEqual([limit, durationMs, isAsync, name]);
        }
      }),
      { numRuns: 1_000 },
    );
  });

  test('is copied into the spare buffer where it fits, else into a larger one', () => {
    const table = new WritableExactTable();
    const put = (h0: number) => table.put({ h0, h1: 1, h2: 1, h3: 1 }, overrideFields(h0));
    put(1);
    const small = publishTable(table);
    put(2);
    expect(publishTable(table, small)).toBe(small);
    for (let h0 = 0; h0 < 1_000; h0++) put(h0);
    const large = publishTable(table, small);
    expect(large.byteLength).toBeGreaterThan(small.byteLength);
    const read = new ExactTable(large);
    for (let h0 = 0; h0 < 1_000; h0++) {
      expect(read.limit(read.find({ h0, h1: 1, h2: 1, h3: 1 }))).toBe(h0);
    }
    expect(read.find({ h0: 1_000, h1: 1, h2: 1, h3: 1 })).toBe(-1);
  });

  test('is attached to only where it is whole', () => {
    const table = new WritableExactTable();
    table.put({ h0: 1, h1: 1, h2: 1, h3: 1 }, overrideFields(5));
    const exact = publishTable(table);
    const words = new Int32Array(exact);
    for (const [index, value] of [
      [0, 0],
      [1, 99],
      [2, -1],
      [2, 1_000_000],
      [3, 3],
      [3, 1_024],
    ]) {
      const before = words[index];
      words[index] = value;
      expect(() => new ExactTable(exact)).toThrow(MemoryError);
      words[index] = before;
    }
    expect(() => new ExactTable(exact)).not.toThrow();
  });
});
