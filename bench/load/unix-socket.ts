/**
 * What a Unix socket saves over loopback TCP, on the bare server that parses and on weir. The
 * servers are the same in both; each row is measured against the first, all in turn.
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

/** @returns undefined where weir serves no Unix socket */
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
      const of = ({ name, pids }: BenchServer, transport: string, at: number | string) => {
        const asked = { target: at, workload: ALLOWED_WORKLOAD, connections, seconds: SECONDS };
        return { name: `${name}, ${transport}`, pids, run: () => runH2load(asked) };
      };
      const [bareOne, weirOne] = servers;
      const contestants = [
        of(bareOne, 'TCP', bareOne.port),
        of(bareOne, 'Unix', path('bare')),
        of(weirOne, 'TCP', weirOne.port),
        of(weirOne, 'Unix', path('weir')),
      ];
      for (const { run } of contestants) await run();
      const figures = await measureAlternating(contestants, ROUNDS, (what) => {
        progress(`unix: ${connections} connections, ${what}`);
      });
      results.push(...figures.map((o, i) => ({ server: contestants[i].name, connections, ...o })));
    }
    return results;
  } catch (error) {
    // The server has said so itself, and ended.
    if (error instanceof Error && error.message === 'weir did not start') return undefined;
    throw error;
  } finally {
    await Promise.all(servers.map((server) => server.stop()));
    rmSync(directory, { recursive: true, force: true });
  }
}
