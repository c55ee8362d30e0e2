import { describe, expect, test } from 'vitest';
import { MemoryError } from '../../src/errors.ts';
import { STARS_MAX } from '../../src/limits.ts';
import { type Wildcards, writeTrie } from '../../src/overrides/build.ts';
import { simplified } from '../../src/overrides/pattern.ts';
import { TRIE, Trie } from '../../src/overrides/trie.ts';
import { random } from '../support/load.ts';
import { matches } from '../support/patterns.ts';

/** Patterns of a namespace and an identifier, ranked in the order given. */
function wildcards(pairs: readonly (readonly [string, string])[]): Wildcards {
  const items = pairs.map(([namespace, identifier], rank) => {
    return { namespace: simplified(namespace), identifier: simplified(identifier), rank };
  });
  const order = (a: string, b: string) => (a < b ? -1 : Number(a > b));
  items.sort((a, b) => {
    return order(a.namespace, b.namespace) || order(a.identifier, b.identifier) || a.rank - b.rank;
  });
  const texts = items.flatMap(({ namespace, identifier }) => [namespace, identifier]);
  return {
    text: texts.join(''),
    lengths: Int32Array.from(texts, ({ length }) => length),
    ranks: Int32Array.from(items, ({ rank }) => rank),
    values: Float64Array.from(pairs.flatMap((_, rank) => [rank + 1, 1_000 + rank, rank % 2])),
  };
}

const trieOf = (pairs: readonly (readonly [string, string])[]) => {
  return new Trie(writeTrie(wildcards(pairs), undefined));
};
const ofIdentifiers = (patterns: string[]) => trieOf(patterns.map((text) => ['*', text] as const));
const find = (trie: Trie, namespace: string, identifier: string) => {
  return trie.find(trie.rootsFor(namespace), identifier);
};

