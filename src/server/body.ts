/**
 * Reads the whole body of a request, up to a maximum (413). A body that arrives in chunks is copied
 * to one buffer: a chunk is valid only during its callback, and a copy per chunk of one byte would
 * cost hundreds of times its size. All buffers of an acceptor share a budget; a body over the
 * budget is answered with 503.
 *
 * uWebSockets.js corks its callback: a response in it leaves in one write with the others of the
 * same packet (seen with strace). It makes no callback after an abort, so an incomplete body has no
 * effect. Nor does it for a length of 0 with a head in two packets: such a body is not awaited.
 */

import { BUFFERED_BODY_BYTES_MAX } from '../core/constants.ts';
import { ApiError } from '../core/errors.ts';
import { ACCEPTOR_STAT, type AcceptorStats } from '../shared-memory/stats.ts';
import type { Framing } from './framing.ts';
import type { Responder } from './responder.ts';
import type { Turns } from './turns.ts';
import type { HttpResponse } from './uws.ts';

/** Called once with the whole body; an error that it throws becomes the response. */
export type BodyHandler<T> = (
  res: HttpResponse,
  context: T,
  bytes: ArrayBuffer | Uint8Array,
) => void;

const FIRST_BUFFER_BYTES = 1_024;

const NO_BYTES = new Uint8Array(0);

/**
 * A body that is not complete. Nearly all bodies arrive whole with their head, so one object, with
 * one callback for uWebSockets.js, serves one request after the other. An object whose body arrives
 * in chunks is dropped with its request.
 */
class PendingBody {
  /** Undefined after the last chunk, and after an error. */
  res: HttpResponse | undefined;
  /** The requests of the turn when its head was read. */
  requests = 0;
  maxBytes = 0;
  context: unknown;
  onBody: BodyHandler<unknown> = () => {};
  buffer: Uint8Array | undefined;
  size = 0;
  readonly onChunk: (chunk: ArrayBuffer, isLast: boolean) => void;

  constructor(receive: (pending: PendingBody, chunk: ArrayBuffer, isLast: boolean) => void) {
    this.onChunk = (chunk, isLast) => receive(this, chunk, isLast);
  }
}

/** The bytes that the bodies of an acceptor that are incomplete or wait may still buffer. */
export class BodyBudget {
  availableBytes = BUFFERED_BODY_BYTES_MAX;
}

export class BodyReader {
  readonly #stats: AcceptorStats;
  readonly #budget: BodyBudget;
  readonly #responder: Responder;
  readonly #turns: Turns;
  #reusable: PendingBody | undefined;

  constructor(stats: AcceptorStats, budget: BodyBudget, responder: Responder, turns: Turns) {
    this.#stats = stats;
    this.#budget = budget;
    this.#responder = responder;
    this.#turns = turns;
  }

  read<T>(
    res: HttpResponse,
    framing: Framing,
    maxBytes: number,
    context: T,
    onBody: BodyHandler<T>,
  ): void {
    if (!framing.hasBody) {
      // A header with an empty name hides a later Content-Length, so a body may follow.
      this.#responder.closeAfterResponse(res);
      onBody(res, context, NO_BYTES);
      return;
    }
    const pending = this.#reusable ?? new PendingBody(this.#receive);
    this.#reusable = undefined;
    pending.res = res;
    pending.requests = this.#turns.requests;
    pending.maxBytes = maxBytes;
    pending.context = context;
    pending.onBody = onBody as BodyHandler<unknown>;
    res.onData(pending.onChunk);
  }

