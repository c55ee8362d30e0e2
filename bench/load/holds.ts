/**
 * Reservations and leases beside checks: what a pair of requests costs, reserve and commit or
 * acquire and release, on one server with one acceptor, by the same client.
 */

import { HOLD_UNITS, runHoldLoad } from '../support/hold-load.ts';
import { canPin } from '../support/pinning.ts';
import { type ContestantFigures, measureAlternating } from '../support/rounds.ts';
import { startWeir } from '../support/servers.ts';

const CONNECTIONS = 64;
const IDENTIFIERS = 10_000;
const ROUNDS = 15;
const SECONDS = 2;
const WARM_UP_SECONDS = 5;

export interface HoldRow extends ContestantFigures {
  unit: string;
}

export async function measureHolds(progress: (what: string) => void): Promise<HoldRow[]> {
  const server = await startWeir('weir', 'in-place', canPin ? { cpu: 0 } : {});
  try {
    const { port, pids } = server;
    const units = Object.entries(HOLD_UNITS).map(([name, unit]) => {
      const load = { port, unit, connections: CONNECTIONS, identifiers: IDENTIFIERS };
      return { name, pids, run: (seconds = SECONDS) => runHoldLoad({ ...load, seconds }) };
    });
    for (const { name, run } of units) {
      progress(`warm up, ${name}`);
      await run(WARM_UP_SECONDS);
    }
    const figures = await measureAlternating(
      units.map(({ run, ...unit }) => ({ ...unit, run: () => run() })),
      ROUNDS,
      progress,
    );
    return figures.map((of, i) => ({ unit: units[i].name, ...of }));
  } finally {
    await server.stop();
  }
}
