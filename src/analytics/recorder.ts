/**
 * The side of an acceptor: counts each decision by identifier, in sketches of its own. They belong
 * to one namespace and one hour. The main thread publishes the current hour in the control words.
 * The first decision of a namespace in an hour allocates its sketches and sends them to the main
 * thread. No more than ANALYTICS_NAMESPACES_MAX namespaces get sketches in an hour, so that memory
 * is bounded.
 *
 * The totals of a namespace are not counted here: the stats block has them.
 */

import { Bytes } from '../core/bytes.ts';
import { ANALYTICS_NAMESPACES_MAX, FIRST_LINE_OFFSET, NAME_MAX_BYTES } from '../core/constants.ts';
import type { Identity } from '../core/hash.ts';
import { type Namespace, UNRECORDED } from '../core/namespace.ts';
import { CONTROL, type Control } from '../shared-memory/control.ts';
import { SKETCH_WORDS, SketchWriter } from './sketch.ts';

/** What an acceptor announces when the first decision of a namespace in an hour is made. */
export interface SketchAnnouncement {
  /** Of the namespace. */
  key: string;
  hour: number;
  /** The two sketches of SKETCHES; undefined where there was no room for them. */
  buffer: SharedArrayBuffer | undefined;
}

/** The sketches of a namespace, in their order in the buffer. */
export const SKETCHES = ['denied', 'spent'] as const;
/** `denied` counts denied checks, `spent` the tokens of allowed checks. */
export type SketchName = (typeof SKETCHES)[number];

const SKETCHES_BYTES = FIRST_LINE_OFFSET + 4 * SKETCH_WORDS * SKETCHES.length;

/** The offset of a sketch in its buffer, in words. */
export function firstWordOf(name: SketchName): number {
  return FIRST_LINE_OFFSET / 4 + SKETCHES.indexOf(name) * SKETCH_WORDS;
}

/** The control word is 0 where analytics are off. */
const NO_HOUR = 0;

export class IdentifierRecorder {
  readonly #words: Int32Array;
  readonly #announce: (announcement: SketchAnnouncement) => void;
  /** For identifiers that are not encoded yet. */
  readonly #scratch = new Bytes(NAME_MAX_BYTES);
  #hour = NO_HOUR;
  /** The namespaces that got sketches in this hour, with those that were deleted since. */
  readonly #counted: Namespace[] = [];

  constructor({ words }: Control, announce: (announcement: SketchAnnouncement) => void) {
    this.#words = words;
    this.#announce = announce;
  }

  /** Counts the decision on a check. The bytes are its identifier in UTF-8. */
  record(
    namespace: Namespace,
    identity: Identity,
    cost: number,
    isAllowed: boolean,
    text: Bytes,
    from: number,
    to: number,
  ): void {
    const hour = this.#words[CONTROL.analyticsHour];
    if (hour === NO_HOUR) return;
    if (namespace.sketchHour !== hour) this.#begin(namespace, hour);
    const sketch = isAllowed ? namespace.spentSketch : namespace.deniedSketch;
    const amount = isAllowed ? cost : 1;
    if (sketch === undefined || amount === 0) return;
    const left = sketch.add(identity, amount);
    if (left < 0) sketch.take(identity, amount, left, text, from, to);
  }

  /** The same for an identifier that is not encoded. */
  recordText(
    namespace: Namespace,
    identity: Identity,
    cost: number,
    isAllowed: boolean,
    identifier: string,
  ): void {
    const hour = this.#words[CONTROL.analyticsHour];
    if (hour === NO_HOUR) return;
    if (namespace.sketchHour !== hour) this.#begin(namespace, hour);
    const sketch = isAllowed ? namespace.spentSketch : namespace.deniedSketch;
    const amount = isAllowed ? cost : 1;
    if (sketch === undefined || amount === 0) return;
    const left = sketch.add(identity, amount);
    if (left >= 0) return;
    const to = this.#scratch.write(identifier, 0);
    sketch.take(identity, amount, left, this.#scratch, 0, to);
  }

  /**
   * Keeps no sketches of a deleted namespace. Its room stays taken until the hour ends: the memory
   * of a buffer is free only after garbage collections on two threads, and clients may create and
   * delete namespaces faster.
   */
  forget(namespace: Namespace): void {
    Object.assign(namespace, UNRECORDED);
  }

  #begin(namespace: Namespace, hour: number): void {
    if (namespace.isTransient) return;
    if (this.#hour !== hour) {
      this.#hour = hour;
      // A namespace without checks in this hour would keep the memory of its last one.
      for (const counted of this.#counted) Object.assign(counted, UNRECORDED);
      this.#counted.length = 0;
    }
    const hasRoom = this.#counted.length < ANALYTICS_NAMESPACES_MAX;
    const buffer = hasRoom ? new SharedArrayBuffer(SKETCHES_BYTES) : undefined;
    this.#announce({ key: namespace.key, hour, buffer });
    namespace.sketchHour = hour;
    if (buffer === undefined) return;
    this.#counted.push(namespace);
    const memory = { words: new Int32Array(buffer), doubles: new Float64Array(buffer) };
    namespace.deniedSketch = new SketchWriter(memory, firstWordOf('denied'));
    namespace.spentSketch = new SketchWriter(memory, firstWordOf('spent'));
  }
}
