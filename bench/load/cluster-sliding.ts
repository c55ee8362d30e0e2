/**
 * Sliding windows that are used up, beside fixed ones of the same limit and load: five machines as
 * in `cluster-goals.ts`. Every decision is replayed: no allowed check may have had too little room,
 * whatever the order in which the machines decided.
 */

import { RULE } from '../../src/core/window-rules.ts';
import { allowedChecks, type LoggedCheck, quantile, replay } from '../../test/support/replay.ts';
import { runWorkload, withMachines } from './cluster-goals.ts';

const SECONDS = 6;
const DURATION_MS = 1_000;
const CASES = [
  { limit: 100, loads: [1.5, 2.5, 4], arrivals: 'even' },
  { limit: 100, loads: [1.5, 4], arrivals: 'skewed' },
  { limit: 1_000, loads: [1.1, 1.5, 4], arrivals: 'even' },
  { limit: 20, loads: [4], arrivals: 'even' },
] as const;

export interface SlidingRow {
  rule: 'fixed' | 'sliding';
  limit: number;
  arrivals: string;
  checksPerSecond: number;
  /** Allowed tokens of all windows but the first, in parts of the limit. */
  used: number;
  overAdmission: number;
  /** By check: calls that carry messages. */
  commands: number;
  waited: number;
  p50Ms: number;
  p99Ms: number;
  /** By denial: those by a machine that pauses, and others without proof. */
  shared: number;
  unproven: number;
  withoutRedis: number;
}

export function measureClusterSliding(progress: (what: string) => void): Promise<SlidingRow[]> {
  return withMachines(async (_, machines) => {
    const rows: SlidingRow[] = [];
    for (const { limit, loads, arrivals } of CASES) {
      for (const load of loads) {
        for (const name of ['fixed', 'sliding'] as const) {
          progress(`cluster-sliding: ${name}, ${limit}, ${load} x, ${arrivals}`);
          const rate = (load * limit * 1_000) / DURATION_MS;
          const workload = {
            ...{ name, limits: [limit], weights: [1], durationMs: DURATION_MS, arrivals, rate },
            seconds: SECONDS,
          };
          const run = await runWorkload(machines, workload, RULE[name], rows.length);
          const { logs, counted } = run;
          const { decisions, denials, timesMs, waitsMs, overAdmission } = replay(logs, () => limit);
          const windows = SECONDS * (1_000 / DURATION_MS);
          rows.push({
            ...{ rule: name, limit, arrivals, checksPerSecond: decisions / SECONDS },
            used: (decisions - denials - limit) / (windows - 1) / limit,
            overAdmission: name === 'fixed' ? overAdmission : overSliding(run, limit),
            commands: Math.min(counted.messages, counted.calls) / decisions,
            waited: waitsMs.length / decisions,
            ...{ p50Ms: quantile(timesMs, 0.5), p99Ms: quantile(timesMs, 0.99) },
            shared: counted.shared / denials,
            unproven: counted.unproven,
            withoutRedis: counted.withoutRedis,
          });
        }
      }
    }
    return rows;
  });
}

/** How far the clock of Redis may be ahead of that of the machines. */
const CLOCK_MS = 2;

/** Allowed checks that one machine would have denied, whenever within their times it decided. */
function overSliding(
  { logs, startMs, startWallMs }: Awaited<ReturnType<typeof runWorkload>>,
  limit: number,
): number {
  const byWindow = new Map<number, LoggedCheck[]>();
  for (const check of allowedChecks(logs)) {
    const checks = byWindow.get(check.reset) ?? [];
    checks.push(check);
    byWindow.set(check.reset, checks);
  }
  let over = 0;
  for (const [reset, checks] of byWindow) {
    const before = byWindow.get(reset - DURATION_MS)?.length ?? 0;
    const endMs = startMs + reset - startWallMs;
    for (const { sentMs, receivedMs } of checks) {
      const used = checks.filter((other) => other.receivedMs < sentMs).length;
      const leftMs = Math.max(0, endMs - receivedMs - CLOCK_MS);
      if (used + Math.floor((before * leftMs) / DURATION_MS) + 1 > limit) over++;
    }
  }
  return over;
}
