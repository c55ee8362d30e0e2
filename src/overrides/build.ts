/**
 * Builds the trie of wildcard overrides. Texts are sorted, so a node is a range of texts, and the
 * common prefix of the first and the last text is the common prefix of the whole range. There is
 * no recursion. Except for the sort, the time is linear in the length of the texts.
 */

import { reuseMemory, writeHeader } from '../shared-memory/block.ts';
import { encodeId, NO_USAGE_ROW, type OverrideValue } from './id.ts';
import { getOrCreate, groupByFragment, type Infix } from './infixes.ts';
import {
  INFIX,
  INFIX_WORDS,
  NODE,
  NODE_WORDS,
  sectionOffsets,
  TRIE,
  TRIE_HEADER,
  VALUE,
  VALUE_DOUBLES,
} from './layout.ts';

/**
 * The wildcard overrides in order of precedence, with runs of stars collapsed. It has few objects,
 * because it is copied to another thread.
 */
export interface SerializedWildcards {
  /** Namespace, identifier, namespace, identifier ...; of a CIDR block its bits and a star. */
  text: string;
  /** The lengths of these texts. */
  lengths: Int32Array;
  /** For each override 1 for a CIDR block, 0 for a pattern. */
  areBlocks: Uint8Array;
  /** The values, in the layout of a trie. */
  values: Float64Array;
}

/** Encodes the values of overrides in the layout of a trie. */
export function encodeValues(overrides: readonly OverrideValue[]): Float64Array {
  const values = new Float64Array(VALUE_DOUBLES * overrides.length);
  const words = new Int32Array(values.buffer);
  for (const [index, override] of overrides.entries()) {
    const { id, limit, durationMs, isAsync, usageRow = NO_USAGE_ROW } = override;
    const offset = VALUE_DOUBLES * index;
    values[offset + VALUE.limit] = limit;
    values[offset + VALUE.durationMs] = isAsync ? -durationMs : durationMs;
    words.set(encodeId(id), 2 * offset + VALUE.id);
    words[2 * offset + VALUE.usageRow] = usageRow;
  }
  return values;
}

interface Pattern {
  text: string;
  /** See NODE.match. */
  match: number;
}

/**
 * Writes a trie of at least one override.
 * @param spare a buffer that no thread reads any more
 * @returns the spare buffer, or a new one if the spare is too small
 */
export function writeTrie(
  { text, lengths, areBlocks, values }: SerializedWildcards,
  spare: SharedArrayBuffer | undefined,
): SharedArrayBuffer {
  const namespaces = new Map<string, Pattern[]>();
  const namespacesOfBlocks = new Map<string, Pattern[]>();
  let start = 0;
  for (let index = 0; index < lengths.length / 2; index++) {
    const middle = start + lengths[2 * index];
    const end = middle + lengths[2 * index + 1];
    const scopes = areBlocks[index] === 1 ? namespacesOfBlocks : namespaces;
    const identifiers = getOrCreate(scopes, text.slice(start, middle), () => []);
    identifiers.push({ text: text.slice(middle, end), match: index + 1 });
    start = end;
  }
  const builder = new TrieBuilder();
  const root = builder.addScopes(namespaces);
  return builder.write(root, builder.addScopes(namespacesOfBlocks), values, spare);
}

/** The patterns with the same text before their first star. A match of 0 is none. */
interface PrefixEntry {
  /** The match of the pattern without a star. */
  match: number;
  /** The match of the pattern whose only star is its last character. */
  starMatch: number;
  /** The other patterns, by the reversed text after their last star. */
  suffixes: Map<string, SuffixEntry> | undefined;
}

/** The patterns with the same prefix and the same suffix. */
interface SuffixEntry {
  /** The match of the pattern with one star. */
  match: number;
  /** The infixes of the patterns with several stars. */
  infixes: Infix[];
}

const newPrefixEntry = (): PrefixEntry => ({ match: 0, starMatch: 0, suffixes: undefined });
const newSuffixEntry = (): SuffixEntry => ({ match: 0, infixes: [] });

