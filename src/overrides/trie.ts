/**
 * Reads the published trie of wildcard overrides. The buffer (`layout.ts`) is immutable once
 * published. Each namespace with overrides of its own has a root: the tries of its patterns. All
 * namespace patterns share one root, so that a text is matched with them once. The names and
 * patterns of namespaces have a root themselves.
 *
 * A pattern is a prefix before its first star, a suffix after its last star, and an infix between:
 * the segments between inner stars. Matching a text with a root:
 *
 *   1. Walk the trie of prefixes from the start of the text.
 *   2. At the first prefix with suffixes, walk the trie of suffixes back from the end of the text.
 *      At each prefix, look up which of its suffixes were found.
 *   3. At the first infix, walk the trie of middles from each character. A bitmap for each chunk
 *      of a segment has the characters at which it begins. Each segment is then searched leftmost
 *      first, in these bitmaps. A pattern `*text*` with a short text ends in the trie of middles.
 *      All roots have this trie in common, because this walk takes most of the time.
 *
 * A match in the shared root is a list of the scopes, the namespace patterns, that have the
 * pattern. The bits of a namespace say which scopes match its name.
 *
 * CIDR blocks have a trie of prefixes of their own. An identifier is matched with these as a text
 * of bits (`cidr.ts`), if it is an address.
 *
 * A match takes at most some steps for each unit of the text, for each unit of a middle at each
 * character, for each override and for each chunk of an infix. It needs no stack. Units are UTF-16.
 * Texts are well-formed, so a star never splits a character.
 */

import { MemoryError } from '../core/errors.ts';
import { attachMemory } from '../shared-memory/block.ts';
import { addressBits } from './cidr.ts';
import { decodeId } from './id.ts';
import {
  BITMAP_WORDS,
  CHUNK_CHARACTERS,
  ENTRY,
  ENTRY_WORDS,
  INFIX,
  INFIX_WORDS,
  NODE,
  NODE_WORDS,
  ROOT,
  ROOT_WORDS,
  SCOPE_UNIT,
  sectionOffsets,
  TRIE,
  TRIE_HEADER,
  VALUE,
  VALUE_DOUBLES,
} from './layout.ts';
import { escapeStars } from './pattern.ts';

const DESCRIPTION = 'the trie of overrides';
const NO_MATCH = Number.MAX_SAFE_INTEGER;
/** When text numbers wrap around, the marks of all nodes are cleared. */
const TEXT_NUMBER_MAX = 0x7fffffff;

/** A search in a sorted list is taken to cost as much as so many entries that are tried in turn. */
const SEARCH_COST = 16;

/** The row of a chunk that the text has: the number of the chunk | its bitmap | 0. */
const ROW_WORDS = 1 + BITMAP_WORDS + 1;

/** The result of `rootsFor`: these fields | the scopes that match, sorted | a bitmap of scopes. */
const FOUND = {
  /** The root of the namespace; 0 for none. */
  own: 0,
  /** Whether a scope that matches has CIDR blocks: else identifiers are not parsed. */
  hasBlocks: 1,
  scopeCount: 2,
  scopes: 3,
} as const;
const NOTHING_FOUND = new Int32Array(0);

