/**
 * The slot of one counter in a real lease table. A machine of the exploration is plain data: its
 * slot is copied into the table, the code of the product runs on it, and the result is copied out.
 */

import type { Identity } from '../../src/core/hash.ts';
import { type LeaseState, newLeaseState } from '../../src/engine/redis/counter/lease-state.ts';
import { allocateEngineState, EngineState } from '../../src/engine/redis/engine-state.ts';
import {
  LEASE_FLAG,
  leaseFlagsAt,
  removedSequenceAt,
  sequenceAt,
} from '../../src/engine/redis/lease-layout.ts';
import { allocateLeaseTable } from '../../src/engine/redis/lease-memory.ts';
import { clearSlot } from '../../src/engine/redis/lease-slot.ts';
import { LeaseTable } from '../../src/engine/redis/lease-table.ts';
import { locate, newLocation, slotsOf } from '../../src/engine/table/group.ts';
import { latestMsAt, type Slot, tagAt } from '../../src/engine/table/layout.ts';

export const IDENTITY: Identity = { h0: 1, h1: 2, h2: 3, h3: 4 };
/** Another counter that may lie in the same two buckets. */
const NEIGHBOUR: Identity = { ...IDENTITY, h3: 5 };
const NAMESPACE = 1;

export interface StoredSlot {
  state: LeaseState;
  /** Whether it has usage that no message has reported. */
  isDirty: boolean;
}

/** What a machine has in its lease table, and knows of the clock of Redis. */
export interface SlotOwner {
  slot?: StoredSlot | undefined;
  /** The highest sequence number of the slots that were removed. */
  removedSequence: number;
  /** The clock of Redis less that of the machine, at least and at most; undefined: unknown. */
  clock?: { offsetMs: number; aboveMs: number } | undefined;
}

export class SlotMemory {
  readonly #table: LeaseTable;
  readonly #engineState = new EngineState(allocateEngineState(1, 1));
  readonly #slot: Slot;
  readonly #key: number;

  constructor(key: number) {
    this.#table = new LeaseTable(allocateLeaseTable(0, 1), 0, this.#engineState, 1, () => {});
    this.#key = key;
    const location = newLocation();
    locate(this.#table, IDENTITY, location);
    this.#slot = location.preferredSlotA;
    // All other slots where the counter may lie are taken, by counters that are not evicted.
    for (const [n, slot] of slotsOf(location).entries()) {
      if (slot === this.#slot) continue;
      clearSlot(this.#table, slot, { ...IDENTITY, h3: 100 + n }, NAMESPACE, key, 0);
      this.#table.detailWords[leaseFlagsAt(slot)] = LEASE_FLAG.pinned;
    }
  }

  /** Runs code of the product on the slot of a machine. */
  run<T>(owner: SlotOwner, nowMs: number, action: (table: LeaseTable) => T): T {
    this.#load(owner, nowMs);
    const result = action(this.#table);
    this.#save(owner);
    return result;
  }

  /** Another counter needs the slot. It gets it if the product evicts this one. */
  evict(owner: SlotOwner, nowMs: number): void {
    this.run(owner, nowMs, (table) => {
      const lock = table.lockFor(NEIGHBOUR);
      table.acquire(lock);
      table.insert(NEIGHBOUR, NAMESPACE, this.#key, nowMs);
      table.release(lock);
    });
  }

  #load({ slot, removedSequence, clock }: SlotOwner, nowMs: number): void {
    const table = this.#table;
    const lock = table.lockFor(IDENTITY);
    this.#engineState.setLocalClock(nowMs, nowMs);
    const { offsetMs, aboveMs } = clock ?? { offsetMs: 0, aboveMs: 0 };
    this.#engineState.setClock(0, offsetMs, aboveMs - offsetMs);
    clearSlot(table, this.#slot, IDENTITY, NAMESPACE, this.#key, 0);
    table.setDirty(lock, this.#slot, false);
    if (slot === undefined) table.words[tagAt(this.#slot)] = 0;
    else {
      // The rate decides how many tokens are lent, and when they are wanted: scenarios do that.
      table.write(this.#slot, { ...slot.state, rate: 1, rateFromMs: 0 });
      if (slot.state.reserved > 0) table.addReserved(this.#slot, slot.state.reserved);
      if (slot.isDirty) table.setDirty(lock, this.#slot, true);
    }
    table.details[sequenceAt(this.#slot)] = slot?.state.sequence ?? 0;
    table.doubles[latestMsAt(lock)] = 0;
    table.doubles[removedSequenceAt(lock)] = removedSequence;
  }

  #save(owner: SlotOwner): void {
    const table = this.#table;
    const lock = table.lockFor(IDENTITY);
    owner.removedSequence = table.doubles[removedSequenceAt(lock)];
    if (table.find(IDENTITY, this.#key) !== this.#slot) {
      owner.slot = undefined;
      return;
    }
    const state = newLeaseState();
    table.read(this.#slot, state);
    owner.slot = { state, isDirty: table.isDirty(lock, this.#slot) };
  }
}
