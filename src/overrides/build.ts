/**
 * Builds the trie of the overrides with a star. Texts are sorted, so each node is a run of them
 * that agree so far: what the first and the last of a run share, all of it shares. No recursion,
 * and linear in the length of the texts, but for the sorting.
 */

import { reuseMemory, writeHeader } from '../memory.ts';
import { type OverrideValue, wordsOfId } from './id.ts';
import {
  MIDDLE,
  MIDDLE_WORDS,
  NODE,
  NODE_WORDS,
  sections,
  TRIE,
  TRIE_HEADER,
  VALUE,
  VALUE_DOUBLES,
} from './layout.ts';
import { byNeedle, entryOf, type Middle } from './needles.ts';

/**
 * The overrides with a star in order of precedence, stars simplified; in few pieces, since it is
 * copied to another thread. For each: the lengths of its two texts, and its value as `layout.ts`
 * has it.
 */
export interface Wildcards {
  /** Namespace, identifier, namespace, identifier ... */
  text: string;
  lengths: Int32Array;
  values: Float64Array;
}

/** What overrides say, in the order in which they are given. */
export function valuesOf(overrides: readonly OverrideValue[]): Float64Array {
  const values = new Float64Array(VALUE_DOUBLES * overrides.length);
  const words = new Int32Array(values.buffer);
  for (const [rank, { id, limit, durationMs, isAsync }] of overrides.entries()) {
    const at = VALUE_DOUBLES * rank;
    values[at + VALUE.limit] = limit;
    values[at + VALUE.durationMs] = isAsync ? -durationMs : durationMs;
    words.set(wordsOfId(id), 2 * (at + VALUE.id));
  }
  return values;
}

/** A pattern, and what it accepts: a value and 1, or the root of the trie for identifiers. */
interface Pattern {
  text: string;
  accepts: number;
}

/**
 * Writes a trie of at least one override.
 * @param spare a buffer that nobody reads any more, if there is one
 * @returns the buffer it was written into: the spare one, or a larger one
 */
export function writeTrie(
  { text, lengths, values }: Wildcards,
  spare: SharedArrayBuffer | undefined,
): SharedArrayBuffer {
  const namespaces = new Map<string, Pattern[]>();
  let at = 0;
  for (let rank = 0; rank < lengths.length / 2; rank++) {
    const between = at + lengths[2 * rank];
    const end = between + lengths[2 * rank + 1];
    const identifiers = entryOf(namespaces, text.slice(at, between), () => []);
    identifiers.push({ text: text.slice(between, end), accepts: rank + 1 });
    at = end;
  }
  const builder = new Builder();
  const roots = [...namespaces].map(([namespace, identifiers]) => {
    return { text: namespace, accepts: builder.add(identifiers) };
  });
  return builder.write(builder.add(roots), values, spare);
}

/** The patterns with the same text before their first star. 0 is nothing. */
interface Head {
  /** Without a star; with one, and nothing behind it. */
  accepts: number;
  starAccepts: number;
  /** The others, by the text behind their last star, read backwards. */
  tails: Map<string, Tail> | undefined;
}

interface Tail {
  /** With one star. */
  accepts: number;
  /** With more. */
  middles: Middle[];
}

const newHead = (): Head => ({ accepts: 0, starAccepts: 0, tails: undefined });
const newTail = (): Tail => ({ accepts: 0, middles: [] });

/** So many middles of a head and a tail are looked for one by one, and more by their needles. */
const SINGLY_MAX = 4;

/** A run of texts that lead to the same node. */
interface Run {
  node: number;
  from: number;
  to: number;
  /** How much of the texts is behind the node's first unit. */
  depth: number;
}

class Builder {
  /** Words of all nodes; number 0 is none. */
  #nodes = new Int32Array(1_024 * NODE_WORDS);
  readonly #firsts: number[] = [0];
  readonly #middles: number[] = [];
  #units = new Uint16Array(4_096);
  #unitCount = 0;

