/**
 * Measures how much windows allow when all checks are asynchronous, on several machines with one
 * Redis: allowed tokens in parts of the limit, at rates from one to ten times the limit. All
 * processes run on this machine. The rates are set; checks that were not sent show that the
 * machine was too slow.
 */

import { startRedis } from '../../test/support/programs/redis.ts';
import { type AsyncReport, runAsyncLoad } from '../../test/system/faults/async-load.ts';
import { closeMachines, startMachines } from '../../test/system/faults/cluster-machines.ts';

const MACHINES = [2, 3, 5];
const LOADS = [1, 2, 10];
const LIMITS = [
  { limit: 1_000, durationMs: 1_000 },
  { limit: 200, durationMs: 2_000 },
];
/** Of the longest limit. */
const WINDOWS = 5;

export interface ClusterAsyncRow extends AsyncReport {
  machines: number;
  load: number;
}

export async function measureClusterAsync(
  progress: (what: string) => void,
): Promise<ClusterAsyncRow[]> {
  const redis = await startRedis();
  const rows: ClusterAsyncRow[] = [];
  try {
    for (const machines of MACHINES) {
      const env = { WEIR_REDIS_URL: redis.url };
      const started = await startMachines(redis, machines, { env });
      const servers = started.map(({ server }) => server);
      try {
        for (const load of LOADS) {
          progress(`cluster-async: ${machines} machines at ${load} x the limit`);
          const options = { limits: LIMITS, load, windows: WINDOWS };
          rows.push({ machines, load, ...(await runAsyncLoad(servers, options)) });
        }
      } finally {
        await closeMachines(started);
      }
    }
    return rows;
  } finally {
    await redis.close();
  }
}
