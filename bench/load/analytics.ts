/**
 * The cost of analytics, events and dashboards: weir without them, and with more and more of them,
 * under the same load. A tenth of the identifiers of a load would have entries in the sketch, so
 * most checks of `allowed` take the longest path of the sketch. Under `denied` each check is a
 * candidate for an event.
 */

import { openDashboard } from '../support/dashboard.ts';
import { ALLOWED_WORKLOAD, DENIED_WORKLOAD, runLoad } from '../support/load-generator.ts';
import { type ContestantFigures, measureAlternating } from '../support/rounds.ts';
import { type BenchServer, freePort, startWeir } from '../support/servers.ts';

const ROUNDS = 5;
const SECONDS = 3;
const WARM_UP_SECONDS = 6;
const CONNECTIONS = 64;

interface Variant {
  args: readonly string[];
  /** Open dashboards. */
  dashboards: number;
}

const SAMPLE = ['--events', 'denied', '--events-one-in', '100'];
const VARIANTS: Readonly<Record<string, Variant>> = {
  neither: { args: ['--analytics', 'off'], dashboards: 0 },
  analytics: { args: [], dashboards: 0 },
  '1 % of denials, a dashboard': { args: SAMPLE, dashboards: 1 },
  'and ten dashboards': { args: SAMPLE, dashboards: 10 },
  'events of all decisions': { args: ['--events', 'all', '--events-files', '1'], dashboards: 0 },
};

export interface AnalyticsRow extends ContestantFigures {
  server: string;
  load: string;
}

export async function measureAnalytics(progress: (what: string) => void): Promise<AnalyticsRow[]> {
  const loads = { allowed: ALLOWED_WORKLOAD, denied: DENIED_WORKLOAD };
  const rows: AnalyticsRow[] = [];
  for (const [load, workload] of Object.entries(loads)) {
    const servers: BenchServer[] = [];
    const dashboards: { close: () => void }[] = [];
    const options = { workload, connections: CONNECTIONS };
    try {
      for (const [name, { args, dashboards: count }] of Object.entries(VARIANTS)) {
        const adminPort = await freePort();
        // The last flag is the one that counts.
        const more = [...args, '--admin-port', String(adminPort)];
        servers.push(await startWeir(name, 'in-place', { args: more }));
        for (let i = 0; i < count; i++) dashboards.push(await openDashboard(adminPort));
      }
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
      for (const dashboard of dashboards) dashboard.close();
      await Promise.all(servers.map((server) => server.stop()));
    }
  }
  return rows;
}
