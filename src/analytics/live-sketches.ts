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
import { firstWordOf, SKETCHES, type SketchAnnouncement, type SketchName } from './recorder.ts';
import { SKETCH_ENTRIES, SketchReader } from './sketch.ts';

/** What is read of each sketch: an identifier may be far down in the list of one acceptor. */
export const READ_MAX = 4 * ANALYTICS_IDENTIFIERS_MAX;

/** What is listed: at most `max` identifiers, those that begin with a text. */
export interface ListFilter {
  prefix: string;
  max: number;
}

const ALL: ListFilter = { prefix: '', max: ANALYTICS_IDENTIFIERS_MAX };

/** The lists of one namespace and one hour. */
interface LiveLists {
  hour: number;
  lists: IdentifierLists;
  /** How many texts the sketches can have. */
  texts: number;
}

interface LiveNamespace {
  /** Its key. */
  namespace: string;
  hour: number;
  /** In the order of the announcements. */
  number: number;
  /** One of each acceptor that has counted a check. */
  buffers: SharedArrayBuffer[];
  /** Whether all acceptors had room for its sketches. */
  isComplete: boolean;
}

export class LiveSketches {
  /** By hour and namespace, in the order of their announcement. */
  readonly #live = new Map<string, LiveNamespace>();
  #announced = 0;
  /** The calls of `nextPart`. */
  #parts = 0;

  add({ key: namespace, hour, buffer }: SketchAnnouncement): void {
    const key = keyOf(hour, namespace);
    const known = this.#live.get(key);
    const number = known?.number ?? this.#announced++;
    const live = known ?? { namespace, hour, number, buffers: [], isComplete: true };
    if (buffer === undefined) live.isComplete = false;
    else live.buffers.push(buffer);
    this.#live.set(key, live);
  }

  /** The lists of one namespace in a range of hours. */
  of(namespace: string, fromHour: number, toHour: number, filter = ALL): LiveLists[] {
    return [...this.#live.values()]
      .filter((live) => {
        return live.namespace === namespace && live.hour >= fromHour && live.hour < toHour;
      })
      .map((live) => ({
        hour: live.hour,
        lists: readLists(live, filter),
        texts: live.buffers.length * SKETCHES.length * SKETCH_ENTRIES,
      }));
  }

  /** The lists of one of `parts` parts of the namespaces, another one with each call. */
  nextPart(parts: number): IdentifiersEntry[] {
    const part = this.#parts++ % parts;
    return this.#entries(({ number }) => number % parts === part);
  }

  /** All lists. */
  all(): IdentifiersEntry[] {
    return this.#entries(() => true);
  }

  /** The lists of hours before this one. */
  before(hour: number): IdentifiersEntry[] {
    return this.#entries((live) => live.hour < hour);
  }

  /** Forgets the sketches of a deleted namespace. */
  delete(namespace: string): void {
    for (const [key, live] of this.#live) if (live.namespace === namespace) this.#live.delete(key);
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
  return { namespace, hour, record: encodeLists(readLists(live, ALL)) };
}

function readLists(live: LiveNamespace, { prefix, max }: ListFilter): IdentifierLists {
  const bytes = Buffer.from(prefix);
  const memories = live.buffers.map((buffer) => {
    return { words: new Int32Array(buffer), doubles: new Float64Array(buffer) };
  });
  let { isComplete } = live;
  const listOf = (name: SketchName): IdentifierList => {
    const lists = memories.map((memory): IdentifierList => {
      const reading = reader.read(memory, firstWordOf(name), READ_MAX, bytes);
      isComplete &&= reading.isComplete;
      const items = reading.entries.map(({ text, ...entry }) => {
        return { ...entry, text: decode(text, entry.isCutOff) };
      });
      return { items, floor: reading.floor };
    });
    return mergeLists(lists, max);
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
