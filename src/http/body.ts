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

export class BodyReader {
  readonly #lane: AcceptorLane;
  readonly #fail: (res: HttpResponse, error: unknown) => void;

  constructor(lane: AcceptorLane, fail: (res: HttpResponse, error: unknown) => void) {
    this.#lane = lane;
    this.#fail = fail;
  }

  read<T>(res: HttpResponse, maxBytes: number, context: T, onBody: OnBody<T>): void {
    let copy: Uint8Array | undefined;
    let size = 0;
    let answered = false;
    res.onData((piece, isLast) => {
      if (answered) return;
      try {
        const end = size + piece.byteLength;
        if (end > maxBytes) {
          const message = `the body must be at most ${maxBytes} bytes`;
          throw new ApiError('PAYLOAD_TOO_LARGE', message);
        }
        if (isLast && copy === undefined) {
          answered = true;
          onBody(res, context, piece);
          return;
        }
        copy = append(copy, size, piece, maxBytes);
        size = end;
        this.#lane.beat();
        if (!isLast) return;
        answered = true;
        onBody(res, context, copy.subarray(0, size));
      } catch (error) {
        answered = true;
        this.#fail(res, error);
      }
    });
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
