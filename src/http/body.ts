/**
 * Reads the whole body of a request, in however many pieces it comes, up to a bound. A piece is
 * gone after its callback, so it is copied unless it is all there is; the copies share one buffer,
 * since pieces of a byte each would weigh hundreds of times their size.
 *
 * uWebSockets.js calls back within its own cork here: an answer given in the callback goes out in
 * one write, together with those of other requests in the same packet (watched with strace). After
 * an abort it never calls back, so a body that did not come whole has no effect at all.
 */

import { ApiError } from '../errors.ts';
import type { AcceptorLane } from '../lanes.ts';
import type { HttpResponse } from './uws.ts';

/** Called once with a whole body; what it throws is answered by `fail`. */
export type OnBody<T> = (res: HttpResponse, context: T, bytes: ArrayBuffer | Uint8Array) => void;

const FIRST_BUFFER_BYTES = 1_024;

/**
 * A body on its way. Nearly all come whole with their head, so that the same one, with the same
 * function for uWebSockets.js, serves one request after the other. One that takes longer serves no
 * other before its last piece, and goes with its request when that is aborted.
 */
class Gathering {
  /** Undefined when it is answered. */
  res: HttpResponse | undefined;
  maxBytes = 0;
  context: unknown;
  onBody: OnBody<unknown> = () => {};
  copy: Uint8Array | undefined;
  size = 0;
  readonly onPiece: (piece: ArrayBuffer, isLast: boolean) => void;

  constructor(take: (gathering: Gathering, piece: ArrayBuffer, isLast: boolean) => void) {
    this.onPiece = (piece, isLast) => take(this, piece, isLast);
  }
}

export class BodyReader {
  readonly #lane: AcceptorLane;
  readonly #fail: (res: HttpResponse, error: unknown) => void;
  #free: Gathering | undefined;

  constructor(lane: AcceptorLane, fail: (res: HttpResponse, error: unknown) => void) {
    this.#lane = lane;
    this.#fail = fail;
  }

  read<T>(res: HttpResponse, maxBytes: number, context: T, onBody: OnBody<T>): void {
    const gathering = this.#free ?? new Gathering(this.#take);
    this.#free = undefined;
    gathering.res = res;
    gathering.maxBytes = maxBytes;
    gathering.context = context;
    gathering.onBody = onBody as OnBody<unknown>;
    res.onData(gathering.onPiece);
  }

  readonly #take = (gathering: Gathering, piece: ArrayBuffer, isLast: boolean): void => {
    const { res, context, onBody } = gathering;
    if (res === undefined) return;
    try {
      const body = this.#gather(gathering, piece, isLast);
      if (body === undefined) return;
      gathering.res = undefined;
      gathering.copy = undefined;
      gathering.size = 0;
      this.#free = gathering;
      onBody(res, context, body);
    } catch (error) {
      gathering.res = undefined;
      this.#fail(res, error);
    }
  };

  /** @returns the whole body, when it is there */
  #gather(
    gathering: Gathering,
    piece: ArrayBuffer,
    isLast: boolean,
  ): ArrayBuffer | Uint8Array | undefined {
    const { maxBytes, copy, size } = gathering;
    const end = size + piece.byteLength;
    if (end > maxBytes) {
      throw new ApiError('PAYLOAD_TOO_LARGE', `the body must be at most ${maxBytes} bytes`);
    }
    if (isLast && copy === undefined) return piece;
    const whole = append(copy, size, piece, maxBytes);
    gathering.copy = whole;
    gathering.size = end;
    this.#lane.beat();
    return isLast ? whole.subarray(0, end) : undefined;
  }
}

function append(
  copy: Uint8Array | undefined,
  size: number,
  piece: ArrayBuffer,
  maxBytes: number,
): Uint8Array {
  const end = size + piece.byteLength;
  let whole = copy;
  if (whole === undefined || whole.length < end) {
    const length = Math.max(FIRST_BUFFER_BYTES, 2 * size, end);
    whole = new Uint8Array(Math.min(length, maxBytes));
    if (copy !== undefined) whole.set(copy.subarray(0, size));
  }
  whole.set(new Uint8Array(piece), size);
  return whole;
}
