/**
 * Refunds, resets and inspections that acceptors send to a shard worker. They are exact: this
 * machine reports its usage, and leases of other machines are recalled first. The lease
 * of a machine that does not answer within SETTLE_MS is written off: its tokens count as used.
 */

import type { Identity } from '../../core/hash.ts';
import { hasWindows, RULE } from '../../core/window-rules.ts';
import type { CounterSelector } from '../engine.ts';
import { counterKey, isGcraKey } from '../windows/registry.ts';
import type { GcraClient } from './gcra-client.ts';
import type { LeaseClient } from './lease-client.ts';
import type { LeaseTable } from './lease-table.ts';
import { type CounterAction, Unchanged, type WorkerResult } from './port-messages.ts';
import type { InspectAnswer } from './scripts/inspect.ts';
import {
  type CounterAnswer,
  MESSAGE_STATUS,
  NO_WINDOW,
  type StoredCounter,
} from './scripts/protocol.ts';
import { CORRECTION_REPEAT_MS, SETTLE_MS, SETTLE_RETRY_MS } from './scripts/protocol-constants.ts';
import type { ResetSelector } from './scripts/reset.ts';

export interface CorrectionOptions {
  tableOf: (identity: Identity) => LeaseTable;
  client: LeaseClient;
  gcra: GcraClient;
  /** Both throw when there is no valid answer. */
  inspect: (identity: Identity) => Promise<InspectAnswer>;
  reset: (identity: Identity, selector: ResetSelector) => Promise<number | undefined>;
  nowMs: () => number;
  /** Whether nothing can be sent to Redis. */
  isDown: (identity: Identity) => boolean;
}

type Refund = Extract<CounterAction, { kind: 'refund' }>;

const RECOVERS = 'Redis has lost counters, and recovers';

export class Corrections {
  readonly #options: CorrectionOptions;

  constructor(options: CorrectionOptions) {
    this.#options = options;
  }

  async act(action: CounterAction): Promise<WorkerResult> {
    const { identity } = action;
    if (this.#options.isDown(identity)) throw new Unchanged('Redis is not reachable');
    switch (action.kind) {
      case 'refund':
        return { kind: 'refund', refunded: await this.#refund(identity, action) };
      case 'reset':
        return { kind: 'reset', cleared: await this.#reset(identity, action.selector) };
      case 'inspect': {
        const { counters, clockUs } = await this.#settle(identity, action.selector);
        return { kind: 'inspect', counters, nowMs: Math.floor(clockUs / 1_000) };
      }
    }
  }

  async #refund(identity: Identity, refund: Refund): Promise<number> {
    const { rule, durationMs, window, cost } = refund;
    const { client, gcra, nowMs } = this.#options;
    if (!hasWindows(rule)) {
      const answer = await gcra.refund(identity, durationMs, cost);
      if (answer === undefined) throw new Error('Redis did not answer in time');
      if (answer.status === MESSAGE_STATUS.recovering) throw new Unchanged(RECOVERS);
      return answer.refunded;
    }
    const key = counterKey(rule, durationMs);
    const endMs = nowMs() + SETTLE_MS;
    for (;;) {
      const correction = { refund: cost, refundWindow: window, recalls: false };
      const answer = await this.#repeat(() => client.correct(identity, key, correction));
      if (answer?.status === MESSAGE_STATUS.done) return answer.refunded;
      throwUnlessRetry(answer);
      if (nowMs() >= endMs) return 0;
      await pause();
    }
  }

  async #reset(identity: Identity, selector: CounterSelector): Promise<number> {
    const { client, reset, tableOf } = this.#options;
    await this.#settle(identity, selector);
    const cleared = await reset(identity, {
      durationsMs: selector.durationsMs,
      windows: selector.rule === undefined || hasWindows(selector.rule),
      gcra: selector.rule === undefined || !hasWindows(selector.rule),
    });
    if (cleared === undefined) throw new Unchanged(RECOVERS);
    const table = tableOf(identity);
    for (const key of this.#keysOf(identity, selector)) {
      if (isGcraKey(key)) {
        table.withSlot(identity, key, (slot, lock) => table.remove(lock, slot));
      } else {
        client.forget(identity, key);
        await client.sync(identity, key);
      }
    }
    return cleared;
  }

  /** Reports the usage of this machine, recalls leases, and waits until they are settled. */
  async #settle(identity: Identity, selector: CounterSelector): Promise<InspectAnswer> {
    const { gcra, nowMs } = this.#options;
    await Promise.all(
      this.#keysOf(identity, selector).map((key) => {
        return isGcraKey(key) ? gcra.sync(identity, key) : this.#recall(identity, key);
      }),
    );
    const endMs = nowMs() + SETTLE_MS;
    for (;;) {
      const answer = await this.#inspect(identity);
      const counters = answer.counters.filter((counter) => isSelected(counter, selector));
      const lent = counters.filter((counter) => counter.lent > 0);
      if (lent.length === 0 || nowMs() >= endMs) return { ...answer, counters };
      await Promise.all(
        lent.map(({ durationMs }) => {
          return this.#recall(identity, counterKey(RULE.fixed, durationMs));
        }),
      );
      await pause();
    }
  }

  async #recall(identity: Identity, key: number): Promise<void> {
    const correction = { refund: 0, refundWindow: NO_WINDOW, recalls: true };
    const { client } = this.#options;
    const answer = await this.#repeat(() => client.correct(identity, key, correction));
    if (answer === undefined) throw new Unchanged('Redis did not answer in time');
  }

  async #inspect(identity: Identity): Promise<InspectAnswer> {
    const { inspect, nowMs } = this.#options;
    const endMs = nowMs() + CORRECTION_REPEAT_MS;
    for (;;) {
      try {
        return await inspect(identity);
      } catch (error) {
        if (nowMs() >= endMs) throw error;
      }
      await pause();
    }
  }

  /** A refund whose answer was lost is undone by the next message: that one may refund again. */
  async #repeat(
    send: () => Promise<CounterAnswer | undefined>,
  ): Promise<CounterAnswer | undefined> {
    const { nowMs } = this.#options;
    const endMs = nowMs() + CORRECTION_REPEAT_MS;
    for (;;) {
      const answer = await send();
      if (answer !== undefined || nowMs() >= endMs) return answer;
      await pause();
    }
  }

  /** The keys of the counters of an identity that have slots here. */
  #keysOf(identity: Identity, { durationsMs, rule }: CounterSelector): number[] {
    const table = this.#options.tableOf(identity);
    const keys = table.withLock(identity, () => {
      return table.findAll(identity).map((slot) => table.readKey(slot));
    });
    return keys.filter((key) => {
      const isMeant = rule === undefined || hasWindows(rule) !== isGcraKey(key);
      return isMeant && (durationsMs?.some((of) => isKeyOf(key, of)) ?? true);
    });
  }
}

function isKeyOf(key: number, durationMs: number): boolean {
  return key === counterKey(RULE.fixed, durationMs) || key === counterKey(RULE.gcra, durationMs);
}

function isSelected({ isGcra, durationMs }: StoredCounter, selector: CounterSelector): boolean {
  const { durationsMs, rule } = selector;
  if (rule !== undefined && hasWindows(rule) === isGcra) return false;
  return durationsMs?.includes(durationMs) ?? true;
}

function throwUnlessRetry(answer: CounterAnswer | undefined): void {
  if (answer === undefined) throw new Error('Redis did not answer in time');
  if (answer.status === MESSAGE_STATUS.retryRefund) return;
  throw new Unchanged(RECOVERS);
}

function pause(): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve, SETTLE_RETRY_MS));
}
