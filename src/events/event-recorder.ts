/**
 * The side of an acceptor: selects the decisions that become events, and sends their lines to the
 * main thread in chunks. A check never waits for it. While the main thread has not written
 * EVENT_BYTES_MAX of an acceptor, further events are dropped and counted.
 */

import { EVENT_BYTES_MAX, EVENT_CHUNK_BYTES, EVENT_FLUSH_MS } from '../core/constants.ts';
import { FastRandom } from '../core/fast-random.ts';
import { ACCEPTOR_STAT, type AcceptorStats } from '../shared-memory/stats.ts';
import { type DecisionEvent, formatEvent, type IdentifierForm } from './decision-event.ts';

export const EVENT_SELECTIONS = ['off', 'denied', 'all'] as const;

/** What an acceptor needs to know. */
export interface EventPlan {
  selection: 'denied' | 'all';
  /** The decisions on one of so many requests become events, at random. */
  oneIn: number;
  identifierForm: IdentifierForm;
}

/** Lines of events, each with its end. */
export interface EventChunk {
  lines: Uint8Array;
  count: number;
}

/** Events that are kept until they get their lines, beside EVENT_BYTES_MAX of lines. */
const EVENTS_UNWRITTEN_MAX = 64;

export class EventRecorder {
  readonly #plan: EventPlan;
  readonly #stats: AcceptorStats;
  readonly #send: (chunk: EventChunk) => void;
  readonly #buffer = Buffer.allocUnsafeSlow(EVENT_CHUNK_BYTES);
  readonly #random = new FastRandom();
  /** Of the requests whose decisions may become events. */
  readonly #share: number;
  /** Events that have no line yet. */
  readonly #unwritten: DecisionEvent[] = [];
  #length = 0;
  #count = 0;
  /** Bytes that were sent, and not acknowledged. */
  #sentBytes = 0;
  #timer: NodeJS.Timeout | undefined;

  /** @param send may transfer the memory of the lines; `acknowledge` is called when it is done */
  constructor(plan: EventPlan, stats: AcceptorStats, send: (chunk: EventChunk) => void) {
    this.#plan = plan;
    this.#share = 1 / plan.oneIn;
    this.#stats = stats;
    this.#send = send;
  }

  /** Whether the decisions on a request may become events. Draws for a sample. */
  samples(): boolean {
    return this.#random.happens(this.#share);
  }

  /** Whether a decision on a request of the sample becomes an event. */
  selects(isAllowed: boolean): boolean {
    return !isAllowed || this.#plan.selection === 'all';
  }

  record(event: DecisionEvent): void {
    this.#unwritten.push(this.#plan.identifierForm === 'hash' ? withOwnIdentity(event) : event);
    if (this.#unwritten.length >= EVENTS_UNWRITTEN_MAX) this.#write();
    this.#timer ??= setTimeout(() => this.flush(), EVENT_FLUSH_MS);
  }

  /** Sends what is buffered. */
  flush(): void {
    clearTimeout(this.#timer);
    this.#timer = undefined;
    this.#write();
    this.#sendLines();
  }

  /** Writes the lines of events, many at once: the code of one alone would not be in the caches. */
  #write(): void {
    for (const event of this.#unwritten) {
      if (this.#sentBytes + this.#length >= EVENT_BYTES_MAX) {
        this.#stats.increment(ACCEPTOR_STAT.droppedEvents);
        continue;
      }
      const line = `${formatEvent(event, this.#plan.identifierForm)}\n`;
      // UTF-8 needs three bytes at most for a code unit.
      if (this.#length + 3 * line.length > EVENT_CHUNK_BYTES) this.#sendLines();
      this.#length += this.#buffer.write(line, this.#length);
      this.#count++;
    }
    this.#unwritten.length = 0;
  }

  #sendLines(): void {
    if (this.#count === 0) return;
    // A copy of its own size: a chunk of a few events does not hold the memory of a full one.
    const lines = Buffer.allocUnsafeSlow(this.#length);
    this.#buffer.copy(lines, 0, 0, this.#length);
    const chunk = { lines, count: this.#count };
    this.#sentBytes += this.#length;
    this.#length = 0;
    this.#count = 0;
    this.#send(chunk);
  }

  /** The main thread has written so many bytes, or failed to. */
  acknowledge(bytes: number): void {
    this.#sentBytes -= bytes;
  }
}

/** The identity of a check is overwritten by the next one. */
function withOwnIdentity(event: DecisionEvent): DecisionEvent {
  const { identity } = event;
  return identity === undefined ? event : { ...event, identity: { ...identity } };
}
