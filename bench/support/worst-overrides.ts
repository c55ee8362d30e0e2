/**
 * Overrides and texts that make the match of a check slow, within the maxima of the API: some that
 * are known to be slow, and a search that changes them for more steps.
 */

import {
  IDENTIFIER_MAX_CHARACTERS,
  INFIX_OVERRIDES_MAX,
  MIDDLE_MAX_CHARACTERS,
  WILDCARD_OVERRIDES_MAX,
  WILDCARDS_PER_TEXT_MAX,
} from '../../src/core/constants.ts';
import { writeTrie } from '../../src/overrides/build.ts';
import { VALUE_DOUBLES } from '../../src/overrides/layout.ts';
import { collapseStars, countStars, hasInfix, STAR } from '../../src/overrides/pattern.ts';
import { Trie } from '../../src/overrides/trie.ts';
import { seededRandom } from '../../test/support/seeded-random.ts';
import { NAMESPACE } from './override-sets.ts';

/** Patterns of identifiers, in a namespace and under a pattern of namespaces, and an identifier. */
export interface SlowCheck {
  name: string;
  patterns: string[];
  identifier: string;
}

const a = (count: number) => 'a'.repeat(count);
const many = (count: number, of: (i: number) => string) =>
  Array.from({ length: count }, (_, i) => of(i));
const MOST = IDENTIFIER_MAX_CHARACTERS;
const MIDDLE = MIDDLE_MAX_CHARACTERS;

/** A segment whose last part begins at another place of the text than its other parts. */
const longInfix = (i: number) => `*${a(MOST - 2 * MIDDLE - i)}b${a(MIDDLE - 1)}*`;
const shortSegments = (i: number) => {
  const segments = many(WILDCARDS_PER_TEXT_MAX - 2, (k) => a(1 + ((7 * i + k) % MIDDLE)));
  return `*${segments.join('*')}*`;
};

export const SLOW_CHECKS: readonly SlowCheck[] = [
  {
    name: 'long infixes',
    patterns: [
      ...many(MIDDLE, (i) => `*${a(i + 1)}*c`),
      ...many(INFIX_OVERRIDES_MAX - MIDDLE, longInfix),
    ],
    identifier: `b${a(MOST - 1)}`,
  },
  {
    name: 'infixes of many segments',
    patterns: many(INFIX_OVERRIDES_MAX, (i) => `${shortSegments(i)}b*`),
    identifier: `b${a(MOST - 1)}`,
  },
  {
    name: 'many prefixes and suffixes',
    patterns: many(WILDCARD_OVERRIDES_MAX / 2, (i) => `${a(i % 256)}*${a(i >> 8)}`).filter(
      (pattern) => !pattern.endsWith('*'),
    ),
    identifier: a(MOST),
  },
  {
    name: 'short middles',
    patterns: many(MIDDLE, (i) => `*${a(i)}b*`),
    identifier: a(MOST),
  },
  {
    name: 'characters of two units',
    patterns: many(INFIX_OVERRIDES_MAX, (i) => `${shortSegments(i)}b*`.replaceAll('a', '😀')),
    identifier: `b${a(MOST - 1).replaceAll('a', '😀')}`,
  },
  {
    // Ten thousand of these took 25 ms, when none was limited.
    name: 'infixes that nearly match',
    patterns: many(INFIX_OVERRIDES_MAX, (i) => `*${a(50 + (i % 100))}ba${a(i / 100)}*`),
    identifier: `${a(49)}b`.repeat(10),
  },
  {
    name: 'all of these',
    patterns: [
      ...many(MIDDLE, (i) => `*${a(i + 1)}*c`),
      ...many((INFIX_OVERRIDES_MAX - MIDDLE) / 2, longInfix),
      ...many((INFIX_OVERRIDES_MAX - MIDDLE) / 2, (i) => `${shortSegments(i)}b*`),
      ...many(MIDDLE, (i) => `*${a(i)}b*`),
      ...many(4_000, (i) => `${a(i % 256)}*${a(1 + (i >> 8))}`),
    ],
    identifier: `b${a(MOST - 1)}`,
  },
];