export class Trie {
  /** Steps of the last search. */
  steps = 0;
  readonly #values: Float64Array;
  readonly #valueWords: Int32Array;
  readonly #concurrencies: Float64Array;
  readonly #nodes: Int32Array;
  readonly #roots: Int32Array;
  readonly #entries: Int32Array;
  readonly #infixes: Int32Array;
  readonly #segments: Int32Array;
  readonly #firstUnits: Uint16Array;
  readonly #units: Uint16Array;
  readonly #namespaces: number;
  readonly #shared: number;
  /** By node of a suffix or a middle: the number of the last text in which it was found. */
  readonly #lastTextOf: Int32Array;
  /** By node of a suffix: where it began in that text. */
  readonly #startOf: Int32Array;
  readonly #middles: number;
  /** By chunk: the number of its row, if this row has the number of the chunk. */
  readonly #rowOf: Int32Array;
  /** See ROW_WORDS. */
  #rows = new Int32Array(16 * ROW_WORDS);
  #rowCount = 0;
  #textNumber = 0;
  /** Scratch of the running match: the match with precedence, and all matches if requested. */
  #bestMatch = NO_MATCH;
  #allMatches: number[] | undefined;
  /** From `rootsFor`, for the matches of the shared root. */
  #found: Int32Array = NOTHING_FOUND;
  /** Offset of the running root. */
  #root = 0;
  /** The nodes of the suffixes of the text, from the shortest one on; below 0: not walked yet. */
  readonly #suffixNodes: number[] = [];
  #suffixCount = -1;
  #areMiddlesFound = false;
  /** The lists of the middles of the text that end a pattern. */
  readonly #middleLists: number[] = [];
  #middleCount = 0;
  /** By unit of the text: the characters before it. */
  readonly #charactersBefore: number[] = [];
  #characters = 0;

  /** @throws MemoryError if the buffer does not contain a complete trie */
  constructor(buffer: SharedArrayBuffer) {
    const words = attachMemory(buffer, DESCRIPTION, TRIE, TRIE_HEADER);
    const counts = {
      values: words[TRIE.values],
      nodes: words[TRIE.nodes],
      roots: words[TRIE.roots],
      entries: words[TRIE.entries],
      infixes: words[TRIE.infixes],
      segments: words[TRIE.segments],
      units: words[TRIE.units],
    };
    const at = sectionOffsets(counts);
    if (at.bytes > buffer.byteLength) {
      throw new MemoryError(
        `${DESCRIPTION}: ${JSON.stringify(counts)} in ${buffer.byteLength} bytes`,
      );
    }
    this.#namespaces = words[TRIE.namespaces];
    this.#shared = words[TRIE.shared];
    this.#middles = words[TRIE.middles];
    this.#nodes = new Int32Array(buffer, at.nodesAt, NODE_WORDS * counts.nodes);
    this.#values = new Float64Array(buffer, at.valuesAt, VALUE_DOUBLES * counts.values);
    this.#valueWords = new Int32Array(buffer, at.valuesAt, 2 * VALUE_DOUBLES * counts.values);
    this.#concurrencies = new Float64Array(buffer, at.concurrenciesAt, counts.values);
    this.#roots = new Int32Array(buffer, at.rootsAt, ROOT_WORDS * counts.roots);
    this.#entries = new Int32Array(buffer, at.entriesAt, counts.entries);
    this.#infixes = new Int32Array(buffer, at.infixesAt, INFIX_WORDS * counts.infixes);
    this.#segments = new Int32Array(buffer, at.segmentsAt, counts.segments);
    this.#firstUnits = new Uint16Array(buffer, at.firstUnitsAt, counts.nodes);
    this.#units = new Uint16Array(buffer, at.unitsAt, counts.units);
    this.#lastTextOf = new Int32Array(counts.nodes);
    this.#startOf = new Int32Array(counts.nodes);
    this.#rowOf = new Int32Array(words[TRIE.chunks] + 1);
  }

  /**
   * The root of a namespace, and the scopes that match its name: the overrides of both apply in it.
   * Empty if none does.
   */
  rootsFor(namespace: string): Int32Array {
    const matches: number[] = [];
    this.#allMatches = matches;
    this.#beginText();
    try {
      this.#matchRoot(this.#namespaces, escapeStars(namespace));
    } finally {
      this.#allMatches = undefined;
    }
    if (matches.length === 0) return NOTHING_FOUND;
    let own = 0;
    let hasBlocks = 0;
    let scopeCount = 0;
    let words = 0;
    for (const match of matches) {
      if (match > 0) own = match;
      else words = Math.max(words, (scopeOf(match) >> 5) + 1);
    }
    const bitmap = new Int32Array(words);
    for (const match of matches) {
      if (match > 0) continue;
      const scope = scopeOf(match);
      hasBlocks |= (-match - 1) % SCOPE_UNIT;
      bitmap[scope >> 5] |= 1 << (scope & 31);
      scopeCount++;
    }
    const found = new Int32Array(FOUND.scopes + scopeCount + words);
    found[FOUND.own] = own;
    found[FOUND.hasBlocks] = hasBlocks;
    found[FOUND.scopeCount] = scopeCount;
    let at = FOUND.scopes;
    // In this order they are sorted.
    for (let scope = 0; at < FOUND.scopes + scopeCount; scope++) {
      if ((bitmap[scope >> 5] & (1 << (scope & 31))) !== 0) found[at++] = scope;
    }
    found.set(bitmap, at);
    return found;
  }

