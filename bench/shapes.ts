/**
 * The same check in other shapes of load: more and fewer connections, sixteen requests at once, one
 * identifier and a million, refused instead of admitted. weir in turn with the bare server that
 * parses, each under that shape, so the ratio is what the shape does to weir and not to HTTP. All
 * requests have one length.
 */

import { ADMITTED, REFUSED, type Workload } from './generator.ts';
import { contestant, runScenario } from './load.ts';
import { type Figures, measureInTurn } from './rounds.ts';
import { bare, type Server, weir } from './servers.ts';
import { KEY } from './sets.ts';

const ROUNDS = 3;
const SECONDS = 1;

interface Shape {
  connections: number;
  pipelining: number;
  identifiers: number;
  workload: Workload;
}

export interface ShapeResult extends Omit<Shape, 'workload'> {
  isRefused: boolean;
  bare: Figures;
  weir: Figures;
}

const usual: Shape = {
  connections: 64,
  pipelining: 1,
  identifiers: 10_000,
  workload: ADMITTED,
};
const SHAPES: readonly Shape[] = [
  ...[1, 16].flatMap((pipelining) => {
    return [1, 16, 64, 256].map((connections) => ({ ...usual, connections, pipelining }));
  }),
  { ...usual, identifiers: 1 },
  { ...usual, identifiers: 1_000_000 },
  { ...usual, workload: REFUSED },
];

export async function measureShapes(progress: (what: string) => void): Promise<ShapeResult[]> {
  const servers = await Promise.all([bare('bare, parses', 'parse'), weir('weir, in place')]);
  try {
    const results: ShapeResult[] = [];
    for (const { workload, ...shape } of SHAPES) {
      const what = Object.values(shape).join(', ');
      const scenario = { ...shape, workload, seconds: SECONDS };
      progress(`shape ${what}: warm up`);
      for (const server of servers) await runScenario({ ...scenario, server });
      const isRefused = workload === REFUSED;
      await mustDecide(servers[1], workload, isRefused);
      const contestants = servers.map((server) => contestant({ ...scenario, server }));
      const [ofBare, ofWeir] = await measureInTurn(contestants, ROUNDS, (round) => {
        progress(`shape ${what}: ${round}`);
      });
      await mustDecide(servers[1], workload, isRefused);
      results.push({ ...shape, isRefused, bare: ofBare, weir: ofWeir });
    }
    return results;
  } finally {
    await Promise.all(servers.map((server) => server.stop()));
  }
}

/** That what the load asked last is still refused, or still admitted. */
async function mustDecide({ port }: Server, workload: Workload, isRefused: boolean): Promise<void> {
  const answer = await fetch(`http://127.0.0.1:${port}${workload.path}`, {
    method: 'POST',
    headers: { Authorization: `Bearer ${KEY}`, 'Content-Type': 'application/json' },
    body: JSON.stringify(workload.body('user_0000000')),
  });
  const text = await answer.text();
  if (!text.includes(`"success":${!isRefused}`)) throw new Error(`unexpected: ${text}`);
}
