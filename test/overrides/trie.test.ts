import { describe, expect, test } from 'vitest';
import { WILDCARDS_PER_TEXT_MAX } from '../../src/core/constants.ts';
import { MemoryError } from '../../src/core/errors.ts';
import { encodeValues, type SerializedWildcards, writeTrie } from '../../src/overrides/build.ts';
import { TRIE } from '../../src/overrides/layout.ts';
import { collapseStars } from '../../src/overrides/pattern.ts';
import { Trie } from '../../src/overrides/trie.ts';
import { newSeed, trialCount } from '../support/guarantees.ts';
import { matches, overrideId } from '../support/override-model.ts';
import { seededRandom } from '../support/seeded-random.ts';

/** Pairs of patterns for namespace and identifier, in order of precedence. */
function wildcards(pairs: readonly (readonly [string, string])[]): SerializedWildcards {
  const texts = pairs.flatMap((pair) => pair.map(collapseStars));
  return {
    text: texts.join(''),
    lengths: Int32Array.from(texts, ({ length }) => length),
    areBlocks: new Uint8Array(pairs.length),
    values: encodeValues(
      pairs.map((_, index) => ({
        ...{ id: overrideId(index), limit: index + 1, durationMs: 1_000 + index },
        isAsync: index % 2 === 1,
      })),
    ),
    concurrencies: Float64Array.from(pairs, (_, index) => index + 5_000),
  };
}

const trieOf = (pairs: readonly (readonly [string, string])[]) => {
  return new Trie(writeTrie(wildcards(pairs), undefined));
};
const ofIdentifiers = (patterns: string[]) => trieOf(patterns.map((text) => ['*', text] as const));
const find = (trie: Trie, namespace: string, identifier: string) => {
  return trie.find(trie.rootsFor(namespace), identifier);
};

/** Pairs of patterns and texts of each kind. */
const PAIRS = trialCount(50_000, 700_000);

/** A kind of random patterns and texts on which the trie is compared with a naive matcher. */
interface PatternKind {
  name: string;
  pattern: (below: (n: number) => number) => [namespace: string, identifier: string];
  text: (below: (n: number) => number) => [namespace: string, identifier: string];
  /** Patterns in a set. */
  most: number;
}

const draw = (below: (n: number) => number, characters: readonly string[], longest: number) => {
  const length = below(longest + 1);
  return Array.from({ length }, () => characters[below(characters.length)]).join('');
};
/** Runs of up to 60 equal characters, as segments of several chunks have them. */
const runs = (below: (n: number) => number, more: readonly string[], most: number) => {
  const characters = ['a', 'a', '😀', 'b', ...more];
  return Array.from({ length: 1 + below(most) }, () => {
    const character = characters[below(characters.length)];
    return character.repeat(character === 'a' ? 1 + below(60) : 1);
  }).join('');
};
const FEW = ['a', 'a', 'b', '😀', '😃', '\uffff', '\u{10000}'];
const PATTERN_KINDS: PatternKind[] = [
  {
    name: 'short patterns with many stars',
    pattern: (below) => [draw(below, [...FEW, '*', '*'], 2), draw(below, [...FEW, '*', '*'], 6)],
    text: (below) => [draw(below, [...FEW, '*'], 2), draw(below, [...FEW, '*'], 9)],
    most: 12,
  },
  {
    name: 'many infixes of a prefix and a suffix',
    pattern: (below) => {
      const infix = draw(below, ['a', 'b', 'c', '*'], 8);
      return [below(4) === 0 ? `*${draw(below, ['a', 'b', '*'], 4)}*` : '*', `*${infix}*`];
    },
    text: (below) => [draw(below, ['a', 'b'], 6), draw(below, ['a', 'b', 'c'], 20)],
    most: 60,
  },
  {
    name: 'prefixes and suffixes that overlap',
    pattern: (below) => ['*', `${draw(below, ['a', 'b'], 4)}*${draw(below, ['a', 'b', '*'], 6)}`],
    text: (below) => ['n', draw(below, ['a', 'b'], 10)],
    most: 40,
  },
  {
    name: 'segments that are longer than the middles of the trie',
    pattern: (below) => ['*', `${draw(below, ['a', '*'], 2)}*${runs(below, ['*'], 4)}*b`],
    text: (below) => ['n', `${runs(below, [], 9)}${draw(below, ['b'], 1)}`],
    most: 12,
  },
  {
    name: 'many namespace patterns with few identifiers',
    pattern: (below) => [
      `${draw(below, ['a', 'b'], 5)}*${draw(below, ['a', 'b', '*'], 4)}`,
      draw(below, ['a', '*', '*'], 3),
    ],
    text: (below) => [draw(below, ['a', 'b'], 9), draw(below, ['a'], 3)],
    most: 500,
  },
];

