/**
 * A buffer that bytes are added to, which grows and is used again. It has no bound: what adds to it
 * must empty it.
 */

const INITIAL_BYTES = 4_096;
/** A larger buffer is not used again. */
const KEPT_BYTES_MAX = 65_536;
/** So few bytes are copied faster one by one. */
const SHORT_BYTES = 32;

export class GrowingBuffer {
  bytes: Buffer = Buffer.allocUnsafeSlow(INITIAL_BYTES);
  /** Where the next byte is written. */
  at = 0;

  /** Must precede writes of so many bytes. */
  reserve(count: number): void {
    const needed = this.at + count;
    if (needed <= this.bytes.length) return;
    const grown = Buffer.allocUnsafeSlow(Math.max(needed, 2 * this.bytes.length));
    this.bytes.copy(grown, 0, 0, this.at);
    this.bytes = grown;
  }

  /** Needs reserved bytes. */
  add(added: Uint8Array): void {
    const { bytes, at } = this;
    const { length } = added;
    if (length <= SHORT_BYTES) {
      for (let i = 0; i < length; i++) bytes[at + i] = added[i];
    } else bytes.set(added, at);
    this.at = at + length;
  }

  /** @returns the written bytes, which stay as they are until `reuse` */
  take(): Buffer {
    const taken = this.bytes.subarray(0, this.at);
    this.at = 0;
    return taken;
  }

  /** Begins anew, in the same memory only if the taken bytes are needed no more. */
  reuse(isFree: boolean): void {
    if (isFree && this.bytes.length <= KEPT_BYTES_MAX) return;
    this.bytes = Buffer.allocUnsafeSlow(INITIAL_BYTES);
  }
}
