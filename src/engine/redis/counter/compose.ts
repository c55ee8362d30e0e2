/**
 * Makes the next message of a counter. A message that carries checks takes the whole lease with it,
 * so that Redis decides with all tokens of the machine.
 */

import { AMOUNT_MAX } from '../../../core/constants.ts';
import type { Identity } from '../../../core/hash.ts';
import { type CounterMessage, NO_WINDOW } from '../scripts/protocol.ts';
import {
  CHECKS_PER_MESSAGE,
  LEASE_SPAN_MAX_MS,
  LEASE_SPAN_MIN_MS,
  LEASE_SPAN_SHARE,
  LEASED_LIMIT_MIN,
} from '../scripts/protocol-constants.ts';
import { type Correction, type Counter, newCounter, type WaitingCheck } from './counter.ts';
import { type LeaseState, newLeaseState } from './lease-state.ts';

export interface ComposeContext {
  /** Monotonic ms. */
  nowMs: number;
  /** Whether the counter has a slot: without one there is no place for a lease. */
  hasSlot: boolean;
  /** Whether checks may be decided from tokens taken in advance. */
  usesLeases: boolean;
  /** The number of the worker that had the counter in the process before, plus 1. */
  inheritsFrom: number;
}

/** Makes the state that of a counter without a slot. Redis takes it for an earlier slot's. */
export function startWithoutSlot(state: LeaseState, nowMs: number): void {
  const sequence = sequenceAt(nowMs);
  Object.assign(state, newLeaseState(), { sequence, firstSequence: sequence });
}

/** Takes the next message of a counter, which is then under way. */
export function composeMessage<C extends WaitingCheck, R extends Correction>(
  counter: Counter<C, R>,
  state: LeaseState,
  { nowMs, hasSlot, usesLeases, inheritsFrom }: ComposeContext,
): CounterMessage {
  const { identity, durationMs, prefetch, mustReturn, mustSync, report } = counter;
  // Corrections may come as fast as messages are answered. Checks do not wait for all of them.
  const isTurnOfChecks = counter.hasCorrected && counter.waiting.length > 0;
  const correction = isTurnOfChecks ? undefined : counter.corrections.shift();
  counter.hasCorrected = correction !== undefined;
  const checks = correction === undefined ? takeChecks(counter) : [];
  const hasChecks = checks.length > 0;
  if (prefetch !== undefined && !hasChecks) state.lastLimit = prefetch.limit;
  updateRate(state, durationMs, nowMs);
  if (hasChecks || mustReturn || correction !== undefined) state.lease = 0;
  // The monotonic time makes it greater than those of an earlier slot, and of an earlier thread.
  state.sequence = Math.max(state.sequence + 1, sequenceAt(nowMs));
  state.reported = Number.POSITIVE_INFINITY;
  state.isPinned = true;
  const limits = checks.map(({ check }) => check.limit);
  const wantsLease =
    usesLeases &&
    hasSlot &&
    correction === undefined &&
    !mustReturn &&
    (hasChecks || prefetch !== undefined) &&
    Math.min(...limits, prefetch?.limit ?? LEASED_LIMIT_MIN) >= LEASED_LIMIT_MIN;
  const message: CounterMessage = {
    identity,
    durationMs,
    window: state.window,
    spent: state.spent,
    previousSpent: state.previousSpent,
    hasPrevious:
      (report !== 0 || mustSync) && (state.previousSpent !== 0 || state.previousKnownUsage > 0),
    sequence: state.sequence,
    kept: state.lease + state.reserved,
    rate: state.rate,
    lastLimit: state.lastLimit,
    wantsLease,
    isSliding:
      state.coversSliding ||
      (prefetch?.isSliding ?? false) ||
      checks.some(({ check }) => check.isSliding),
    firstSequence: state.firstSequence,
    isStored: state.isStored,
    others: state.others,
    previousKnown: state.previousKnownUsage,
    report,
    inherits: state.isInherited ? inheritsFrom : 0,
    recalls: correction?.recalls ?? false,
    refund: correction?.refund ?? 0,
    refundWindow: correction?.refundWindow ?? NO_WINDOW,
    checks: checks.map(({ check }) => check),
  };
  counter.sent = { message, checks, correction, isReturn: mustReturn };
  counter.mustReturn = false;
  counter.mustSync = false;
  counter.report = 0;
  counter.prefetch = undefined;
  counter.retryMs = Number.POSITIVE_INFINITY;
  return message;
}

/** A report about a counter of which this worker has nothing. */
export function composeEmptyReport(
  identity: Identity,
  durationMs: number,
  report: number,
  nowMs: number,
): CounterMessage {
  const state = newLeaseState();
  startWithoutSlot(state, nowMs);
  const counter: Counter = { ...newCounter(identity, durationMs), report };
  return composeMessage(counter, state, {
    ...{ nowMs, hasSlot: false, usesLeases: false, inheritsFrom: 0 },
  });
}

function takeChecks<C extends WaitingCheck>(counter: Counter<C, Correction>): C[] {
  const checks = counter.waiting.splice(0, CHECKS_PER_MESSAGE);
  for (const check of checks) check.wasSent = true;
  return checks;
}

function sequenceAt(nowMs: number): number {
  return Math.floor(nowMs * 1_000);
}

function updateRate(state: LeaseState, durationMs: number, nowMs: number): void {
  const passedMs = nowMs - state.rateFromMs;
  if (state.rateFromMs !== 0 && passedMs > 0) {
    const overMs = Math.max(
      LEASE_SPAN_MIN_MS,
      Math.min(durationMs * LEASE_SPAN_SHARE, LEASE_SPAN_MAX_MS),
    );
    const weight = 1 - Math.exp(-passedMs / overMs);
    const perS = (Math.max(0, state.spent - state.rateSpent) / passedMs) * 1_000;
    // The script gets exact integers only.
    state.rate = Math.min(state.rate + weight * (perS - state.rate), AMOUNT_MAX);
  }
  state.rateFromMs = nowMs;
  state.rateSpent = state.spent;
}
