/** What /readyz and the metrics show of the shard workers' connections to Redis. */

import type { ClusterStats } from '../engine.ts';
import type { EngineState } from './engine-state.ts';

export function clusterStatsOf(state: EngineState, isExact: boolean): ClusterStats {
  const workers = Array.from({ length: state.workerCount }, (_, worker) => worker);
  return {
    connections: workers.map((worker) => !state.isDown(worker)),
    hasJoined: workers.every((worker) => state.hasJoined(worker)),
    isRecovering: workers.some((worker) => state.isRecovering(worker)),
    isExact,
    machines: state.machineCount,
  };
}
