/**
 * What losses of data in Redis, restarts and partitions cost three machines with all defaults: the
 * cases of `test/system/faults/loss-cases.ts`, as a table for docs/guarantees.md.
 */

import { startRedis } from '../../test/support/programs/redis.ts';
import { LOSS_CASES, runLossCase } from '../../test/system/faults/loss-cases.ts';
import type { LossFigures } from '../../test/system/faults/observed-cluster.ts';
import { settingsOfEnvironment } from '../support/servers.ts';

const HEAD = [
  ...['fault', 'checks', 'over', 'denied falsely: lost counters', 'others', 'no decision'],
  ...['without Redis', 'longest answer', 'normal after'],
];

/** @param printLine gets the lines of a table in Markdown */
export async function measureClusterFaults(
  printLine: (line: string) => void,
  progress: (what: string) => void,
): Promise<void> {
  const row = (cells: readonly string[]) => printLine(`| ${cells.join(' | ')} |`);
  row(HEAD);
  printLine(`|${'---|'.repeat(HEAD.length)}`);
  const redis = await startRedis();
  try {
    for (const one of LOSS_CASES) {
      progress(`cluster-faults: ${one.fault}`);
      const env = { ...settingsOfEnvironment(), ...one.env };
      row([one.fault, ...cellsOf(await runLossCase(redis, { ...one, env }))]);
    }
  } finally {
    await redis.close();
  }
}

function cellsOf(figures: LossFigures): string[] {
  const { checks, over, deniedLost, deniedOthers, failed, withoutRedis } = figures;
  const { longestMs, normalS } = figures;
  return [
    ...[checks, over, deniedLost, deniedOthers, failed, withoutRedis].map(String),
    `${longestMs.toFixed(0)} ms`,
    normalS === undefined ? 'never' : `${normalS.toFixed(1)} s`,
  ];
}
