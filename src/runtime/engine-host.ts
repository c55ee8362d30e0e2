/** Starts the engine of the process, on the main thread. See `server/create-engine.ts` too. */

import type { MessagePort } from 'node:worker_threads';
import type { Log } from '../core/log.ts';
import type { EngineHost } from '../engine/engine.ts';
import { HostedMemoryEngine } from '../engine/memory/shard-worker/hosted-engine.ts';
import { HostedRedisEngine } from '../engine/redis/hosted-engine.ts';
import { ShardWorkerHost } from '../engine/worker/host.ts';
import type { SharedState } from './shared-state.ts';

/** @param connectWorker see `ShardWorkerHost` */
export function startEngine(
  { engineData, controlBuffer, control, checkpointPlan }: SharedState,
  connectWorker: (worker: number) => MessagePort[],
  log: Log,
): EngineHost {
  const engine =
    engineData.engine === 'redis'
      ? new HostedRedisEngine(engineData, controlBuffer)
      : new HostedMemoryEngine(engineData, controlBuffer, checkpointPlan);
  return new ShardWorkerHost(engine, control, connectWorker, log);
}
