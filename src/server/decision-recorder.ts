/**
 * Records each decision of an acceptor: in the counts of its namespace, in the sketches of its
 * identifiers, and, where events are on, as an event. A decision is recorded before its response is
 * written, also if the client has disconnected.
 */

import type { IdentifierRecorder } from '../analytics/recorder.ts';
import type { CheckRequest } from '../api/common/check-request.ts';
import type { Check } from '../core/check.ts';
import type { Decision } from '../core/decision.ts';
import type { DecisionEvent, RequestDetails } from '../events/decision-event.ts';
import type { EventRecorder } from '../events/event-recorder.ts';
import type { Clock } from '../shared-memory/clock.ts';
import { countDecision } from '../shared-memory/stats.ts';
import type { HttpResponse } from './uws.ts';

export class DecisionRecorder {
  readonly #identifiers: IdentifierRecorder;
  readonly #events: EventRecorder | undefined;
  readonly #clock: Clock;
  /** Of requests whose decision comes in a later turn of the loop. */
  readonly #details = new WeakMap<HttpResponse, RequestDetails>();

  /** @param events undefined where events are off */
  constructor(identifiers: IdentifierRecorder, events: EventRecorder | undefined, clock: Clock) {
    this.#identifiers = identifiers;
    this.#events = events;
    this.#clock = clock;
  }

  get hasEvents(): boolean {
    return this.#events !== undefined;
  }

  /**
   * Whether the decisions on a request may become events. Called once for each request, when it
   * arrives, so that what an event repeats is read of few requests only.
   */
  samples(): boolean {
    return this.#events?.samples() === true;
  }

  /** Counts the decision on a check whose identifier is in the memory of its request. */
  count(check: CheckRequest, isAllowed: boolean): void {
    const { namespace, identity, cost, memory, identifierFrom, identifierTo } = check;
    countDecision(namespace.decisionCounts, cost, isAllowed);
    const identifiers = this.#identifiers;
    identifiers.record(namespace, identity, cost, isAllowed, memory, identifierFrom, identifierTo);
  }

  /** The same for a check whose identifier is a text. @param cost of the request */
  countText(
    { namespace, identity, identifier }: Pick<Check, 'namespace' | 'identity' | 'identifier'>,
    cost: number,
    isAllowed: boolean,
  ): void {
    countDecision(namespace.decisionCounts, cost, isAllowed);
    this.#identifiers.recordText(namespace, identity, cost, isAllowed, identifier);
  }

  /** Whether a decision on a request of the sample becomes an event. */
  selects(isAllowed: boolean): boolean {
    return this.#events?.selects(isAllowed) === true;
  }

  /** Records the event of a decision that was selected. */
  recordEvent(event: Omit<DecisionEvent, 'time'>): void {
    this.#events?.record({ time: this.#clock.nowMs(), ...event });
  }

  /** Keeps what an event says of a request whose decision comes in a later turn. */
  keepDetails(res: HttpResponse, details: RequestDetails): void {
    this.#details.set(res, details);
  }

  keptDetails(res: HttpResponse): RequestDetails | undefined {
    return this.#details.get(res);
  }
}

/** What the event of a check says of it. @param isAllowed of all checks, if it is one of a batch */
export function eventOf(
  { namespace, identifier, identity, cost, limit, durationMs, overrideId }: Check,
  { remaining, reset }: Decision,
  isAllowed: boolean,
  request: RequestDetails | undefined,
): Omit<DecisionEvent, 'time'> {
  const check = { namespace: namespace.name, identifier, identity, cost, limit, durationMs };
  return {
    ...{ ...check, isAllowed, remaining, reset },
    ...(overrideId !== undefined && { overrideId }),
    ...(request !== undefined && { request }),
  };
}
