/** What the methods of a server of gRPC are called with. What a method throws ends its call. */

import type { GrpcError } from './status.ts';

export interface UnaryCall {
  /** Whether a response would be sent. */
  readonly isOpen: boolean;
  /** Sends the response, in the turn of the call or later; copies the message. */
  respond(message: Uint8Array): void;
  fail(error: GrpcError): void;
}

/** A call with any number of responses. */
export interface StreamCall {
  readonly isOpen: boolean;
  /** Copies the message. */
  send(message: Uint8Array): void;
  fail(error: GrpcError): void;
  /** @param listener is called when the call has ended, for whatever reason */
  onClose(listener: () => void): void;
}

/** @param message is part of a larger buffer, which stays in memory as long as the message does */
export type UnaryMethod = (message: Buffer, call: UnaryCall) => void;
export type StreamMethod = (message: Buffer, call: StreamCall) => void;
