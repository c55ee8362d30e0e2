/**
 * Forwards operations that the main thread executes: reads the whole body, sends it with the id of
 * the key, and responds with the result. Also asks it the questions of this acceptor. No check
 * passes through here.
 *
 * An operation whose client disconnects executes all the same. uWebSockets.js closes a connection
 * that sends a second request before the first has its response.
 */

import { type MainRoute, RESPONSE_BYTES } from '../api/common/operation.ts';
import type { ByVersion } from '../api/common/versions.ts';
import type { OperationName, QuestionName } from '../api/operations/main-operations.ts';
import type { OperationRequest, OperationResult } from '../api/operations/messages.ts';
import type { Key } from '../auth/keyring.ts';
import { PENDING_OPERATION_BYTES_MAX } from '../core/constants.ts';
import { ApiError } from '../core/errors.ts';
import { ACCEPTOR_STAT, type AcceptorStats } from '../shared-memory/stats.ts';
import type { BodyReader } from './body.ts';
import type { Framing } from './framing.ts';
import type { Responder } from './responder.ts';
import type { HttpResponse } from './uws.ts';

const encoder = new TextEncoder();

interface PendingOperation {
  bytes: number;
  complete: (result: OperationResult) => void;
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
  post(res: HttpResponse, framing: Framing, route: MainRoute<OperationName>, key: Key): void {
    const { version, maxBytes } = route;
    this.#servers[version].bodyReader.read(res, framing, maxBytes, key, (_res, { id }, bytes) => {
      // uWebSockets.js reuses its bytes after this callback; a view is part of a larger buffer.
      const input = ArrayBuffer.isView(bytes) ? bytes.slice() : new Uint8Array(bytes.slice(0));
      this.#forward(res, route, id, input);
    });
  }

  get(res: HttpResponse, route: MainRoute<OperationName>, { id }: Key, query: string): void {
    this.#forward(res, route, id, query);
  }

  /**
   * Asks the main thread on behalf of a request whose key it verifies again.
   * @returns rejects with the ApiError of the main thread, or because too many operations wait
   */
  ask<Answer>(question: QuestionName, { id }: Key, fields: object): Promise<Answer> {
    const input = encoder.encode(JSON.stringify(fields));
    return new Promise((resolve, reject) => {
      const request = { operation: question, keyId: id, input };
      this.#submit(request, RESPONSE_BYTES.read, (result) => {
        if ('body' in result) resolve(JSON.parse(result.body));
        else reject(errorOf(result));
      });
    });
  }

  complete(number: number, result: OperationResult): void {
    const { bytes, complete } = this.#pending.get(number)!;
    this.#pending.delete(number);
    this.#pendingBytes -= bytes;
    this.#stats.heartbeat();
    complete(result);
  }

  #forward(
    res: HttpResponse,
    { name, version, responseBytesEstimate }: MainRoute<OperationName>,
    keyId: string,
    input: OperationRequest['input'],
  ): void {
    const { responder } = this.#servers[version];
    let isAborted = false;
    this.#submit({ operation: name, keyId, input }, responseBytesEstimate, (result) => {
      if (isAborted) return;
      res.cork(() => {
        if ('body' in result) responder.sendResult(res, result.body);
        else responder.sendError(res, errorOf(result));
      });
    });
    res.onAborted(() => {
      isAborted = true;
    });
  }

  /** @throws ApiError (503) where too many operations wait */
  #submit(
    request: OperationRequest,
    responseBytesEstimate: number,
    complete: (result: OperationResult) => void,
  ): void {
    const bytes = request.input.length + responseBytesEstimate;
    if (this.#pendingBytes + bytes > PENDING_OPERATION_BYTES_MAX) {
      this.#stats.increment(ACCEPTOR_STAT.shedOperations);
      const message = 'too many operations are queued; nothing was changed';
      throw new ApiError('SERVICE_UNAVAILABLE', message);
    }
    const number = this.#nextNumber++;
    this.#pending.set(number, { bytes, complete });
    this.#pendingBytes += bytes;
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
