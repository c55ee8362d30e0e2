/** Assertions about a server after a fault that it should survive. */

import { expect } from 'vitest';
import type { ServerProcess } from '../../support/server.ts';

/** The process runs, and has printed no message that precedes its end. */
export function expectHealthy(server: ServerProcess): void {
  // An abort leaves no other trace than the end of the log.
  const log = server.stderr().slice(-4_000);
  expect([server.child.exitCode, server.child.signalCode], log).toEqual([null, null]);
  expect(
    server
      .stderr()
      .split('\n')
      .filter((line) => line.startsWith('weir: ')),
  ).toEqual([]);
}

/** The process is healthy, and stops cleanly on SIGTERM. */
export async function expectCleanStop(server: ServerProcess): Promise<void> {
  expectHealthy(server);
  const stopped = await server.stop();
  expect(stopped, server.stderr().slice(-4_000)).toEqual({ code: 0, signal: null });
  expect(server.stderr()).not.toMatch(/^weir: |"level":60/m);
}
