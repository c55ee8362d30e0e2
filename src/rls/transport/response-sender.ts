/**
 * Writes the responses of a connection within the windows of its client: one for each stream, and
 * one for all. What does not fit waits with its stream. The connection bounds the waiting bytes. A
 * client that violates the rules of windows loses its connection by a ConnectionError.
 */

import {
  ConnectionError,
  DEFAULT_WINDOW_BYTES,
  ERROR_CODE,
  FRAME,
  FRAME_MAX_BYTES,
  WINDOW_MAX_BYTES,
  writeErrorTrailers,
  writeFrame,
  writeHeaders,
  writeOkTrailers,
  writeResponse,
} from './frames.ts';
import type { GrowingBuffer } from './growing-buffer.ts';
import { framed, PREFIX_BYTES } from './message-reader.ts';
import type { GrpcError } from './status.ts';
import type { Stream } from './stream.ts';

export class ResponseSender {
  /** Of messages that wait. */
  unsentBytes = 0;
  readonly #out: GrowingBuffer;
  readonly #onEnd: (stream: Stream) => void;
  #window = DEFAULT_WINDOW_BYTES;
  #initialWindow = DEFAULT_WINDOW_BYTES;
  /** In the order of their messages. */
  readonly #waiting = new Set<Stream>();

  /** @param onEnd is called when the end of a response is written */
  constructor(out: GrowingBuffer, onEnd: (stream: Stream) => void) {
    this.#out = out;
    this.#onEnd = onEnd;
  }

  /** @param isLast whether the stream ends after the message, with the status OK */
  sendMessage(stream: Stream, message: Uint8Array, isLast: boolean): void {
    const bytes = PREFIX_BYTES + message.length;
    const fits = bytes <= FRAME_MAX_BYTES && bytes <= this.#windowOf(stream);
    if (fits && isLast && !stream.areHeadersSent) {
      this.#useWindows(stream, bytes);
      writeResponse(this.#out, stream.id, message);
      this.#onEnd(stream);
      return;
    }
    if (!stream.areHeadersSent) writeHeaders(this.#out, stream.id);
    stream.areHeadersSent = true;
    const unsent = framed(message);
    stream.unsent = stream.unsent === undefined ? unsent : Buffer.concat([stream.unsent, unsent]);
    this.unsentBytes += bytes;
    this.#waiting.add(stream);
    this.#send(stream);
  }

  /** Ends a stream whose headers were sent, after its messages. */
  endWithError(stream: Stream, error: GrpcError): void {
    stream.error = error;
    this.#send(stream);
  }

  /** The client opens the window of the connection. */
  openWindow(bytes: number): void {
    const wasEmpty = this.#window === 0;
    this.#window += bytes;
    if (this.#window > WINDOW_MAX_BYTES) throw windowError('WINDOW_UPDATE');
    // Otherwise the messages wait for the windows of their streams.
    if (wasEmpty) this.#sendAll();
  }

  /** @returns false if the window is too large now */
  openStreamWindow(stream: Stream, bytes: number): boolean {
    stream.sendWindowExcess += bytes;
    if (this.#initialWindow + stream.sendWindowExcess > WINDOW_MAX_BYTES) return false;
    this.#send(stream);
    return true;
  }

  /** Changes the windows of all open streams, and of those to come. */
  setInitialWindow(bytes: number, openStreams: Iterable<Stream>): void {
    this.#initialWindow = bytes;
    for (const { sendWindowExcess } of openStreams) {
      if (bytes + sendWindowExcess > WINDOW_MAX_BYTES) throw windowError('SETTINGS');
    }
    this.#sendAll();
  }

  /** Must be called when a stream ends. */
  forget(stream: Stream): void {
    if (stream.unsent === undefined) return;
    this.unsentBytes -= stream.unsent.length;
    this.#waiting.delete(stream);
  }

  /** It may be negative. */
  #windowOf(stream: Stream): number {
    return Math.min(this.#window, this.#initialWindow + stream.sendWindowExcess);
  }

  #useWindows(stream: Stream, bytes: number): void {
    this.#window -= bytes;
    stream.sendWindowExcess -= bytes;
  }

  #sendAll(): void {
    for (const stream of this.#waiting) {
      if (this.#window === 0) return;
      this.#send(stream);
    }
  }

  /** Writes what fits the windows, and the trailers after the last message. */
  #send(stream: Stream): void {
    while (stream.unsent !== undefined) {
      const { length } = stream.unsent;
      const count = Math.min(this.#windowOf(stream), FRAME_MAX_BYTES, length);
      if (count <= 0) return;
      this.#useWindows(stream, count);
      this.unsentBytes -= count;
      writeFrame(this.#out, FRAME.DATA, 0, stream.id, stream.unsent.subarray(0, count));
      stream.unsent = count < length ? stream.unsent.subarray(count) : undefined;
    }
    this.#waiting.delete(stream);
    if (stream.isOpen || stream.isClosed) return;
    if (stream.error === undefined) writeOkTrailers(this.#out, stream.id);
    else writeErrorTrailers(this.#out, stream.id, stream.error);
    this.#onEnd(stream);
  }
}

function windowError(frame: string): ConnectionError {
  const message = `${frame} must not make a window larger than ${WINDOW_MAX_BYTES} bytes`;
  return new ConnectionError(ERROR_CODE.FLOW_CONTROL_ERROR, message);
}
