/** Which slots have usage that Redis does not know: the marks in the lock line of their group. */

import {
  indexInGroup,
  isSlotMarked,
  type Lock,
  markSlot,
  type Slot,
  unmarkSlot,
} from '../table/layout.ts';
import type { TableMemory } from '../table/table-memory.ts';

export class DirtySlots {
  readonly #memory: TableMemory;

  constructor(memory: TableMemory) {
    this.#memory = memory;
  }

  has(lock: Lock, slot: Slot): boolean {
    const { words, firstSlot } = this.#memory;
    return isSlotMarked(words, lock, indexInGroup(firstSlot, slot));
  }

  add(lock: Lock, slot: Slot): void {
    const { words, firstSlot } = this.#memory;
    markSlot(words, lock, indexInGroup(firstSlot, slot));
  }

  remove(lock: Lock, slot: Slot): void {
    const { words, firstSlot } = this.#memory;
    unmarkSlot(words, lock, indexInGroup(firstSlot, slot));
  }
}
