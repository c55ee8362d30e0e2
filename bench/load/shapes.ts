/**
 * The same check in other shapes of load: more and fewer connections, sixteen pipelined requests,
 * one identifier and a million, denied instead of allowed. weir and the bare server that parses
 * alternate in each shape. The ratio therefore shows the effect on weir, not on HTTP. All requests
 * have the same length.
 */

import { ALLOWED_WORKLOAD, DENIED_WORKLOAD, type Workload } from '../support/load-generator.ts';
import { ROOT_KEY } from '../support/override-sets.ts';
import { type ContestantFigures, measureAlternating } from '../support/rounds.ts';
import { type BenchServer, startBareServer, startWeir } from '../support/servers.ts';
import { runScenario, scenarioContestant } from './http-load.ts';

const ROUNDS = 3;
const SECONDS = 1;

interface LoadShape {
  connections: number;
  pipelining: number;
  identifiers: number;
  workload: Workload;
}

export interface ShapeResult extends Omit<LoadShape, 'workload'> {
  isDenied: boolean;
  bare: ContestantFigures;
  weir: ContestantFigures;
}

const DEFAULT_SHAPE: LoadShape = {
  connections: 64,
  pipelining: 1,
  identifiers: 10_000,
  workload: ALLOWED_WORKLOAD,
};
const SHAPES: readonly LoadShape[] = [
  ...[1, 16, 64, 256].map((connections) => ({ ...DEFAULT_SHAPE, connections })),
  // With more connections weir closes some: docs/operations.md, Turns.
  ...[1, 16, 64].map((connections) => ({ ...DEFAULT_SHAPE, connections, pipelining: 16 })),
  { ...DEFAULT_SHAPE, identifiers: 1 },
  { ...DEFAULT_SHAPE, identifiers: 1_000_000 },
  { ...DEFAULT_SHAPE, workload: DENIED_WORKLOAD },
];

export async function measureShapes(progress: (what: string) => void): Promise<ShapeResult[]> {
  const servers = await Promise.all([
    startBareServer('bare, parses', 'parse'),
    startWeir('weir, in place'),
  ]);
  try {
    const results: ShapeResult[] = [];
    for (const { workload, ...shape } of SHAPES) {
      const what = Object.values(shape).join(', ');
      const scenario = { ...shape, workload, seconds: SECONDS };
      progress(`shape ${what}: warm up`);
      for (const server of servers) await runScenario({ ...scenario, server });
      const isDenied = workload === DENIED_WORKLOAD;
      await assertDecision(servers[1], workload, isDenied);
      const contestants = servers.map((server) => scenarioContestant({ ...scenario, server }));
      const [ofBare, ofWeir] = await measureAlternating(contestants, ROUNDS, (round) => {
        progress(`shape ${what}: ${round}`);
      });
      await assertDecision(servers[1], workload, isDenied);
      results.push({ ...shape, isDenied, bare: ofBare, weir: ofWeir });
    }
    return results;
  } finally {
    await Promise.all(servers.map((server) => server.stop()));
  }
}

/** Sends one more check of the workload, and asserts its decision. */
async function assertDecision(
  { port }: BenchServer,
  workload: Workload,
  isDenied: boolean,
): Promise<void> {
  const response = await fetch(`http://127.0.0.1:${port}${workload.path}`, {
    method: 'POST',
    headers: { Authorization: `Bearer ${ROOT_KEY}`, 'Content-Type': 'application/json' },
    body: JSON.stringify(workload.body('user_0000000')),
  });
  const text = await response.text();
  if (!text.includes(`"success":${!isDenied}`)) throw new Error(`unexpected decision: ${text}`);
}
