/** What is asked of a server after every fault that it should outlive. */

import { expect } from 'vitest';
import type { ServerProcess } from './server.ts';

/** The process lives, and has said nothing that it says when it ends. */
export function expectHealthy(server: ServerProcess): void {
  expect([server.child.exitCode, server.child.signalCode]).toEqual([null, null]);
  expect(
    server
      .stderr()
      .split('\n')
      .filter((line) => line.startsWith('weir: ')),
  ).toEqual([]);
}

/** The same, and it ends in peace when it is told to. */
export async function expectCleanStop(server: ServerProcess): Promise<void> {
  expectHealthy(server);
  const stopped = await server.stop();
  // With what it has said to the end: an abort leaves nothing else behind.
  expect(stopped, server.stderr().slice(-4_000)).toEqual({ code: 0, signal: null });
  expect(server.stderr()).not.toMatch(/^weir: |"level":60/m);
}
