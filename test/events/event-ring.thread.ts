/** An acceptor that writes numbered lines to its ring, as fast as there is room for them. */

import { workerData } from 'node:worker_threads';
import { EventRingWriter } from '../../src/events/event-ring.ts';

export interface RingTask {
  buffer: SharedArrayBuffer;
  acceptor: number;
  lines: number;
}

/** The line of a number, of 1 to 300 bytes more than its digits. */
export function numberedLine(number: number): string {
  return `${number}${'.'.repeat(number % 300)}\n`;
}

if (workerData !== null) {
  const { buffer, acceptor, lines } = workerData as RingTask;
  const writer = new EventRingWriter(buffer, acceptor);
  for (let number = 0; number < lines; number++) {
    const line = Buffer.from(numberedLine(number));
    while (!writer.write(line));
  }
}
