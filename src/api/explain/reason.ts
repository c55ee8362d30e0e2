/** The sentences with which POST /v1/ratelimits.explain says why a check is allowed or denied. */

import type { DecisionCause } from '../../core/decision.ts';
import { formatDuration } from '../../core/duration.ts';
import { DEFAULT_RULE } from '../../core/window-rules.ts';
import type { CounterExplanation, Prediction } from '../../engine/engine.ts';
import type { OverrideMatch } from '../../overrides/sets.ts';
import { isoTime } from '../../shared-memory/clock.ts';
import type { ExplainFacts } from './facts.ts';
import { type CheckTerms, isFromCounter } from './terms.ts';

/** Why all windows together allow or deny. */
interface Verdict {
  /** `no_limit`: nothing sets a limit, and not exactly one counter has one. */
  cause: DecisionCause | 'blocked' | 'no_limit';
  /** The first ms at which the check would pass: only for `limit_reached` and `blocked`. */
  passesAt?: number;
  reason: string;
}

/** The causes of a denial: of several windows the first of these is the cause. */
const DENIALS = ['cost_above_limit', 'table_full', 'limit_reached'] as const;
type Denial = (typeof DENIALS)[number];

export function verdictOf(
  terms: readonly CheckTerms[],
  explanation: CounterExplanation,
  { overrides: { winner, losers }, policy }: Pick<ExplainFacts, 'overrides' | 'policy'>,
): Verdict {
  const [first] = terms;
  if (winner?.isBlocking === true && !explanation.allowed) {
    const reason = blockedReason(winner, losers.at(0), policy !== undefined);
    return { cause: 'blocked', passesAt: winner.expiresMs!, reason };
  }
  if (first === undefined) return { cause: 'no_limit', reason: `${NO_LIMIT}.` };
  if (first.limit.from === 'decision') return verdictLikeLast(terms, explanation);
  if (!isFromCounter(first)) return verdictOfCheck(terms, explanation);
  const assumed = assumedText(terms);
  if (terms.length > 1) {
    const each = `so each of the ${terms.length} counters is predicted for itself`;
    const limits = 'under the limit of the last check that it counted';
    return { cause: 'no_limit', reason: `${NO_LIMIT}, ${each}, ${limits}.${assumed}` };
  }
  const { reason, ...verdict } = verdictOfCheck(terms, explanation);
  const { limit, duration } = first;
  const own = `${limit.value} per ${formatDuration(duration.value)}`;
  const source = `${own} is the limit of the last counted check`;
  const why = 'the request has none, and no override or policy sets one';
  return { ...verdict, reason: `${reason} ${source}: ${why}.${assumed}` };
}

function blockedReason(
  block: OverrideMatch,
  next: OverrideMatch | undefined,
  hasPolicy: boolean,
): string {
  const end = isoTime(block.expiresMs!);
  const why = block.reason === undefined ? '' : ` Why: ${JSON.stringify(block.reason)}.`;
  const own = hasPolicy ? 'the limit of the policy' : 'the limit of each check';
  const after =
    next === undefined
      ? own
      : `the override ${next.limit} per ${formatDuration(next.durationMs)} for` +
        ` ${JSON.stringify(next.identifier)}`;
  const blocked = `The check is denied: the identifier is blocked until ${end}.`;
  return `${blocked}${why} Then ${after} applies.`;
}

/** The verdict on a check whose limit is that of the last one. */
function verdictLikeLast(terms: readonly CheckTerms[], explanation: CounterExplanation): Verdict {
  const { reason, ...verdict } = verdictOfCheck(terms, explanation);
  const limits = terms.map(({ limit, duration, algorithm }) => {
    const at = isoTime(limit.at ?? 0);
    return `${limit.value} per ${formatDuration(duration.value)}, ${algorithm.value}, at ${at}`;
  });
  const what =
    terms.length === 1 ? 'The last check had this limit' : 'The last checks had these limits';
  const together = terms.length === 1 ? '' : ' They are explained as the checks of one request.';
  return { ...verdict, reason: `${reason} ${what}: ${limits.join('; ')}.${together}` };
}

