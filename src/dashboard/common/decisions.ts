/** The decisions of the last hour by namespace, from the minutes and the seconds of the server. */

import type { Snapshot } from '../../observe/dashboard/snapshot.ts';
import { type Bucket, combine, type Span } from './buckets.ts';
import type { Live } from './live.ts';
import { minuteBuckets, type PastMinute, secondBuckets } from './minutes.ts';

interface Counts {
  allowed: number;
  denied: number;
}

export interface Decisions {
  /** How long weir ran. */
  ms: number;
  byNamespace: ReadonlyMap<string, Counts>;
}

/** @param name of all namespaces without one */
export function countsOf({ byNamespace }: Decisions, name?: string): Counts {
  const none = { allowed: 0, denied: 0 };
  if (name !== undefined) return byNamespace.get(name) ?? none;
  return [...byNamespace.values()].reduce(
    (sum, { allowed, denied }) => ({
      allowed: sum.allowed + allowed,
      denied: sum.denied + denied,
    }),
    none,
  );
}

/** null where weir was down, or has no analytics. */
function ofMinute({ decisions }: PastMinute): Decisions | null {
  if (decisions === undefined || decisions.ranMs === 0) return null;
  return { ms: decisions.ranMs, byNamespace: decisions.byNamespace };
}

function ofSecond({ namespaces, intervalMs }: Snapshot): Decisions {
  return {
    ms: intervalMs,
    byNamespace: new Map(namespaces.map(({ name, recent }) => [name, recent])),
  };
}

export function sumDecisions(all: readonly Decisions[]): Decisions {
  const byNamespace = new Map<string, Counts>();
  let ms = 0;
  for (const one of all) {
    ms += one.ms;
    for (const [name, { allowed, denied }] of one.byNamespace) {
      const before = byNamespace.get(name);
      byNamespace.set(name, {
        allowed: (before?.allowed ?? 0) + allowed,
        denied: (before?.denied ?? 0) + denied,
      });
    }
  }
  return { ms, byNamespace };
}

export function decisionBuckets({ minutes, history }: Live, span: Span): Bucket<Decisions>[] {
  const past = minuteBuckets(minutes, ofMinute);
  return combine(past, secondBuckets(history, ofSecond), span, sumDecisions);
}

/** The denied checks of a namespace in each minute of the last hour, the newest last. */
export function deniedByMinute(minutes: readonly PastMinute[], name: string): number[] | undefined {
  const denied = minutes.map(({ decisions }) => decisions?.byNamespace.get(name)?.denied);
  return denied.every((count) => count === undefined) ? undefined : denied.map((it) => it ?? 0);
}