describe('the trie', () => {
  test.each(PATTERN_KINDS)(
    'finds the same match as a naive matcher: $name',
    ({ pattern, text, most }) => {
      const seed = newSeed();
      const below = seededRandom(seed);
      let spare: SharedArrayBuffer | undefined;
      let pairs = 0;
      let found = 0;
      while (pairs < PAIRS) {
        const patterns = Array.from({ length: 1 + below(most) }, () => pattern(below));
        const unique = new Map(patterns.map((pair) => [pair.join('\0'), pair]));
        const list = [...unique.values()];
        spare = writeTrie(wildcards(list), spare);
        const trie = new Trie(spare);
        for (let i = 0; i < 20; i++) {
          const [namespace, identifier] = text(below);
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
          const terms = [trie.limit(value), trie.durationMs(value), trie.isAsync(value)];
          expect(terms).toEqual([value + 1, 1_000 + value, value % 2 === 1]);
          expect(trie.id(value)).toBe(overrideId(value));
          expect(trie.concurrency(value)).toBe(value + 5_000);
        }
      }
      expect(found).toBeGreaterThan(PAIRS / 1_000);
    },
  );

  test.each<[patterns: string[], text: string, value: number]>([
    [['***'], '', 0],
    [['***'], 'anything at all', 0],
    [['a*', 'a*b', 'a'], 'a', 0],
    [['a*b*c', '*c'], 'a-c', 1],
    [['a**b', 'a*b'], 'a--b', 0],
    [['*aab'], 'aaaab', 0],
    [['*ab*ab'], 'ab', -1],
    [['*\u{1f600}'], '\u{1f603}\u{1f600}', 0],
    [['(*', '*)'], '(', 0],
    [['()', '(*'], '()', 0],
    [['\u0000*'], '\u0000', 0],
    [['é*'], 'e\u0301', -1],
    [['A*'], 'a', -1],
    [['a*', '*'], '*', 1],
    [['**a'], '*a', 0],
  ])('of %j matches %j as value %i', (patterns, text, value) => {
    expect(find(ofIdentifiers(patterns), 'n', text)).toBe(value);
  });

  test('takes a bounded number of steps, also for patterns and texts that are chosen to be slow', () => {
    const a = (count: number) => 'a'.repeat(count);
    const many = <T>(length: number, of: (i: number) => T) =>
      Array.from({ length }, (_, i) => of(i));
    const stars = WILDCARDS_PER_TEXT_MAX;
    const blowUps: [string[], string][] = [
      [[`${'a*'.repeat(stars)}b`], a(512)],
      [[`${'*a'.repeat(stars)}*b`.slice(1)], a(512)],
      [many(stars, (i) => `${'*a'.repeat(i + 1)}b`), a(512)],
      [many(120, (i) => `*${a(4 * i)}b`), a(512)],
      [many(120, (i) => `*a${i}*a*b`), 'a1'.repeat(256)],
      // Many matching prefixes and suffixes, with and without infixes.
      [many(120, (i) => `${a(4 * i)}*${a(480 - 4 * i)}b*a`), a(512)],
      [many(2_000, (i) => `${a(i % 100)}*${a(20)}b*${a(i / 100)}`), a(512)],
      // Segments that repeatedly almost match.
      [many(2_000, (i) => `*${a(200)}b${i}*`), `${a(199)}b`.repeat(3).slice(0, 512)],
      [many(2_000, (i) => `*${a(50 + (i % 100))}ba${a(i / 100)}*`), `${a(49)}b`.repeat(10)],
    ];
    for (const [patterns, text] of blowUps) {
      const trie = ofIdentifiers(patterns);
      expect(find(trie, 'n', text)).toBe(-1);
      // For each unit of the text: two steps for the prefixes, for the suffixes of each prefix and
      // for each infix, and nine for the fragments of each prefix.
      const infixes = patterns.filter((pattern) => pattern.split('*').length > 2).length;
      const prefixes = new Set(patterns.map((pattern) => pattern.split('*')[0])).size;
      const stepsPerUnit = 2 * (1 + prefixes + infixes) + 9 * prefixes;
      expect(trie.steps).toBeLessThanOrEqual(stepsPerUnit * (text.length + 1));
      if (patterns.length > 500) continue;
      expect(find(trie, 'n', `${text}b`)).toBe(patterns.findIndex((p) => matches(p, `${text}b`)));
    }
  });

  test('takes a bounded number of steps for namespaces too', () => {
    const namespaces = Array.from({ length: 5_000 }, (_, i) => `*${'a'.repeat(50)}${i}*b*c`);
    const trie = trieOf(namespaces.map((pattern) => [pattern, 'x*'] as const));
    expect(trie.rootsFor('a'.repeat(512))).toHaveLength(0);
    expect(trie.steps).toBeLessThanOrEqual(513 * 42 + 4 * 5_002);
    expect(find(trie, `${'a'.repeat(50)}77bc`, 'x1')).toBe(7);
    expect(find(trie, `${'a'.repeat(50)}78bc`, 'x1')).toBe(7);
    expect(find(trie, `${'a'.repeat(50)}89b`, 'x1')).toBe(-1);
  });

  test('is written into the spare buffer if it fits, else into a larger buffer', () => {
    const small = writeTrie(wildcards([['*', 'a*']]), undefined);
    expect(writeTrie(wildcards([['*', 'b*']]), small)).toBe(small);
    expect(find(new Trie(small), 'n', 'b')).toBe(0);
    const many = Array.from({ length: 100 }, (_, i) => ['*', `${i}-*`] as const);
    const large = writeTrie(wildcards(many), small);
    expect(large.byteLength).toBeGreaterThan(small.byteLength);
    expect(find(new Trie(large), 'n', '99-')).toBe(99);
  });

  test('is attached to only if it is complete', () => {
    const buffer = writeTrie(wildcards([['*', 'a*']]), undefined);
    const words = new Int32Array(buffer);
    const { magic, values, nodes, roots, entries, infixes, segments, units } = TRIE;
    for (const index of [magic, values, nodes, roots, entries, infixes, segments, units]) {
      const value = words[index];
      words[index] = 0x7fffff;
      expect(() => new Trie(buffer)).toThrow(MemoryError);
      words[index] = value;
    }
    expect(find(new Trie(buffer), 'n', 'a')).toBe(0);
  });
});
