/**
 * The cost of analytics, events and dashboards. Each is measured beside weir without them, with
 * both under load at once, since a machine changes its speed by more than this cost within seconds.
 * Nine of ten identifiers have no entry in the sketch. Under `denied` each check is a candidate for
 * an event.
 *
 * V8 inlines other functions in each process of the same program, which changes the CPU per
 * request. So all servers are started several times.
 */

import { DashboardSession, type Subscription } from '../support/dashboard.ts';
import {
  ALLOWED_WORKLOAD,
  DENIED_WORKLOAD,
  runLoad,
  type Workload,
} from '../support/load-generator.ts';
import {
  type Contestant,
  type ContestantFigures,
  measureRoundsAtOnce,
  type RoundMeasurement,
  summarizeRounds,
} from '../support/rounds.ts';
import { type BenchServer, freePort, startWeir } from '../support/servers.ts';

const STARTS = 8;
/** Of each start. */
const ROUNDS = 2;
const SECONDS = 2;
/** Until V8 has compiled all functions, and the sketches are as full as after half a minute. */
const WARM_UP_SECONDS = 8;
const WARM_UP_PIPELINING = 16;
const CONNECTIONS = 64;

interface Variant {
  args: readonly string[];
  /** Open dashboards, each with the view of the namespace that is under load. */
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
  const rows: AnalyticsRow[] = [];
  for (const [load, workload] of [
    ['allowed', ALLOWED_WORKLOAD],
    ['denied', DENIED_WORKLOAD],
  ] as const) {
    /** By variant: the rounds of `neither`, and its own beside them. */
    const pairs = Object.keys(VARIANTS).map((): RoundMeasurement[][] => [[], []]);
    let figures: ContestantFigures[] = [];
    for (let start = 1; start <= STARTS; start++) {
      const say = (what: string) => progress(`${load}, start ${start}, ${what}`);
      await withContestants(workload, say, async ([neither, ...others]) => {
        for (const [i, other] of others.entries()) {
          say(`${other.name} beside ${neither.name}`);
          const rounds = await measureRoundsAtOnce([neither, other], ROUNDS);
          for (const [side, of] of rounds.entries()) pairs[i + 1][side].push(...of);
        }
        // While the processes are there: their memory is one of the figures.
        const all = pairs.slice(1).flatMap(([of]) => of);
        figures = [neither, ...others].map((contestant, i) => {
          const measured = i === 0 ? [all, all] : pairs[i];
          return summarizeRounds([neither, contestant], measured)[1];
        });
      });
    }
    const names = Object.keys(VARIANTS);
    rows.push(...figures.map((of, i) => ({ server: names[i], load, ...of })));
  }
  return rows;
}

/** Starts one server of each variant, and ends them after `use`. */
async function withContestants(
  workload: Workload,
  progress: (what: string) => void,
  use: (contestants: Contestant[]) => Promise<void>,
): Promise<void> {
  const servers: BenchServer[] = [];
  const dashboards: Subscription[] = [];
  const options = { workload, connections: CONNECTIONS };
  try {
    for (const [name, { args, dashboards: count }] of Object.entries(VARIANTS)) {
      const adminPort = await freePort();
      // The last flag is the one that counts.
      const more = [...args, '--admin-port', String(adminPort)];
      const server = await startWeir(name, 'in-place', { args: more });
      servers.push(server);
      progress(`warm up ${name}`);
      const { port } = server;
      const pipelining = WARM_UP_PIPELINING;
      await runLoad({ ...options, port, seconds: WARM_UP_SECONDS, pipelining });
      // The namespace exists from the first check on.
      for (let i = 0; i < count; i++) {
        const session = await DashboardSession.signIn(adminPort);
        dashboards.push(await session.openEvents(), session.followNamespace());
      }
      await runLoad({ ...options, port, seconds: SECONDS });
    }
    const contestants = servers.map(({ name, pids, port }) => {
      return { name, pids, run: () => runLoad({ ...options, port, seconds: SECONDS }) };
    });
    await use(contestants);
  } finally {
    for (const dashboard of dashboards) dashboard.close();
    await Promise.all(servers.map((server) => server.stop()));
  }
}
