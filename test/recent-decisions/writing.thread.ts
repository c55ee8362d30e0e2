/** A thread that writes recent decisions without a pause, so that it writes over those it has. */

import { workerData } from 'node:worker_threads';
import { newIdentity } from '../../src/core/hash.ts';
import { NO_BURST, RULE } from '../../src/core/window-rules.ts';
import { RecentDecisionWriter } from '../../src/recent-decisions/writer.ts';
import { testNamespace } from '../support/namespace.ts';

export interface WritingTask {
  buffer: SharedArrayBuffer;
  records: number;
}

/** The identifier of a record, of 1 to 200 bytes more than its number. */
export function numberedIdentifier(number: number): string {
  return `${number} ${'x'.repeat(number % 200)}`;
}

if (workerData !== null) {
  const { buffer, records } = workerData as WritingTask;
  let nowMs = 0;
  const writer = new RecentDecisionWriter(buffer, 1, { nowMs: () => nowMs });
  const namespace = testNamespace('n');
  const identity = newIdentity();
  const rest = { namespace, identity, isAllowed: false, isShadow: false };
  for (let number = 1; number <= records; number++) {
    nowMs = number;
    const figures = { limit: number, durationMs: number, remaining: 0, reset: number };
    writer.write({
      ...{ ...rest, identifier: numberedIdentifier(number), cost: number },
      window: { ...figures, rule: RULE.fixed, burst: NO_BURST },
      ...{ overrideId: undefined, policy: undefined, request: { traceparent: undefined } },
    });
  }
}
