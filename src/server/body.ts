/**
 * Reads the whole body of a request, in however many pieces it comes, up to a bound. A piece is
 * gone after its callback, so it is copied unless it is all there is; the copies share one buffer,
 * since pieces of a byte each would weigh hundreds of times their size. The buffers of an acceptor
 * have a bound together; a body for which there is no room is answered with a 503 and cut off.
 *
 * uWebSockets.js calls back within its own cork here: an answer given in the callback goes out in
 * one write, together with those of other requests in the same packet (watched with strace). After
 * an abort it never calls back, so a body that did not come whole has no effect at all. Nor does it
 * where the length is 0 and the head came in two packets: such a body is not waited for.
 */

import { BUFFERED_BODY_BYTES_MAX } from '../core/constants.ts';
import { ApiError } from '../core/errors.ts';
import { ACCEPTOR_STAT, type AcceptorStats } from '../shared-memory/stats.ts';
import type { Framing } from './framing.ts';
import type { Responder } from './responder.ts';
import type { HttpResponse } from './uws.ts';

/** Called once with a whole body; what it throws is answered as an error. */
export type BodyHandler<T> = (
  res: HttpResponse,
  context: T,
  bytes: ArrayBuffer | Uint8Array,
) => void;

const FIRST_BUFFER_BYTES = 1_024;

const NO_BYTES = new Uint8Array(0);

/**
 * A body on its way. Nearly all come whole with their head, so that the same one, with the same
 * function for uWebSockets.js, serves one request after the other. One that takes longer serves no
 * other before its last piece, and goes with its request when that is aborted.
 */
class PendingBody {
  /** Undefined when it is answered. */
  res: HttpResponse | undefined;
  maxBytes = 0;
  context: unknown;
  onBody: BodyHandler<unknown> = () => {};
  buffer: Uint8Array | undefined;
  size = 0;
  readonly onChunk: (piece: ArrayBuffer, isLast: boolean) => void;

  constructor(receive: (gathering: PendingBody, piece: ArrayBuffer, isLast: boolean) => void) {
    this.onChunk = (piece, isLast) => receive(this, piece, isLast);
  }
}

/** What all bodies of an acceptor that have not come whole may still take up. */
export class BodyBudget {
  availableBytes = BUFFERED_BODY_BYTES_MAX;
}

export class BodyReader {
  readonly #stats: AcceptorStats;
  readonly #budget: BodyBudget;
  readonly #responder: Responder;
  #reusable: PendingBody | undefined;

  constructor(stats: AcceptorStats, budget: BodyBudget, responder: Responder) {
    this.#stats = stats;
    this.#budget = budget;
    this.#responder = responder;
  }

  read<T>(
    res: HttpResponse,
    framing: Framing,
    maxBytes: number,
    context: T,
    onBody: BodyHandler<T>,
  ): void {
    if (!framing.hasBody) {
      // A header line with an empty name hides a later Content-Length, so a body may follow.
      this.#responder.closeAfterResponse(res);
      onBody(res, context, NO_BYTES);
      return;
    }
    const gathering = this.#reusable ?? new PendingBody(this.#receive);
    this.#reusable = undefined;
    gathering.res = res;
    gathering.maxBytes = maxBytes;
    gathering.context = context;
    gathering.onBody = onBody as BodyHandler<unknown>;
    res.onData(gathering.onChunk);
  }

  readonly #receive = (gathering: PendingBody, piece: ArrayBuffer, isLast: boolean): void => {
    const { res, context, onBody } = gathering;
    if (res === undefined) return;
    try {
      const body = this.#append(gathering, piece, isLast);
      if (body === undefined) return;
      gathering.res = undefined;
      // What is told of the end of a connection may know one that has gathered: it serves no other.
      if (gathering.buffer === undefined) this.#reusable = gathering;
      else this.#release(gathering);
      onBody(res, context, body);
    } catch (error) {
      gathering.res = undefined;
      this.#release(gathering);
      // The rest of the body is not read. One that is too large closes in any case.
      if (!isLast || isTooLarge(error)) this.#responder.closeAfterResponse(res);
      this.#responder.sendError(res, error);
    }
  };

  /** @returns the whole body, when it is there */
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
    const whole = buffer !== undefined && buffer.length >= end ? buffer : this.#grow(pending, end);
    whole.set(new Uint8Array(chunk), size);
    pending.size = end;
    this.#stats.heartbeat();
    return isLast ? whole.subarray(0, end) : undefined;
  }

  /** A buffer with room up to `end`, which has what there is. */
  #grow(pending: PendingBody, minBytes: number): Uint8Array {
    const { buffer, size, maxBytes } = pending;
    const length = Math.min(Math.max(FIRST_BUFFER_BYTES, 2 * size, minBytes), maxBytes);
    const more = length - (buffer?.length ?? 0);
    if (more > this.#budget.availableBytes) {
      this.#stats.increment(ACCEPTOR_STAT.shedBodies);
      throw new ApiError(
        'SERVICE_UNAVAILABLE',
        'too many bodies are on their way; nothing was done',
      );
    }
    this.#budget.availableBytes -= more;
    const whole = new Uint8Array(length);
    if (buffer !== undefined) whole.set(buffer.subarray(0, size));
    pending.buffer = whole;
    return whole;
  }

  #release(pending: PendingBody): void {
    this.#budget.availableBytes += pending.buffer?.length ?? 0;
    pending.buffer = undefined;
  }
}

function isTooLarge(error: unknown): boolean {
  return error instanceof ApiError && error.code === 'PAYLOAD_TOO_LARGE';
}
