/** A recent decision as text: the limit that applied, and where it came from. */

import type { ShownDecision } from '../api/common/recent-decisions.ts';
import { formatDuration } from '../core/duration.ts';

export function limitTexts({ limit, duration, algorithm, cost, ...rest }: ShownDecision): string[] {
  const { kind, inUse, remaining, source, override } = rest;
  if (limit === undefined) return ['by the policy'];
  const by = `by the ${source}${override === undefined ? '' : ` ${override}`}`;
  if (kind === 'lease') return [`lease of ${cost}, ${inUse} of ${limit} in use`, by];
  const window = `${limit} per ${formatDuration(duration ?? 0)}, ${algorithm}`;
  return [`cost ${cost}, ${remaining} left`, window, by];
}
