/**
 * Reads the whole body of a request, in however many pieces it comes, up to a bound. A piece is
 * gone after its callback, so it is copied unless it is all there is.
 *
 * uWebSockets.js calls back within its own cork here: an answer given in the callback goes out in
 * one write, together with those of other requests in the same packet (watched with strace). After
 * an abort it never calls back, so a body that did not come whole has no effect at all.
 */

import { ApiError } from '../errors.ts';
import type { HttpResponse } from './uws.ts';

/** Called once with a whole body; what it throws is answered by `fail`. */
export type OnBody<T> = (res: HttpResponse, context: T, bytes: ArrayBuffer | Uint8Array) => void;

export function readBody<T>(
  res: HttpResponse,
  context: T,
  maxBytes: number,
  onBody: OnBody<T>,
  fail: (res: HttpResponse, error: unknown) => void,
): void {
  let pieces: Uint8Array[] | undefined;
  let size = 0;
  let answered = false;
  res.onData((piece, isLast) => {
    if (answered) return;
    size += piece.byteLength;
    try {
      if (size > maxBytes) {
        throw new ApiError('PAYLOAD_TOO_LARGE', `the body must be at most ${maxBytes} bytes`);
      }
      if (!isLast) {
        pieces ??= [];
        pieces.push(new Uint8Array(piece.slice(0)));
        return;
      }
      answered = true;
      const whole =
        pieces === undefined ? piece : Buffer.concat([...pieces, new Uint8Array(piece)]);
      onBody(res, context, whole);
    } catch (error) {
      answered = true;
      fail(res, error);
    }
  });
}
