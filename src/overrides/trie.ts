/**
 * The trie of the overrides with a star: one over the patterns of namespaces, and for each of these
 * one over the patterns of identifiers, all in one buffer. Flat and immutable once it is published:
 * the main thread has it written into a spare buffer (`build.ts`), acceptors attach and read.
 *
 *   header    16 int32    magic | version | values | nodes | units | root
 *   nodes     8 int32 each, half a line of the cache, drawn in NODE; number 0 is none
 *   values    3 float64 each, in order of precedence: limit | duration, ms | asynchronous, 0 or 1
 *   firsts    1 uint16 a node: the unit that leads to it
 *   labels    uint16: the units that nodes take behind the first one
 *
 * A text is matched by keeping, from one unit to the next, all places of the trie that what was
 * read so far leads to: places within labels, which take one certain unit, and stars, which take
 * any and stay. A place is reached by one way only, so it is kept once; a text takes at most its
 * length times the places that live at once, whatever the patterns are, and no stack. Units are of
 * UTF-16: texts are well-formed, so a star never splits a character.
 */

import { MemoryError } from '../errors.ts';
import { attachMemory } from '../memory.ts';

export const TRIE = { magic: 0, version: 1, values: 2, nodes: 3, units: 4, root: 5 } as const;
export const TRIE_HEADER = { magic: 0x57657472, version: 2 } as const; // "Wetr"
export const HEADER_BYTES = 64;

export const NODE_WORDS = 8;
/** The children of a node lie one behind the other, in order of their first units. */
export const NODE = {
  label: 0,
  labelLength: 1,
  firstChild: 2,
  children: 3,
  /** The node behind a star that may follow here, if anything follows that. */
  star: 4,
  /** What ends here: a value and 1, or the root of the trie for identifiers; 0 for nothing. */
  accepts: 5,
  /** The same of what ends with a star here: in this node, since most patterns end so. */
  starAccepts: 6,
} as const;

export const VALUE_DOUBLES = 3;

/** Where the sections of a trie begin, in bytes, and where it ends. */
export function sections(values: number, nodes: number, units: number) {
  const valuesAt = HEADER_BYTES + 4 * NODE_WORDS * nodes;
  const firstsAt = valuesAt + 8 * VALUE_DOUBLES * values;
  const labelsAt = firstsAt + 2 * nodes;
  const bytes = Math.ceil((labelsAt + 2 * units) / 8) * 8;
  return { nodesAt: HEADER_BYTES, valuesAt, firstsAt, labelsAt, bytes };
}

const NAME = 'the trie of overrides';
const NONE = Number.MAX_SAFE_INTEGER;
/** Texts that are told apart before the marks of all nodes have to be taken away. */
const GENERATIONS = 0x7fffffff;

export class Trie {
  /** How many steps the last text took. */
  steps = 0;
  /** The most places that can live at once; no text takes more steps than this for each unit. */
  readonly places: number;
  readonly #values: Float64Array;
  readonly #nodes: Int32Array;
  readonly #firsts: Uint16Array;
  readonly #labels: Uint16Array;
  readonly #root: number;
  /** Places within labels: node and how much of its label is read. */
  #placeNodes = new Int32Array(64);
  #placeReads = new Int32Array(64);
  /** Stars that were reached. */
  #stars = new Int32Array(64);
  #starCount = 0;
  /** By node, the last text that reached it: a star that is reached again takes nothing more. */
  readonly #reached: Int32Array;
  #generation = 0;
  /** The best that a text was accepted by, and all if they are wanted. */
  #best = NONE;
  #all: number[] | undefined;

  /** @throws MemoryError when the buffer holds no whole trie of this version */
  constructor(buffer: SharedArrayBuffer) {
    const words = attachMemory(buffer, NAME, TRIE, TRIE_HEADER);
    const values = words[TRIE.values];
    const nodes = words[TRIE.nodes];
    const units = words[TRIE.units];
    this.#root = words[TRIE.root];
    const isShape = values > 0 && nodes > 1 && units >= 0 && this.#root > 0;
    const { valuesAt, nodesAt, firstsAt, labelsAt, bytes } = sections(values, nodes, units);
    if (!isShape || this.#root >= nodes || bytes > buffer.byteLength) {
      throw new MemoryError(
        `${NAME}: ${buffer.byteLength} bytes for ${values} values, ${nodes} nodes, ${units} units`,
      );
    }
    this.#values = new Float64Array(buffer, valuesAt, VALUE_DOUBLES * values);
    this.#nodes = new Int32Array(buffer, nodesAt, NODE_WORDS * nodes);
    this.#firsts = new Uint16Array(buffer, firstsAt, nodes);
    this.#labels = new Uint16Array(buffer, labelsAt, units);
    this.#reached = new Int32Array(nodes);
    this.places = nodes + units;
  }