/** Up to this number, the infixes of a suffix are searched one by one, without fragments. */
const UNINDEXED_INFIXES_MAX = 4;

/** The range of sorted texts that pass through a node. */
interface TextRange {
  node: number;
  from: number;
  to: number;
  /** Units up to and including the node's first unit. */
  depth: number;
}

class TrieBuilder {
  /** The words of all nodes, from number 0 on, which is unused. */
  #nodes = new Int32Array(1_024 * NODE_WORDS);
  readonly #firstUnits: number[] = [0];
  readonly #infixes: number[] = [];
  #units = new Uint16Array(4_096);
  #unitCount = 0;

  /** @returns the root of a trie of namespaces with their tries of identifiers; 0 for none */
  addScopes(scopes: ReadonlyMap<string, readonly Pattern[]>): number {
    const patterns = [...scopes].map(([text, identifiers]) => ({
      text,
      match: this.add(identifiers),
    }));
    return patterns.length === 0 ? 0 : this.add(patterns);
  }

  /** Adds a trie of patterns. Of equal patterns the first one counts. @returns its root */
  add(patterns: readonly Pattern[]): number {
    const prefixes = new Map<string, PrefixEntry>();
    for (const { text, match } of patterns) {
      const star = text.indexOf('*');
      const last = text.lastIndexOf('*');
      const prefix = getOrCreate(prefixes, star < 0 ? text : text.slice(0, star), newPrefixEntry);
      if (star < 0) prefix.match ||= match;
      else if (star === text.length - 1) prefix.starMatch ||= match;
      else {
        prefix.suffixes ??= new Map();
        const suffix = getOrCreate(prefix.suffixes, reverse(text.slice(last + 1)), newSuffixEntry);
        if (star === last) suffix.match ||= match;
        else suffix.infixes.push({ segments: text.slice(star + 1, last).split('*'), match });
      }
    }
    return this.#addTexts(prefixes, (word, { match, starMatch, suffixes }) => {
      const suffixRoot = suffixes === undefined ? 0 : this.#addSuffixes(suffixes);
      this.#nodes[word + NODE.match] = match;
      this.#nodes[word + NODE.starMatch] = starMatch;
      this.#nodes[word + NODE.suffixRoot] = suffixRoot;
    });
  }

  #addSuffixes(suffixes: ReadonlyMap<string, SuffixEntry>): number {
    return this.#addTexts(suffixes, (word, { match, infixes }) => {
      this.#nodes[word + NODE.match] = match;
      if (infixes.length <= UNINDEXED_INFIXES_MAX) {
        this.#nodes[word + NODE.infixes] = this.#addInfixes(infixes);
        return;
      }
      const fragmentRoot = this.#addTexts(groupByFragment(infixes), (fragmentWord, group) => {
        this.#nodes[fragmentWord + NODE.infixes] = this.#addInfixes(group);
      });
      this.#nodes[word + NODE.fragmentRoot] = fragmentRoot;
    });
  }

  /** @returns the number of the first infix + 1; 0 for none */
  #addInfixes(infixes: readonly Infix[]): number {
    const first = this.#infixes.length / INFIX_WORDS;
    for (const [i, { segments, match }] of infixes.entries()) {
      const offset = this.#infixes.length;
      this.#infixes[offset + INFIX.match] = match;
      this.#infixes[offset + INFIX.segmentCount] = segments.length;
      this.#infixes[offset + INFIX.segmentsStart] = this.#unitCount;
      this.#infixes[offset + INFIX.isLast] = Number(i === infixes.length - 1);
      for (const segment of segments) this.#addSegment(segment);
    }
    return infixes.length === 0 ? 0 : first + 1;
  }

  /**
   * Writes a segment's length, its units, and for each unit its border: the length of the longest
   * proper prefix of the segment that ends at this unit (Knuth-Morris-Pratt).
   */
  #addSegment(segment: string): void {
    this.#reserveUnits(1 + 2 * segment.length);
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
    this.#reserveUnits(text.length);
    for (let i = 0; i < text.length; i++) this.#units[this.#unitCount++] = text.charCodeAt(i);
  }

  #reserveUnits(units: number): void {
    const needed = this.#unitCount + units;
    if (needed <= this.#units.length) return;
    const larger = new Uint16Array(Math.max(needed, 2 * this.#units.length));
    larger.set(this.#units);
    this.#units = larger;
  }

  /**
   * Adds a radix trie of texts without a star.
   * @param writeEntry writes the fields of the node where the text of an entry ends
   * @returns its root
   */
  #addTexts<T>(
    entries: ReadonlyMap<string, T>,
    writeEntry: (word: number, entry: T) => void,
  ): number {
    const texts = [...entries.keys()].sort();
    const root = this.#newNode(0);
    const pending: TextRange[] = [{ node: root, from: 0, to: texts.length, depth: 0 }];
    for (let range = pending.pop(); range !== undefined; range = pending.pop()) {
      const { node, to, depth } = range;
      const word = node * NODE_WORDS;
      let from = range.from;
      const end = commonPrefixEnd(texts[from], texts[to - 1], depth);
      this.#nodes[word + NODE.label] = this.#unitCount;
      this.#nodes[word + NODE.labelLength] = end - depth;
      this.#addUnits(texts[from].slice(depth, end));
      if (texts[from].length === end) writeEntry(word, entries.get(texts[from++])!);
      // Children must be contiguous: this loop creates no other node.
      for (let children = 0; from < to; children++) {
        const unit = texts[from].charCodeAt(end);
        const child = { node: this.#newNode(unit), from, to: from + 1, depth: end + 1 };
        while (child.to < to && texts[child.to].charCodeAt(end) === unit) child.to++;
        if (children === 0) this.#nodes[word + NODE.firstChild] = child.node;
        this.#nodes[word + NODE.childCount] = children + 1;
        pending.push(child);
        from = child.to;
      }
    }
    return root;
  }

  #newNode(firstUnit: number): number {
    const node = this.#firstUnits.push(firstUnit) - 1;
    if ((node + 1) * NODE_WORDS > this.#nodes.length) {
      const larger = new Int32Array(2 * this.#nodes.length);
      larger.set(this.#nodes);
      this.#nodes = larger;
    }
    return node;
  }

  write(
    root: number,
    blockRoot: number,
    values: Float64Array,
    spare: SharedArrayBuffer | undefined,
  ) {
    const counts = {
      values: values.length / VALUE_DOUBLES,
      nodes: this.#firstUnits.length,
      infixes: this.#infixes.length / INFIX_WORDS,
      units: this.#unitCount,
    };
    const { nodesAt, infixesAt, valuesAt, firstUnitsAt, unitsAt, bytes } = sectionOffsets(counts);
    const buffer = reuseMemory(bytes, TRIE, spare);
    const nodeWords = counts.nodes * NODE_WORDS;
    new Int32Array(buffer, nodesAt, nodeWords).set(this.#nodes.subarray(0, nodeWords));
    new Int32Array(buffer, infixesAt, this.#infixes.length).set(this.#infixes);
    new Float64Array(buffer, valuesAt, values.length).set(values);
    new Uint16Array(buffer, firstUnitsAt, counts.nodes).set(this.#firstUnits);
    new Uint16Array(buffer, unitsAt, counts.units).set(this.#units.subarray(0, counts.units));
    writeHeader(buffer, TRIE, { ...TRIE_HEADER, ...counts, root, blockRoot });
    return buffer;
  }
}

/** Reverses code units, also within surrogate pairs: a suffix is matched unit by unit. */
function reverse(text: string): string {
  return text.split('').reverse().join('');
}

/** @param from the length of a prefix that is known to be common */
function commonPrefixEnd(a: string, b: string, from: number): number {
  let end = from;
  while (end < a.length && end < b.length && a.charCodeAt(end) === b.charCodeAt(end)) end++;
  return end;
}
