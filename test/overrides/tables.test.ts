import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';
import fc from 'fast-check';
import { afterAll, describe, expect, test } from 'vitest';
import type { PublishedTables } from '../../src/overrides/active.ts';
import type { OverrideEntry } from '../../src/overrides/sets.ts';
import { OverrideTables } from '../../src/overrides/tables.ts';
import { findOverride, HASH_KEY, OverrideResolver, overrideId } from '../support/override-model.ts';
import { removeDirectory, temporaryDirectory } from '../support/server.ts';
import { scaledCount } from '../support/test-scale.ts';

const TASK = new URL('../../dist/compile.js', import.meta.url);

const opened: OverrideTables[] = [];
const tables = () => {
  const made = new OverrideTables(HASH_KEY, TASK, (error) => {
    throw error;
  });
  opened.push(made);
  return made;
};
afterAll(async () => {
  for (const made of opened) await made.close();
});

const override = (
  row: number,
  namespace: string,
  identifier: string,
  isNamespacePattern = namespace.includes('*'),
): OverrideEntry => {
  const said = { id: overrideId(row), limit: row, durationMs: 1_000, isAsync: false };
  return { row, namespace, isNamespacePattern, identifier, ...said };
};

const text = (stars: boolean) =>
  fc
    .array(fc.constantFrom('a', 'b', '😀', ...(stars ? ['*', '*'] : [])), { maxLength: 4 })
    .map((characters) => characters.join(''));
/** Of a pattern, or of a name that may look like one. */
const overrides = fc
  .uniqueArray(fc.tuple(text(true), text(true), fc.boolean()), {
    maxLength: 20,
    selector: ([n, i, isName]) => [n, i, isName || !n.includes('*')].join('\0'),
  })
  .map((all) => {
    return all.map(([n, i, isName], at) => override(at + 1, n, i, !isName && n.includes('*')));
  });
const asked = fc.array(fc.tuple(text(true), text(true)), { minLength: 10, maxLength: 10 });

describe('the tables of overrides', () => {
  // One pool for all runs: a thread each would be a thousand.
  const reused = tables();
  const placed: OverrideEntry[] = [];
  const become = (wanted: readonly OverrideEntry[]) => {
    for (const old of placed.splice(0)) reused.apply(old, undefined);
    for (const one of wanted) reused.apply(undefined, one);
    placed.push(...wanted);
    return reused.compileSync();
  };

  test('give every check the override that the order of precedence gives it', () => {
    fc.assert(
      fc.property(overrides, asked, (all, questions) => {
        const governor = new OverrideResolver(become(all));
        for (const [namespace, identifier] of questions) {
          const expected = findOverride(all, namespace, identifier);
          expect(governor.resolveLimit(namespace, identifier)).toBe(expected?.limit);
        }
      }),
      { numRuns: 1_000 },
    );
  });

  test('do not depend on the order in which overrides came', () => {
    const shuffled = overrides.chain((all) => {
      const whole = { minLength: all.length, maxLength: all.length };
      return fc.tuple(fc.constant(all), fc.shuffledSubarray(all, whole), asked);
    });
    fc.assert(
      fc.property(shuffled, ([all, other, questions]) => {
        const first = new OverrideResolver(become(all));
        const before = questions.map(([n, i]) => first.resolveLimit(n, i));
        const second = new OverrideResolver(become(other));
        expect(questions.map(([n, i]) => second.resolveLimit(n, i))).toEqual(before);
      }),
      { numRuns: 500 },
    );
  });

  test('follow additions, changes and removals, compiled by a task, in few buffers', async () => {
    const made = tables();
    const governor = new OverrideResolver();
    const all = new Map<number, OverrideEntry>();
    let buffers = 0;
    for (let i = 0; i < 300; i++) {
      const row = 1 + ((i * 7) % 40);
      const before = all.get(row);
      const name = row % 2 === 0 ? `user_${row}` : `user_${row % 10}*${row}`;
      const after = { ...override(row, row % 3 === 0 ? 'n*' : 'n', name), limit: i + 1 };
      const isGone = before !== undefined && i % 5 === 0;
      made.apply(before, isGone ? undefined : after);
      if (isGone) all.delete(row);
      else all.set(row, after);
      const published: Partial<PublishedTables> = await made.compile();
      governor.overrides.activate(published);
      for (const kind of ['exact', 'trie'] as const) {
        const buffer = published[kind];
        if (!buffer) continue;
        const words = new Int32Array(buffer);
        // A word that nothing is kept in tells a buffer that was seen before.
        buffers += 1 - words[15];
        words[15] = 1;
      }
      for (let n = 0; n < 40; n++) {
        for (const identifier of [`user_${n}`, `user_${n % 10}-${n}`]) {
          const expected = findOverride([...all.values()], 'n', identifier)?.limit;
          expect(governor.resolveLimit('n', identifier)).toBe(expected);
        }
      }
    }
    // Two of each kind, and those that they outgrew, each of twice the size.
    expect(buffers).toBeLessThanOrEqual(2 * 2 * 4);
    for (const one of all.values()) made.apply(one, undefined);
    const nothing = await made.compile();
    expect(nothing).toEqual({ exact: null, trie: null });
    governor.overrides.activate(nothing);
    expect(governor.resolveLimit('n', 'user_2')).toBeUndefined();
  });

  test('are written all the same when the thread of the task cannot start, fails or hangs', async () => {
    const faults = [
      ['does not exist', undefined],
      ['does not load', 'throw new Error("loads badly")'],
      ['throws', 'export default () => { throw new Error("works badly") }'],
      ['exits', 'export default () => process.exit(3)'],
      ['hangs', 'export default () => { for (;;); }'],
    ] as const;
    for (const [what, source] of faults) {
      const directory = temporaryDirectory();
      const file = join(directory, 'task.mjs');
      if (source !== undefined) writeFileSync(file, source);
      const failures: Error[] = [];
      const made = new OverrideTables(HASH_KEY, pathToFileURL(file), (error) => {
        failures.push(error);
      });
      for (let i = 1; i <= 5; i++) {
        made.apply(undefined, override(i, 'n', `a*${i}`));
        made.apply(undefined, override(10 + i, 'n', `a${i}`));
        const governor = new OverrideResolver(await made.compile());
        expect([what, governor.resolveLimit('n', `abc${i}`)]).toEqual([what, i]);
        expect([what, governor.resolveLimit('n', `a${i}`)]).toEqual([what, 10 + i]);
        // After the third time the task is left alone for a while.
        expect([what, failures.length]).toEqual([what, Math.min(i, 3)]);
      }
      await made.close();
      removeDirectory(directory);
    }
  });

  test('are closed in peace while the thread of the task still loads its file', async () => {
    // Node 20 would end this process where the thread was ended at such a moment.
    for (let i = 0; i < scaledCount(60); i++) {
      const made = new OverrideTables(HASH_KEY, TASK, () => {});
      made.warmUp();
      await new Promise((next) => setTimeout(next, i));
      await made.close();
    }
  });
});
