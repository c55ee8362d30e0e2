/**
 * Records each decision of a thread: in the counts of its namespace, in the sketches of its
 * identifiers, among the recent decisions, and, where events are on, as an event. A decision is
 * recorded before its response is written, also if the client has disconnected.
 */

import type { IdentifierRecorder } from '../analytics/recorder.ts';
import type { CheckRequest } from '../api/common/check-request.ts';
import type { AcquireRequest } from '../api/operations/v1/acquire.ts';
import type { Check } from '../core/check.ts';
import type { Decision } from '../core/decision.ts';
import type { Identity } from '../core/hash.ts';
import type { Namespace } from '../core/namespace.ts';
import type { Lease } from '../engine/hold-engine.ts';
import type { DecisionEvent, RequestDetails } from '../events/decision-event.ts';
import type { EventRecorder } from '../events/event-recorder.ts';
import type { ActiveOverrides } from '../overrides/active.ts';
import type { RecentDecisionWriter } from '../recent-decisions/writer.ts';
import { countDecision, countLease } from '../shared-memory/stats.ts';

/** What is recorded of a request for a lease. */
type RequestedLease = Pick<AcquireRequest, CountedField | 'identifier' | 'cost' | 'limit'>;
type CountedField = 'namespace' | 'identity' | 'memory' | 'identifierFrom' | 'identifierTo';
/** What is recorded of a check that comes from no request of the API. */
type TextCheck = Pick<Check, 'namespace' | 'identity' | 'identifier' | 'limit' | 'durationMs'>;

/** Where a decision is recorded beside the counts: bits of a number that is mostly 0. */
const RECORD = { none: 0, event: 1, recent: 2 } as const;

const NO_DETAILS: RequestDetails = { traceparent: undefined };

interface RecordSinks {
  /** Undefined where events are off. */
  events: EventRecorder | undefined;
  /** Undefined where recent decisions are off. */
  recent: RecentDecisionWriter | undefined;
  overrides: Pick<ActiveOverrides, 'idFor'>;
}

export class DecisionRecorder {
  readonly #identifiers: IdentifierRecorder;
  readonly #events: EventRecorder | undefined;
  readonly #recent: RecentDecisionWriter | undefined;
  readonly #overrides: Pick<ActiveOverrides, 'idFor'>;
  /** Of requests whose decision comes in a later turn of the loop. */
  readonly #details = new WeakMap<object, RequestDetails>();

  constructor(identifiers: IdentifierRecorder, { events, recent, overrides }: RecordSinks) {
    this.#identifiers = identifiers;
    this.#events = events;
    this.#recent = recent;
    this.#overrides = overrides;
  }

  get hasEvents(): boolean {
    return this.#events !== undefined;
  }

  /** Called every RECENT_PERIOD_MS. */
  beginPeriod(): void {
    this.#recent?.beginPeriod();
  }

  /**
   * Whether the decisions on a request may become events. Called once for each request, when it
   * arrives, so that what an event repeats is read of few requests only.
   */
  samples(): boolean {
    return this.#events?.samples() === true;
  }

  /**
   * Counts the decision on a check whose identifier is in the memory of its request.
   * @param details undefined where the decisions on the request do not become events
   * @param isCause false for a check that was denied because of another one of its list only
   * @returns not 0 if the caller must call `record` with it
   */
  count(
    check: CheckRequest,
    isAllowed: boolean,
    details: RequestDetails | undefined,
    isCause = true,
  ): number {
    const { namespace, identity, cost, memory, identifierFrom, identifierTo } = check;
    countDecision(namespace.decisionCounts, cost, isAllowed);
    const identifiers = this.#identifiers;
    identifiers.record(namespace, identity, cost, isAllowed, memory, identifierFrom, identifierTo);
    const { limit, durationMs } = check;
    return (
      this.#eventOf(isAllowed, details) |
      (isCause ? this.#recentOf(namespace, identity, limit, durationMs, isAllowed) : RECORD.none)
    );
  }

  /** The same for a check whose identifier is a text. @param cost of the request */
  countText(
    { namespace, identity, identifier, limit, durationMs }: TextCheck,
    cost: number,
    isAllowed: boolean,
    details: RequestDetails | undefined,
    isCause = true,
  ): number {
    countDecision(namespace.decisionCounts, cost, isAllowed);
    this.#identifiers.recordText(namespace, identity, cost, isAllowed, identifier);
    return (
      this.#eventOf(isAllowed, details) |
      (isCause ? this.#recentOf(namespace, identity, limit, durationMs, isAllowed) : RECORD.none)
    );
  }

  /** The same for a lease, apart from those on checks. It spends no tokens. */
  countLease(
    request: Pick<AcquireRequest, CountedField | 'limit'>,
    isGranted: boolean,
    details: RequestDetails | undefined,
  ): number {
    const { namespace, identity, memory, identifierFrom, identifierTo, limit } = request;
    countLease(namespace.decisionCounts, isGranted);
    if (!isGranted) {
      this.#identifiers.record(namespace, identity, 1, false, memory, identifierFrom, identifierTo);
    }
    return (
      this.#eventOf(isGranted, details) | this.#recentOf(namespace, identity, limit, 0, isGranted)
    );
  }

  /** The same for a gateway check whose policy found no identifier. */
  countUnidentified(
    namespace: Namespace,
    cost: number,
    isAllowed: boolean,
    details: RequestDetails | undefined,
  ): number {
    countDecision(namespace.decisionCounts, cost, isAllowed);
    const event = this.#eventOf(isAllowed, details);
    if (isAllowed) return event;
    const [h0, h1, h2, h3] = namespace.hashState;
    return event | this.#recentOf(namespace, { h0, h1, h2, h3 }, 0, 0, false);
  }

  /** @param durationMs 0 for a lease */
  #recentOf(
    namespace: Namespace,
    identity: Identity,
    limit: number,
    durationMs: number,
    isAllowed: boolean,
  ): number {
    const recent = this.#recent;
    if (recent === undefined) return RECORD.none;
    const isSelected = isAllowed
      ? recent.selectsAllowed(namespace)
      : recent.selectsDenied(namespace, identity, limit, durationMs);
    return isSelected ? RECORD.recent : RECORD.none;
  }

  #eventOf(isAllowed: boolean, details: RequestDetails | undefined): number {
    const isEvent = details !== undefined && this.#events?.selects(isAllowed) === true;
    return isEvent ? RECORD.event : RECORD.none;
  }

  /** Records a decision that was counted. @param records what the count has returned, not 0 */
  record(records: number, event: DecisionEvent): void {
    if ((records & RECORD.event) !== 0) this.#events?.record(event);
    if ((records & RECORD.recent) !== 0) {
      event.overrideId ??= this.#overrideIdOf(event);
      this.#recent?.write(event);
    }
  }

  /** The path of a check does not read the id where events are off. */
  #overrideIdOf({ namespace, identifier, identity, window }: DecisionEvent): string | undefined {
    if (window === undefined || identifier === undefined || identity === undefined)
      return undefined;
    return this.#overrides.idFor(namespace, identifier, identity);
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
  { namespace, identifier, identity, cost, limit, durationMs, rule, burst, overrideId }: Check,
  { remaining, reset }: Pick<Decision, 'remaining' | 'reset'>,
  isAllowed: boolean,
  request = NO_DETAILS,
): DecisionEvent {
  return {
    namespace,
    identifier,
    identity,
    isAllowed,
    cost,
    window: { limit, durationMs, remaining, reset, rule, burst },
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
  request = NO_DETAILS,
): DecisionEvent {
  return {
    namespace,
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
