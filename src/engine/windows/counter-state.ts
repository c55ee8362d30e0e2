/** What an inspection shows of a stored counter. */

import type { RuleNumber } from '../../core/window-rules.ts';
import type { CounterState } from '../engine.ts';
import { ruleOf, rulesOfCounter } from './registry.ts';
import type { Cells, CounterUsage } from './rule.ts';

/** A counter as it is stored, and what it means now. */
export interface InspectedCounter extends CounterUsage {
  /** The window rule; RULE.fixed where the fixed and the sliding window share the counter. */
  rule: RuleNumber;
  durationMs: number;
  /** Includes the limit under which the last tokens were counted. */
  cells: Cells;
}

export function inspectCells(
  counterRule: RuleNumber,
  durationMs: number,
  cells: Cells,
  nowMs: number,
): InspectedCounter {
  const usage = ruleOf(counterRule).usage(cells, durationMs, nowMs);
  return { rule: counterRule, durationMs, cells, ...usage };
}

export function counterState(counter: InspectedCounter, nowMs: number): CounterState {
  const { rule, durationMs, cells, endMs } = counter;
  const { limit } = cells;
  const usage: CounterState['usage'] = {};
  for (const [name, { tokensUsed }] of rulesOfCounter(rule)) {
    const used = tokensUsed(counter, durationMs, nowMs);
    usage[name] = { used, remaining: Math.max(0, limit - used), reset: endMs };
  }
  return { durationMs, limit, ...ruleOf(rule).view(cells, durationMs), usage };
}
