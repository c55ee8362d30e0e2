/**
 * Overrides at their bounds: how long the tables take to write and how large they are, how long a
 * change takes until it is acknowledged, at rest and under load, and what checks cost with them.
 */

import { Agent, request } from 'node:http';
import { writeTrie } from '../../src/overrides/build.ts';
import { copyExact } from '../../src/overrides/exact.ts';
import type { OverrideEntry } from '../../src/overrides/sets.ts';
import { Trie } from '../../src/overrides/trie.ts';
import { median } from '../micro/thread-scaling.ts';
import { CHECK_WORKLOAD, runLoad } from '../support/load-generator.ts';
import {
  benchOverride,
  exactOverrides,
  NAMESPACE,
  publishedTables,
  ROOT_KEY,
  registersFor,
  wildcardOverrides,
} from '../support/override-sets.ts';
import { type BenchServer, residentBytes, startWeir } from '../support/servers.ts';
import { type LoadResult, measureLoad } from './http-load.ts';

const EXACT = 100_000;
const WILDCARD = 10_000;
const BUILD_ROUNDS = 15;
const CHANGES = 1_000;
const LOAD_SECONDS = 6;
const CLIENTS = 16;
/** Changes ever made. */
let changeCount = 0;

/** Overrides of one request, which stay below the bound of a body. */
const IMPORT_BATCH = 5_000;

export interface OverrideFigure {
  what: string;
  unit: string;
  median: number;
  p99?: number;
}

export interface OverrideResults {
  figures: OverrideFigure[];
  load: LoadResult[];
}

export async function measureOverrides(progress: (what: string) => void): Promise<OverrideResults> {
  const figures = measureTables();
  const all = [...exactOverrides(EXACT), ...wildcardOverrides(WILDCARD)];
  const sets: [name: string, overrides: OverrideEntry[]][] = [
    ['no overrides', []],
    ['1,000 exact', exactOverrides(1_000)],
    ['100,000 exact', exactOverrides(EXACT)],
    ['10,000 wildcard', wildcardOverrides(WILDCARD)],
    ['both bounds', all],
  ];
  const servers: BenchServer[] = [];
  for (const [name, overrides] of sets) {
    progress(`overrides: ${name}`);
    const server = await startWeir(name);
    servers.push(server);
    const before = residentBytes(server.process.pid ?? 0);
    await loadOverrides(server, overrides);
    const after = residentBytes(server.process.pid ?? 0);
    if (overrides !== all || before === undefined || after === undefined) continue;
    const bytes = (after - before) / overrides.length;
    figures.push({
      what: 'resident memory of the process, for each',
      unit: 'bytes',
      median: bytes,
    });
  }
  progress('overrides: changes');
  figures.push(...(await measureChanges(servers[servers.length - 1])));
  return { figures, load: await measureLoad(servers, progress) };
}

/** The tables, without a server. */
function measureTables(): OverrideFigure[] {
  const { buffer } = registersFor(exactOverrides(EXACT)).exact.table;
  const { wildcards } = registersFor(wildcardOverrides(WILDCARD));
  const timed = (
    what: string,
    write: (spare?: SharedArrayBuffer) => SharedArrayBuffer,
  ): OverrideFigure => {
    let spare: SharedArrayBuffer | undefined;
    const times = Array.from({ length: BUILD_ROUNDS }, () => {
      const before = performance.now();
      spare = write(spare);
      return performance.now() - before;
    });
    return { what, unit: 'ms', median: median(times) };
  };
  const trieBytes = writeTrie(wildcards.serialize(), undefined).byteLength / 2;
  const exactBytes = copyExact(buffer, undefined).byteLength / 2;
  return [
    timed('to copy the table of exact ones', (spare) => {
      return copyExact(buffer, spare);
    }),
    timed('to write the trie', (spare) => writeTrie(wildcards.serialize(), spare)),
    { what: 'a check under the worst patterns known', unit: 'ms', median: measureWorstCheckMs() },
    { what: 'an exact one in its table', unit: 'bytes', median: exactBytes / EXACT },
    { what: 'one with a wildcard in the trie', unit: 'bytes', median: trieBytes / WILDCARD },
  ];
}