const NO_LIMIT =
  'No decision is predicted: the request has no limit and duration, and no override or policy ' +
  'sets them';

/** What a counter does not say of the checks that it counted. */
function assumedText(terms: readonly CheckTerms[]): string {
  const isWindow = terms.some(({ algorithm }) => algorithm.from === 'default');
  const isBucket = terms.some(({ burst }) => burst?.from === 'default');
  const window = ` The counter may be of fixed or sliding windows: ${DEFAULT_RULE} is assumed.`;
  const bucket = ' The counter does not have the burst: the limit is assumed.';
  return `${isWindow ? window : ''}${isBucket ? bucket : ''}`;
}

function verdictOfCheck(
  terms: readonly CheckTerms[],
  { allowed, predictions }: CounterExplanation,
): Verdict {
  const windows = terms.map((term, number) => ({ term, prediction: predictions[number] }));
  if (allowed) {
    const isFull = predictions.some(({ cause }) => cause === 'table_full');
    if (isFull) return { cause: 'table_full', reason: FULL_AND_ALLOWED };
    return { cause: 'within_limit', reason: allowedReason(terms, predictions) };
  }
  const denied = windows.filter(({ prediction }) => !prediction.allowed);
  const cause = DENIALS.find((one) => denied.some(({ prediction }) => prediction.cause === one))!;
  // Of several windows that become free at a time, the last one.
  const [{ term, prediction }] = denied
    .filter(({ prediction }) => prediction.cause === cause)
    .toSorted((a, b) => (b.prediction.passesAt ?? 0) - (a.prediction.passesAt ?? 0));
  const { passesAt } = prediction;
  const reason = deniedReason(term, cause, prediction);
  return { cause, ...(passesAt !== undefined && { passesAt }), reason };
}

const NO_SLOT = 'the identifier needs a new counter, and the table of counters has no free slot';
const FULL_AND_ALLOWED = `The check is allowed and not counted: ${NO_SLOT}.`;

function allowedReason(terms: readonly CheckTerms[], predictions: readonly Prediction[]): string {
  const [{ cost }] = terms;
  if (cost.value === 0) return 'The check is allowed: a cost of 0 is always allowed.';
  if (terms.length > 1) {
    const enough = `at least ${cost.value} ${cost.value === 1 ? 'token' : 'tokens'}`;
    return `The check is allowed: each of the ${terms.length} windows has ${enough} left.`;
  }
  return `The check is allowed: ${stateText(terms[0], predictions[0])}.`;
}

function deniedReason(terms: CheckTerms, cause: Denial, prediction: Prediction): string {
  const { cost, limit, burst } = terms;
  switch (cause) {
    case 'cost_above_limit': {
      const isBurst = burst !== undefined && burst.value < limit.value;
      const most = isBurst ? `burst ${burst.value}` : `limit ${limit.value}`;
      const never = `the cost ${cost.value} is above the ${most} of ${windowText(terms)}`;
      return `The check is denied: ${never}, so it can never pass.`;
    }
    case 'table_full':
      return `The check is denied: ${NO_SLOT}.`;
    case 'limit_reached': {
      const passes = isoTime(prediction.passesAt ?? prediction.reset);
      const state = stateText(terms, prediction);
      return `The check is denied: ${state}. It can pass at ${passes}, if no other is counted.`;
    }
  }
}

function stateText(terms: CheckTerms, { left }: Prediction): string {
  const { cost, limit, burst = limit } = terms;
  const state = `${left} of ${burst.value} tokens left`;
  return `${windowText(terms)} has ${state}, and the cost is ${cost.value}`;
}

function windowText({ algorithm, duration }: CheckTerms): string {
  if (algorithm.value === 'gcra') return `the gcra bucket of ${formatDuration(duration.value)}`;
  return `the ${algorithm.value} window of ${formatDuration(duration.value)}`;
}
