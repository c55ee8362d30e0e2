/**
 * A stream of HTTP/2 with a call of gRPC: reads its message, calls its method, and has the state
 * that its connection needs to send the response. What a method throws ends its call.
 *
 * The header `grpc-timeout` is ignored: a decision takes microseconds, one that needs Redis has a
 * deadline of its own, and the client resets the stream itself when its time is over.
 */

import { GRPC_WINDOW_BYTES } from '../../core/constants.ts';
import type { StreamCall, UnaryCall } from './call.ts';
import { type BufferedBytes, MessageReader, wholeMessage } from './message-reader.ts';
import { GRPC_STATUS, GrpcError } from './status.ts';

/** What streams need of their connection. */
export interface StreamConnection {
  readonly maxMessageBytes: number;
  readonly buffered: BufferedBytes;
  /** @param isLast whether the stream ends after the message, with the status OK */
  sendMessage(stream: Stream, message: Uint8Array, isLast: boolean): void;
  sendError(stream: Stream, error: GrpcError): void;
  /** Reports an error that is no GrpcError. */
  onError(error: Error): void;
}

export type Method = (message: Buffer, call: Stream) => void;

export class Stream implements UnaryCall, StreamCall {
  readonly id: number;
  readonly isUnary: boolean;
  readonly #connection: StreamConnection;
  readonly #method: Method;
  #reader: MessageReader | undefined;
  #closeListener: (() => void) | undefined;

  /** Whether the method may respond. */
  isOpen = true;
  /** Whether the client has ended its side. */
  isReadOver = false;
  /** Whether it ended, on both sides. */
  isClosed = false;
  areHeadersSent = false;
  /** Of `content-length`, what is still to come; -1 if the header is missing. */
  missingBytes: number;
  receiveWindow = GRPC_WINDOW_BYTES;
  /** What the window of the client is larger than its initial window. */
  sendWindowExcess = 0;
  /** Framed messages that wait for the window of the client. */
  unsent: Buffer | undefined;
  /** What follows the unsent messages: the status OK for undefined, if the call is not open. */
  error: GrpcError | undefined;

  constructor(
    id: number,
    connection: StreamConnection,
    method: Method,
    isUnary: boolean,
    contentLength: number,
  ) {
    this.id = id;
    this.#connection = connection;
    this.#method = method;
    this.isUnary = isUnary;
    this.missingBytes = contentLength;
  }

  respond(message: Uint8Array): void {
    if (!this.isOpen) return;
    this.isOpen = false;
    this.#connection.sendMessage(this, message, true);
  }

  send(message: Uint8Array): void {
    if (this.isOpen) this.#connection.sendMessage(this, message, false);
  }

  fail(error: GrpcError): void {
    if (!this.isOpen) return;
    this.isOpen = false;
    this.#connection.sendError(this, error);
  }

  onClose(listener: () => void): void {
    if (this.isOpen) this.#closeListener = listener;
    else listener();
  }

  /**
   * Reads the content of a DATA frame.
   * @param isLast whether the client ends its side
   */
  read(bytes: Buffer, start: number, end: number, isLast: boolean): void {
    const { maxMessageBytes, buffered } = this.#connection;
    try {
      const isWhole = isLast && this.#reader === undefined;
      let message = isWhole ? wholeMessage(bytes, start, end, maxMessageBytes) : undefined;
      if (message === undefined) {
        this.#reader ??= new MessageReader(maxMessageBytes, buffered);
        this.#reader.add(bytes.subarray(start, end));
        if (!isLast) return;
        message = this.#reader.message;
      }
      if (message === undefined) {
        const reason = 'a call must have one complete message; got none';
        throw new GrpcError(GRPC_STATUS.INTERNAL, reason);
      }
      this.#method(message, this);
    } catch (error) {
      this.#failWith(error);
    }
    this.#reader?.release();
  }

  /** Must be called once, when the stream has ended for whatever reason. */
  close(): void {
    this.isClosed = true;
    this.isOpen = false;
    this.unsent = undefined;
    this.#reader?.release();
    this.#closeListener?.();
  }

  #failWith(error: unknown): void {
    if (error instanceof GrpcError) {
      this.fail(error);
      return;
    }
    this.fail(new GrpcError(GRPC_STATUS.INTERNAL, 'the server failed to process the call'));
    this.#connection.onError(error instanceof Error ? error : new Error(String(error)));
  }
}