/** Patterns that share head, tail and needles, and a text that has nearly all of each. */
function measureWorstCheckMs(): number {
  const patterns = Array.from({ length: WILDCARD }, (_, i) => {
    return `*${'a'.repeat(50 + (i % 100))}ba${'a'.repeat(i / 100)}*`;
  });
  const { trie } = publishedTables(patterns.map((pattern, i) => benchOverride(i + 1, pattern)));
  const read = new Trie(trie!);
  const roots = read.rootsFor(NAMESPACE);
  const text = `${'a'.repeat(49)}b`.repeat(10);
  const times = Array.from({ length: BUILD_ROUNDS }, () => {
    const before = performance.now();
    if (read.find(roots, text) !== -1) throw new Error('a pattern matches that must not');
    return performance.now() - before;
  });
  return median(times);
}

async function measureChanges(server: BenchServer): Promise<OverrideFigure[]> {
  const figure = (what: string, times: number[]): OverrideFigure => {
    const sorted = times.toSorted((a, b) => a - b);
    const p99 = sorted[Math.floor(sorted.length * 0.99)];
    return { what, unit: 'ms', median: median(times), p99 };
  };
  const figures: OverrideFigure[] = [];
  for (const [what, isWildcard] of [
    ['an exact one', false],
    ['one with a wildcard', true],
  ] as const) {
    const one = () => runChanges(server, isWildcard, 1, (n) => n < CHANGES);
    figures.push(figure(`change of ${what}, at rest`, await one()));
    let loading = true;
    const { port } = server;
    const checks = { port, connections: 64, workload: CHECK_WORKLOAD };
    const done = runLoad({ ...checks, seconds: LOAD_SECONDS }).finally(() => {
      loading = false;
    });
    const times = await runChanges(server, isWildcard, 1, () => loading);
    await done;
    figures.push(figure(`change of ${what}, under full load`, times));
  }
  const many = await runChanges(server, false, CLIENTS, (n) => n < CHANGES);
  figures.push(figure(`change of an exact one, ${CLIENTS} clients at once`, many));
  return figures;
}

/** @returns how long each change took until it was acknowledged, in ms */
async function runChanges(
  server: BenchServer,
  isWildcard: boolean,
  clients: number,
  goesOn: (n: number) => boolean,
): Promise<number[]> {
  const agent = new Agent({ keepAlive: true, maxSockets: clients });
  const times: number[] = [];
  let changes = 0;
  const client = async () => {
    for (let n = changes++; goesOn(n); n = changes++) {
      const number = (n * 7_919) % (isWildcard ? WILDCARD / 2 : EXACT);
      const identifier = isWildcard ? `user_${number}*` : `user_${number}`;
      // What changes nothing is not published.
      const limit = 1_000_000 + ++changeCount;
      const body = { namespaceName: NAMESPACE, identifier, limit, duration: 60_000 };
      const before = performance.now();
      await postOperation(server, agent, 'setOverride', body);
      times.push(performance.now() - before);
    }
  };
  await Promise.all(Array.from({ length: clients }, client));
  agent.destroy();
  return times;
}

async function loadOverrides(
  server: BenchServer,
  overrides: readonly OverrideEntry[],
): Promise<void> {
  const agent = new Agent({ keepAlive: true, maxSockets: 1 });
  for (let from = 0; from < overrides.length; from += IMPORT_BATCH) {
    const part = overrides.slice(from, from + IMPORT_BATCH);
    const lines = part.map(({ namespace, identifier, limit, durationMs }) => {
      return { namespaceName: namespace, identifier, limit, duration: durationMs };
    });
    await postOperation(server, agent, 'importOverrides', { overrides: lines });
  }
  agent.destroy();
}

function postOperation(
  { port }: BenchServer,
  agent: Agent,
  operation: string,
  fields: object,
): Promise<void> {
  const body = JSON.stringify(fields);
  const headers = {
    Authorization: `Bearer ${ROOT_KEY}`,
    'Content-Type': 'application/json',
    'Content-Length': Buffer.byteLength(body),
  };
  const path = `/v1/ratelimits.${operation}`;
  return new Promise((resolve, reject) => {
    const sent = request({ port, agent, method: 'POST', path, headers }, (answer) => {
      answer.resume();
      answer.on('end', () => {
        if (answer.statusCode === 200) resolve();
        else reject(new Error(`${operation}: ${answer.statusCode}`));
      });
    });
    sent.on('error', reject);
    sent.end(body);
  });
}