describe('the trie', () => {
  test('finds what a naive matcher finds, in 10^6 random cases', () => {
    const seed = 20_261_121;
    const below = random(seed);
    const characters = ['a', 'a', 'b', '*', '*', '😀', '😃', '\uffff'];
    const text = (longest: number, stars: boolean) => {
      const own = stars ? characters : characters.filter((character) => character !== '*');
      return Array.from({ length: below(longest + 1) }, () => own[below(own.length)]).join('');
    };
    let spare: SharedArrayBuffer | undefined;
    let pairs = 0;
    let found = 0;
    while (pairs < 1_000_000) {
      const patterns = Array.from({ length: 1 + below(12) }, () => [text(2, true), text(6, true)]);
      const unique = new Map(patterns.map((pair) => [pair.join('\0'), pair as [string, string]]));
      const list = [...unique.values()];
      spare = writeTrie(wildcards(list), spare);
      const trie = new Trie(spare);
      for (let i = 0; i < 100; i++) {
        const namespace = text(2, false);
        const identifier = text(9, false);
        const expected = list.findIndex(([inNamespace, pattern]) => {
          return matches(inNamespace, namespace) && matches(pattern, identifier);
        });
        const value = find(trie, namespace, identifier);
        if (value !== expected) {
          expect({ seed, list, namespace, identifier, value }).toEqual({ expected });
        }
        pairs += list.length;
        if (value < 0) continue;
        found++;
        expect([trie.limit(value), trie.durationMs(value), trie.isAsync(value)]).toEqual([
          value + 1,
          1_000 + value,
          value % 2 === 1,
        ]);
      }
    }
    expect(found).toBeGreaterThan(10_000);
    console.info(`trie: ${pairs} pairs of pattern and text, ${found} matches, seed ${seed}`);
  });

  const cases: [string[], string, number][] = [
    [['*'], '', 0],
    [['***'], '', 0],
    [['***'], 'anything at all', 0],
    [['a*', 'a*b', 'a'], 'a', 0],
    [['a*b', 'a*', 'a'], 'ab', 0],
    [['a*b*c', '*c'], 'a-c', 1],
    [['a**b', 'a*b'], 'a--b', 0],
    [['*a*'], 'bab', 0],
    [['*aab'], 'aaaab', 0],
    [['*ab*ab'], 'abxab', 0],
    [['*ab*ab'], 'ab', -1],
    [['😀*'], '😀', 0],
    [['😀*'], '😃', -1],
    [['*\u{1f600}'], '\u{1f603}\u{1f600}', 0],
    [['(*', '*)'], '(', 0],
    [['()', '(*'], '()', 0],
    [['\u0000*'], '\u0000', 0],
    [['é*'], 'e\u0301', -1],
    [['A*'], 'a', -1],
  ];
  test.each(cases)('of %j matches %j as value %i', (patterns, text, value) => {
    expect(find(ofIdentifiers(patterns), 'n', text)).toBe(value);
  });

  test('matches namespaces first, each by itself: a star never crosses into the identifier', () => {
    const trie = trieOf([
      ['a*', 'x*'],
      ['*b', '*y'],
    ]);
    expect(find(trie, 'ab', 'xy')).toBe(0);
    expect(find(trie, 'cb', 'xy')).toBe(1);
    expect(find(trie, 'a', 'y')).toBe(-1);
    expect(find(trie, 'c', 'xy')).toBe(-1);
  });

  test('takes a bounded number of steps, whatever patterns and texts were made for', () => {
    const stars = STARS_MAX;
    const blowUps: [string[], string][] = [
      [[`${'a*'.repeat(stars)}b`], 'a'.repeat(512)],
      [[`${'*a'.repeat(stars)}*b`.slice(1)], 'a'.repeat(512)],
      [Array.from({ length: stars }, (_, i) => `${'*a'.repeat(i + 1)}b`), 'a'.repeat(512)],
      [Array.from({ length: 500 }, (_, i) => `*${'a'.repeat(i)}b`), 'a'.repeat(512)],
      [Array.from({ length: 500 }, (_, i) => `*a${i}*a*b`), 'a1'.repeat(256)],
    ];
    for (const [patterns, text] of blowUps) {
      const trie = ofIdentifiers(patterns);
      expect(find(trie, 'n', text)).toBe(-1);
      expect(trie.steps).toBeLessThanOrEqual(text.length * trie.places);
      expect(trie.steps).toBeGreaterThanOrEqual(text.length);
      expect(find(trie, 'n', `${text}b`)).toBe(patterns.findIndex((p) => matches(p, `${text}b`)));
    }
    // One live star and one place behind it: no more than two steps for each unit.
    const single = ofIdentifiers([`${'a*'.repeat(stars)}b`]);
    find(single, 'n', 'a'.repeat(512));
    expect(single.steps).toBeLessThanOrEqual(512 * 2 * stars);
  });

  test('is written into the spare buffer where it fits, else into a larger one', () => {
    const small = writeTrie(wildcards([['*', 'a*']]), undefined);
    expect(writeTrie(wildcards([['*', 'b*']]), small)).toBe(small);
    expect(find(new Trie(small), 'n', 'b')).toBe(0);
    const many = Array.from({ length: 100 }, (_, i) => ['*', `${i}-*`] as const);
    const large = writeTrie(wildcards(many), small);
    expect(large.byteLength).toBeGreaterThan(small.byteLength);
    expect(find(new Trie(large), 'n', '99-')).toBe(99);
  });

  test('is attached to only where it is whole and of this version', () => {
    const buffer = writeTrie(wildcards([['*', 'a*']]), undefined);
    const words = new Int32Array(buffer);
    for (const index of [...Object.values(TRIE)]) {
      const value = words[index];
      words[index] = index === TRIE.root ? 0 : 0x7fffff;
      expect(() => new Trie(buffer)).toThrow(MemoryError);
      words[index] = value;
    }
    expect(find(new Trie(buffer), 'n', 'a')).toBe(0);
  });
});
