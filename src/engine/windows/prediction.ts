/**
 * Predicts the decisions on checks from the counters of their identity, as an inspection reads
 * them. Pure: the rules that decide checks judge copies of the cells.
 */

import {
  type CheckParameters,
  type DecisionCause,
  NEVER,
  newDecision,
  OUTCOME,
  type TableDecision,
} from '../../core/decision.ts';
import type { ChecksOf, CounterExplanation, Prediction } from '../engine.ts';
import { counterState, type InspectedCounter } from './counter-state.ts';
import { counterKey, judge } from './registry.ts';
import { type Cells, newCells } from './rule.ts';

/**
 * @param counters all counters of the identity at a time
 * @param insert called for an allowed check that would need a new counter: it says by the outcome
 *   of the decision whether there is a slot for it
 */
export function explainCounters(
  counters: readonly InspectedCounter[],
  nowMs: number,
  checksOf: ChecksOf,
  insert: (decision: TableDecision) => void,
): CounterExplanation {
  const states = counters
    .toSorted((a, b) => a.durationMs - b.durationMs)
    .map((counter) => counterState(counter, nowMs));
  const { checks, isBatch } = checksOf(states);
  const predictions = checks.map((check) => {
    const { cells, isNew } = cellsFor(check, counters);
    const decision = judged(cells, nowMs, check);
    if (isNew && decision.allowed && check.cost !== 0) insert(decision);
    return predictionOf(cells, nowMs, check, decision);
  });
  const allowed = predictions.every((prediction) => prediction.allowed);
  if (isBatch && !allowed) {
    // A batch that is denied counts nothing: its other checks report what there was before.
    for (const [number, prediction] of predictions.entries()) {
      if (!prediction.allowed) continue;
      const check = { ...checks[number], cost: 0 };
      const { cells } = cellsFor(check, counters);
      predictions[number] = predictionOf(cells, nowMs, check, judged(cells, nowMs, check));
    }
  }
  return { nowMs, counters: states, isExact: true, allowed, predictions };
}

function cellsFor(
  { rule, durationMs }: CheckParameters,
  counters: readonly InspectedCounter[],
): { cells: Cells; isNew: boolean } {
  const key = counterKey(rule, durationMs);
  const counter = counters.find((of) => counterKey(of.rule, of.durationMs) === key);
  return { cells: counter?.cells ?? newCells(), isNew: counter === undefined };
}

function judged(cells: Cells, nowMs: number, check: CheckParameters): TableDecision {
  const decision = newDecision();
  judge(cells, nowMs, check, decision);
  return decision;
}

function predictionOf(
  cells: Cells,
  nowMs: number,
  check: CheckParameters,
  decision: TableDecision,
): Prediction {
  const { allowed, remaining, reset } = decision;
  const cause = causeOf(decision);
  const passesAt = cause === 'limit_reached' ? decision.passesAt : undefined;
  const { remaining: left } = judged(cells, nowMs, { ...check, cost: 0 });
  return { allowed, left, remaining, reset, cause, passesAt };
}

function causeOf({ allowed, outcome, passesAt }: TableDecision): DecisionCause {
  if (outcome === OUTCOME.full) return 'table_full';
  if (allowed) return 'within_limit';
  return passesAt === NEVER ? 'cost_above_limit' : 'limit_reached';
}
