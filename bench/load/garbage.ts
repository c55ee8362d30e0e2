/**
 * Bytes that a check allocates in the heaps of the server under load. With `--trace-gc` V8 prints
 * the heap size before and after every collection in every thread. The bytes allocated between two
 * collections are the size before the second less the size after the first, whether or not objects
 * survive. Memory outside of the heaps is not included, such as request bodies in uWebSockets.js.
 * V8 prints sizes with a resolution of 0.1 MB; these errors mostly cancel out over the about
 * hundred collections of a run. Only the time between a thread's first and last collection counts,
 * by the thread's clock. A thread with few collections allocates too little to matter. The baseline
 * is the bare server that parses.
 */

import { type LoadMeasurement, runLoad } from '../support/load-generator.ts';
import { type BenchServer, startBareServer, startWeir } from '../support/servers.ts';

/** Until the hot code is compiled: allocations by the compiler are not those of checks. */
const WARM_UP_SECONDS = 3;
const SECONDS = 6;
const CONNECTIONS = 64;
const COLLECTIONS_MIN = 20;

export interface GarbageResult {
  server: string;
  bytesPerCheck: number;
  collectionsPerSecond: number;
  longestPauseMs: number;
  /** Share of the time in which a thread was paused, in percent. */
  pausedPercent: number;
}

interface Collection {
  /** By the clock of the thread. */
  atMs: number;
  before: number;
  after: number;
  pauseMs: number;
}

/** `[12:0x55]  1234 ms: Scavenge 24.1 (30.0) -> 20.2 (31.0) MB, 1.5 / 0.0 ms ...` */
const TRACE_GC_LINE = new RegExp(
  [
    String.raw`^\[\d+:(\w+)\] +(\d+) ms: .*?`,
    String.raw`([\d.]+) \([\d.]+\) -> ([\d.]+) \([\d.]+\) MB, `,
    String.raw`(?:pooled: [\d.]+ MB, )?([\d.]+) /`,
  ].join(''),
  'gm',
);

export async function measureGarbage(progress: (what: string) => void): Promise<GarbageResult[]> {
  const flags = ['--trace-gc'];
  const servers = [
    await startBareServer('bare, parses', 'parse', { nodeFlags: flags }),
    await startWeir('weir, in place', 'in-place', { nodeFlags: flags }),
  ];
  try {
    const results: GarbageResult[] = [];
    for (const server of servers) {
      progress(`garbage: ${server.name}`);
      const options = { port: server.port, connections: CONNECTIONS, workload: server.workload };
      await runLoad({ ...options, seconds: WARM_UP_SECONDS });
      const { traced, figures } = await traceDuring(server, () => {
        return runLoad({ ...options, seconds: SECONDS });
      });
      results.push({ server: server.name, ...summarize(traced, figures) });
    }
    return results;
  } finally {
    await Promise.all(servers.map((server) => server.stop()));
  }
}

async function traceDuring({ process: child }: BenchServer, run: () => Promise<LoadMeasurement>) {
  let traced = '';
  const listen = (data: Buffer) => {
    traced += data;
  };
  child.stdout?.on('data', listen);
  const figures = await run();
  child.stdout?.off('data', listen);
  return { traced, figures };
}

function summarize(
  traced: string,
  { requests, seconds }: LoadMeasurement,
): Omit<GarbageResult, 'server'> {
  const threads = new Map<string, Collection[]>();
  for (const [, thread, at, before, after, pause] of traced.matchAll(TRACE_GC_LINE)) {
    const collections = threads.get(thread) ?? [];
    threads.set(thread, collections);
    collections.push({
      atMs: Number(at),
      before: Number(before) * 2 ** 20,
      after: Number(after) * 2 ** 20,
      pauseMs: Number(pause),
    });
  }
  const all = [...threads.values()].flat();
  if (all.length === 0) throw new Error('V8 printed no collection');
  const bytesPerSecond = [...threads.values()].reduce((sum, of) => sum + allocationRate(of), 0);
  const pausedMs = all.reduce((sum, { pauseMs }) => sum + pauseMs, 0);
  return {
    bytesPerCheck: bytesPerSecond / (requests / seconds),
    collectionsPerSecond: all.length / seconds,
    longestPauseMs: Math.max(...all.map(({ pauseMs }) => pauseMs)),
    pausedPercent: pausedMs / seconds / 10,
  };
}

/** In bytes per second. */
function allocationRate(collections: readonly Collection[]): number {
  if (collections.length < COLLECTIONS_MIN) return 0;
  const bytes = collections.slice(1).reduce((sum, { before }, i) => {
    return sum + before - collections[i].after;
  }, 0);
  return (bytes / (collections[collections.length - 1].atMs - collections[0].atMs)) * 1e3;
}
