/** Sends a check for each of many identifiers, as fast as they are answered or over some seconds. */

import { setTimeout as sleep } from 'node:timers/promises';
import { expect } from 'vitest';
import { LONGEST_WINDOW_MS } from '../support/http.ts';
import { expectAnswered, numbered, prepareCheck, Traffic } from '../system/faults/traffic.ts';

const CHECKS_PER_PACKET = 4;
const LIMIT = 1_000;

interface DistinctChecks {
  identifiers: number;
  connections: number;
  /** Without it, checks are sent as fast as they are answered. */
  seconds?: number | undefined;
}

/** Fails if a check has no decision. */
export async function sendDistinctChecks(
  port: number,
  { identifiers, connections, seconds = 1 }: DistinctChecks,
): Promise<void> {
  let sent = 0;
  const body = { identifier: 'id_########', cost: 1, limit: LIMIT, duration: LONGEST_WINDOW_MS };
  const template = prepareCheck(0, body);
  const nextCheck = () => numbered(template, sent++);
  // A multiple of the checks in a packet.
  const checks = Math.ceil(identifiers / seconds / CHECKS_PER_PACKET) * CHECKS_PER_PACKET;
  for (let second = 0; second < seconds; second++) {
    const secondEnded = sleep(seconds === 1 ? 0 : 1_000);
    const traffic = new Traffic({
      ...{ port, connections, checks, nextCheck },
      ...{ checksPerPacket: CHECKS_PER_PACKET, seed: 1 },
    });
    await traffic.ended;
    expectAnswered(traffic);
    expect(traffic.responses).toBe(checks);
    await secondEnded;
  }
}
