/**
 * One rolling restart of machines with one Redis, under a load that arrives at a set rate. A client
 * of a machine that does not answer tries the next one, as a gateway does. All figures but the
 * decisions without Redis come from the answers.
 */

import { loadavg } from 'node:os';
import { setTimeout as sleep } from 'node:timers/promises';
import { quantile } from '../../support/replay.ts';
import { type Machine, sumCounts } from './cluster-machines.ts';
import type { Counter, Judged, OutsideClient } from './outside-client.ts';

/** Checks per second, on all machines. */
const RATE = 2_000;
const TICK_MS = 2;
/** Checks that are due while so many are unanswered are not sent. */
const UNANSWERED_MAX = 2_000;
const BETWEEN_MS = 1_000;
/** Of each kind, and how many of ten checks are for the kind: 1.6 and 2.4 times the limits. */
const COUNTERS = 10;
const KINDS = [
  { name: 'second', limit: 100, duration: 1_000, weight: 8 },
  { name: 'minute', limit: 1_000, duration: 60_000, weight: 2 },
] as const;

export interface RestartFigures {
  checks: number;
  /** Tokens above the limits of windows of a second, and of a minute. */
  over: { second: number; minute: number };
  /** Denials in fixed windows, although the check fitted. */
  deniedFalsely: number;
  /** Checks that no machine has decided. */
  failed: number;
  /** Checks that a machine has not answered, and checks that were sent to another machine. */
  unanswered: number;
  repeated: number;
  withoutRedis: number;
  notSent: number;
  p99Ms: number;
  longestMs: number;
  /** The longest time for which this client got no core: it is part of the times above. */
  pauseMs: number;
  /** Programs that ran or waited for a core, as the kernel counts them. */
  load: number;
}

type Kind = (typeof KINDS)[number]['name'];

interface RestartCounter {
  kind: Kind;
  counter: Counter;
}

/** In the order in which they are checked, again and again. */
export function newCounters(prefix: string): RestartCounter[] {
  const byKind = KINDS.map(({ name, limit, duration }) => {
    return Array.from({ length: COUNTERS }, (_, i) => ({
      kind: name,
      counter: {
        ...{ identifier: `${prefix}_${name}_${i}`, limit, duration },
        algorithm: i % 2 === 0 ? ('fixed' as const) : ('sliding' as const),
      },
    }));
  });
  return Array.from({ length: COUNTERS }, (_, i) => {
    return KINDS.flatMap(({ weight }, kind) => {
      return Array.from({ length: weight }, (_, n) => byKind[kind][(i * weight + n) % COUNTERS]);
    });
  }).flat();
}

/** Restarts each machine, one after the other. */
export async function measureRestarts(
  client: OutsideClient,
  machines: readonly Machine[],
  counters: readonly RestartCounter[],
): Promise<RestartFigures> {
  const before = await readCounts(machines);
  const times: number[] = [];
  const over = { second: 0, minute: 0 };
  let [deniedFalsely, failed, unanswered, repeated] = [0, 0, 0, 0];
  const record = (kind: Kind, { algorithm }: Counter, judged: Judged) => {
    times.push(judged.ms);
    over[kind] += judged.over;
    if (judged.unanswered > 0) unanswered++;
    if (judged.unanswered + judged.refused > 0) repeated++;
    if (judged.verdict === 'failed') failed++;
    if (judged.verdict === 'denied falsely' && algorithm === 'fixed') deniedFalsely++;
  };
  let [isOver, sent, notSent, inFlight, pauseMs] = [false, 0, 0, 0, 0];
  const send = async (n: number) => {
    const { kind, counter } = counters[n % counters.length];
    // Each counter is checked on all machines.
    const home = (n + Math.floor(n / counters.length)) % machines.length;
    const order = machines.map((_, i) => machines[(home + i) % machines.length].port);
    inFlight++;
    record(kind, counter, await client.check(order, counter));
    inFlight--;
  };
  const load = async () => {
    const pending: Promise<void>[] = [];
    const startMs = performance.now();
    for (let lastMs = startMs; !isOver; ) {
      await sleep(TICK_MS);
      const nowMs = performance.now();
      pauseMs = Math.max(pauseMs, nowMs - lastMs);
      lastMs = nowMs;
      const due = Math.floor(((nowMs - startMs) * RATE) / 1_000);
      for (; sent < due; sent++) {
        if (inFlight >= UNANSWERED_MAX) notSent++;
        else pending.push(send(sent));
      }
    }
    await Promise.all(pending);
  };
  const loaded = load();
  await sleep(BETWEEN_MS);
  for (const machine of machines) {
    await machine.stop();
    await machine.start();
    await sleep(BETWEEN_MS);
  }
  isOver = true;
  await loaded;
  const sorted = Float64Array.from(times).sort();
  return {
    ...{ checks: times.length, over, deniedFalsely, failed, unanswered, repeated, notSent },
    withoutRedis: (await readCounts(machines)) - before,
    p99Ms: quantile(sorted, 0.99),
    ...{ longestMs: sorted.at(-1) ?? 0, pauseMs },
    load: loadavg()[0],
  };
}

/** Decisions without Redis. Those of a machine after it was told to stop are not counted. */
async function readCounts(machines: readonly Machine[]): Promise<number> {
  return sumCounts(await Promise.all(machines.map((one) => one.readCounts()))).withoutRedis;
}
