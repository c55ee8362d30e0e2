/**
 * The window rules by number, and the key that tells the counters of one identity apart. A new rule
 * needs its file, its number in `core/window-rules.ts`, which also says whether it has windows, and
 * its lines in this file.
 */

import { type CheckParameters, type Decision, NEVER } from '../../core/decision.ts';
import { carriesOver, RULE, type RuleName, type RuleNumber } from '../../core/window-rules.ts';
import { fixed, judgeFixed } from './fixed.ts';
import { countGcra, gcra, judgeGcra } from './gcra.ts';
import type { Cells, WindowRule } from './rule.ts';
import { judgeSliding, sliding, slidingPassesAt } from './sliding.ts';
import { countInWindow, windowEndMs, windowExpiryMs } from './window.ts';

const RULES = {
  [RULE.fixed]: fixed,
  [RULE.sliding]: sliding,
  [RULE.gcra]: gcra,
} satisfies Record<RuleNumber, WindowRule>;

export function ruleOf(rule: RuleNumber): WindowRule {
  return RULES[rule];
}

/** The rules that share a counter. @param counterRule that of the counter */
export function rulesOfCounter(counterRule: RuleNumber): [RuleName, WindowRule][] {
  return (Object.keys(RULE) as RuleName[])
    .map((name): [RuleName, WindowRule] => [name, RULES[RULE[name]]])
    .filter(([, rule]) => rule.counterRule === counterRule);
}

/*
 * A key is the duration in ms, which is less than 2^42, plus `counterRule` times 2^42: an exact
 * double that a look-up compares at the cost of comparing the duration. The key of a fixed or
 * sliding window is its duration alone.
 */
const RULE_UNIT = 2 ** 42;

export function ruleOfKey(key: number): WindowRule {
  return RULES[Math.floor(key / RULE_UNIT) as RuleNumber];
}

export function durationOfKey(key: number): number {
  return key % RULE_UNIT;
}

/** Whether a number that was read from a file is the key of a counter. */
export function isCounterKey(key: number): boolean {
  return ruleOfKey(key)?.counterRule === Math.floor(key / RULE_UNIT);
}

/** Whether a key is that of a GCRA counter, which has no windows. */
export function isGcraKey(key: number): boolean {
  return ruleOfKey(key).counterRule === RULE.gcra;
}

/*
 * The functions below are on the path of each check, or run for each slot of a table. V8 inlines a
 * call of a known function, and does not inline one of RULES[rule]; a test compares both.
 */

export function counterKey(rule: RuleNumber, durationMs: number): number {
  return rule === RULE.gcra ? durationMs + RULE.gcra * RULE_UNIT : durationMs;
}

export function judge(
  cells: Cells,
  nowMs: number,
  parameters: CheckParameters,
  decision: Decision,
): void {
  switch (parameters.rule) {
    case RULE.fixed:
      judgeFixed(cells, nowMs, parameters, decision);
      break;
    case RULE.sliding:
      judgeSliding(cells, nowMs, parameters, decision);
      break;
    case RULE.gcra:
      judgeGcra(cells, nowMs, parameters, decision);
      break;
  }
}

/**
 * When a check that was denied in a window passes, for rules with windows.
 * @param used tokens used in the window that ends at `reset`
 * @param before tokens used in the window before it
 * @returns the first ms at which it passes if nothing is counted until then; or NEVER
 */
export function passesAtInWindow(
  used: number,
  before: number,
  parameters: CheckParameters,
  reset: number,
): number {
  if (carriesOver(parameters.rule)) return slidingPassesAt(used, before, parameters, reset);
  return parameters.cost > parameters.limit ? NEVER : reset;
}

/**
 * Decides by the usage of a window, for rules with windows.
 * @param used tokens used in it
 * @param before tokens used in the window before it, of which `carried` count
 */
export function judgeInWindow(
  window: number,
  used: number,
  before: number,
  carried: number,
  parameters: CheckParameters,
  decision: Decision,
): void {
  const { limit, cost, durationMs, rule } = parameters;
  const left = limit - used - carried;
  const allowed = cost === 0 || cost <= left;
  const remaining = allowed ? left - cost : carriesOver(rule) ? 0 : left;
  decision.allowed = allowed;
  decision.remaining = remaining > 0 ? remaining : 0;
  decision.reset = windowEndMs(window, durationMs);
  decision.window = window;
  decision.passesAt = allowed ? 0 : passesAtInWindow(used, before, parameters, decision.reset);
}

/** Counts the cost of an allowed check in the window of its decision. */
export function count(
  cells: Cells,
  window: number,
  cost: number,
  parameters: CheckParameters,
): void {
  if (parameters.rule === RULE.gcra) countGcra(cells, window, cost, parameters);
  else countInWindow(cells, window, cost, parameters);
}

/** Whether a decision depends on the limit under which the last tokens were counted. */
export function usesLastLimit(rule: RuleNumber): boolean {
  return rule === RULE.gcra;
}

/** Whether the cells of a counter are stored before its `newest`. */
export function storesNewestLast(rule: RuleNumber): boolean {
  return rule !== RULE.gcra;
}

export function expiryMs(key: number, newest: number): number {
  if (key < RULE_UNIT) return windowExpiryMs(newest, key);
  return ruleOfKey(key).expiryMs(newest, durationOfKey(key));
}

/** When the newest window ends, or the bucket is full again: Unix time, ms. */
export function endMs(key: number, newest: number): number {
  return ruleOfKey(key).endMs(newest, durationOfKey(key));
}

export function isExpired(key: number, newest: number, nowMs: number): boolean {
  return expiryMs(key, newest) <= nowMs;
}
