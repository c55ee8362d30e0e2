/**
 * What a check leaves to the garbage collector, of the whole server under load: `--trace-gc` makes
 * V8 say of every collection in every thread how large the heap was before and after it. What was
 * allocated between two collections of a thread is the heap before the second less the heap after
 * the first. So the bytes are those of all objects in the heaps of all threads, whether or not they
 * survived; memory outside of the heaps, as the body of a request in uWebSockets.js, is not in it.
 * V8 says sizes to 0.1 MB; what that is wrong by goes both ways, and little is left of it over the
 * hundred collections of a run.
 * Of the load only what lies between a thread's first and last collection counts, by its clock; a
 * thread that collects but a few times in it allocates too little to matter, and in too short a
 * while to say how much. Beside weir the bare server that parses.
 */

import { type LoadMeasurement, runLoad } from '../support/load-generator.ts';
import { type BenchServer, startBareServer, startWeir } from '../support/servers.ts';

/** Until all that matters is compiled: what V8 makes meanwhile is no garbage of a check. */
const WARM_UP_SECONDS = 3;
const SECONDS = 6;
const CONNECTIONS = 64;
const COLLECTIONS_MIN = 20;

export interface GarbageResult {
  server: string;
  bytesPerCheck: number;
  collectionsPerSecond: number;
  longestPauseMs: number;
  /** Share of the time in which some thread stood still, in per cent. */
  pausedPercent: number;
}

interface Collection {
  /** By the clock of its thread. */
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
      const wanted = { port: server.port, connections: CONNECTIONS, workload: server.workload };
      await runLoad({ ...wanted, seconds: WARM_UP_SECONDS });
      const { traced, figures } = await traceDuring(server, () => {
        return runLoad({ ...wanted, seconds: SECONDS });
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
  if (all.length === 0) throw new Error('V8 has traced no collection');
  const bytesPerSecond = [...threads.values()].reduce((sum, of) => sum + allocationRate(of), 0);
  const pausedMs = all.reduce((sum, { pauseMs }) => sum + pauseMs, 0);
  return {
    bytesPerCheck: bytesPerSecond / (requests / seconds),
    collectionsPerSecond: all.length / seconds,
    longestPauseMs: Math.max(...all.map(({ pauseMs }) => pauseMs)),
    pausedPercent: pausedMs / seconds / 10,
  };
}

/** In bytes a second. */
function allocationRate(collections: readonly Collection[]): number {
  if (collections.length < COLLECTIONS_MIN) return 0;
  const bytes = collections.slice(1).reduce((sum, { before }, i) => {
    return sum + before - collections[i].after;
  }, 0);
  return (bytes / (collections[collections.length - 1].atMs - collections[0].atMs)) * 1e3;
}
