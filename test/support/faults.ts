/** A server whose shard workers die again and again: see `test/faults/worker-fault.mjs`. */

import { join } from 'node:path';
import { type Running, startServer } from './server.ts';

const FAULT = new URL('../faults/worker-fault.mjs', import.meta.url).pathname;

export const KINDS = ['throw', 'exit', 'memory', 'loop', 'bootstrap'];

/**
 * @param lifeMs how long a run lives about
 * @param kinds `damage` strikes when there is a file `strike` in the data directory
 */
export function startFaulty(
  dataDir: string,
  args: string[],
  lifeMs: number,
  kinds = KINDS,
): Promise<Running> {
  return startServer(dataDir, {
    args,
    execArgv: ['--import', FAULT],
    env: {
      WORKER_FAULTS: kinds.join(),
      WORKER_FAULT_MS: String(lifeMs),
      WORKER_FAULT_FILE: join(dataDir, 'strike'),
    },
  });
}

/** The one worker dies over its first entry, and no other can start. It has one acceptor. */
export function startOrphaned(dataDir: string, args: string[]): Promise<Running> {
  return startServer(dataDir, {
    args: [...args, '--acceptors', '1', '--workers', '1'],
    execArgv: ['--import', FAULT],
    env: { WORKER_FAULTS: 'orphan', WORKER_FIRST: '2' },
  });
}

export interface Deaths {
  byKind: Record<string, number>;
  total: number;
  /** From each death to the next run of the one worker, in ms, shortest first. */
  recoveries: number[];
}

/** What the faults said of themselves. */
export function deathsOf(server: Running): Deaths {
  const byKind: Record<string, number> = Object.fromEntries(KINDS.map((kind) => [kind, 0]));
  const recoveries: number[] = [];
  let diedAt: number | undefined;
  for (const [, text] of server.stderr().matchAll(/^fault (\{.*\})$/gm)) {
    const { kind, at }: { kind: string; at: number } = JSON.parse(text);
    if (kind !== 'begun') {
      byKind[kind]++;
      diedAt ??= at;
    } else if (diedAt !== undefined) {
      recoveries.push(at - diedAt);
      diedAt = undefined;
    }
  }
  recoveries.sort((a, b) => a - b);
  return { byKind, total: Object.values(byKind).reduce((a, b) => a + b, 0), recoveries };
}

export function inWords({ byKind, total, recoveries }: Deaths): string {
  const kinds = KINDS.map((kind) => `${byKind[kind]} ${kind}`).join(', ');
  const at = (share: number) => recoveries[Math.floor((recoveries.length - 1) * share)];
  return (
    `${total} deaths (${kinds}), back after ${at(0.5)} ms (median),` +
    ` ${at(0.9)} (p90), ${at(1)} (most)`
  );
}
