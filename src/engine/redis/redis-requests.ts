/**
 * Stored answers that all machines share in Redis. A request is claimed there before it is decided,
 * so that its repetitions wait, and its answer is stored before the client gets it. The claim of an
 * acceptor that dies ends after CLAIM_MS. A failure is an ApiError (503). If only the answer cannot
 * be stored, the client gets it all the same, and a repetition is decided anew.
 */

import { setTimeout as pause } from 'node:timers/promises';
import { type Check, copyCheck } from '../../core/check.ts';
import { CHECK_DEADLINE_MS } from '../../core/constants.ts';
import type { Decision } from '../../core/decision.ts';
import { ApiError } from '../../core/errors.ts';
import type { Eventual } from '../../core/eventual.ts';
import type { Identity } from '../../core/hash.ts';
import type { Clock } from '../../shared-memory/clock.ts';
import type { Completion, Engine } from '../engine.ts';
import { newSecret } from '../hold-id.ts';
import type {
  RepeatableAnswer,
  RepeatableRequest,
  RequestAnswer,
  RequestEngine,
} from '../request-engine.ts';
import { CLAIM_RETRY_MS } from './scripts/protocol-constants.ts';
import { REQUEST_STATUS } from './scripts/records.ts';
import type { RequestCall, RequestResult } from './scripts/requests.ts';

interface Resolver {
  resolve: (decision: Decision) => void;
  reject: (error: unknown) => void;
}

const RESOLVE: Completion<Resolver> = {
  complete: ({ resolve }, _startedMs, _check, decision) => resolve({ ...decision }),
  fail: ({ reject }, error) => reject(error),
};

export class RedisRequests implements RequestEngine {
  readonly #engine: Pick<Engine, 'decide'>;
  readonly #send: (call: RequestCall) => Promise<RequestResult>;
  readonly #clock: Clock;

  /** @param send has the worker of the request's shard act */
  constructor(
    engine: Pick<Engine, 'decide'>,
    send: (call: RequestCall) => Promise<RequestResult>,
    clock: Clock,
  ) {
    this.#engine = engine;
    this.#send = send;
    this.#clock = clock;
  }

  decide(check: Check, startedMs: number): Promise<Decision> {
    const inTurn = { ...copyCheck(check), isAsync: false };
    return new Promise((resolve, reject) => {
      const decision = this.#engine.decide(inTurn, startedMs, { resolve, reject }, RESOLVE);
      if (decision !== undefined) resolve({ ...decision });
    });
  }

  async answer(
    { key, parameters }: RepeatableRequest,
    startedMs: number,
    decide: () => Eventual<RequestAnswer>,
  ): Promise<RepeatableAnswer | undefined> {
    const request = { key: copyOf(key), parameters: copyOf(parameters) };
    const claim = newSecret().join('.');
    const drop = () => void this.#send({ operation: 'drop', request, claim }).catch(() => {});
    let answer: RequestAnswer;
    try {
      const earlier = await this.#claim({ request, claim }, startedMs + CHECK_DEADLINE_MS);
      if (earlier.status === REQUEST_STATUS.conflict) return undefined;
      if (earlier.answer !== undefined) return { ...earlier.answer, isRepetition: true };
      answer = await decide();
    } catch (error) {
      // The claim too, if only the answer to it was lost.
      drop();
      throw error;
    }
    if (answer.allowed) {
      await this.#send({ operation: 'store', request, claim, answer }).catch(() => {});
    } else drop();
    return { ...answer, isRepetition: false };
  }

  /** @returns the answer that is stored; or none, and the claim is that of this request */
  async #claim(
    call: Pick<RequestCall, 'request' | 'claim'>,
    endMs: number,
  ): Promise<RequestResult> {
    for (;;) {
      const result = await this.#send({ operation: 'claim', ...call });
      if (result.status !== REQUEST_STATUS.busy) return result;
      if (this.#clock.monotonicMs() >= endMs) {
        const message =
          'an earlier request with this "requestId" is still being decided; nothing was changed';
        throw new ApiError('SERVICE_UNAVAILABLE', message);
      }
      await pause(CLAIM_RETRY_MS);
    }
  }
}

function copyOf({ h0, h1, h2, h3 }: Identity): Identity {
  return { h0, h1, h2, h3 };
}