  readonly #receive = (pending: PendingBody, chunk: ArrayBuffer, isLast: boolean): void => {
    const { res } = pending;
    if (res === undefined) return;
    try {
      const body = this.#append(pending, chunk, isLast);
      if (body === undefined) return;
      pending.res = undefined;
      // The heads of other requests came in between, and maybe earlier turns.
      if (pending.requests !== this.#turns.requests) this.#turns.begin();
      if (this.#turns.isFull) this.#wait(res, pending, body);
      else this.#pass(res, pending, body);
    } catch (error) {
      pending.res = undefined;
      this.#release(pending);
      // Unread bytes of a body would be read as the next request.
      if (!isLast || isTooLarge(error)) this.#responder.closeAfterResponse(res);
      this.#responder.sendError(res, error);
    }
  };

  /** Passes a complete body to its handler. */
  #pass(res: HttpResponse, pending: PendingBody, body: ArrayBuffer | Uint8Array): void {
    const { context, onBody } = pending;
    // An abort handler refers to an object with a buffer: it must not serve another request.
    if (pending.buffer === undefined) this.#reusable = pending;
    else this.#release(pending);
    if (this.#turns.isPipelined) this.#handleCorked(res, context, body, onBody);
    else this.#handle(res, context, body, onBody);
  }

  /** A function of its own: its closure costs the usual request nothing. */
  #handleCorked(
    res: HttpResponse,
    context: unknown,
    body: ArrayBuffer | Uint8Array,
    onBody: BodyHandler<unknown>,
  ): void {
    res.cork(() => this.#handle(res, context, body, onBody));
  }

  /** Keeps a complete body for a later turn. @throws ApiError (503) */
  #wait(res: HttpResponse, pending: PendingBody, body: ArrayBuffer | Uint8Array): void {
    const { context, onBody } = pending;
    let kept = body;
    if (pending.buffer === undefined) {
      // uWebSockets.js reuses its bytes after this callback.
      kept = this.#grow(pending, body.byteLength).subarray(0, body.byteLength);
      kept.set(new Uint8Array(body as ArrayBuffer));
    }
    this.#turns.wait(res, {
      run: () => {
        this.#release(pending);
        res.cork(() => this.#handle(res, context, kept, onBody));
      },
      drop: () => this.#release(pending),
    });
  }

  #handle(
    res: HttpResponse,
    context: unknown,
    body: ArrayBuffer | Uint8Array,
    onBody: BodyHandler<unknown>,
  ): void {
    try {
      onBody(res, context, body);
    } catch (error) {
      this.#responder.sendError(res, error);
    }
  }

  /** @returns the whole body after the last chunk */
  #append(
    pending: PendingBody,
    chunk: ArrayBuffer,
    isLast: boolean,
  ): ArrayBuffer | Uint8Array | undefined {
    const { maxBytes, buffer, size } = pending;
    const end = size + chunk.byteLength;
    if (end > maxBytes) {
      throw new ApiError('PAYLOAD_TOO_LARGE', `the body must be at most ${maxBytes} bytes`);
    }
    if (isLast && buffer === undefined) return chunk;
    if (buffer === undefined) pending.res!.onAborted(() => this.#release(pending));
    const target = buffer !== undefined && buffer.length >= end ? buffer : this.#grow(pending, end);
    target.set(new Uint8Array(chunk), size);
    pending.size = end;
    this.#stats.heartbeat();
    return isLast ? target.subarray(0, end) : undefined;
  }

  /** Replaces the buffer by a larger one with the same content. @throws ApiError (503) */
  #grow(pending: PendingBody, minBytes: number): Uint8Array {
    const { buffer, size, maxBytes } = pending;
    const length = Math.min(Math.max(FIRST_BUFFER_BYTES, 2 * size, minBytes), maxBytes);
    const more = length - (buffer?.length ?? 0);
    if (more > this.#budget.availableBytes) {
      this.#stats.increment(ACCEPTOR_STAT.shedBodies);
      throw new ApiError(
        'SERVICE_UNAVAILABLE',
        'too many request bodies are incomplete or wait; nothing was done',
      );
    }
    this.#budget.availableBytes -= more;
    const larger = new Uint8Array(length);
    if (buffer !== undefined) larger.set(buffer.subarray(0, size));
    pending.buffer = larger;
    return larger;
  }

  #release(pending: PendingBody): void {
    this.#budget.availableBytes += pending.buffer?.length ?? 0;
    pending.buffer = undefined;
  }
}

function isTooLarge(error: unknown): boolean {
  return error instanceof ApiError && error.code === 'PAYLOAD_TOO_LARGE';
}
