/**
 * Decides the requests of the rate limit service: finds the limit of each descriptor, has the
 * engine decide all of them, and writes the answer. An override of weir comes before the limit that
 * a descriptor brings itself, and that before the rule of the configuration.
 *
 * Refunds are made first, so that the answer shows them; they stay if the rest then fails. A fault
 * of a request is a GrpcError, and nothing was counted. An engine that cannot decide is
 * UNAVAILABLE, and any other error INTERNAL: the gateway's own policy for failures applies.
 */

import { DURATION_MAX_MS } from '../core/constants.ts';
import type { Decision } from '../core/decision.ts';
import { ApiError } from '../core/errors.ts';
import { NO_BURST, RULE } from '../core/window-rules.ts';
import { eventOf } from '../decision-thread/decision-recorder.ts';
import type { DecisionThread } from '../decision-thread/decision-thread.ts';
import type { InternalErrorReport } from '../decision-thread/messages.ts';
import type { BatchCompletion, BatchDecision } from '../engine/engine.ts';
import { windowOf } from '../engine/windows/window.ts';
import { NOT_OVERRIDDEN } from '../overrides/active.ts';
import { ACCEPTOR_STAT } from '../shared-memory/stats.ts';
import { type ActiveDomain, ActiveRules } from './active-rules.ts';
import { answerOf } from './answer.ts';
import { type AnswerReceiver, Call, CODE, type PlannedDescriptor } from './call.ts';
import type { RlsConfiguration } from './config/configuration.ts';
import { identifierOf, metricPathOf, overridePathOf } from './config/paths.ts';
import type { RlsSettings } from './config/settings.ts';
import { requestMetadata } from './dynamic-metadata.ts';
import type { HitCounts } from './hit-counts.ts';
import { GRPC_STATUS, GrpcError } from './transport/status.ts';
import type { RateLimitRequest, RequestDescriptor } from './wire/request.ts';
import { UNIT_SECONDS, unitName, unitOfDuration } from './wire/units.ts';

/** Of envoyproxy/ratelimit for an unlimited descriptor. */
const UNLIMITED_REMAINING = 0xffff_ffff;
const REQUESTS_MAX = 0xffff_ffff;

/** Calls that are kept. More are open only while Redis is slow. */
const FREE_CALLS_MAX = 1_024;

const NO_CHECKS: BatchDecision = { allowed: true, decisions: [] };

/** Events of the service repeat nothing of a request. */
const NO_DETAILS = { traceparent: undefined };

export class RateLimitService {
  readonly #thread: DecisionThread;
  readonly #settings: RlsSettings;
  readonly #rules: ActiveRules;
  readonly #hits: HitCounts;
  readonly #report: (report: InternalErrorReport) => void;
  /** Calls that are answered, for the next requests. */
  readonly #freeCalls: Call[] = [];
  readonly #completion: BatchCompletion<Call>;
  /** Names of limits that do not apply in the request at hand. */
  readonly #replaced = new Set<string>();

