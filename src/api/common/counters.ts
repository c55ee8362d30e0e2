/**
 * Counters in requests and responses: how a request names an identifier and selects its counters,
 * and how a response shows them.
 */

import Type, { type Static, type TObject } from 'typebox';
import { ALGORITHMS, algorithm } from '../../core/algorithm-fields.ts';
import {
  DURATION_MAX_MS,
  DURATION_MIN_MS,
  IDENTIFIER_MAX_CHARACTERS,
  NAMESPACE_MAX_CHARACTERS,
} from '../../core/constants.ts';
import type { Namespace } from '../../core/namespace.ts';
import { field, milliseconds, text } from '../../core/schema.ts';
import { RULE, type RuleNumber } from '../../core/window-rules.ts';
import type { CounterState } from '../../engine/engine.ts';
import { DEFAULT_NAMESPACE } from './check-request.ts';
import { amount, listOf, unixMs } from './responses.ts';

/** The identifier, as a check of either version names it. */
export const counterFields = {
  namespace: Type.Optional(
    field(
      text(1, NAMESPACE_MAX_CHARACTERS),
      'Name or id of the namespace. A text that begins with `rlns_` is an id.',
      DEFAULT_NAMESPACE,
    ),
  ),
  identifier: field(text(0, IDENTIFIER_MAX_CHARACTERS), 'The `identifier` of the checks.'),
};

export function durationField() {
  return milliseconds(DURATION_MIN_MS, DURATION_MAX_MS);
}

/** Which counters of the identifier are meant: all of them without these fields. */
export const selectionFields = {
  ...counterFields,
  algorithm: algorithm(
    'Selects the counters of one algorithm; `fixed` and `sliding` share theirs. Without it, the ' +
      'counters of all algorithms are selected.',
  ),
  duration: Type.Optional(
    field(
      durationField(),
      'Selects the counters of checks with this `duration`, in milliseconds. Without it, the ' +
        'counters of all durations are selected.',
    ),
  ),
};

/** The identifier whose counters are meant. */
export interface CounterReference {
  namespace: Namespace;
  identifier: string;
}

export interface CounterSelection extends CounterReference {
  /** The duration in the requests of the checks; undefined for all durations. */
  durationMs: number | undefined;
  /** Undefined for all algorithms. */
  rule: RuleNumber | undefined;
}

/** @param body has the `selectionFields` */
export function selectionOf(
  { identifier, duration: durationMs, algorithm }: Static<TObject<typeof selectionFields>>,
  namespace: Namespace,
): CounterSelection {
  return { namespace, identifier, durationMs, rule: algorithm && RULE[algorithm] };
}

/** Counters in the form of a response. */
export function shownCounters(
  counters: readonly CounterState[],
): Static<ReturnType<typeof counterList>> {
  return counters.map(({ durationMs, usage, ...counter }) => {
    return { duration: durationMs, ...counter, algorithms: usage };
  });
}

/** The schema of `shownCounters`. */
export function counterList(description: string) {
  const usage = Type.Object({
    used: amount('Tokens that are used, as this algorithm counts them.'),
    remaining: amount('Tokens that are left, by the limit of the last allowed check.'),
    reset: unixMs('End of the window, or the time at which the bucket of `gcra` is full again'),
  });
  const [fixed, sliding, gcra] = ALGORITHMS;
  const counter = Type.Object({
    duration: amount('Length of the window in milliseconds.'),
    limit: amount('Limit of the last allowed check.'),
    windowStart: Type.Optional(
      amount(
        'Start of the newest window in which a check was counted, or denied because of tokens ' +
          'that are carried over, in Unix milliseconds. The counter is kept until the window ' +
          'after it ends. Only for windows.',
      ),
    ),
    current: Type.Optional(amount('Tokens used in that window. Only for windows.')),
    previous: Type.Optional(amount('Tokens used in the window before it. Only for windows.')),
    fullAt: Type.Optional(unixMs('Time at which the bucket is full again. Only for `gcra`')),
    algorithms: Type.Object(
      {
        [fixed]: Type.Optional(usage),
        [sliding]: Type.Optional(usage),
        [gcra]: Type.Optional(usage),
      },
      { description: 'The state by each algorithm that shares the counter.' },
    ),
  });
  return listOf(counter, description);
}
