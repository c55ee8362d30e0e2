/**
 * Builds the trie of wildcard overrides. Texts are sorted, so a node is a range of texts, and the
 * common prefix of the first and the last text is the common prefix of the whole range. There is
 * no recursion. Except for the sort, the time is linear in the length of the texts.
 */

import { reuseMemory, writeHeader } from '../shared-memory/block.ts';
import { encodeId, NO_USAGE_ROW, type OverrideValue } from './id.ts';
import {
  CHUNK_CHARACTERS,
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
import { isPattern, middleOf } from './pattern.ts';

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
  /** For each override its concurrency, or NO_CONCURRENCY. */
  concurrencies: Float64Array;
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

type Terms = Pick<SerializedWildcards, 'values' | 'concurrencies'>;

interface Pattern {
  text: string;
  /** What it matches: see SCOPE_UNIT. */
  match: number;
}

/** The overrides of one namespace. */
interface Patterns {
  identifiers: Pattern[];
  blocks: Pattern[];
}

/** A namespace pattern. */
interface Scope {
  number: number;
  hasBlocks: boolean;
}

interface Entry {
  key: number;
  match: number;
  infixes: number;
}

/**
 * Writes a trie of at least one override.
 * @param spare a buffer that no thread reads any more
 * @returns the spare buffer, or a new one if the spare is too small
 */
export function writeTrie(
  { text, lengths, areBlocks, values, concurrencies }: SerializedWildcards,
  spare: SharedArrayBuffer | undefined,
): SharedArrayBuffer {
  const names = new Map<string, Patterns>();
  const scopes = new Map<string, Scope>();
  /** By text: the scopes that have it. */
  const shared = { identifiers: new Map<string, Entry[]>(), blocks: new Map<string, Entry[]>() };
  let start = 0;
  for (let index = 0; index < lengths.length / 2; index++) {
    const middle = start + lengths[2 * index];
    const end = middle + lengths[2 * index + 1];
    const namespace = text.slice(start, middle);
    const identifier = text.slice(middle, end);
    const kind = areBlocks[index] === 1 ? 'blocks' : 'identifiers';
    const match = index + 1;
    start = end;
    if (!isPattern(namespace)) {
      const own = getOrCreate(names, namespace, (): Patterns => ({ identifiers: [], blocks: [] }));
      own[kind].push({ text: identifier, match });
      continue;
    }
    const scope = getOrCreate(scopes, namespace, (): Scope => {
      return { number: scopes.size, hasBlocks: false };
    });
    scope.hasBlocks ||= kind === 'blocks';
    const entries = getOrCreate(shared[kind], identifier, (): Entry[] => []);
    entries.push({ key: scope.number, match, infixes: 0 });
  }
  const terms = { values, concurrencies };
  return new TrieBuilder().write(names, scopes, shared, terms, spare);
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
  /** The other patterns, with the texts between their stars. */
  infixes: { segments: string[]; match: number }[];
}

/** A text between stars, with the numbers of its chunks. */
interface Segment {
  /** In characters. */
  length: number;
  chunks: number[];
}

interface Infix {
  segments: Segment[];
  match: number;
}

const chunksOf = ({ segments }: Infix): number[] => segments.flatMap(({ chunks }) => chunks);

/** A text between stars. */
interface MiddleEntry {
  /** The roots that have the pattern of it between two stars. */
  roots: Entry[];
  /** Its number as a chunk; 0 for none. */
  chunk: number;
}

const newPrefixEntry = (): PrefixEntry => ({ match: 0, starMatch: 0, suffixes: undefined });
const newSuffixEntry = (): SuffixEntry => ({ match: 0, infixes: [] });
const newMiddleEntry = (): MiddleEntry => ({ roots: [], chunk: 0 });

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
  /** The words of all roots, from number 0 on, which is unused. */
  readonly #roots: number[] = new Array(ROOT_WORDS).fill(0);
  /** From offset 1 on. */
  readonly #entries: number[] = [0];
  readonly #infixes: number[] = [];
  readonly #segments: number[] = [];
  readonly #middles = new Map<string, MiddleEntry>();
  #chunkCount = 0;
  #units = new Uint16Array(4_096);
  #unitCount = 0;

  write(
    names: ReadonlyMap<string, Patterns>,
    scopes: ReadonlyMap<string, Scope>,
    shared: Readonly<Record<keyof Patterns, ReadonlyMap<string, Entry[]>>>,
    terms: Terms,
    spare: SharedArrayBuffer | undefined,
  ): SharedArrayBuffer {
    const patternsOf = (lists: ReadonlyMap<string, Entry[]>): Pattern[] => {
      return [...lists].map(([text, scopes]) => ({ text, match: -this.#addEntries(scopes) }));
    };
    const sharedPatterns = {
      identifiers: patternsOf(shared.identifiers),
      blocks: patternsOf(shared.blocks),
    };
    const sharedRoot = scopes.size === 0 ? 0 : this.#addRoot(sharedPatterns);
    const identifiers: Pattern[] = [];
    for (const [text, own] of names) identifiers.push({ text, match: this.#addRoot(own) });
    for (const [text, { number, hasBlocks }] of scopes) {
      identifiers.push({ text, match: -(SCOPE_UNIT * number + 1 + Number(hasBlocks)) });
    }
    const namespaces = this.#addRoot({ identifiers, blocks: [] });
    const middles = this.#addTexts(this.#middles, (word, { roots, chunk }) => {
      this.#nodes[word + NODE.match] = roots.length === 0 ? 0 : this.#addEntries(roots);
      this.#nodes[word + NODE.chunk] = chunk;
    });
    return this.#writeBuffer({ namespaces, shared: sharedRoot, middles }, terms, spare);
  }

  /** @returns the offset of a list of at least one entry. Of those with one key the first counts */
  #addEntries(entries: Entry[]): number {
    const offset = this.#entries.push(0) - 1;
    entries.sort((a, b) => a.key - b.key || a.match - b.match);
    let last = -1;
    for (const { key, match, infixes } of entries) {
      if (key === last) continue;
      last = key;
      this.#entries.push(key, match, infixes);
      this.#entries[offset]++;
    }
    return offset;
  }

  /** Adds patterns, of which at least one exists. Of equal patterns the first one counts. */
  #addRoot({ identifiers, blocks }: Patterns): number {
    const prefixes = new Map<string, PrefixEntry>();
    const suffixes = new Map<string, number>();
    const root = this.#roots.length / ROOT_WORDS;
    let hasMiddles = false;
    for (const { text, match } of identifiers) {
      const star = text.indexOf('*');
      const last = text.lastIndexOf('*');
      const middle = middleOf(text);
      if (middle !== undefined) {
        hasMiddles = true;
        const { roots } = getOrCreate(this.#middles, middle, newMiddleEntry);
        roots.push({ key: root, match, infixes: 0 });
        continue;
      }
      const prefix = getOrCreate(prefixes, star < 0 ? text : text.slice(0, star), newPrefixEntry);
      if (star < 0) prefix.match ||= match;
      else if (star === text.length - 1) prefix.starMatch ||= match;
      else {
        prefix.suffixes ??= new Map();
        const reversed = reverse(text.slice(last + 1));
        suffixes.set(reversed, 0);
        const suffix = getOrCreate(prefix.suffixes, reversed, newSuffixEntry);
        if (star === last) suffix.match ||= match;
        else suffix.infixes.push({ segments: text.slice(star + 1, last).split('*'), match });
      }
    }
    const suffixRoot = this.#addTexts(suffixes, (word, _, text) => {
      suffixes.set(text, word / NODE_WORDS);
      this.#nodes[word + NODE.match] = 1;
    });
    const offset = this.#roots.length;
    this.#roots[offset + ROOT.prefixes] = this.#addPrefixes(prefixes, suffixes);
    this.#roots[offset + ROOT.suffixes] = suffixRoot;
    this.#roots[offset + ROOT.hasMiddles] = Number(hasMiddles);
    this.#roots[offset + ROOT.blocks] = this.#addBlocks(blocks);
    return root;
  }

  #addPrefixes(
    prefixes: ReadonlyMap<string, PrefixEntry>,
    suffixNodes: ReadonlyMap<string, number>,
  ): number {
    return this.#addTexts(prefixes, (word, { match, starMatch, suffixes }) => {
      this.#nodes[word + NODE.match] = match;
      this.#nodes[word + NODE.starMatch] = starMatch;
      if (suffixes === undefined) return;
      const entries = [...suffixes].map(([text, { match, infixes }]): Entry => {
        const key = suffixNodes.get(text)!;
        return { key, match, infixes: this.#addInfixes(infixes) };
      });
      this.#nodes[word + NODE.suffixes] = this.#addEntries(entries);
    });
  }

  #addBlocks(blocks: readonly Pattern[]): number {
    // Each is its bits and a star.
    const texts = new Map(blocks.map(({ text, match }) => [text.slice(0, -1), match]));
    return this.#addTexts(texts, (word, match) => {
      this.#nodes[word + NODE.starMatch] = match;
    });
  }

  /** @returns the offset of the list of their chunks; 0 for none */
  #addInfixes(infixes: SuffixEntry['infixes']): number {
    const coded = infixes.map(({ segments, match }): Infix => {
      return { match, segments: segments.map((segment) => this.#segmentOf(segment)) };
    });
    const uses = new Map<number, number>();
    for (const chunk of coded.flatMap(chunksOf)) uses.set(chunk, (uses.get(chunk) ?? 0) + 1);
    const groups = new Map<number, Infix[]>();
    for (const infix of coded) {
      const rarest = chunksOf(infix).reduce((a, b) => (uses.get(b)! < uses.get(a)! ? b : a));
      getOrCreate(groups, rarest, (): Infix[] => []).push(infix);
    }
    const entries = [...groups].map(([key, group]): Entry => {
      return { key, match: 0, infixes: this.#addGroup(group) };
    });
    return entries.length === 0 ? 0 : this.#addEntries(entries);
  }

  #segmentOf(text: string): Segment {
    const characters = [...text];
    const { length } = characters;
    const chunks: number[] = [];
    for (let at = 0; at < length; at += CHUNK_CHARACTERS) {
      const from = Math.max(0, Math.min(at, length - CHUNK_CHARACTERS));
      const chunk = characters.slice(from, from + CHUNK_CHARACTERS).join('');
      const middle = getOrCreate(this.#middles, chunk, newMiddleEntry);
      middle.chunk ||= ++this.#chunkCount;
      chunks.push(middle.chunk);
    }
    return { length, chunks };
  }

  /** @returns the number of the first infix */
  #addGroup(infixes: readonly Infix[]): number {
    const first = this.#infixes.length / INFIX_WORDS;
    for (const [i, { segments, match }] of infixes.entries()) {
      const offset = this.#infixes.length;
      this.#infixes[offset + INFIX.match] = match;
      this.#infixes[offset + INFIX.segmentCount] = segments.length;
      this.#infixes[offset + INFIX.segmentsStart] = this.#segments.length;
      this.#infixes[offset + INFIX.isLast] = Number(i === infixes.length - 1);
      for (const { length, chunks } of segments)
        this.#segments.push(length, chunks.length, ...chunks);
    }
    return first;
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
   * @returns its first node; 0 if there are no texts
   */
  #addTexts<T>(
    entries: ReadonlyMap<string, T>,
    writeEntry: (word: number, entry: T, text: string) => void,
  ): number {
    if (entries.size === 0) return 0;
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
      if (texts[from].length === end) {
        const text = texts[from++];
        writeEntry(word, entries.get(text)!, text);
      }
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

  #writeBuffer(
    roots: { namespaces: number; shared: number; middles: number },
    { values, concurrencies }: Terms,
    spare: SharedArrayBuffer | undefined,
  ): SharedArrayBuffer {
    const counts = {
      values: values.length / VALUE_DOUBLES,
      nodes: this.#firstUnits.length,
      roots: this.#roots.length / ROOT_WORDS,
      entries: this.#entries.length,
      infixes: this.#infixes.length / INFIX_WORDS,
      segments: this.#segments.length,
      units: this.#unitCount,
    };
    const at = sectionOffsets(counts);
    const buffer = reuseMemory(at.bytes, TRIE, spare);
    const nodeWords = counts.nodes * NODE_WORDS;
    new Int32Array(buffer, at.nodesAt, nodeWords).set(this.#nodes.subarray(0, nodeWords));
    new Float64Array(buffer, at.valuesAt, values.length).set(values);
    new Float64Array(buffer, at.concurrenciesAt, counts.values).set(concurrencies);
    for (const [offset, words] of [
      [at.rootsAt, this.#roots],
      [at.entriesAt, this.#entries],
      [at.infixesAt, this.#infixes],
      [at.segmentsAt, this.#segments],
    ] as const) {
      new Int32Array(buffer, offset, words.length).set(words);
    }
    new Uint16Array(buffer, at.firstUnitsAt, counts.nodes).set(this.#firstUnits);
    const units = this.#units.subarray(0, counts.units);
    new Uint16Array(buffer, at.unitsAt, counts.units).set(units);
    writeHeader(buffer, TRIE, { ...TRIE_HEADER, ...counts, ...roots, chunks: this.#chunkCount });
    return buffer;
  }
}

function getOrCreate<K, T>(entries: Map<K, T>, key: K, create: () => T): T {
  let entry = entries.get(key);
  if (entry === undefined) {
    entry = create();
    entries.set(key, entry);
  }
  return entry;
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
