/** Starts the engine of the process, on the main thread. See `server/create-engine.ts` too. */

import type { MessagePort } from 'node:worker_threads';
import type { Log } from '../core/log.ts';
import type { EngineHost } from '../engine/engine.ts';
import { RedisEngineHost } from '../engine/redis/host.ts';
import { WorkerEngineHost } from '../engine/worker/host.ts';
import type { SharedState } from './shared-state.ts';

/**
 * @param connectWorker passes one end of a channel from a worker to each acceptor, and returns the
 *   other ends
 */
export function startEngine(
  { engineData, controlBuffer, checkpointPlan }: SharedState,
  connectWorker: (worker: number) => MessagePort[],
  log: Log,
): EngineHost {
  if (engineData.engine === 'redis') {
    const host = new RedisEngineHost(engineData, controlBuffer);
    host.start(connectWorker, log);
    return host;
  }
  const host = new WorkerEngineHost(engineData, controlBuffer);
  host.start(checkpointPlan, connectWorker, log);
  return host;
}
