/**
 * Shares the turns of an event loop among long reads. All of them together do a bounded amount of
 * work in one turn, so that nothing else on the thread waits long for them. Few searches run at a
 * time: those that wait would keep other operations out of the queue.
 */

import { setImmediate as nextTurn } from 'node:timers/promises';
import { ApiError } from './errors.ts';

export class TurnBudget {
  readonly #perTurn: number;
  readonly #searchesMax: number;
  #searches = 0;
  #left: number;
  #refill: Promise<void> | undefined;

  /**
   * @param perTurn the work of one turn, in any unit
   * @param searchesMax how many searches run at a time
   */
  constructor(perTurn: number, searchesMax: number) {
    this.#perTurn = perTurn;
    this.#searchesMax = searchesMax;
    this.#left = perTurn;
  }

  /** Called before work, which the caller does at once when it continues. */
  async spend(work: number): Promise<void> {
    await this.run(
      () => undefined,
      () => work,
    );
  }

  /**
   * Does a step whose work is known only after it, in a turn that has work left. So the work of a
   * turn exceeds its budget by one step at most.
   */
  async run<T>(step: () => T, workOf: (result: T) => number): Promise<T> {
    while (this.#left <= 0) {
      this.#refill ??= this.#refillInNextTurn();
      await this.#refill;
    }
    const result = step();
    this.#left -= workOf(result);
    return result;
  }

  /** @throws ApiError (503) where too many searches run */
  async runSearch<T>(search: () => Promise<T>): Promise<T> {
    if (this.#searches === this.#searchesMax) {
      const message = `${this.#searchesMax} searches are running, the maximum; nothing was changed`;
      throw new ApiError('SERVICE_UNAVAILABLE', message);
    }
    this.#searches++;
    try {
      return await search();
    } finally {
      this.#searches--;
    }
  }

  async #refillInNextTurn(): Promise<void> {
    await nextTurn();
    this.#left = this.#perTurn;
    this.#refill = undefined;
  }
}
