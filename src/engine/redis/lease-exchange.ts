/**
 * The messages of a counter and its slot: composes a message from the state that a slot stores, and
 * stores what its answer says, under the lock of the slot. A counter without a slot has no lease.
 */

import type { Identity } from '../../core/hash.ts';
import { NO_SLOT } from '../table/layout.ts';
import { type AnswerContext, type AnswerResult, takeAnswer } from './counter/answer.ts';
import { composeMessage, startWithoutSlot } from './counter/compose.ts';
import type { Correction, Counter, WaitingCheck } from './counter/counter.ts';
import { type LeaseState, newLeaseState } from './counter/lease-state.ts';
import type { LeaseTable } from './lease-table.ts';
import type { CounterAnswer, CounterMessage } from './scripts/protocol.ts';

/** A counter of a table, by its key there. */
export interface CounterOfTable<Check extends WaitingCheck, Request extends Correction> {
  readonly counter: Counter<Check, Request>;
  readonly key: number;
  namespaceTag: number;
}

/** Scratch of one call: no call waits. */
const state = newLeaseState();

/**
 * Composes the next message of a counter, which gets a slot if checks wait.
 * @returns the message, and how many tokens of a lease it returns
 */
export function composeFromSlot<C extends WaitingCheck, R extends Correction>(
  table: LeaseTable,
  { counter, key, namespaceTag }: CounterOfTable<C, R>,
  context: { nowMs: number; usesLeases: boolean; inheritsFrom: number },
): { message: CounterMessage; returned: number } {
  const { identity, waiting, mustReturn } = counter;
  const lock = table.lockFor(identity);
  table.acquire(lock);
  try {
    let slot = table.find(identity, key);
    if (slot === NO_SLOT && waiting.length > 0) {
      slot = table.insert(identity, namespaceTag, key, context.nowMs);
    }
    const hasSlot = slot !== NO_SLOT;
    if (hasSlot) table.read(slot, state);
    else startWithoutSlot(state, context.nowMs);
    const { lease } = state;
    const message = composeMessage(counter, state, { ...context, hasSlot });
    if (hasSlot) {
      table.write(slot, state);
      table.setDirty(lock, slot, false);
    }
    const isReturn = mustReturn && message.checks.length === 0;
    return { message, returned: isReturn ? lease : 0 };
  } finally {
    table.release(lock);
  }
}

/**
 * Takes the answer to the message of a counter that is under way.
 * @param answer undefined: there is none
 */
export function takeAnswerIntoSlot<C extends WaitingCheck, R extends Correction>(
  table: LeaseTable,
  { counter, key }: CounterOfTable<C, R>,
  answer: CounterAnswer | undefined,
  context: Omit<AnswerContext<C>, 'hasSlot'>,
): AnswerResult<C> {
  const { identity } = counter;
  const lock = table.lockFor(identity);
  table.acquire(lock);
  try {
    const slot = table.find(identity, key);
    const hasSlot = slot !== NO_SLOT;
    if (hasSlot) table.read(slot, state);
    else Object.assign(state, newLeaseState(), { sequence: counter.sent?.message.sequence });
    const result = takeAnswer(counter, state, answer, { ...context, hasSlot });
    if (hasSlot) {
      table.write(slot, state);
      table.addReserved(slot, result.reserved);
      if (result.isDirty) table.setDirty(lock, slot, true);
    }
    return result;
  } finally {
    table.release(lock);
  }
}

/** Changes the state of a counter, if it has a slot. */
export function changeState(
  table: LeaseTable,
  identity: Identity,
  key: number,
  change: (state: LeaseState) => void,
): void {
  table.withSlot(identity, key, (slot) => {
    table.read(slot, state);
    change(state);
    table.write(slot, state);
  });
}