  /**
   * @param found from `rootsFor`
   * @returns the index of the value that takes precedence; -1 if no pattern or block matches
   */
  find(found: Int32Array, identifier: string): number {
    this.#bestMatch = NO_MATCH;
    this.#beginText();
    if (found.length === 0) return -1;
    this.#found = found;
    const own = found[FOUND.own];
    const hasOwnBlocks = own !== 0 && this.#roots[ROOT_WORDS * own + ROOT.blocks] !== 0;
    const hasBlocks = hasOwnBlocks || found[FOUND.hasBlocks] !== 0;
    const bits = hasBlocks ? addressBits(identifier) : undefined;
    if (own !== 0) this.#match(own, identifier, bits);
    if (found[FOUND.scopeCount] > 0) this.#match(this.#shared, identifier, bits);
    return this.#bestMatch === NO_MATCH ? -1 : this.#bestMatch - 1;
  }

  limit(valueIndex: number): number {
    return this.#values[VALUE_DOUBLES * valueIndex + VALUE.limit];
  }

  durationMs(valueIndex: number): number {
    return Math.abs(this.#values[VALUE_DOUBLES * valueIndex + VALUE.durationMs]);
  }

  isAsync(valueIndex: number): boolean {
    return this.#values[VALUE_DOUBLES * valueIndex + VALUE.durationMs] < 0;
  }

  id(valueIndex: number): string {
    return decodeId(this.#valueWords, 2 * VALUE_DOUBLES * valueIndex + VALUE.id);
  }

  usageRow(valueIndex: number): number {
    return this.#valueWords[2 * VALUE_DOUBLES * valueIndex + VALUE.usageRow];
  }

  concurrency(valueIndex: number): number {
    return this.#concurrencies[valueIndex];
  }

  #beginText(): void {
    this.steps = 0;
    this.#areMiddlesFound = false;
    if (++this.#textNumber <= TEXT_NUMBER_MAX) return;
    this.#lastTextOf.fill(0);
    this.#textNumber = 1;
  }

  #match(root: number, identifier: string, bits: string | undefined): void {
    this.#matchRoot(root, identifier);
    const blocks = this.#roots[ROOT_WORDS * root + ROOT.blocks];
    if (bits !== undefined && blocks !== 0) this.#matchPrefixes(blocks, bits);
  }

  /** Matches a text with the patterns of a root, without its CIDR blocks. */
  #matchRoot(root: number, text: string): void {
    this.#root = ROOT_WORDS * root;
    this.#suffixCount = -1;
    if (this.#roots[this.#root + ROOT.hasMiddles] !== 0) this.#matchMiddles(root, text);
    this.#matchPrefixes(this.#roots[this.#root + ROOT.prefixes], text);
  }

  #matchPrefixes(first: number, text: string): void {
    const nodes = this.#nodes;
    const { length } = text;
    let at = 0;
    let steps = 0;
    for (let node = first; node !== 0; ) {
      const word = node * NODE_WORDS;
      const labelEnd = at + nodes[word + NODE.labelLength];
      if (labelEnd > length) break;
      let unit = nodes[word + NODE.label];
      while (at < labelEnd && this.#units[unit] === text.charCodeAt(at)) {
        at++;
        unit++;
      }
      steps++;
      if (at < labelEnd) break;
      this.#addMatch(nodes[word + NODE.starMatch]);
      const suffixes = nodes[word + NODE.suffixes];
      if (suffixes !== 0) this.#matchSuffixes(suffixes, text, at);
      if (at === length) {
        this.#addMatch(nodes[word + NODE.match]);
        break;
      }
      node = this.#child(word, text.charCodeAt(at++));
    }
    this.steps += steps + at;
  }

