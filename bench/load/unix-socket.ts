/**
 * Savings of a Unix socket over loopback TCP, on the bare server that parses and on weir. Both
 * transports use the same servers; the baseline is the first row, all alternate.
 */

import { existsSync, mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { runH2load } from '../support/h2load.ts';
import { ALLOWED_WORKLOAD } from '../support/load-generator.ts';
import { measureAlternating } from '../support/rounds.ts';
import { type BenchServer, startBareServer, startWeir } from '../support/servers.ts';
import type { LoadResult } from './http-load.ts';

const ROUNDS = 5;
const SECONDS = 1;
const CONNECTIONS = [64, 1];

/** @returns undefined if weir serves no Unix socket */
export async function measureUnix(
  progress: (what: string) => void,
): Promise<LoadResult[] | undefined> {
  const directory = mkdtempSync(join(tmpdir(), 'weir-bench-'));
  const path = (name: string) => join(directory, name);
  const servers: BenchServer[] = [];
  try {
    servers.push(await startBareServer('bare, parses', 'parse', { args: [path('bare')] }));
    servers.push(await startWeir('weir', 'in-place', { args: ['--socket', path('weir')] }));
    if (!existsSync(path('weir'))) return undefined;
    const results: LoadResult[] = [];
    for (const connections of CONNECTIONS) {
      const contestant = (server: BenchServer, transport: string, target: number | string) => {
        const options = { target, workload: ALLOWED_WORKLOAD, connections, seconds: SECONDS };
        const name = `${server.name}, ${transport}`;
        return { name, pids: server.pids, run: () => runH2load(options) };
      };
      const [bare, weir] = servers;
      const contestants = [
        contestant(bare, 'TCP', bare.port),
        contestant(bare, 'Unix', path('bare')),
        contestant(weir, 'TCP', weir.port),
        contestant(weir, 'Unix', path('weir')),
      ];
      for (const { run } of contestants) await run();
      const figures = await measureAlternating(contestants, ROUNDS, (what) => {
        progress(`unix: ${connections} connections, ${what}`);
      });
      results.push(...figures.map((o, i) => ({ server: contestants[i].name, connections, ...o })));
    }
    return results;
  } catch (error) {
    // The server has printed the reason, and ended.
    if (error instanceof Error && error.message === 'weir did not start') return undefined;
    throw error;
  } finally {
    await Promise.all(servers.map((server) => server.stop()));
    rmSync(directory, { recursive: true, force: true });
  }
}
