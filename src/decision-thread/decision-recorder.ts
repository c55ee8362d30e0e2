/**
 * Records each decision of a thread: in the counts of its namespace, in the sketches of its
 * identifiers, and, where events are on, as an event. A decision is recorded before its response is
 * written, also if the client has disconnected.
 */

import type { IdentifierRecorder } from '../analytics/recorder.ts';
import type { CheckRequest } from '../api/common/check-request.ts';
import type { AcquireRequest } from '../api/operations/v1/acquire.ts';
import type { Check } from '../core/check.ts';
import type { Decision } from '../core/decision.ts';
import type { Lease } from '../engine/hold-engine.ts';
import type { DecisionEvent, RequestDetails } from '../events/decision-event.ts';
import type { EventRecorder } from '../events/event-recorder.ts';
import { countDecision, countLease } from '../shared-memory/stats.ts';

/** What is recorded of a request for a lease. */
type RequestedLease = Pick<AcquireRequest, CountedField | 'identifier' | 'cost'>;
type CountedField = 'namespace' | 'identity' | 'memory' | 'identifierFrom' | 'identifierTo';

export class DecisionRecorder {
  readonly #identifiers: IdentifierRecorder;
  readonly #events: EventRecorder | undefined;
  /** Of requests whose decision comes in a later turn of the loop. */
  readonly #details = new WeakMap<object, RequestDetails>();

  /** @param events undefined where events are off */
  constructor(identifiers: IdentifierRecorder, events: EventRecorder | undefined) {
    this.#identifiers = identifiers;
    this.#events = events;
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

  /** Counts the decision on a lease, apart from those on checks. It spends no tokens. */
  countLease(request: Pick<AcquireRequest, CountedField>, isGranted: boolean): void {
    const { namespace, identity, memory, identifierFrom, identifierTo } = request;
    countLease(namespace.decisionCounts, isGranted);
    if (isGranted) return;
    this.#identifiers.record(namespace, identity, 1, false, memory, identifierFrom, identifierTo);
  }

  /** Whether a decision on a request of the sample becomes an event. */
  selects(isAllowed: boolean): boolean {
    return this.#events?.selects(isAllowed) === true;
  }

  /** Records the event of a decision that was selected. */
  recordEvent(event: DecisionEvent): void {
    this.#events?.record(event);
  }

  /**
   * Keeps what an event says of a request whose decision comes in a later turn.
   * @param response the object that answers the request
   */
  keepDetails(response: object, details: RequestDetails): void {
    this.#details.set(response, details);
  }

  keptDetails(response: object): RequestDetails | undefined {
    return this.#details.get(response);
  }
}

/** What the event of a check says. @param isAllowed of all checks, if it is one of a batch */
export function eventOf(
  { namespace, identifier, identity, cost, limit, durationMs, overrideId }: Check,
  { remaining, reset }: Pick<Decision, 'remaining' | 'reset'>,
  isAllowed: boolean,
  request: RequestDetails,
): DecisionEvent {
  return {
    namespace: namespace.name,
    identifier,
    identity,
    isAllowed,
    cost,
    window: { limit, durationMs, remaining, reset },
    overrideId,
    policy: undefined,
    isShadow: false,
    request,
  };
}

/** What the event of a lease says. */
export function leaseEventOf(
  { namespace, identifier, identity, cost }: RequestedLease,
  { granted, limit, inUse }: Pick<Lease, 'granted' | 'limit' | 'inUse'>,
  request: RequestDetails,
): DecisionEvent {
  return {
    namespace: namespace.name,
    identifier,
    identity,
    isAllowed: granted,
    cost,
    window: undefined,
    lease: { limit, inUse },
    overrideId: undefined,
    policy: undefined,
    isShadow: false,
    request,
  };
}
