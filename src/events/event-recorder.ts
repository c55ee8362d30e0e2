/**
 * The side of an acceptor: selects the decisions that become events, and writes their lines to its
 * ring. A check never waits for that: a line without room is dropped, and counted.
 */

import { FastRandom } from '../core/fast-random.ts';
import type { Clock } from '../shared-memory/clock.ts';
import { ACCEPTOR_STAT, type AcceptorStats } from '../shared-memory/stats.ts';
import type { DecisionEvent, IdentifierForm } from './decision-event.ts';
import { EventLineWriter } from './event-line.ts';
import { EventRingWriter } from './event-ring.ts';

export const EVENT_SELECTIONS = ['off', 'denied', 'all'] as const;

/** What an acceptor needs to know. */
export interface EventPlan {
  selection: 'denied' | 'all';
  /** The decisions on one of so many requests become events, at random. */
  oneIn: number;
  identifierForm: IdentifierForm;
  /** By acceptor. */
  rings: readonly SharedArrayBuffer[];
}

export class EventRecorder {
  readonly #isEveryDecision: boolean;
  /** Of the requests whose decisions may become events. */
  readonly #share: number;
  readonly #random: FastRandom;
  readonly #clock: Pick<Clock, 'nowMs'>;
  readonly #stats: AcceptorStats;
  readonly #lines: EventLineWriter;
  readonly #ring: EventRingWriter;
  /** The next request of the sample is so many requests ahead, 1 for the next of all. */
  #untilNext: number;

  /** @param acceptor its index */
  constructor(
    { selection, oneIn, identifierForm, rings }: EventPlan,
    acceptor: number,
    clock: Pick<Clock, 'nowMs'>,
    stats: AcceptorStats,
    random = new FastRandom(),
  ) {
    this.#isEveryDecision = selection === 'all';
    this.#share = 1 / oneIn;
    this.#random = random;
    this.#clock = clock;
    this.#stats = stats;
    this.#lines = new EventLineWriter(identifierForm);
    this.#ring = new EventRingWriter(rings[acceptor], acceptor);
    this.#untilNext = random.trialsUntil(this.#share);
  }

  /** Whether the decisions on a request may become events. Called once for each request. */
  samples(): boolean {
    if (--this.#untilNext > 0) return false;
    this.#untilNext = this.#random.trialsUntil(this.#share);
    return true;
  }

  /** Whether a decision on a request of the sample becomes an event. */
  selects(isAllowed: boolean): boolean {
    return !isAllowed || this.#isEveryDecision;
  }

  record(event: DecisionEvent): void {
    const line = this.#lines.write(this.#clock.nowMs(), event);
    if (!this.#ring.write(line)) this.#stats.increment(ACCEPTOR_STAT.droppedEvents);
  }
}
