/** Servers whose shard workers fail repeatedly: see `test/support/worker-fault.preload.mjs`. */

import { type ServerProcess, startServer } from './server.ts';

const FAULT_PRELOAD = new URL('./worker-fault.preload.mjs', import.meta.url).pathname;

export const FAULT_KINDS = ['throw', 'exit', 'memory', 'loop', 'bootstrap'];

/**
 * Options of a server with these faults.
 * @param lifeMs how long a worker's run lasts on average before its fault
 * @param trigger the file that the kinds `corrupt` and `native` wait for
 */
export function workerFaults(lifeMs: number, kinds = FAULT_KINDS, trigger = '') {
  return {
    execArgv: ['--import', FAULT_PRELOAD],
    env: {
      ...{ WORKER_FAULTS: kinds.join(), WORKER_FAULT_MS: String(lifeMs) },
      WORKER_FAULT_FILE: trigger,
    },
  };
}

/** The only worker dies after it claimed its first entry, and no other can start. One acceptor. */
export function startWithoutWorkerRestart(dataDir: string, args: string[]): Promise<ServerProcess> {
  return startServer(dataDir, {
    args: [...args, '--acceptors', '1', '--workers', '1'],
    execArgv: ['--import', FAULT_PRELOAD],
    env: { WORKER_FAULTS: 'no-restart', WORKER_FIRST: '2' },
  });
}

export interface WorkerDeaths {
  byKind: Record<string, number>;
  total: number;
  /** Time from each death to the next run of the only worker, in ms, ascending. */
  recoveryMs: number[];
}

/** The deaths that the faults reported. */
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
    `${total} deaths (${kinds}), recovery ${at(0.5)} ms (median),` +
    ` ${at(0.9)} ms (p90), ${at(1)} ms (max)`
  );
}
