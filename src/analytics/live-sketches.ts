/**
 * The sketches that acceptors have announced, until the lists of their hour are complete. A list is
 * written again and again during its hour, and a last time when the hour is over and no acceptor
 * writes to its sketches any more.
 */

import { ANALYTICS_IDENTIFIERS_MAX } from '../core/constants.ts';
import type { IdentifiersEntry } from './database.ts';
import type { IdentifierList } from './identifier-list.ts';
import { mergeLists } from './identifier-list.ts';
import { encodeLists, type IdentifierLists } from './identifier-record.ts';
import { SKETCHES, type SketchAnnouncement, type SketchName } from './recorder.ts';
import { SKETCH_WORDS, SketchReader } from './sketch.ts';

/** What is read of each sketch: an identifier may be far down in the list of one acceptor. */
const READ_MAX = 4 * ANALYTICS_IDENTIFIERS_MAX;

interface LiveNamespace {
  namespace: string;
  hour: number;
  /** One of each acceptor that has counted a check. */
  buffers: SharedArrayBuffer[];
  /** Whether all acceptors had room for its sketches. */
  isComplete: boolean;
}

export class LiveSketches {
  /** By hour and namespace, in the order of their announcement. */
  readonly #live = new Map<string, LiveNamespace>();
  /** Where the next part of them begins. */
  #next = 0;

  add({ namespace, hour, buffer }: SketchAnnouncement): void {
    const key = keyOf(hour, namespace);
    const live = this.#live.get(key) ?? { namespace, hour, buffers: [], isComplete: true };
    if (buffer === undefined) live.isComplete = false;
    else live.buffers.push(buffer);
    this.#live.set(key, live);
  }

  /** The lists of one namespace. */
  of(namespace: string): IdentifiersEntry[] {
    return this.#entries((live) => live.namespace === namespace);
  }

  /** The lists of one of `parts` parts of the namespaces, another one with each call. */
  nextPart(parts: number): IdentifiersEntry[] {
    const all = [...this.#live.values()];
    const size = Math.ceil(all.length / parts);
    if (this.#next >= all.length) this.#next = 0;
    const part = all.slice(this.#next, this.#next + size);
    this.#next += size;
    return part.map(entryOf);
  }

  /** All lists. */
  all(): IdentifiersEntry[] {
    return this.#entries(() => true);
  }

  /** The lists of hours before this one. */
  before(hour: number): IdentifiersEntry[] {
    return this.#entries((live) => live.hour < hour);
  }

  /** Forgets the sketches of hours before this one. */
  remove(hour: number): void {
    for (const [key, live] of this.#live) if (live.hour < hour) this.#live.delete(key);
  }

  #entries(isWanted: (live: LiveNamespace) => boolean): IdentifiersEntry[] {
    return [...this.#live.values()].filter(isWanted).map(entryOf);
  }
}

const reader = new SketchReader();
const decoder = new TextDecoder('utf-8', { ignoreBOM: true });

function entryOf(live: LiveNamespace): IdentifiersEntry {
  const { namespace, hour } = live;
  return { namespace, hour, record: encodeLists(readLists(live)) };
}

function readLists(live: LiveNamespace): IdentifierLists {
  const memories = live.buffers.map((buffer) => {
    return { words: new Int32Array(buffer), doubles: new Float64Array(buffer) };
  });
  let { isComplete } = live;
  const listOf = (name: SketchName): IdentifierList => {
    const firstWord = SKETCHES.indexOf(name) * SKETCH_WORDS;
    const lists = memories.map((memory): IdentifierList => {
      const reading = reader.read(memory, firstWord, READ_MAX);
      isComplete &&= reading.isComplete;
      const items = reading.entries.map(({ text, ...entry }) => {
        return { ...entry, text: decode(text, entry.isCutOff) };
      });
      return { items, floor: reading.floor };
    });
    return mergeLists(lists, ANALYTICS_IDENTIFIERS_MAX);
  };
  const [denied, spent] = [listOf('denied'), listOf('spent')];
  return { denied, spent, isComplete };
}

/** A text that is cut off may end within a character, which is left out. */
function decode(text: Uint8Array, isCutOff: boolean): string {
  const whole = decoder.decode(text, { stream: isCutOff });
  // Forgets the beginning of a character.
  if (isCutOff) decoder.decode();
  return whole;
}

function keyOf(hour: number, namespace: string): string {
  return `${hour} ${namespace}`;
}
