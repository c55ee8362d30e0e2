/**
 * Operations on counters that the main thread passes to an acceptor, for the dashboard. The
 * handlers of the HTTP routes run them. An error becomes the result, as it would become the
 * response.
 */

import type { ByVersion } from '../api/common/versions.ts';
import { COUNTER_OPERATIONS } from '../api/operations/counter-operations.ts';
import type {
  CounterOperationRequest,
  CounterOperationResult,
} from '../api/operations/messages.ts';
import type { Key, Keyring } from '../auth/keyring.ts';
import type { Role } from '../auth/roles.ts';
import { permissionsOfRole } from '../auth/users.ts';
import type { DecisionRecorder } from '../decision-thread/decision-recorder.ts';
import type { CounterHandlers } from './api-routes.ts';
import { createOperationResponse } from './operation-response.ts';
import type { Responder } from './responder.ts';

export class CounterOperations {
  readonly #keyring: Keyring;
  readonly #handlers: CounterHandlers;
  readonly #recorder: DecisionRecorder;
  readonly #responders: ByVersion<Responder>;
  readonly #send: (number: number, result: CounterOperationResult) => void;

  /** @param send sends the result of an operation to the main thread */
  constructor(
    keyring: Keyring,
    handlers: CounterHandlers,
    recorder: DecisionRecorder,
    responders: ByVersion<Responder>,
    send: (number: number, result: CounterOperationResult) => void,
  ) {
    this.#keyring = keyring;
    this.#handlers = handlers;
    this.#recorder = recorder;
    this.#responders = responders;
    this.#send = send;
  }

  run(number: number, { operation, keyId, role, body }: CounterOperationRequest): void {
    const res = createOperationResponse((status, text) => {
      this.#send(number, { status, body: text });
    });
    try {
      const details = this.#recorder.samples() ? { traceparent: undefined } : undefined;
      const key = role === undefined ? this.#keyring.keyById(keyId) : keyOfUser(keyId, role);
      this.#handlers[operation](res, key, body, details);
    } catch (error) {
      this.#responders[COUNTER_OPERATIONS[operation].version].sendError(res, error);
    }
  }
}

/** What the handlers get in place of a key. */
function keyOfUser(id: string, role: Role): Key {
  return { id, permissions: permissionsOfRole(role), expiresMs: null, isRevoked: false };
}
