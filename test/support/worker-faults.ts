/** A server whose shard workers die again and again: see `test/support/worker-fault.preload.mjs`. */

import { join } from 'node:path';
import { type ServerProcess, startServer } from './server.ts';

const FAULT_PRELOAD = new URL('./worker-fault.preload.mjs', import.meta.url).pathname;

export const FAULT_KINDS = ['throw', 'exit', 'memory', 'loop', 'bootstrap'];

/**
 * @param lifeMs how long a run lives about
 * @param kinds `damage` strikes when there is a file `strike` in the data directory
 */
export function startWithWorkerFaults(
  dataDir: string,
  args: string[],
  lifeMs: number,
  kinds = FAULT_KINDS,
): Promise<ServerProcess> {
  return startServer(dataDir, {
    args,
    execArgv: ['--import', FAULT_PRELOAD],
    env: {
      WORKER_FAULTS: kinds.join(),
      WORKER_FAULT_MS: String(lifeMs),
      WORKER_FAULT_FILE: join(dataDir, 'strike'),
    },
  });
}

/** The one worker dies over its first entry, and no other can start. It has one acceptor. */
export function startWithoutWorkerRestart(dataDir: string, args: string[]): Promise<ServerProcess> {
  return startServer(dataDir, {
    args: [...args, '--acceptors', '1', '--workers', '1'],
    execArgv: ['--import', FAULT_PRELOAD],
    env: { WORKER_FAULTS: 'orphan', WORKER_FIRST: '2' },
  });
}

export interface WorkerDeaths {
  byKind: Record<string, number>;
  total: number;
  /** From each death to the next run of the one worker, in ms, shortest first. */
  recoveryMs: number[];
}

/** What the faults said of themselves. */
export function readWorkerDeaths(server: ServerProcess): WorkerDeaths {
  const byKind: Record<string, number> = Object.fromEntries(FAULT_KINDS.map((kind) => [kind, 0]));
  const recoveryMs: number[] = [];
  let diedAt: number | undefined;
  for (const [, text] of server.stderr().matchAll(/^fault (\{.*\})$/gm)) {
    const { kind, at }: { kind: string; at: number } = JSON.parse(text);
    if (kind !== 'begun') {
      byKind[kind]++;
      diedAt ??= at;
    } else if (diedAt !== undefined) {
      recoveryMs.push(at - diedAt);
      diedAt = undefined;
    }
  }
  recoveryMs.sort((a, b) => a - b);
  return { byKind, total: Object.values(byKind).reduce((a, b) => a + b, 0), recoveryMs };
}

export function describeDeaths({ byKind, total, recoveryMs }: WorkerDeaths): string {
  const kinds = FAULT_KINDS.map((kind) => `${byKind[kind]} ${kind}`).join(', ');
  const at = (share: number) => recoveryMs[Math.floor((recoveryMs.length - 1) * share)];
  return (
    `${total} deaths (${kinds}), back after ${at(0.5)} ms (median),` +
    ` ${at(0.9)} (p90), ${at(1)} (most)`
  );
}
