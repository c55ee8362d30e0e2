/**
 * Envoy's rate limit service: weir with one thread for it, and other servers where they are
 * installed. Each server has a CPU of its own, and the load another one, if there are two.
 */

import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { canPin } from '../support/pinning.ts';
import { runRlsLoad } from '../support/rls-load.ts';
import {
  hasLimitador,
  hasRatelimit,
  RLS_RULES,
  type RlsServer,
  startLimitador,
  startRatelimit,
} from '../support/rls-peers.ts';
import { type ContestantFigures, measureAlternating } from '../support/rounds.ts';
import { freePort, startWeir } from '../support/servers.ts';

const ROUNDS = 5;
const SECONDS = 2;
const WARM_UP_SECONDS = 3;

/** Connections, calls that each has open, values of the descriptor, and the answer to all calls. */
const LOADS = [
  { connections: 4, streams: 1, values: 10, outcome: 'allowed' },
  { connections: 4, streams: 16, values: 10, outcome: 'allowed' },
  { connections: 4, streams: 16, values: 100_000, outcome: 'allowed' },
  { connections: 4, streams: 16, values: 100_000, outcome: 'denied' },
  { connections: 64, streams: 1, values: 100_000, outcome: 'allowed' },
] as const;

export interface RlsRow extends ContestantFigures {
  server: string;
  load: string;
}

export async function measureRls(progress: (what: string) => void): Promise<RlsRow[]> {
  const cpu = canPin ? 0 : undefined;
  const servers: RlsServer[] = [];
  try {
    servers.push(await startService(cpu));
    if (hasRatelimit) servers.push(await startRatelimit(cpu));
    if (hasLimitador) servers.push(await startLimitador(cpu));
    const rows: RlsRow[] = [];
    for (const load of LOADS) {
      const { connections, streams, values, outcome } = load;
      const name = `${connections} x ${streams}, ${values} values, ${outcome}`;
      const contestants = servers.map(({ name, pids, port }) => ({
        name,
        pids,
        run: () => runRlsLoad({ ...load, port, seconds: SECONDS }),
      }));
      for (const { name: server, port } of servers) {
        progress(`rate limit service: ${name}, warm-up`);
        const { errors } = await runRlsLoad({ ...load, port, seconds: WARM_UP_SECONDS });
        if (errors > 0) throw new Error(`${server}: ${errors} errors`);
      }
      const figures = await measureAlternating(contestants, ROUNDS, (what) => {
        progress(`rate limit service: ${name}, ${what}`);
      });
      rows.push(...figures.map((it, i) => ({ server: servers[i].name, load: name, ...it })));
    }
    return rows;
  } finally {
    for (const { stop } of servers) await stop();
  }
}

async function startService(cpu: number | undefined): Promise<RlsServer> {
  const directory = mkdtempSync(join(tmpdir(), 'weir-bench-'));
  writeFileSync(join(directory, 'rules.yaml'), RLS_RULES);
  const port = await freePort();
  const args = ['--rls-port', String(port), '--rls-config', directory];
  const weir = await startWeir('weir', 'in-place', { args, ...(cpu !== undefined && { cpu }) });
  const stop = async () => {
    await weir.stop();
    rmSync(directory, { recursive: true, force: true });
  };
  return { name: weir.name, port, pids: weir.pids, stop };
}
