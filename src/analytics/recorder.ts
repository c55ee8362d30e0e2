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
import { ANALYTICS_NAMESPACES_MAX, NAME_MAX_BYTES } from '../core/constants.ts';
import type { Identity } from '../core/hash.ts';
import type { IdentifierSketches, Namespace } from '../core/namespace.ts';
import { CONTROL, type Control } from '../shared-memory/control.ts';
import { SKETCH_WORDS, SketchWriter } from './sketch.ts';

/** What an acceptor announces when the first decision of a namespace in an hour is made. */
export interface SketchAnnouncement {
  namespace: string;
  hour: number;
  /** The two sketches of SKETCHES; undefined where there was no room for them. */
  buffer: SharedArrayBuffer | undefined;
}

/** The sketches of a namespace, in their order in the buffer. */
export const SKETCHES = ['denied', 'spent'] as const;
/** `denied` counts denied checks, `spent` the tokens of allowed checks. */
export type SketchName = (typeof SKETCHES)[number];

const SKETCHES_BYTES = 4 * SKETCH_WORDS * SKETCHES.length;

/** The control word is 0 where analytics are off. */
const NO_HOUR = 0;

export class IdentifierRecorder {
  readonly #words: Int32Array;
  readonly #announce: (announcement: SketchAnnouncement) => void;
  /** For identifiers that are not encoded yet. */
  readonly #scratch = new Bytes(NAME_MAX_BYTES);
  #hour = NO_HOUR;
  /** The namespaces with sketches of this hour. */
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
    const sketches = this.#sketchesOf(namespace, hour);
    const isCounted = sketches.add(identity, cost, isAllowed);
    if (!isCounted) sketches.take(identity, cost, isAllowed, text, from, to);
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
    const sketches = this.#sketchesOf(namespace, hour);
    if (sketches.add(identity, cost, isAllowed)) return;
    const to = this.#scratch.write(identifier, 0);
    sketches.take(identity, cost, isAllowed, this.#scratch, 0, to);
  }

  #sketchesOf(namespace: Namespace, hour: number): IdentifierSketches {
    const { sketches } = namespace;
    return sketches?.hour === hour ? sketches : this.#begin(namespace, hour);
  }

  #begin(namespace: Namespace, hour: number): IdentifierSketches {
    if (this.#hour !== hour) {
      this.#hour = hour;
      // A namespace without checks in this hour would keep the memory of its last one.
      for (const counted of this.#counted) counted.sketches = undefined;
      this.#counted.length = 0;
    }
    const hasRoom = this.#counted.length < ANALYTICS_NAMESPACES_MAX;
    if (hasRoom) this.#counted.push(namespace);
    const buffer = hasRoom ? new SharedArrayBuffer(SKETCHES_BYTES) : undefined;
    this.#announce({ namespace: namespace.name, hour, buffer });
    const sketches = new NamespaceSketches(hour, buffer);
    namespace.sketches = sketches;
    return sketches;
  }
}

class NamespaceSketches implements IdentifierSketches {
  readonly hour: number;
  readonly #denied: SketchWriter | undefined;
  readonly #spent: SketchWriter | undefined;

  constructor(hour: number, buffer: SharedArrayBuffer | undefined) {
    this.hour = hour;
    if (buffer === undefined) return;
    const memory = { words: new Int32Array(buffer), doubles: new Float64Array(buffer) };
    this.#denied = new SketchWriter(memory, 0);
    this.#spent = new SketchWriter(memory, SKETCH_WORDS);
  }

  prefetch(identity: Identity): void {
    this.#denied?.prefetch(identity);
    this.#spent?.prefetch(identity);
  }

  add(identity: Identity, cost: number, isAllowed: boolean): boolean {
    const amount = amountOf(cost, isAllowed);
    return amount === 0 || this.#sketch(isAllowed)?.add(identity, amount) !== false;
  }

  take(
    identity: Identity,
    cost: number,
    isAllowed: boolean,
    text: Bytes,
    from: number,
    to: number,
  ): void {
    this.#sketch(isAllowed)?.take(identity, amountOf(cost, isAllowed), text, from, to);
  }

  #sketch(isAllowed: boolean): SketchWriter | undefined {
    return isAllowed ? this.#spent : this.#denied;
  }
}

function amountOf(cost: number, isAllowed: boolean): number {
  return isAllowed ? cost : 1;
}