  /** @param from the end of the prefix, which a suffix must not overlap */
  #matchSuffixes(list: number, text: string, from: number): void {
    if (this.#suffixCount < 0) this.#findSuffixes(text);
    const found = this.#suffixNodes;
    const foundCount = this.#suffixCount;
    const entries = this.#entries;
    const count = entries[list];
    if (foundCount * SEARCH_COST < count) {
      this.steps += foundCount;
      for (let i = 0; i < foundCount; i++) {
        const entry = this.#entryOf(list, found[i]);
        if (entry !== 0) this.#matchSuffix(entry, text, from);
      }
      return;
    }
    this.steps += count;
    const end = list + 1 + ENTRY_WORDS * count;
    for (let entry = list + 1; entry < end; entry += ENTRY_WORDS) {
      if (this.#lastTextOf[entries[entry + ENTRY.key]] === this.#textNumber)
        this.#matchSuffix(entry, text, from);
    }
  }

  /** Walks the trie of suffixes, whose texts are reversed. */
  #findSuffixes(text: string): void {
    const nodes = this.#nodes;
    let end = text.length;
    let steps = 0;
    this.#suffixCount = 0;
    for (let node = this.#roots[this.#root + ROOT.suffixes]; node !== 0; ) {
      const word = node * NODE_WORDS;
      const labelEnd = end - nodes[word + NODE.labelLength];
      if (labelEnd < 0) break;
      let unit = nodes[word + NODE.label];
      while (end > labelEnd && this.#units[unit] === text.charCodeAt(end - 1)) {
        end--;
        unit++;
      }
      steps++;
      if (end > labelEnd) break;
      if (nodes[word + NODE.match] !== 0) {
        this.#suffixNodes[this.#suffixCount++] = node;
        this.#lastTextOf[node] = this.#textNumber;
        this.#startOf[node] = end;
      }
      if (end === 0) break;
      node = this.#child(word, text.charCodeAt(--end));
    }
    this.steps += steps + text.length - end;
  }

