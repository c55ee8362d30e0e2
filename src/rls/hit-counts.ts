/**
 * The hits of each limit, as envoyproxy/ratelimit counts them: by the path of the limit, and by
 * their result. A thread counts its own, and sends the main thread what was added.
 */

import { RLS_HIT_PATHS_MAX } from '../core/constants.ts';

/** The counts of a path, in their order. */
export const HIT_COUNTS = [
  'total_hits',
  'within_limit',
  'near_limit',
  'over_limit',
  'shadow_mode',
] as const;

const [TOTAL, WITHIN, NEAR, OVER, SHADOW] = HIT_COUNTS.keys();

/** The path of limits beyond the bound. */
export const OTHER_PATH = 'other';

/** Hits above this share of a limit are near it. */
const NEAR_LIMIT_RATIO = Math.fround(0.8);

/** What was added: by path, the counts in the order of HIT_COUNTS. */
export type AddedHits = [path: string, counts: number[]][];

export class HitCounts {
  readonly #rows = new Map<string, Float64Array>();
  /** Rows with hits that were not sent. */
  readonly #changed = new Set<string>();

  /**
   * Counts an allowed request.
   * @param remaining of the limit after it
   */
  countAllowed(path: string, limit: number, hits: number, remaining: number): void {
    const row = this.#row(path);
    row[TOTAL] += hits;
    row[WITHIN] += hits;
    const after = limit - remaining;
    const near = nearLimit(limit);
    if (after > near) row[NEAR] += Math.min(hits, after - near);
  }

  /**
   * Counts a request over the limit.
   * @param left of the limit before it
   */
  countDenied(path: string, limit: number, hits: number, left: number, isShadow: boolean): void {
    const row = this.#row(path);
    row[TOTAL] += hits;
    const over = hits - left;
    row[OVER] += over;
    if (isShadow) row[SHADOW] += over;
    if (left > 0) row[NEAR] += limit - Math.max(nearLimit(limit), limit - left);
  }

  /** @returns what was added since the call before; undefined for nothing */
  take(): AddedHits | undefined {
    if (this.#changed.size === 0) return undefined;
    const added = [...this.#changed].map((path): AddedHits[number] => {
      const row = this.#rows.get(path)!;
      const counts = [...row];
      row.fill(0);
      return [path, counts];
    });
    this.#changed.clear();
    return added;
  }

  #row(path: string): Float64Array {
    const known = this.#rows.get(path);
    if (known !== undefined) {
      this.#changed.add(path);
      return known;
    }
    const isFull = this.#rows.size >= RLS_HIT_PATHS_MAX;
    if (isFull && path !== OTHER_PATH) return this.#row(OTHER_PATH);
    const row = new Float64Array(HIT_COUNTS.length);
    this.#rows.set(path, row);
    this.#changed.add(path);
    return row;
  }
}

/** As in envoyproxy/ratelimit, which computes it in single precision. */
function nearLimit(limit: number): number {
  return Math.floor(Math.fround(Math.fround(limit) * NEAR_LIMIT_RATIO));
}
