/**
 * CPU per check against a commit of the past. Each change is measured against the one before, and
 * what is too small to be seen then may add up. The reference is built from the repository's
 * history, once, into a directory below node_modules. Both servers run all the time and get load in
 * turn. The current server runs twice: what lies between these two is the error of the method.
 */

import { type ExecFileSyncOptions, execFileSync } from 'node:child_process';
import { existsSync, mkdirSync, renameSync, rmSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { CHECK_V2_WORKLOAD, CHECK_WORKLOAD, runLoad } from '../support/load-generator.ts';
import { type ContestantFigures, measureAlternating } from '../support/rounds.ts';
import { type BenchServer, startServer, startWeir } from '../support/servers.ts';

/**
 * November 2026. It has the whole path of a check, but no analytics, and v2 counts by fixed
 * windows, not by sliding ones as now.
 */
const REFERENCE = '25d3dd0';
const ROUNDS = 31;
const SECONDS = 2;
const WARM_UP_SECONDS = 10;
const CONNECTIONS = 64;
const LOADS = [
  { load: 'v1', workload: CHECK_WORKLOAD },
  { load: 'v2', workload: CHECK_V2_WORKLOAD },
];

export interface CreepRow extends ContestantFigures {
  server: string;
  load: string;
}

export async function measureCreep(progress: (what: string) => void): Promise<CreepRow[]> {
  progress(`build of ${REFERENCE}`);
  const cli = buildReference();
  const servers: BenchServer[] = [];
  try {
    const start = ['--port', '0', '--admin-port', '0', '--acceptors', '1', '--log-level', 'silent'];
    const port = /serves checks on \S+:(\d+)/;
    servers.push(await startServer(REFERENCE, cli, start, port, {}));
    servers.push(await startWeir('now'));
    servers.push(await startWeir('now, again'));
    const args = ['--analytics', 'off'];
    servers.push(await startWeir('now, without analytics', 'in-place', { args }));
    const rows: CreepRow[] = [];
    for (const { load, workload } of LOADS) {
      const run = ({ port }: BenchServer, seconds: number) =>
        runLoad({ port, workload, connections: CONNECTIONS, seconds });
      for (const server of servers) {
        progress(`${load}: warm up, ${server.name}`);
        await run(server, WARM_UP_SECONDS);
      }
      const contestants = servers.map((server) => {
        return { name: server.name, pids: server.pids, run: () => run(server, SECONDS) };
      });
      const figures = await measureAlternating(contestants, ROUNDS, (what) => {
        progress(`${load}: ${what}`);
      });
      rows.push(...figures.map((of, i) => ({ server: servers[i].name, load, ...of })));
    }
    return rows;
  } finally {
    await Promise.all(servers.map((server) => server.stop()));
  }
}

/** @returns its cli.js */
function buildReference(): string {
  const root = fileURLToPath(new URL('../../', import.meta.url));
  const directory = `${root}node_modules/.cache/weir-${REFERENCE}`;
  const cli = `${directory}/dist/cli.js`;
  if (existsSync(cli)) return cli;
  const unfinished = `${directory}-unfinished`;
  rmSync(unfinished, { recursive: true, force: true });
  mkdirSync(unfinished, { recursive: true });
  const archive = execFileSync('git', ['archive', '--format=tar', REFERENCE], {
    cwd: root,
    maxBuffer: 2 ** 30,
  });
  const options: ExecFileSyncOptions = { cwd: unfinished, stdio: ['pipe', 'ignore', 'inherit'] };
  execFileSync('tar', ['-x'], { ...options, input: archive });
  execFileSync('npm', ['ci', '--no-audit', '--no-fund'], options);
  execFileSync('npm', ['run', 'build'], options);
  renameSync(unfinished, directory);
  return cli;
}
