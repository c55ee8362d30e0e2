/**
 * Operations on counters that the main thread asks acceptors for, each in turn. An acceptor answers
 * between its requests. The number of unanswered operations is bounded; over the bound, and without
 * an answer in time, the result is an ApiError (503).
 */

import type {
  CounterOperationRequest,
  CounterOperationResult,
} from '../api/operations/messages.ts';
import { COUNTER_OPERATION_TIMEOUT_MS, PENDING_COUNTER_OPERATIONS_MAX } from '../core/constants.ts';
import { ApiError } from '../core/errors.ts';

interface PendingOperation {
  resolve: (result: CounterOperationResult) => void;
  timer: NodeJS.Timeout;
}

export class CounterOperations {
  readonly #send: (acceptor: number, number: number, request: CounterOperationRequest) => void;
  readonly #acceptorCount: number;
  readonly #pending = new Map<number, PendingOperation>();
  #nextNumber = 0;

  /** @param send sends an operation to an acceptor; its result arrives at `complete` */
  constructor(
    acceptorCount: number,
    send: (acceptor: number, number: number, request: CounterOperationRequest) => void,
  ) {
    this.#acceptorCount = acceptorCount;
    this.#send = send;
  }

  /** @throws ApiError (503) */
  async run(request: CounterOperationRequest): Promise<CounterOperationResult> {
    if (this.#pending.size >= PENDING_COUNTER_OPERATIONS_MAX) {
      throw new ApiError('SERVICE_UNAVAILABLE', 'too many operations wait; nothing was changed');
    }
    const number = this.#nextNumber++;
    return new Promise((resolve, reject) => {
      const timer = setTimeout(() => {
        this.#pending.delete(number);
        const late = `no acceptor answered within ${COUNTER_OPERATION_TIMEOUT_MS} ms`;
        reject(new ApiError('SERVICE_UNAVAILABLE', `${late}; counters may have changed`));
      }, COUNTER_OPERATION_TIMEOUT_MS);
      this.#pending.set(number, { resolve, timer });
      this.#send(number % this.#acceptorCount, number, request);
    });
  }

  /** A result that comes after its timeout is dropped. */
  complete(number: number, result: CounterOperationResult): void {
    const pending = this.#pending.get(number);
    if (pending === undefined) return;
    this.#pending.delete(number);
    clearTimeout(pending.timer);
    pending.resolve(result);
  }
}
