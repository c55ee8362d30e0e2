/**
 * Shares the turns of an event loop among long reads. All of them together do a bounded amount of
 * work in one turn, so that nothing else on the thread waits long for them.
 */

import { setImmediate as nextTurn } from 'node:timers/promises';

export class TurnBudget {
  readonly #perTurn: number;
  #left: number;
  #refill: Promise<void> | undefined;

  /** @param perTurn the work of one turn, in any unit */
  constructor(perTurn: number) {
    this.#perTurn = perTurn;
    this.#left = perTurn;
  }

  /** Called after work. The caller continues in a turn that has work left. */
  async spend(work: number): Promise<void> {
    this.#left -= work;
    while (this.#left <= 0) {
      this.#refill ??= this.#refillInNextTurn();
      await this.#refill;
    }
  }

  async #refillInNextTurn(): Promise<void> {
    await nextTurn();
    this.#left = this.#perTurn;
    this.#refill = undefined;
  }
}
