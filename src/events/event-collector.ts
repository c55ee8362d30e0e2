/**
 * Moves events from the rings of the acceptors to their file, on the main thread. A write costs
 * more than its bytes, so a chunk is written at once, and fewer events only every
 * EVENT_INTERVAL_MS. Of each ring one chunk is written at a time, so a slow disk lets the rings
 * fill up, and no other memory.
 */

import { CLOCK_TICK_MS, EVENT_CHUNK_BYTES, EVENT_INTERVAL_MS } from '../core/constants.ts';
import type { EventFile } from './event-file.ts';
import { type EventChunk, EventRingReader } from './event-ring.ts';

const TICKS_PER_INTERVAL = EVENT_INTERVAL_MS / CLOCK_TICK_MS;

interface Source {
  ring: EventRingReader;
  isWriting: boolean;
  /** Whether what is in the ring is written, however little it is. */
  isDue: boolean;
}

export class EventCollector {
  readonly #file: EventFile;
  readonly #sources: readonly Source[];
  #ticks = 0;
  #isClosing = false;

  /** @param rings by acceptor */
  constructor(rings: readonly SharedArrayBuffer[], file: EventFile) {
    this.#file = file;
    this.#sources = rings.map((buffer, acceptor) => {
      return { ring: new EventRingReader(buffer, acceptor), isWriting: false, isDue: false };
    });
  }

  /** Begins to write what is due. Called every CLOCK_TICK_MS. */
  tick(): void {
    const endsInterval = ++this.#ticks % TICKS_PER_INTERVAL === 0;
    for (const source of this.#sources) {
      source.isDue ||= endsInterval;
      this.#collect(source);
    }
  }

  /** Writes what is in the rings, when no acceptor runs any more. */
  async close(): Promise<void> {
    this.#isClosing = true;
    await this.#file.close(this.#unread());
  }

  /** Writes chunk after chunk of a ring, until nothing is due. */
  #collect(source: Source): void {
    const { ring, isWriting } = source;
    if (isWriting || this.#isClosing) return;
    const { unreadBytes } = ring;
    if (!source.isDue && unreadBytes < EVENT_CHUNK_BYTES) return;
    // This chunk has all of it. What is added from now on is due at the next interval.
    if (unreadBytes <= EVENT_CHUNK_BYTES) source.isDue = false;
    const chunk = ring.read();
    if (chunk === undefined) return;
    source.isWriting = true;
    this.#file.write(chunk, () => {
      source.isWriting = false;
      ring.release(chunk);
      this.#collect(source);
    });
  }

  *#unread(): Iterable<EventChunk> {
    for (const { ring } of this.#sources) {
      for (let chunk = ring.read(); chunk !== undefined; chunk = ring.read()) yield chunk;
    }
  }
}
