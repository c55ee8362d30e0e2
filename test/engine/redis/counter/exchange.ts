/** A counter of a machine for tests, with answers of Redis by hand. */

import type { CheckParameters } from '../../../../src/core/decision.ts';
import { NO_BURST, RULE } from '../../../../src/core/window-rules.ts';
import {
  type AnswerContext,
  type AnswerResult,
  takeAnswer,
} from '../../../../src/engine/redis/counter/answer.ts';
import {
  type ComposeContext,
  composeMessage,
} from '../../../../src/engine/redis/counter/compose.ts';
import {
  type Counter,
  newCounter,
  type WaitingCheck,
} from '../../../../src/engine/redis/counter/counter.ts';
import {
  type LeaseState,
  newLeaseState,
} from '../../../../src/engine/redis/counter/lease-state.ts';
import type {
  CounterAnswer,
  CounterMessage,
} from '../../../../src/engine/redis/scripts/protocol.ts';

export const MINUTE = 60_000;
export const LIMIT = 100;
/** Monotonic ms. */
export const NOW_MS = 5_000_000;
export const WINDOW = 7;
export const RECOVERY_PARK_MS = 80;

const ANSWER: Omit<CounterAnswer, 'sequence'> = {
  ...{ status: 0, window: WINDOW, leftUs: MINUTE * 1_000, isStored: true, mayDeny: true },
  ...{ pauseMs: 0, others: 0, othersDeducted: 0, previousUsage: 40, previousKnownUsage: 40 },
  ...{ lent: 0, lentLimit: LIMIT, refunded: 0, writtenOff: 0 },
  ...{ isUnknown: false, isMissing: false, wasWrittenOff: false, report: 0, served: [] },
};

export interface TestCheck extends WaitingCheck {
  isWithdrawn: boolean;
}

interface CheckOptions extends Partial<Pick<CheckParameters, 'cost' | 'limit' | 'rule'>> {
  countsDenied?: boolean;
  isReserve?: boolean;
}

export class TestCounter {
  readonly counter: Counter<TestCheck>;
  readonly state: LeaseState = newLeaseState();
  hasSlot = true;
  usesLeases = true;

  constructor(durationMs = MINUTE) {
    this.counter = newCounter({ h0: 1, h1: 2, h2: 3, h3: 4 }, durationMs);
  }

  add(options: CheckOptions = {}, queuedMs = NOW_MS): TestCheck {
    const { cost = 1, limit = LIMIT, rule = RULE.fixed, countsDenied = false } = options;
    const { durationMs } = this.counter;
    const check: TestCheck = {
      parameters: { cost, limit, rule, durationMs, burst: NO_BURST },
      check: { cost, limit, isSliding: rule === RULE.sliding, countsDenied },
      isReserve: options.isReserve ?? false,
      ...{ wasSent: false, queuedMs, parkedMs: 0, isWithdrawn: false },
    };
    this.counter.waiting.push(check);
    return check;
  }

  compose(nowMs = NOW_MS, context: Partial<ComposeContext> = {}): CounterMessage {
    const { hasSlot, usesLeases } = this;
    return composeMessage(this.counter, this.state, {
      ...{ nowMs, hasSlot, usesLeases, inheritsFrom: 0, ...context },
    });
  }

  /** @param answer undefined: there is none */
  answer(
    answer: Partial<CounterAnswer> | undefined,
    nowMs = NOW_MS,
    context: Partial<AnswerContext<TestCheck>> = {},
  ): AnswerResult<TestCheck> {
    const { sequence } = this.counter.sent!.message;
    const full = answer && { ...ANSWER, sequence, ...answer };
    const isOpen = ({ isWithdrawn }: TestCheck) => !isWithdrawn;
    return takeAnswer(this.counter, this.state, full, {
      ...{ sentMs: nowMs, nowMs, redisMs: WINDOW * this.counter.durationMs, isOpen, claim: isOpen },
      ...{ hasSlot: this.hasSlot, usesLeases: this.usesLeases, recoveryParkMs: RECOVERY_PARK_MS },
      ...context,
    });
  }

  /** A message and its answer. */
  exchange(answer: Partial<CounterAnswer> = {}, nowMs = NOW_MS): AnswerResult<TestCheck> {
    this.compose(nowMs);
    return this.answer(answer, nowMs);
  }
}
