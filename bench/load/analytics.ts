/**
 * The cost of analytics and events: weir without them, and with more and more of them, under the
 * same load. A tenth of the identifiers of a load would have entries in the sketch, so most checks
 * of `allowed` take the longest path of the sketch. Under `denied` each check is a candidate for an
 * event.
 */

import { ALLOWED_WORKLOAD, DENIED_WORKLOAD, runLoad } from '../support/load-generator.ts';
import { type ContestantFigures, measureAlternating } from '../support/rounds.ts';
import { startWeir } from '../support/servers.ts';

const ROUNDS = 9;
const SECONDS = 3;
const WARM_UP_SECONDS = 6;
const CONNECTIONS = 64;

const SERVERS: Readonly<Record<string, readonly string[]>> = {
  neither: ['--analytics', 'off'],
  analytics: [],
  'and 1 % of denials': ['--events', 'denied', '--events-one-in', '100'],
  'and all decisions': ['--events', 'all', '--events-files', '1'],
};

export interface AnalyticsRow extends ContestantFigures {
  server: string;
  load: string;
}

export async function measureAnalytics(progress: (what: string) => void): Promise<AnalyticsRow[]> {
  const loads = { allowed: ALLOWED_WORKLOAD, denied: DENIED_WORKLOAD };
  const rows: AnalyticsRow[] = [];
  for (const [load, workload] of Object.entries(loads)) {
    const servers = await Promise.all(
      Object.entries(SERVERS).map(([name, args]) => startWeir(name, 'in-place', { args })),
    );
    const options = { workload, connections: CONNECTIONS };
    try {
      for (const { name, port } of servers) {
        progress(`${load}, ${name}: warm up`);
        await runLoad({ ...options, port, seconds: WARM_UP_SECONDS });
      }
      const contestants = servers.map(({ name, pids, port }) => {
        return { name, pids, run: () => runLoad({ ...options, port, seconds: SECONDS }) };
      });
      const figures = await measureAlternating(contestants, ROUNDS, (what) => {
        progress(`${load}, ${what}`);
      });
      rows.push(...figures.map((of, i) => ({ server: servers[i].name, load, ...of })));
    } finally {
      await Promise.all(servers.map((server) => server.stop()));
    }
  }
  return rows;
}
