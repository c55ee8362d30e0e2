/** Bodies that arrive after their heads count in the turn in which they are complete. */

import { setImmediate as nextTurn } from 'node:timers/promises';
import { expect, test } from 'vitest';
import { TURN_REQUESTS } from '../../src/core/constants.ts';
import { BodyBudget, BodyReader } from '../../src/server/body.ts';
import type { Responder } from '../../src/server/responder.ts';
import { Turns } from '../../src/server/turns.ts';
import type { HttpResponse } from '../../src/server/uws.ts';
import { Clock, ClockPublisher } from '../../src/shared-memory/clock.ts';
import { allocateControl, Control } from '../../src/shared-memory/control.ts';

const COUNT = 3 * TURN_REQUESTS;
const FRAMING = { hasBody: true, closesConnection: false };

class TestResponse {
  onChunk: (chunk: ArrayBuffer, isLast: boolean) => void = () => {};
  onData(handler: (chunk: ArrayBuffer, isLast: boolean) => void): void {
    this.onChunk = handler;
  }
  onAborted(): void {}
  cork(write: () => void): void {
    write();
  }
}

test.each([
  ['whole', 0],
  ['the last byte of', 1],
])(
  '%s bodies of earlier heads at once: the turn has its bound, and none is lost',
  async (_what, begun) => {
    const control = new Control(allocateControl(1, 1));
    new ClockPublisher(control);
    const stats = control.acceptorStats(0);
    const turns = new Turns(new Clock(control), stats);
    const reader = new BodyReader(stats, new BodyBudget(), {} as Responder, turns);
    const handled: string[] = [];
    const responses = Array.from({ length: COUNT }, () => new TestResponse());
    for (const [i, res] of responses.entries()) {
      turns.begin();
      reader.read(res as unknown as HttpResponse, FRAMING, 1_024, i, (_res, context, bytes) => {
        handled.push(`${context} ${Buffer.from(bytes as Uint8Array)}`);
      });
      if (begun > 0) res.onChunk(new TextEncoder().encode('a').buffer, false);
      if (i % 100 === 0) await nextTurn();
    }
    await nextTurn();
    const rest = begun > 0 ? 'b' : 'ab';
    for (const res of responses) res.onChunk(new TextEncoder().encode(rest).buffer, true);
    expect(handled.length).toBeLessThanOrEqual(TURN_REQUESTS + 1);
    for (let turn = 0; handled.length < COUNT && turn < 10; turn++) await nextTurn();
    expect(handled).toEqual(responses.map((_res, i) => `${i} ab`));
  },
);