  /** Adds a trie over patterns. Of those with the same text the first counts. @returns its root */
  add(patterns: readonly Pattern[]): number {
    const heads = new Map<string, Head>();
    for (const { text, accepts } of patterns) {
      const star = text.indexOf('*');
      const last = text.lastIndexOf('*');
      const head = entryOf(heads, star < 0 ? text : text.slice(0, star), newHead);
      if (star < 0) head.accepts ||= accepts;
      else if (star === text.length - 1) head.starAccepts ||= accepts;
      else {
        head.tails ??= new Map();
        const tail = entryOf(head.tails, backwards(text.slice(last + 1)), newTail);
        if (star === last) tail.accepts ||= accepts;
        else tail.middles.push({ segments: text.slice(star + 1, last).split('*'), accepts });
      }
    }
    return this.#addTexts(heads, (word, { accepts, starAccepts, tails }) => {
      const star = tails === undefined ? 0 : this.#addTails(tails);
      this.#nodes[word + NODE.accepts] = accepts;
      this.#nodes[word + NODE.starAccepts] = starAccepts;
      this.#nodes[word + NODE.star] = star;
    });
  }

  #addTails(tails: ReadonlyMap<string, Tail>): number {
    return this.#addTexts(tails, (word, { accepts, middles }) => {
      this.#nodes[word + NODE.accepts] = accepts;
      if (middles.length <= SINGLY_MAX) {
        this.#nodes[word + NODE.middles] = this.#addMiddles(middles);
        return;
      }
      const needles = this.#addTexts(byNeedle(middles), (needle, some) => {
        this.#nodes[needle + NODE.middles] = this.#addMiddles(some);
      });
      this.#nodes[word + NODE.needles] = needles;
    });
  }

  /** @returns the number of the first, and 1; 0 for none */
  #addMiddles(middles: readonly Middle[]): number {
    const first = this.#middles.length / MIDDLE_WORDS;
    for (const [i, { segments, accepts }] of middles.entries()) {
      const at = this.#middles.length;
      this.#middles[at + MIDDLE.accepts] = accepts;
      this.#middles[at + MIDDLE.segments] = segments.length;
      this.#middles[at + MIDDLE.units] = this.#unitCount;
      this.#middles[at + MIDDLE.isLast] = Number(i === middles.length - 1);
      for (const segment of segments) this.#addSegment(segment);
    }
    return middles.length === 0 ? 0 : first + 1;
  }

  /** Its length, its units, and of each of these how many units begin the segment and end there. */
  #addSegment(segment: string): void {
    this.#makeRoom(1 + 2 * segment.length);
    const units = this.#units;
    units[this.#unitCount++] = segment.length;
    const begin = this.#unitCount;
    this.#addUnits(segment);
    const borders = this.#unitCount;
    units[borders] = 0;
    for (let i = 1; i < segment.length; i++) {
      let border = units[borders + i - 1];
      while (border > 0 && units[begin + i] !== units[begin + border]) {
        border = units[borders + border - 1];
      }
      units[borders + i] = units[begin + i] === units[begin + border] ? border + 1 : 0;
    }
    this.#unitCount += segment.length;
  }

  #addUnits(text: string): void {
    this.#makeRoom(text.length);
    for (let i = 0; i < text.length; i++) this.#units[this.#unitCount++] = text.charCodeAt(i);
  }

  #makeRoom(units: number): void {
    const needed = this.#unitCount + units;
    if (needed <= this.#units.length) return;
    const larger = new Uint16Array(Math.max(needed, 2 * this.#units.length));
    larger.set(this.#units);
    this.#units = larger;
  }

  /** Adds a trie over texts without a star. @param fill writes what ends at a node */
  #addTexts<T>(entries: ReadonlyMap<string, T>, fill: (word: number, entry: T) => void): number {
    const texts = [...entries.keys()].sort();
    const root = this.#newNode(0);
    const left: Run[] = [{ node: root, from: 0, to: texts.length, depth: 0 }];
    for (let run = left.pop(); run !== undefined; run = left.pop()) {
      const { node, to, depth } = run;
      const word = node * NODE_WORDS;
      let at = run.from;
      const end = commonEnd(texts[at], texts[to - 1], depth);
      this.#nodes[word + NODE.label] = this.#unitCount;
      this.#nodes[word + NODE.labelLength] = end - depth;
      this.#addUnits(texts[at].slice(depth, end));
      if (texts[at].length === end) fill(word, entries.get(texts[at++])!);
      // One behind the other, for which nothing else may make a node meanwhile.
      for (let children = 0; at < to; children++) {
        const unit = texts[at].charCodeAt(end);
        const child = { node: this.#newNode(unit), from: at, to: at + 1, depth: end + 1 };
        while (child.to < to && texts[child.to].charCodeAt(end) === unit) child.to++;
        if (children === 0) this.#nodes[word + NODE.firstChild] = child.node;
        this.#nodes[word + NODE.children] = children + 1;
        left.push(child);
        at = child.to;
      }
    }
    return root;
  }

  #newNode(first: number): number {
    const node = this.#firsts.push(first) - 1;
    if ((node + 1) * NODE_WORDS > this.#nodes.length) {
      const larger = new Int32Array(2 * this.#nodes.length);
      larger.set(this.#nodes);
      this.#nodes = larger;
    }
    return node;
  }

  write(root: number, values: Float64Array, spare: SharedArrayBuffer | undefined) {
    const counts = {
      values: values.length / VALUE_DOUBLES,
      nodes: this.#firsts.length,
      middles: this.#middles.length / MIDDLE_WORDS,
      units: this.#unitCount,
    };
    const { nodesAt, middlesAt, valuesAt, firstsAt, unitsAt, bytes } = sections(counts);
    const buffer = reuseMemory(bytes, TRIE, spare);
    const nodeWords = counts.nodes * NODE_WORDS;
    new Int32Array(buffer, nodesAt, nodeWords).set(this.#nodes.subarray(0, nodeWords));
    new Int32Array(buffer, middlesAt, this.#middles.length).set(this.#middles);
    new Float64Array(buffer, valuesAt, values.length).set(values);
    new Uint16Array(buffer, firstsAt, counts.nodes).set(this.#firsts);
    new Uint16Array(buffer, unitsAt, counts.units).set(this.#units.subarray(0, counts.units));
    writeHeader(buffer, TRIE, { ...TRIE_HEADER, ...counts, root });
    return buffer;
  }
}

/** By units: halves of characters change places, as they do where the text is read. */
function backwards(text: string): string {
  return text.split('').reverse().join('');
}

/** How far two texts agree. */
function commonEnd(a: string, b: string, from: number): number {
  let end = from;
  while (end < a.length && end < b.length && a.charCodeAt(end) === b.charCodeAt(end)) end++;
  return end;
}
