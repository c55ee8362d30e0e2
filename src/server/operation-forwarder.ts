/**
 * Forwards operations that the main thread executes: reads the whole body, sends it with the id of
 * the key, and responds with the result. No check passes through here.
 *
 * An operation whose client disconnects executes all the same. uWebSockets.js closes a connection
 * that sends a second request before the first has its response.
 */

import {
  OPERATIONS,
  type OperationName,
  type OperationRequest,
  type OperationResult,
} from '../api/common/operations.ts';
import type { ByVersion } from '../api/common/versions.ts';
import type { Key } from '../auth/keyring.ts';
import { PENDING_OPERATION_BYTES_MAX } from '../core/constants.ts';
import { ApiError } from '../core/errors.ts';
import { ACCEPTOR_STAT, type AcceptorStats } from '../shared-memory/stats.ts';
import type { BodyReader } from './body.ts';
import type { Framing } from './framing.ts';
import type { Responder } from './responder.ts';
import type { HttpResponse } from './uws.ts';

interface PendingOperation {
  /** Undefined after the client has disconnected. */
  res: HttpResponse | undefined;
  responder: Responder;
  bytes: number;
}

/** The reader and the responder of one version of the API. */
export interface ApiServer {
  responder: Responder;
  bodyReader: BodyReader;
}

export class OperationForwarder {
  readonly #stats: AcceptorStats;
  readonly #servers: ByVersion<ApiServer>;
  readonly #send: (number: number, request: OperationRequest) => void;
  /** Operations without a result yet, by number. */
  readonly #pending = new Map<number, PendingOperation>();
  #pendingBytes = 0;
  #nextNumber = 0;

  /** @param send sends a request to the main thread; its result arrives at `complete` */
  constructor(
    stats: AcceptorStats,
    servers: ByVersion<ApiServer>,
    send: (number: number, request: OperationRequest) => void,
  ) {
    this.#stats = stats;
    this.#servers = servers;
    this.#send = send;
  }

  /** Reads the body of a POST and forwards it. */
  post(res: HttpResponse, framing: Framing, operation: OperationName, key: Key): void {
    const { version, maxBytes } = OPERATIONS[operation];
    this.#servers[version].bodyReader.read(res, framing, maxBytes, key, (_res, { id }, bytes) => {
      // uWebSockets.js reuses its bytes after this callback; a view is part of a larger buffer.
      const input = ArrayBuffer.isView(bytes) ? bytes.slice() : new Uint8Array(bytes.slice(0));
      this.#forward(res, { operation, keyId: id, input });
    });
  }

  get(res: HttpResponse, operation: OperationName, key: Key, query: string): void {
    this.#forward(res, { operation, keyId: key.id, input: query });
  }

  complete(number: number, result: OperationResult): void {
    const { res, responder, bytes } = this.#pending.get(number)!;
    this.#pending.delete(number);
    this.#pendingBytes -= bytes;
    this.#stats.heartbeat();
    if (res === undefined) return;
    res.cork(() => {
      if ('body' in result) responder.sendResult(res, result.body);
      else responder.sendError(res, errorOf(result));
    });
  }

  #forward(res: HttpResponse, request: OperationRequest): void {
    const { version, responseBytesEstimate } = OPERATIONS[request.operation];
    const bytes = request.input.length + responseBytesEstimate;
    if (this.#pendingBytes + bytes > PENDING_OPERATION_BYTES_MAX) {
      this.#stats.increment(ACCEPTOR_STAT.shedOperations);
      const message = 'too many operations are queued; nothing was changed';
      throw new ApiError('SERVICE_UNAVAILABLE', message);
    }
    const number = this.#nextNumber++;
    const pending: PendingOperation = { res, responder: this.#servers[version].responder, bytes };
    this.#pending.set(number, pending);
    this.#pendingBytes += bytes;
    res.onAborted(() => {
      pending.res = undefined;
    });
    this.#send(number, request);
  }
}

/** The error that was thrown on the main thread. */
function errorOf(result: Exclude<OperationResult, { body: string }>): Error {
  const { code, message, faultLocation, stack } = result;
  if (code !== undefined) return new ApiError(code, message, faultLocation);
  const error = new Error(message);
  if (stack !== undefined) error.stack = stack;
  return error;
}
