/**
 * A response that is sent to the main thread instead of a client. Handlers of bodies write to it as
 * to a response of uWebSockets.js: it has the methods that a response to a complete body needs. It
 * is never aborted, and everything that is written to it is sent.
 */

import type { HttpResponse } from './uws.ts';

/** The status line is text, or the bytes of a text that begins with the status. */
type StatusText = Parameters<HttpResponse['writeStatus']>[0];
type Body = Parameters<HttpResponse['end']>[0];

class OperationResponse {
  readonly #send: (status: number, body: string) => void;
  #status = 200;

  constructor(send: (status: number, body: string) => void) {
    this.#send = send;
  }

  writeStatus(status: StatusText): this {
    this.#status = Number.parseInt(textOf(status), 10);
    return this;
  }

  /** The main thread writes headers of its own. */
  writeHeader(): this {
    return this;
  }

  onAborted(): this {
    return this;
  }

  cork(write: () => void): this {
    write();
    return this;
  }

  end(body: Body = ''): this {
    this.#send(this.#status, textOf(body));
    return this;
  }

  tryEnd(body: NonNullable<Body>): [isSent: boolean, isDone: boolean] {
    this.end(body);
    return [true, true];
  }
}

function textOf(text: NonNullable<Body>): string {
  if (typeof text === 'string') return text;
  if (!ArrayBuffer.isView(text)) return Buffer.from(text).toString();
  return Buffer.from(text.buffer, text.byteOffset, text.byteLength).toString();
}

/** @param send gets the response, once, in this turn of the loop or in a later one */
export function createOperationResponse(
  send: (status: number, body: string) => void,
): HttpResponse {
  // The other methods of HttpResponse read a request, or send in parts what a client reads slowly.
  return new OperationResponse(send) as unknown as HttpResponse;
}