  /** The tries for identifiers that hold in a namespace. */
  rootsFor(namespace: string): Int32Array {
    const all: number[] = [];
    this.#all = all;
    this.#run(Int32Array.of(this.#root), namespace);
    this.#all = undefined;
    // A star that is reached again accepts again.
    return Int32Array.from(new Set(all));
  }

  /** @returns the first value, by precedence, whose pattern matches; -1 where none does */
  find(roots: Int32Array, identifier: string): number {
    this.#run(roots, identifier);
    return this.#best === NONE ? -1 : this.#best - 1;
  }

  limit(value: number): number {
    return this.#values[VALUE_DOUBLES * value];
  }

  durationMs(value: number): number {
    return this.#values[VALUE_DOUBLES * value + 1];
  }

  isAsync(value: number): boolean {
    return this.#values[VALUE_DOUBLES * value + 2] === 1;
  }

  /** Runs a text through the tries of some roots, and leaves in `#best` what accepts it. */
  #run(roots: Int32Array, text: string): void {
    const nodes = this.#nodes;
    this.#best = NONE;
    this.#starCount = 0;
    let places = 0;
    let steps = 0;
    if (++this.#generation > GENERATIONS) {
      this.#reached.fill(0);
      this.#generation = 1;
    }
    for (const root of roots) places = this.#enter(root, places);
    for (let i = 0; i < text.length; i++) {
      const unit = text.charCodeAt(i);
      const before = places;
      // Stars that are reached by this unit take the next one at the earliest.
      const stars = this.#starCount;
      steps += before + stars;
      places = 0;
      for (let at = 0; at < before; at++) {
        const node = this.#placeNodes[at];
        const read = this.#placeReads[at];
        const word = node * NODE_WORDS;
        if (read === nodes[word + NODE.labelLength]) {
          const child = this.#child(word, unit);
          if (child !== 0) places = this.#enter(child, places);
        } else if (this.#labels[nodes[word + NODE.label] + read] === unit) {
          places = this.#advance(node, read + 1, places);
        }
      }
      for (let at = 0; at < stars; at++) {
        const child = this.#child(this.#stars[at] * NODE_WORDS, unit);
        if (child !== 0) places = this.#enter(child, places);
      }
      if (places === 0 && this.#starCount === 0) break;
    }
    for (let at = 0; at < places; at++) {
      const word = this.#placeNodes[at] * NODE_WORDS;
      if (this.#placeReads[at] !== nodes[word + NODE.labelLength]) continue;
      this.#accept(nodes[word + NODE.accepts]);
    }
    this.steps = steps;
    if (steps > text.length * this.places) throw new Error(`${NAME}: a text took ${steps} steps`);
  }

  /** Comes to a node, none of whose label is read. @returns how many places there are now */
  #enter(node: number, places: number): number {
    return this.#advance(node, 0, places);
  }

  #advance(node: number, read: number, places: number): number {
    const nodes = this.#nodes;
    const word = node * NODE_WORDS;
    if (places === this.#placeNodes.length) {
      this.#placeNodes = doubled(this.#placeNodes);
      this.#placeReads = doubled(this.#placeReads);
    }
    this.#placeNodes[places] = node;
    this.#placeReads[places] = read;
    if (read === nodes[word + NODE.labelLength]) {
      // A star takes all that is left, and goes on to look for what may stand behind it.
      this.#accept(nodes[word + NODE.starAccepts]);
      if (nodes[word + NODE.star] !== 0) this.#reach(nodes[word + NODE.star]);
    }
    return places + 1;
  }

  #reach(star: number): void {
    if (this.#reached[star] === this.#generation) return;
    this.#reached[star] = this.#generation;
    if (this.#starCount === this.#stars.length) this.#stars = doubled(this.#stars);
    this.#stars[this.#starCount++] = star;
  }

  #accept(accepts: number): void {
    if (accepts === 0) return;
    if (accepts < this.#best) this.#best = accepts;
    this.#all?.push(accepts);
  }

  /** The child of the node at `word` behind a unit, 0 for none. */
  #child(word: number, unit: number): number {
    const firsts = this.#firsts;
    let low = this.#nodes[word + NODE.firstChild];
    let high = low + this.#nodes[word + NODE.children] - 1;
    while (low <= high) {
      const middle = (low + high) >> 1;
      const found = firsts[middle];
      if (found === unit) return middle;
      if (found < unit) low = middle + 1;
      else high = middle - 1;
    }
    return 0;
  }
}

function doubled(words: Int32Array): Int32Array<ArrayBuffer> {
  const larger = new Int32Array(2 * words.length);
  larger.set(words);
  return larger;
}
