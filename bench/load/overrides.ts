/**
 * Overrides at their limits: time to write the tables, their sizes, time until a change is
 * acknowledged, idle and under load, and the cost of checks.
 */

import { Agent, request } from 'node:http';
import { writeTrie } from '../../src/overrides/build.ts';
import { copyExact } from '../../src/overrides/exact.ts';
import type { OverrideEntry } from '../../src/overrides/sets.ts';
import { CHECK_WORKLOAD, runLoad } from '../support/load-generator.ts';
import {
  exactOverrides,
  NAMESPACE,
  ROOT_KEY,
  registersFor,
  wildcardOverrides,
} from '../support/override-sets.ts';
import { median } from '../support/rounds.ts';
import { type BenchServer, residentBytes, startWeir } from '../support/servers.ts';
import {
  namespaceTrieOf,
  SLOW_CHECKS,
  searchSlowCheck,
  trieOf,
} from '../support/worst-overrides.ts';
import { type LoadResult, measureLoad } from './http-load.ts';

const EXACT = 100_000;
const WILDCARD = 10_000;
const BUILD_ROUNDS = 15;
/** Changes of a search for slow patterns, and the matches of a round. */
const SEARCH_ROUNDS = 300;
const MATCHES = 40;
const SEED = 1;
const CHANGES = 1_000;
const LOAD_SECONDS = 6;
const CLIENTS = 16;
/** Changes made so far. */
let changeCount = 0;

/** Overrides in one request; below the limit of a body. */
const IMPORT_BATCH = 5_000;

interface OverrideFigure {
  what: string;
  unit: string;
  median: number;
  p99?: number;
  max?: number;
}

interface OverrideResults {
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
      what: 'resident memory of the process, per override',
      unit: 'bytes',
      median: bytes,
    });
  }
  progress('overrides: changes');
  figures.push(...(await measureChanges(servers[servers.length - 1])));
  return { figures, load: await measureLoad(servers, progress) };
}

/** Measures the tables without a server. */
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
    timed('copy of the table of exact overrides', (spare) => {
      return copyExact(buffer, spare);
    }),
    timed('writing the trie', (spare) => writeTrie(wildcards.serialize(), spare)),
    { what: 'an exact override in its table', unit: 'bytes', median: exactBytes / EXACT },
    { what: 'a wildcard override in the trie', unit: 'bytes', median: trieBytes / WILDCARD },
    ...measureSlowChecks(),
  ];
}

/** The CPU time of the slowest matches that a search finds within the maxima of the API. */
function measureSlowChecks(): OverrideFigure[] {
  const figures = SLOW_CHECKS.map((known): OverrideFigure => {
    const check = searchSlowCheck(known, SEED, SEARCH_ROUNDS);
    const trie = trieOf(check);
    const roots = trie.rootsFor(NAMESPACE);
    // As an acceptor decodes it.
    const identifier = Buffer.from(check.identifier).toString();
    const times = matchTimes(() => trie.find(roots, identifier));
    return { what: `slow check: ${known.name}`, unit: 'us', ...times };
  });
  const namespaceTimes = SLOW_CHECKS.map((check) => {
    const trie = namespaceTrieOf(check);
    const name = Buffer.from(check.identifier).toString();
    return matchTimes(() => trie.rootsFor(name));
  });
  const slowest = namespaceTimes.reduce((a, b) => (a.median > b.median ? a : b));
  return [...figures, { what: 'slow namespace patterns, once', unit: 'us', ...slowest }];
}

function matchTimes(match: () => void): { median: number; max: number } {
  const round = () => {
    const before = process.cpuUsage();
    for (let i = 0; i < MATCHES; i++) match();
    const { user, system } = process.cpuUsage(before);
    return (user + system) / MATCHES;
  };
  for (let i = 0; i < 5; i++) round();
  const times = Array.from({ length: BUILD_ROUNDS }, round);
  return { median: median(times), max: Math.max(...times) };
}

async function measureChanges(server: BenchServer): Promise<OverrideFigure[]> {
  const figure = (what: string, times: number[]): OverrideFigure => {
    const sorted = times.toSorted((a, b) => a - b);
    const p99 = sorted[Math.floor(sorted.length * 0.99)];
    return { what, unit: 'ms', median: median(times), p99 };
  };
  const figures: OverrideFigure[] = [];
  for (const [what, isWildcard] of [
    ['an exact override', false],
    ['a wildcard override', true],
  ] as const) {
    const one = () => runChanges(server, isWildcard, 1, (n) => n < CHANGES);
    figures.push(figure(`change of ${what}, idle`, await one()));
    let isLoading = true;
    const { port } = server;
    const checks = { port, connections: 64, workload: CHECK_WORKLOAD };
    const load = runLoad({ ...checks, seconds: LOAD_SECONDS }).finally(() => {
      isLoading = false;
    });
    const times = await runChanges(server, isWildcard, 1, () => isLoading);
    await load;
    figures.push(figure(`change of ${what}, under full load`, times));
  }
  const many = await runChanges(server, false, CLIENTS, (n) => n < CHANGES);
  figures.push(figure(`change of an exact override, ${CLIENTS} concurrent clients`, many));
  return figures;
}

/** @returns time until the acknowledgement of each change, in ms */
async function runChanges(
  server: BenchServer,
  isWildcard: boolean,
  clients: number,
  shouldContinue: (n: number) => boolean,
): Promise<number[]> {
  const agent = new Agent({ keepAlive: true, maxSockets: clients });
  const times: number[] = [];
  let changes = 0;
  const client = async () => {
    for (let n = changes++; shouldContinue(n); n = changes++) {
      const number = (n * 7_919) % (isWildcard ? WILDCARD / 2 : EXACT);
      const identifier = isWildcard ? `user_${number}*` : `user_${number}`;
      // A new limit each time: a change without an effect is not published.
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
    const batch = overrides.slice(from, from + IMPORT_BATCH);
    const items = batch.map(({ namespace, identifier, limit, durationMs }) => {
      return { namespaceName: namespace, identifier, limit, duration: durationMs };
    });
    await postOperation(server, agent, 'importOverrides', { overrides: items });
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
    const sent = request({ port, agent, method: 'POST', path, headers }, (response) => {
      response.resume();
      response.on('end', () => {
        if (response.statusCode === 200) resolve();
        else reject(new Error(`${operation}: ${response.statusCode}`));
      });
    });
    sent.on('error', reject);
    sent.end(body);
  });
}
