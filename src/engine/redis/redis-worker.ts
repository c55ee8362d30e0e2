/**
 * The thread of a shard worker of the redis engine: a task of the piscina pool that runs until a
 * stop is requested. Acceptors wake it when they queue checks; it runs an event loop, because it
 * waits for answers of Redis meanwhile.
 *
 * It may die at any point: the supervisor breaks its locks and starts the task again. Slots stay
 * valid, answers to the messages of the dead run never arrive, and its queues are resumed. Where
 * shared memory is damaged it returns a description, and the supervisor ends the process.
 */

import { threadId } from 'node:worker_threads';
import { WORKER_HEARTBEAT_MS } from '../../core/constants.ts';
import { MemoryError } from '../../core/errors.ts';
import { requirePackage } from '../../core/packages.ts';
import { Breaker } from '../../redis/breaker.ts';
import { openRedis } from '../../redis/connection.ts';
import { prepareClients } from '../../redis/session.ts';
import { Clock, systemMs } from '../../shared-memory/clock.ts';
import { Control } from '../../shared-memory/control.ts';
import { WAKE_UP_FLAG, WORKER_STAT, type WorkerStats } from '../../shared-memory/stats.ts';
import { kernelThreadId } from '../../shared-memory/thread-times.ts';
import type { WorkerRun } from '../engine.ts';
import { CheckQueueConsumer } from '../queue/check-queue-consumer.ts';
import { attachChannel } from '../queue/queue.ts';
import { sleepInLoop } from '../queue/wake-up.ts';
import { workerOf } from '../table/shard.ts';
import type { RedisWorkerData } from './allocate.ts';
import { EngineState } from './engine-state.ts';
import { LeaseTable } from './lease-table.ts';
import { MemberScripts } from './member-scripts.ts';
import type { WorkerRequest } from './port-messages.ts';
import { KeySpace } from './scripts/keys.ts';
import { decodeMemberMessage } from './scripts/member-messages.ts';
import { RedisShardWorker } from './shard-worker.ts';

/** How long checks that are queued may take after a stop was requested. */
const STOP_QUEUES_MS = 100;

// While the thread boots, because it takes longer than a heartbeat may.
prepareClients();

const data = requirePackage('piscina').workerData as RedisWorkerData;

/** @returns undefined after a requested stop; a description of damaged shared memory */
export default async function run(workerRun: WorkerRun): Promise<string | undefined> {
  const { index, incarnation, notificationPorts } = workerRun;
  const control = new Control(data.control);
  const stats = control.workerStats(index);
  const heartbeatTimer = setInterval(() => stats.heartbeat(), WORKER_HEARTBEAT_MS / 2);
  try {
    if (!stats.startRun(incarnation, threadId, kernelThreadId())) {
      throw new Error(`run ${incarnation} of worker ${index} was given up before it started`);
    }
    await runUntilStop(workerRun, control, stats);
    return undefined;
  } catch (error) {
    if (error instanceof MemoryError) return error.message;
    throw error;
  } finally {
    clearInterval(heartbeatTimer);
    // The thread may continue with another run, which has ports of its own.
    for (const port of notificationPorts) port.close();
  }
}

async function runUntilStop(
  { index, incarnation, notificationPorts }: WorkerRun,
  control: Control,
  stats: WorkerStats,
): Promise<void> {
  const { settings, processId, tables, channels, directory, predecessor } = data.engine;
  const clock = new Clock(control);
  const nowMs = () => clock.monotonicMs();
  const state = new EngineState(data.engine.state);
  const keys = new KeySpace(settings.redisPrefix, state.bucketCount > 1);
  const member = `${processId}.${index}`;
  const link = openRedis(settings, {
    onConnected: () => worker.probe(),
    onFailure: () => worker.onConnectionLost(),
  });
  const worker = new RedisShardWorker({
    index,
    member,
    tables: tables.map((buffer, shard) => {
      if (workerOf(shard, control.workerCount) !== index) return undefined;
      return new LeaseTable(buffer, shard, state, incarnation, () => stats.heartbeat());
    }),
    consumers: channels.map((row, acceptor) => {
      const channel = attachChannel(row[index], acceptor, index);
      return new CheckQueueConsumer(channel, stats, notificationPorts[acceptor]);
    }),
    state,
    scripts: new MemberScripts(
      link,
      {
        keys,
        isAvailable: settings.recovery === 'available',
        predecessor: predecessor?.processId,
      },
      settings.redisTimeoutMs,
    ),
    newBreaker: () => new Breaker(),
    holds: data.engine.holds,
    settings,
    predecessor,
    stats,
    nowMs,
    systemMs,
  });
  try {
    for (const port of notificationPorts) {
      port.on('message', (request: WorkerRequest) => {
        void worker.answer(request, (response) => port.postMessage(response));
      });
    }
    const buckets = Array.from({ length: state.bucketCount }, (_, bucket) => bucket);
    link.subscribe(
      buckets.map((bucket) => keys.channel(bucket, member)),
      (bucket, text) => {
        const message = decodeMemberMessage(text);
        if (message !== undefined) worker.receive(bucket, message);
      },
      () => worker.onSubscribed(),
    );
    worker.start();
    await serveQueues(worker, stats);
    await emptyQueues(worker, nowMs);
    stats.set(WORKER_STAT.unreportedCounters, await worker.drain());
    if (directory !== undefined) {
      await worker.handOver(directory).catch((error: NodeJS.ErrnoException) => {
        stats.set(WORKER_STAT.handOverErrno, -(error.errno ?? -1));
      });
    }
  } finally {
    worker.close();
    link.close();
  }
}

/** Reads queues until a stop is requested. */
async function serveQueues(worker: RedisShardWorker, stats: WorkerStats): Promise<void> {
  const hasWork = () => worker.hasNewEntries() || stats.isStopping;
  while (!stats.isStopping) {
    stats.heartbeat();
    // The loop has its turn after each step, so that answers are read.
    if (worker.processEntries() > 0) await nextTurn();
    else await sleepInLoop(stats.words, WAKE_UP_FLAG, WORKER_HEARTBEAT_MS, hasWork);
  }
}

/** Decides the checks that are still queued, as long as acceptors wait for them. */
async function emptyQueues(worker: RedisShardWorker, nowMs: () => number): Promise<void> {
  const endMs = nowMs() + STOP_QUEUES_MS;
  while (!worker.isIdle() && nowMs() < endMs) {
    worker.processEntries();
    await nextTurn();
  }
}

function nextTurn(): Promise<void> {
  return new Promise((resolve) => setImmediate(resolve));
}
