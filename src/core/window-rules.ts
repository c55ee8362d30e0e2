/**
 * The window rules by name and number. Queue entries and checkpoints contain the number, so it
 * never changes. `engine/windows` has one file per rule and the registry.
 */

export const RULE = { fixed: 0, sliding: 1, gcra: 2 } as const;

/** The rule of checks and policies that name none. */
export const DEFAULT_RULE = 'sliding' satisfies RuleName;

/** The rule of checks of v1 that name none: its clients expect fixed windows. */
export const DEFAULT_RULE_V1: RuleName = 'fixed';

/** The burst of a check without its own burst. It means the limit. */
export const NO_BURST = Number.POSITIVE_INFINITY;

export type RuleName = keyof typeof RULE;
export type RuleNumber = (typeof RULE)[RuleName];

/** Whether the checks of a rule count in windows, which a refund has to name. */
export function hasWindows(rule: RuleNumber): boolean {
  return rule !== RULE.gcra;
}

/** Whether a part of the usage of the window before counts, too. */
export function carriesOver(rule: RuleNumber): boolean {
  return rule === RULE.sliding;
}

/** Whether a number that was read from shared memory or a file is that of a rule. */
export function isRule(number: number): number is RuleNumber {
  return number >= 0 && number < Object.keys(RULE).length;
}

/** What a check of an identifier counted: the decision of a lease has no duration and no rule. */
interface LastCheck {
  duration?: number;
  algorithm?: RuleName;
}

interface Counted {
  duration: number;
  /** Of the last allowed check. */
  limit: number;
  /** By each rule that shares the counter. */
  algorithms: { readonly [rule in RuleName]?: { used: number } };
}

/**
 * The usage of a counter in one figure: as the rule of the last check counts it. If the last check
 * is not known or had another duration, the largest one within the limit: no rule lets more pass
 * than the limit, so a larger usage is that of a rule which no check has.
 */
export function usedOf(
  { duration, limit, algorithms }: Counted,
  last: LastCheck | undefined,
): number {
  const ofLast =
    last?.duration === duration && last.algorithm !== undefined
      ? algorithms[last.algorithm]
      : undefined;
  if (ofLast !== undefined) return ofLast.used;
  const usages = Object.values(algorithms).map(({ used }) => used);
  const ascending = usages.toSorted((a, b) => a - b);
  // All are larger if the limit was lowered.
  return ascending.findLast((used) => used <= limit) ?? ascending[0] ?? 0;
}

/** Where an identifier is: in a namespace. */
interface Place {
  lastDenied?: { until: number };
  /** Present where the identifier is blocked. */
  block?: object;
  counters: readonly Counted[];
  last?: LastCheck;
}

/**
 * Compares two places: the latest denial first. In a flood a denial may have no record, so those
 * without one follow by what is used of their limits.
 */
export function byDenial(a: Place, b: Place): number {
  const later = (b.lastDenied?.until ?? 0) - (a.lastDenied?.until ?? 0);
  return later === 0 ? shareUsed(b) - shareUsed(a) : later;
}

/** 1 where the identifier is denied. */
function shareUsed({ block, counters, last }: Place): number {
  if (block !== undefined) return 1;
  const shares = counters.map((one) => usedOf(one, last) / Math.max(1, one.limit));
  return Math.min(1, Math.max(0, ...shares));
}
