/**
 * The requests of an acceptor to shard workers that are no checks. One that a worker has not begun
 * when it dies is sent again to the next worker. One that is not done after CHECK_DEADLINE_MS fails
 * with a 503, which says whether it may have been done.
 */

import type { MessagePort } from 'node:worker_threads';
import { CHECK_DEADLINE_MS } from '../../core/constants.ts';
import { ApiError } from '../../core/errors.ts';
import {
  REQUEST_STATE,
  type ResultOf,
  type WorkerAction,
  type WorkerRequest,
  type WorkerResponse,
  type WorkerResult,
  withdrawRequest,
} from './port-messages.ts';

interface PendingRequest {
  worker: number;
  request: WorkerRequest;
  resolve: (result: WorkerResult) => void;
}

export class WorkerRequests {
  /** By worker; undefined until its first run has started. */
  readonly #ports: (MessagePort | undefined)[];
  readonly #pending = new Map<number, PendingRequest>();
  #nextNumber = 1;

  constructor(workers: number) {
    this.#ports = new Array(workers).fill(undefined);
  }

  /** A run of a worker has started. */
  connect(worker: number, port: MessagePort): void {
    this.#ports[worker] = port;
    for (const { worker: to, request } of this.#pending.values()) {
      const isWaiting = Atomics.load(request.state, 0) === REQUEST_STATE.waiting;
      if (to === worker && isWaiting) port.postMessage(request);
    }
  }

  receive({ number, result }: WorkerResponse): void {
    this.#pending.get(number)?.resolve(result);
  }

  /** @throws ApiError where it failed, or was not done in time */
  async send<Action extends WorkerAction>(
    worker: number,
    action: Action,
  ): Promise<ResultOf<Action['kind']>> {
    const number = this.#nextNumber++;
    const state = new Int32Array(new SharedArrayBuffer(4));
    const request: WorkerRequest = { number, state, action };
    const result = await new Promise<WorkerResult>((resolve) => {
      const timer = setTimeout(() => resolve(lateFailure(request)), CHECK_DEADLINE_MS);
      const finish = (result: WorkerResult) => {
        clearTimeout(timer);
        resolve(result);
      };
      this.#pending.set(number, { worker, request, resolve: finish });
      this.#ports[worker]?.postMessage(request);
    });
    this.#pending.delete(number);
    if (result.kind === 'failure') {
      const effect = result.isUnchanged ? 'nothing was changed' : 'it may have been done';
      throw new ApiError('SERVICE_UNAVAILABLE', `${result.reason}; ${effect}`);
    }
    return result as ResultOf<Action['kind']>;
  }
}

function lateFailure(request: WorkerRequest): WorkerResult {
  const isUnchanged = withdrawRequest(request);
  const reason = `Redis did not answer within ${CHECK_DEADLINE_MS} ms`;
  return { kind: 'failure', reason, isUnchanged };
}