  /** @param entry of a suffix that the text has */
  #matchSuffix(entry: number, text: string, from: number): void {
    const end = this.#startOf[this.#entries[entry + ENTRY.key]];
    if (end < from) return;
    this.#addMatch(this.#entries[entry + ENTRY.match]);
    const infixes = this.#entries[entry + ENTRY.infixes];
    if (infixes !== 0) this.#matchInfixes(infixes, text, from, end);
  }

  #matchMiddles(root: number, text: string): void {
    if (!this.#areMiddlesFound) this.#findMiddles(text);
    this.steps += this.#middleCount;
    for (let i = 0; i < this.#middleCount; i++) {
      const entry = this.#entryOf(this.#middleLists[i], root);
      if (entry !== 0) this.#addMatch(this.#entries[entry + ENTRY.match]);
    }
  }

  /** Finds the middles at each character of the text, and the chunks of segments. */
  #findMiddles(text: string): void {
    const nodes = this.#nodes;
    const { length } = text;
    const first = this.#middles;
    this.#rowCount = 0;
    this.#middleCount = 0;
    let characters = 0;
    let steps = 0;
    for (let begin = 0; begin < length; begin++) {
      this.#charactersBefore[begin] = characters;
      let unit = text.charCodeAt(begin);
      if ((unit & 0xfc00) === 0xdc00) continue;
      let at = begin;
      for (let node = first; node !== 0; ) {
        steps++;
        const word = node * NODE_WORDS;
        const labelEnd = at + nodes[word + NODE.labelLength];
        if (labelEnd > length) break;
        unit = nodes[word + NODE.label];
        while (at < labelEnd && this.#units[unit] === text.charCodeAt(at)) {
          at++;
          unit++;
        }
        if (at < labelEnd) break;
        const chunk = nodes[word + NODE.chunk];
        if (chunk !== 0) this.#addStart(chunk, characters);
        const list = nodes[word + NODE.match];
        if (list !== 0 && this.#lastTextOf[node] !== this.#textNumber) {
          this.#lastTextOf[node] = this.#textNumber;
          this.#middleLists[this.#middleCount++] = list;
        }
        if (at === length) break;
        node = this.#child(word, text.charCodeAt(at++));
      }
      steps += at - begin;
      characters++;
    }
    this.#charactersBefore[length] = characters;
    if (characters > 32 * BITMAP_WORDS)
      throw new Error(`${DESCRIPTION}: a text has ${characters} characters`);
    this.#characters = characters;
    this.#areMiddlesFound = true;
    this.steps += steps;
  }

  #addStart(chunk: number, character: number): void {
    let row = this.#rowOfChunk(chunk);
    if (row < 0) row = this.#addRow(chunk);
    this.#rows[row + 1 + (character >> 5)] |= 1 << (character & 31);
  }

  /** The offset of the row of a chunk; -1 if the text does not have it. */
  #rowOfChunk(chunk: number): number {
    const number = this.#rowOf[chunk];
    const row = ROW_WORDS * number;
    return number < this.#rowCount && this.#rows[row] === chunk ? row : -1;
  }

  #addRow(chunk: number): number {
    const row = ROW_WORDS * this.#rowCount;
    if (row === this.#rows.length) {
      const larger = new Int32Array(2 * this.#rows.length);
      larger.set(this.#rows);
      this.#rows = larger;
    }
    this.#rowOf[chunk] = this.#rowCount++;
    this.#rows[row] = chunk;
    for (let i = row + 1; i <= row + BITMAP_WORDS; i++) this.#rows[i] = 0;
    return row;
  }

  /** Matches the infixes whose chunk the text has. @param list of chunks */
  #matchInfixes(list: number, text: string, from: number, end: number): void {
    if (!this.#areMiddlesFound) this.#findMiddles(text);
    const entries = this.#entries;
    const count = entries[list];
    const begin = this.#charactersBefore[from];
    const last = this.#charactersBefore[end];
    if (this.#rowCount * SEARCH_COST < count) {
      this.steps += this.#rowCount;
      for (let i = 0; i < this.#rowCount; i++) {
        const entry = this.#entryOf(list, this.#rows[ROW_WORDS * i]);
        if (entry !== 0) this.#matchGroup(entries[entry + ENTRY.infixes], begin, last);
      }
      return;
    }
    this.steps += count;
    const listEnd = list + 1 + ENTRY_WORDS * count;
    for (let entry = list + 1; entry < listEnd; entry += ENTRY_WORDS) {
      if (this.#rowOfChunk(entries[entry + ENTRY.key]) >= 0)
        this.#matchGroup(entries[entry + ENTRY.infixes], begin, last);
    }
  }

  /** @param first the number of the first infix of the group */
  #matchGroup(first: number, from: number, end: number): void {
    const infixes = this.#infixes;
    for (let word = first * INFIX_WORDS; ; word += INFIX_WORDS) {
      const count = infixes[word + INFIX.segmentCount];
      const start = infixes[word + INFIX.segmentsStart];
      this.steps++;
      if (this.#hasSegments(count, start, from, end)) this.#addMatch(infixes[word + INFIX.match]);
      if (infixes[word + INFIX.isLast] === 1) return;
    }
  }

  /** Whether the text contains all segments of an infix in their order, without overlap. */
  #hasSegments(count: number, start: number, from: number, end: number): boolean {
    let segment = start;
    let at = from;
    for (let remaining = count; remaining > 0; remaining--) {
      const length = this.#segments[segment];
      const chunks = this.#segments[segment + 1];
      const found = this.#findSegment(segment + 2, chunks, length, at);
      at = found + length;
      if (found < 0 || at > end) return false;
      segment += 2 + chunks;
    }
    return true;
  }

  /**
   * @param first where the chunks of the segment are
   * @returns the first character, not before `from`, at which the segment begins; -1 for none
   */
  #findSegment(first: number, chunks: number, length: number, from: number): number {
    this.steps += chunks;
    for (let i = 0; i < chunks; i++) if (this.#rowOfChunk(this.#segments[first + i]) < 0) return -1;
    const rows = this.#rows;
    const row = this.#rowOfChunk(this.#segments[first]) + 1;
    const words = (this.#characters >> 5) + 1;
    let mask = -1 << (from & 31);
    let steps = 0;
    for (let word = from >> 5; word < words; word++) {
      let bits = rows[row + word] & mask;
      mask = -1;
      steps++;
      for (let i = 1; i < chunks && bits !== 0; i++) {
        steps++;
        const offset = Math.min(CHUNK_CHARACTERS * i, length - CHUNK_CHARACTERS);
        const next = this.#rowOfChunk(this.#segments[first + i]);
        bits &= this.#startsFrom(next, 32 * word + offset);
      }
      if (bits === 0) continue;
      this.steps += steps;
      return 32 * word + 31 - Math.clz32(bits & -bits);
    }
    this.steps += steps;
    return -1;
  }

  /** 32 bits of the bitmap of a row, from a character on. */
  #startsFrom(row: number, character: number): number {
    const word = character >> 5;
    if (word >= BITMAP_WORDS) return 0;
    const at = row + 1 + word;
    const shift = character & 31;
    // A shift by 32 bits would be one by none.
    return (this.#rows[at] >>> shift) | ((this.#rows[at + 1] << 1) << (31 - shift));
  }

  #addMatch(match: number): void {
    if (match === 0) return;
    if (this.#allMatches !== undefined) this.#allMatches.push(match);
    else if (match < 0) this.#addScopes(-match);
    else if (match < this.#bestMatch) this.#bestMatch = match;
  }

  /** Adds the match of each scope in a list that matches the namespace. */
  #addScopes(list: number): void {
    const found = this.#found;
    const entries = this.#entries;
    const count = entries[list];
    const scopeCount = found[FOUND.scopeCount];
    const bitmap = FOUND.scopes + scopeCount;
    if (scopeCount * SEARCH_COST < count) {
      this.steps += scopeCount;
      for (let i = FOUND.scopes; i < bitmap; i++) {
        const entry = this.#entryOf(list, found[i]);
        if (entry !== 0) this.#addMatch(entries[entry + ENTRY.match]);
      }
      return;
    }
    this.steps += count;
    const end = list + 1 + ENTRY_WORDS * count;
    for (let entry = list + 1; entry < end; entry += ENTRY_WORDS) {
      const scope = entries[entry + ENTRY.key];
      // The bitmap ends with the last scope that matches.
      const word = bitmap + (scope >> 5);
      if (word < found.length && (found[word] & (1 << (scope & 31))) !== 0)
        this.#addMatch(entries[entry + ENTRY.match]);
    }
  }

  /** The entry with a key in a list; 0 for none. */
  #entryOf(list: number, key: number): number {
    const entries = this.#entries;
    let low = 0;
    let high = entries[list] - 1;
    while (low <= high) {
      const middle = (low + high) >> 1;
      const entry = list + 1 + ENTRY_WORDS * middle;
      const found = entries[entry + ENTRY.key];
      if (found === key) return entry;
      if (found < key) low = middle + 1;
      else high = middle - 1;
    }
    return 0;
  }

  /** The child of the node at `word` with a first unit; 0 for none. */
  #child(word: number, unit: number): number {
    const firstUnits = this.#firstUnits;
    let low = this.#nodes[word + NODE.firstChild];
    let high = low + this.#nodes[word + NODE.childCount] - 1;
    while (low <= high) {
      const middle = (low + high) >> 1;
      const found = firstUnits[middle];
      if (found === unit) return middle;
      if (found < unit) low = middle + 1;
      else high = middle - 1;
    }
    return 0;
  }
}

function scopeOf(match: number): number {
  return Math.floor((-match - 1) / SCOPE_UNIT);
}