/** The table of a slow check: each pattern in its namespace, and under the pattern `*`. */
export function trieOf({ patterns }: Pick<SlowCheck, 'patterns'>): Trie {
  const identifiers = unique(patterns);
  return writtenTrie([NAMESPACE, STAR].flatMap((namespace) => pairsWith(namespace, identifiers)));
}

/** The same patterns as patterns of namespaces. */
export function namespaceTrieOf({ patterns }: Pick<SlowCheck, 'patterns'>): Trie {
  return writtenTrie(unique(patterns).map((namespace) => [namespace, STAR]));
}

const unique = (patterns: readonly string[]) => [...new Set(patterns.map(collapseStars))];
const pairsWith = (namespace: string, identifiers: readonly string[]) => {
  return identifiers.map((identifier): [string, string] => [namespace, identifier]);
};

/** The overrides are in any order, which changes no step. */
function writtenTrie(pairs: readonly [namespace: string, identifier: string][]): Trie {
  const texts = pairs.flat();
  const overrides = {
    text: texts.join(''),
    lengths: Int32Array.from(texts, ({ length }) => length),
    areBlocks: new Uint8Array(pairs.length),
    values: new Float64Array(VALUE_DOUBLES * pairs.length),
    concurrencies: new Float64Array(pairs.length),
  };
  return new Trie(writeTrie(overrides, undefined));
}

export function stepsOf(check: SlowCheck): number {
  const trie = trieOf(check);
  trie.find(trie.rootsFor(NAMESPACE), check.identifier);
  return trie.steps;
}

/**
 * Hill climbing: changes patterns and identifier, and keeps what does not take fewer steps.
 * @param onSteps gets each check that is tried, with its steps
 */
export function searchSlowCheck(
  start: SlowCheck,
  seed: number,
  rounds: number,
  onSteps: (steps: number) => void = () => {},
): SlowCheck {
  const below = seededRandom(seed);
  let best = start;
  let mostSteps = stepsOf(start);
  for (let round = 0; round < rounds; round++) {
    const changed = change(best, below);
    const steps = stepsOf(changed);
    onSteps(steps);
    if (steps < mostSteps) continue;
    best = changed;
    mostSteps = steps;
  }
  return best;
}

function change(
  { name, patterns, identifier }: SlowCheck,
  below: (n: number) => number,
): SlowCheck {
  const changed = [...patterns];
  if (below(3) > 0) {
    for (let i = 1 + below(16); i > 0; i--) {
      const at = below(changed.length);
      const from = changed[below(4) === 0 ? below(changed.length) : at];
      const next = changeText(from, below, ['*']);
      const isMore = hasInfix(next) && !hasInfix(changed[at]);
      if (isMore && changed.filter(hasInfix).length >= INFIX_OVERRIDES_MAX) continue;
      if (countStars(next) <= WILDCARDS_PER_TEXT_MAX && next.includes('*')) changed[at] = next;
    }
  }
  const isTextChanged = below(3) === 0;
  return {
    name,
    patterns: changed,
    identifier: isTextChanged ? changeText(identifier, below, []) : identifier,
  };
}

/** Inserts, removes or repeats a part. */
function changeText(text: string, below: (n: number) => number, more: readonly string[]): string {
  const characters = [...text];
  const alphabet = ['a', 'a', 'b', ...more];
  for (let i = 1 + below(3); i > 0; i--) {
    const at = below(characters.length + 1);
    const length = below(4) === 0 ? below(64) : 1;
    const part =
      below(2) === 0
        ? new Array<string>(length).fill(alphabet[below(alphabet.length)])
        : characters.slice(below(characters.length + 1)).slice(0, length);
    const removed = below(3) === 0 ? below(8) : below(2) * part.length;
    characters.splice(at, removed, ...part);
  }
  return characters.slice(0, MOST).join('');
}