  /** @param report logs an internal error */
  constructor(
    thread: DecisionThread,
    settings: RlsSettings,
    hits: HitCounts,
    report: (report: InternalErrorReport) => void,
  ) {
    this.#thread = thread;
    this.#settings = settings;
    this.#rules = new ActiveRules(thread.knownNamespaces, settings.isCompatible);
    this.#hits = hits;
    this.#report = report;
    this.#completion = {
      complete: (call, _startedMs, _checks, decision) => this.#finish(call, decision),
      fail: (call, error) => this.#fail(call, error),
    };
  }

  /** Active from the next request on. */
  activate(configuration: RlsConfiguration): void {
    this.#rules.activate(configuration);
  }

  renewNamespaces(): void {
    this.#rules.renewNamespaces();
  }

  /** @param request read before this returns; its memory may be used again then */
  handle(request: RateLimitRequest, receiver: AnswerReceiver): void {
    const { clock, recorder } = this.#thread;
    const call = this.#freeCalls.pop() ?? new Call();
    const details = recorder.samples() ? NO_DETAILS : undefined;
    call.begin(receiver, clock.monotonicMs(), details);
    try {
      this.#requireComplete(request);
      this.#plan(call, request);
      const refunds = this.#refund(call);
      if (refunds === undefined) this.#decide(call);
      else this.#decideAfter(refunds, call);
    } catch (error) {
      this.#fail(call, error);
    }
  }

  #requireComplete({ domain, descriptorCount }: RateLimitRequest): void {
    const missing =
      domain === ''
        ? 'rate limit domain must not be empty'
        : descriptorCount === 0
          ? 'rate limit descriptor list must not be empty'
          : undefined;
    if (missing === undefined) return;
    const { UNKNOWN, INVALID_ARGUMENT } = GRPC_STATUS;
    throw new GrpcError(this.#settings.isCompatible ? UNKNOWN : INVALID_ARGUMENT, missing);
  }

  #plan(call: Call, request: RateLimitRequest): void {
    const active = this.#rules.get(request.domain);
    if (this.#settings.hasDynamicMetadata) call.metadata = requestMetadata(request);
    this.#replaced.clear();
    for (let number = 0; number < request.descriptorCount; number++) {
      const descriptor = request.descriptors[number];
      const planned = call.add();
      if (active !== undefined && descriptor.entryCount > 0) {
        this.#planDescriptor(call, planned, descriptor, active, request.hitsAddend);
      }
    }
    if (active === undefined) this.#thread.stats.increment(ACCEPTOR_STAT.rlsUnknownDomains);
    for (let number = 0; number < call.count; number++) {
      const planned = call.at(number);
      const name = planned.rule?.limit?.name;
      // A limit that does not apply is no quota, and its metadata is left out.
      if (name !== undefined && this.#replaced.has(name)) planned.clear();
      if (planned.kind === 'check' || planned.kind === 'refund') call.checks.push(planned.check);
    }
  }

  #planDescriptor(
    call: Call,
    planned: PlannedDescriptor,
    descriptor: RequestDescriptor,
    { domain, namespace, matcher }: ActiveDomain,
    requestHits: number,
  ): void {
    const { keys, values, entryCount, hitsAddend, isNegativeHits } = descriptor;
    const check = planned.checkIn(namespace);
    const isOwn = descriptor.limitUnit >= 0;
    const rule = isOwn ? undefined : matcher.find(keys, values, entryCount);
    const path = rule === undefined ? undefined : matcher.path;
    const limit = rule?.limit;
    planned.hits = hitsAddend >= 0 ? hitsAddend : Math.max(1, requestHits);
    check.identifier = identifierOf(path, keys, values, entryCount);
    check.isAsync = false;
    check.overrideId = undefined;
    check.needsOverrideId = this.#thread.recorder.hasEvents;
    check.rule = limit?.algorithm ?? RULE.fixed;
    check.burst = limit?.burst ?? NO_BURST;
    if (isOwn) this.#useOwnLimit(planned, descriptor);
    else if (limit !== undefined) {
      check.limit = limit.requestsPerUnit;
      check.durationMs = limit.durationMs;
      for (const name of limit.replaces) this.#replaced.add(name);
    }
    const isOverridden = this.#override(planned, call.startedMs);
    if (!isOwn && !isOverridden) {
      if (limit === undefined) return;
      if (limit.isUnlimited) {
        planned.kind = 'unlimited';
        return;
      }
    }
    planned.kind = 'check';
    planned.rule = limit === undefined ? undefined : rule;
    planned.isShadow = planned.rule?.isShadow ?? false;
    planned.isQuota = planned.rule?.isQuota ?? false;
    planned.path =
      planned.rule === undefined
        ? overridePathOf(domain.name, keys, values, entryCount)
        : metricPathOf(domain.name, matcher.path, keys, values, entryCount);
    const unit = unitOfDuration(check.durationMs);
    if (unit !== undefined && check.limit <= REQUESTS_MAX) {
      planned.limit = { requestsPerUnit: check.limit, unit, name: limit?.name };
    }
    check.cost = planned.hits;
    if (isNegativeHits) this.#planRefund(planned, domain.allowsNegativeHits);
    // A look is allowed by every engine: a limit of one more tells a used one from an exceeded one.
    else if (planned.hits === 0 && this.#looksBeyondLimit(planned)) check.limit++;
  }

  /** @throws GrpcError */
  #useOwnLimit({ check }: PlannedDescriptor, descriptor: RequestDescriptor): void {
    const { limitUnit, limitRequests, limitUnitMultiplier } = descriptor;
    const unit = unitName(limitUnit);
    if (unit === undefined) {
      throw invalidOwnLimit(`unit must be from 1 (SECOND) to 7 (WEEK); got ${limitUnit}`);
    }
    const unitMs = UNIT_SECONDS[unit] * 1_000;
    const multiplier = limitUnitMultiplier < 0 ? 1 : limitUnitMultiplier;
    const most = Math.floor(DURATION_MAX_MS / unitMs);
    if (multiplier < 1 || multiplier > most) {
      throw invalidOwnLimit(
        `unit_multiplier must be from 1 to ${most} for ${unit}; got ${multiplier}`,
      );
    }
    check.limit = limitRequests;
    check.durationMs = unitMs * multiplier;
  }

  /** @returns whether an override of weir applies */
  #override({ check }: PlannedDescriptor, startedMs: number): boolean {
    const { hasher, overrides, stats } = this.#thread;
    hasher.hash(check.namespace.hashState, check.identifier, check.identity);
    const usageRow = overrides.resolve(check, check.identity);
    if (usageRow === NOT_OVERRIDDEN) return false;
    stats.increment(ACCEPTOR_STAT.overriddenChecks);
    stats.usage.record(usageRow, startedMs);
    return true;
  }

  /** @throws GrpcError where the domain does not allow it */
  #planRefund(planned: PlannedDescriptor, isAllowed: boolean): void {
    const { check } = planned;
    if (!isAllowed) {
      throw new GrpcError(
        GRPC_STATUS.PERMISSION_DENIED,
        `the domain ${check.namespace.name} does not allow is_negative_hits: its file must have` +
          ' allow_negative_hits: true',
      );
    }
    planned.kind = 'refund';
    check.cost = 0;
  }

  #looksBeyondLimit({ check }: PlannedDescriptor): boolean {
    return this.#settings.isCompatible && check.rule === RULE.fixed;
  }

  /** Begins the refunds of a call. @returns undefined if all are done; else settles after them */
  #refund(call: Call): Promise<unknown> | undefined {
    const { engine, clock } = this.#thread;
    const waiting: Promise<number>[] = [];
    for (let number = 0; number < call.count; number++) {
      const { kind, hits, check } = call.at(number);
      if (kind !== 'refund' || hits === 0) continue;
      const { identity, rule, durationMs } = check;
      const window = windowOf(clock.nowMs(), durationMs);
      const refunded = engine.refund(identity, rule, durationMs, window, hits, () => {});
      if (typeof refunded !== 'number') waiting.push(refunded);
    }
    return waiting.length === 0 ? undefined : settleAll(waiting);
  }

  async #decideAfter(refunds: Promise<unknown>, call: Call): Promise<void> {
    try {
      await refunds;
      this.#decide(call);
    } catch (error) {
      this.#fail(call, error);
    }
  }

  #decide(call: Call): void {
    const { engine } = this.#thread;
    const { checks, startedMs } = call;
    if (checks.length === 0) {
      this.#finish(call, NO_CHECKS);
      return;
    }
    const decision: BatchDecision | undefined =
      this.#settings.counting === 'each'
        ? engine.decideEach(checks, startedMs, call, this.#completion, true)
        : engine.decideBatch(checks, startedMs, call, this.#completion);
    if (decision !== undefined) this.#finish(call, decision);
  }

  /** Answers a call, in the turn of its request or later. Never throws. */
  #finish(call: Call, decision: BatchDecision): void {
    try {
      this.#judgeAll(call, decision);
      this.#answer(call);
    } catch (error) {
      this.#fail(call, error);
    }
  }

  #judgeAll(call: Call, { decisions, allowed }: BatchDecision): void {
    // Without `each`, nothing is counted if one check is denied.
    const isCounted = allowed || this.#settings.counting === 'each';
    let at = 0;
    for (let number = 0; number < call.count; number++) {
      const planned = call.at(number);
      switch (planned.kind) {
        case 'check':
          this.#judge(planned, decisions[at++]);
          this.#record(call, planned, decisions[at - 1], isCounted);
          break;
        case 'refund': {
          const { remaining, reset } = decisions[at++];
          planned.code = CODE.OK;
          planned.remaining = remaining;
          planned.resetMs = reset;
          break;
        }
        case 'unlimited':
          planned.code = CODE.OK;
          planned.remaining = UNLIMITED_REMAINING;
          break;
        case 'no limit':
          planned.code = CODE.OK;
          planned.remaining = 0;
          break;
      }
    }
  }

  #answer(call: Call): void {
    const { clock, stats } = this.#thread;
    const answer = answerOf(call, this.#settings, clock.nowMs());
    stats.increment(answer.isOver ? ACCEPTOR_STAT.rlsOverLimit : ACCEPTOR_STAT.rlsOk);
    stats.recordLatency(clock.monotonicMs() - call.startedMs);
    call.receiver.respond(answer.message, answer.overallCode);
    this.#release(call);
  }

  /** Sets what the answer says of a check. */
  #judge(planned: PlannedDescriptor, decision: Decision): void {
    const { check, hits, isShadow } = planned;
    const { allowed, reset, passesAt } = decision;
    let { remaining } = decision;
    if (hits === 0) {
      planned.isOver = remaining === 0;
      if (this.#looksBeyondLimit(planned)) {
        check.limit--;
        remaining = Math.max(0, remaining - 1);
      }
    } else {
      planned.isOver = !allowed;
      if (allowed) this.#hits.countAllowed(planned.path, check.limit, hits, remaining);
      else this.#hits.countDenied(planned.path, check.limit, hits, remaining, isShadow);
    }
    planned.code = planned.isOver && !isShadow ? CODE.OVER_LIMIT : CODE.OK;
    planned.remaining = planned.isOver ? 0 : remaining;
    planned.resetMs = reset;
    planned.passesAt = passesAt;
  }

  /** @param isCounted whether the engine has counted the checks of the call */
  #record(
    { details }: Call,
    planned: PlannedDescriptor,
    decision: Decision,
    isCounted: boolean,
  ): void {
    const { recorder } = this.#thread;
    const { check, hits, isOver, remaining } = planned;
    const isAllowed = isCounted && !isOver;
    // Without `isOver` it was not counted because of another descriptor.
    const isCause = isAllowed || isOver;
    const records = recorder.countText(check, check.cost, isAllowed, details, isCause);
    if (records === 0) return;
    // A look may have been decided with another limit.
    const shown = hits === 0 ? { ...decision, remaining } : decision;
    const event = eventOf(check, shown, isAllowed, details);
    event.isShadow = isOver && (planned.isShadow || this.#settings.isShadow);
    recorder.record(records, event);
  }

  #fail(call: Call, error: unknown): void {
    this.#thread.stats.increment(ACCEPTOR_STAT.rlsFaults);
    call.receiver.fail(this.#grpcError(error));
    this.#release(call);
  }

  #release(call: Call): void {
    call.end();
    if (this.#freeCalls.length < FREE_CALLS_MAX) this.#freeCalls.push(call);
  }

  #grpcError(error: unknown): GrpcError {
    if (error instanceof GrpcError) return error;
    if (error instanceof ApiError) return new GrpcError(GRPC_STATUS.UNAVAILABLE, error.message);
    const { message, stack } = error as Error;
    this.#report({ requestId: undefined, message, stack });
    return new GrpcError(GRPC_STATUS.INTERNAL, 'the request could not be decided');
  }
}

function invalidOwnLimit(rule: string): GrpcError {
  const message = `the limit of a descriptor is invalid: ${rule}`;
  return new GrpcError(GRPC_STATUS.INVALID_ARGUMENT, message);
}

/** Waits for all, since each uses memory of its call until then. Rejects as the first that did. */
async function settleAll(refunds: readonly Promise<number>[]): Promise<void> {
  for (const result of await Promise.allSettled(refunds)) {
    if (result.status === 'rejected') throw result.reason;
  }
}
