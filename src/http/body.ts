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

import { ApiError } from '../errors.ts';
import { type AcceptorLane, COUNT } from '../lanes.ts';
import { GATHERED_BYTES_MAX } from '../limits.ts';
import type { Framing } from './framing.ts';
import type { Replies } from './reply.ts';
import type { HttpResponse } from './uws.ts';

/** Called once with a whole body; what it throws is answered as an error. */
export type OnBody<T> = (res: HttpResponse, context: T, bytes: ArrayBuffer | Uint8Array) => void;

const FIRST_BUFFER_BYTES = 1_024;

const NO_BYTES = new Uint8Array(0);

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

/** What all bodies of an acceptor that have not come whole may still take up. */
export class BodyRoom {
  bytes = GATHERED_BYTES_MAX;
}

export class BodyReader {
  readonly #lane: AcceptorLane;
  readonly #room: BodyRoom;
  readonly #replies: Replies;
  #free: Gathering | undefined;

  constructor(lane: AcceptorLane, room: BodyRoom, replies: Replies) {
    this.#lane = lane;
    this.#room = room;
    this.#replies = replies;
  }

  read<T>(
    res: HttpResponse,
    framing: Framing,
    maxBytes: number,
    context: T,
    onBody: OnBody<T>,
  ): void {
    if (!framing.hasBody) {
      // A header line with an empty name hides a later Content-Length, so a body may follow.
      this.#replies.closeAfter(res);
      onBody(res, context, NO_BYTES);
      return;
    }
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
      // What is told of the end of a connection may know one that has gathered: it serves no other.
      if (gathering.copy === undefined) this.#free = gathering;
      else this.#release(gathering);
      onBody(res, context, body);
    } catch (error) {
      gathering.res = undefined;
      this.#release(gathering);
      // The rest of the body is not read. One that is too large closes in any case.
      if (!isLast || isTooLarge(error)) this.#replies.closeAfter(res);
      this.#replies.error(res, error);
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
    if (copy === undefined) gathering.res!.onAborted(() => this.#release(gathering));
    const whole = copy !== undefined && copy.length >= end ? copy : this.#grow(gathering, end);
    whole.set(new Uint8Array(piece), size);
    gathering.size = end;
    this.#lane.beat();
    return isLast ? whole.subarray(0, end) : undefined;
  }

  /** A buffer with room up to `end`, which has what there is. */
  #grow(gathering: Gathering, end: number): Uint8Array {
    const { copy, size, maxBytes } = gathering;
    const length = Math.min(Math.max(FIRST_BUFFER_BYTES, 2 * size, end), maxBytes);
    const more = length - (copy?.length ?? 0);
    if (more > this.#room.bytes) {
      this.#lane.count(COUNT.shedBodies);
      throw new ApiError(
        'SERVICE_UNAVAILABLE',
        'too many bodies are on their way; nothing was done',
      );
    }
    this.#room.bytes -= more;
    const whole = new Uint8Array(length);
    if (copy !== undefined) whole.set(copy.subarray(0, size));
    gathering.copy = whole;
    return whole;
  }

  #release(gathering: Gathering): void {
    this.#room.bytes += gathering.copy?.length ?? 0;
    gathering.copy = undefined;
  }
}

function isTooLarge(error: unknown): boolean {
  return error instanceof ApiError && error.code === 'PAYLOAD_TOO_LARGE';
}
