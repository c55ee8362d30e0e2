/**
 * Bounds the frames of a client that are no calls, in each second, so that they cost no more than
 * calls. A client over a bound loses its connection by a ConnectionError.
 */

import {
  GRPC_CONTROL_FRAMES_PER_CALL,
  GRPC_CONTROL_FRAMES_PER_S,
  GRPC_RESET_BURST,
  GRPC_RESETS_PER_S,
} from '../../core/constants.ts';
import { ConnectionError, ERROR_CODE } from './frames.ts';

export class ClientBudget {
  #calls = 0;
  #controlFrames = 0;
  #resetsLeft = GRPC_RESET_BURST;

  /** Must be called each second. */
  renew(): void {
    this.#calls = 0;
    this.#controlFrames = 0;
    this.#resetsLeft = Math.min(GRPC_RESET_BURST, this.#resetsLeft + GRPC_RESETS_PER_S);
  }

  addCall(): void {
    this.#calls++;
  }

  /** Counts a frame that is no call, message or reset. @param weight in such frames */
  addControlFrame(weight = 1): void {
    this.#controlFrames += weight;
    const allowed = GRPC_CONTROL_FRAMES_PER_S + GRPC_CONTROL_FRAMES_PER_CALL * this.#calls;
    if (this.#controlFrames <= allowed) return;
    throw new ConnectionError(ERROR_CODE.ENHANCE_YOUR_CALM, 'too many frames that are no calls');
  }

  /** Counts a call that the client has reset, or has made this side reset. */
  addReset(): void {
    if (--this.#resetsLeft >= 0) return;
    throw new ConnectionError(ERROR_CODE.ENHANCE_YOUR_CALM, 'too many resets');
  }
}
