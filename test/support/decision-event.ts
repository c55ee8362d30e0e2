/** An event that tests write. */

import { NO_BURST, RULE } from '../../src/core/window-rules.ts';
import type { DecisionEvent } from '../../src/events/decision-event.ts';
import { testNamespace } from './namespace.ts';

export const TIME_MS = 1_795_179_540_000;

export const EVENT: DecisionEvent = {
  namespace: testNamespace('a'),
  identifier: 'é "1"',
  identity: { h0: 1, h1: -1, h2: 0, h3: 16 },
  isAllowed: false,
  cost: 2,
  window: {
    ...{ limit: 10, durationMs: 60_000, remaining: 1, reset: 1_795_179_600_000 },
    ...{ rule: RULE.fixed, burst: NO_BURST },
  },
  overrideId: undefined,
  policy: undefined,
  isShadow: false,
  request: { traceparent: undefined },
};
