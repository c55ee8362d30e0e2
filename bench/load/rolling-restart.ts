/**
 * Rolling restarts of five machines with all defaults and one Redis, under load: first on cores
 * that do nothing else, and then beside programs that use all they get.
 */

import { startBusyLoops } from '../../test/support/programs/busy-loops.ts';
import { startRedis } from '../../test/support/programs/redis.ts';
import {
  closeMachines,
  type Machine,
  startMachines,
} from '../../test/system/faults/cluster-machines.ts';
import { OutsideClient } from '../../test/system/faults/outside-client.ts';
import {
  measureRestarts,
  newCounters,
  type RestartFigures,
} from '../../test/system/faults/rolling-restart.ts';
import { settingsOfEnvironment } from '../support/servers.ts';

export const RESTART_ROUNDS = 10;
const MACHINES = 5;
/** The last one in a fifth of the rounds: each of them takes three times as long. */
const BUSY_LOOPS = [
  { busyLoops: 0, share: 1 },
  { busyLoops: 2, share: 1 },
  { busyLoops: 14, share: 1 / 5 },
] as const;

export interface RestartRow extends RestartFigures {
  /** Programs that use the cores beside the machines. */
  busyLoops: number;
}

/** @param rounds in each of which all machines are restarted */
export async function measureRollingRestarts(
  rounds: number,
  progress: (what: string) => void,
): Promise<RestartRow[]> {
  const rows: RestartRow[] = [];
  for (const { busyLoops, share } of BUSY_LOOPS) {
    const redis = await startRedis();
    // The defaults, but for what `Machine` sets for tests, and without its proxies.
    const defaults = { WEIR_REDIS_URL: redis.url, WEIR_ON_ENGINE_DOWN: undefined };
    const env = { ...defaults, ...settingsOfEnvironment() };
    let machines: Machine[] = [];
    let stopLoops = () => {};
    const client = new OutsideClient();
    try {
      machines = await startMachines(redis, MACHINES, { env });
      stopLoops = startBusyLoops(busyLoops);
      const counters = newCounters(`beside_${busyLoops}`);
      for (let round = 0; round < Math.ceil(share * rounds); round++) {
        progress(`rolling-restart: beside ${busyLoops} busy loops, round ${round + 1}`);
        rows.push({ ...(await measureRestarts(client, machines, counters)), busyLoops });
      }
    } finally {
      stopLoops();
      client.close();
      await closeMachines(machines);
      await redis.close();
    }
  }
  return rows;
}
