/**
 * The cost of analytics and events in one process, which has them for half a second and then not,
 * in turn: see `switch-hooks.mjs`. A slot is compared with the two slots around it, so neither
 * the speed of the machine nor the code that V8 has made for this process changes the result.
 *
 * Three things are there in all slots: what the main thread does for analytics every second, an
 * open dashboard, and the reading of metrics at the ends of each slot.
 */

import { spawnSync } from 'node:child_process';
import { readdirSync, readFileSync } from 'node:fs';
import { setTimeout as sleep } from 'node:timers/promises';
import { openDashboard } from '../support/dashboard.ts';
import {
  ALLOWED_WORKLOAD,
  DENIED_WORKLOAD,
  runLoad,
  type Workload,
} from '../support/load-generator.ts';
import { type BenchServer, freePort, startWeir } from '../support/servers.ts';

const STARTS = 3;
const SECONDS = 30;
const WARM_UP_SECONDS = 6;
const WARM_UP_PIPELINING = 16;
const SLOT_MS = 550;
/** A slot is measured without its beginning and its end, in which threads notice the switch. */
const MARGIN_MS = 20;
/** The lowest and the highest quarter are left out: the machine did something else meanwhile. */
const TRIMMED = 0.25;
/** The acceptor has a core of its own, so that nothing moves between the cores. */
const ACCEPTOR_CORE = 0;
const OTHER_CORE = 1;

const SAMPLE = ['--events', 'denied', '--events-one-in', '100'];

interface Variant {
  load: 'allowed' | 'denied';
  name: string;
  /** The parts, as `switch-hooks.mjs` names them. */
  switched: string;
  args: readonly string[];
}

const VARIANTS: readonly Variant[] = [
  { load: 'allowed', name: 'analytics', switched: 'analytics', args: [] },
  { load: 'denied', name: 'analytics', switched: 'analytics', args: [] },
  { load: 'denied', name: '1 % of denials', switched: 'events', args: SAMPLE },
  { load: 'denied', name: 'both', switched: 'analytics,events', args: SAMPLE },
  { load: 'denied', name: 'all events', switched: 'events', args: ['--events', 'all'] },
];
const WORKLOADS: Readonly<Record<Variant['load'], Workload>> = {
  allowed: ALLOWED_WORKLOAD,
  denied: DENIED_WORKLOAD,
};

/** A ratio of on to off, and its standard error. */
export interface Estimate {
  ratio: number;
  error: number;
}

export interface CostRow {
  load: string;
  name: string;
  /** Slots that were compared. */
  compared: number;
  throughput: Estimate;
  /** CPU per request: of all threads, and of the acceptor alone. */
  cpu: Estimate;
  acceptor: Estimate;
}

interface Slot {
  number: number;
  /** Requests per second. */
  rate: number;
  /** Nanoseconds of CPU per request. */
  cpu: number;
  acceptor: number;
}

export async function measureAnalyticsCost(progress: (what: string) => void): Promise<CostRow[]> {
  // Servers and wrk inherit it.
  pin(process.pid, OTHER_CORE);
  const rows: CostRow[] = [];
  for (const variant of VARIANTS) {
    const starts: Slot[][] = [];
    for (let start = 1; start <= STARTS; start++) {
      progress(`${variant.load}, ${variant.name}, start ${start}`);
      starts.push(await measureStart(variant));
    }
    const of = (figure: (slot: Slot) => number) => {
      return estimate(starts.flatMap((slots) => logRatios(slots, figure)));
    };
    rows.push({
      load: variant.load,
      name: variant.name,
      compared: starts.flatMap((slots) => logRatios(slots, ({ rate }) => rate)).length,
      throughput: of(({ rate }) => rate),
      cpu: of(({ cpu }) => cpu),
      acceptor: of(({ acceptor }) => acceptor),
    });
  }
  return rows;
}

async function measureStart({ load, switched, args }: Variant): Promise<Slot[]> {
  const adminPort = await freePort();
  const hooks = new URL('../../bench/support/switch.mjs', import.meta.url).href;
  const server = await startWeir('weir', 'in-place', {
    args: [...args, '--admin-port', String(adminPort)],
    nodeFlags: ['--import', hooks],
    env: { SWITCHED: switched, SLOT_MS: String(SLOT_MS) },
  });
  let dashboard: { close: () => void } | undefined;
  try {
    dashboard = await openDashboard(adminPort);
    const options = { workload: WORKLOADS[load], connections: 64, port: server.port };
    await runLoad({ ...options, seconds: WARM_UP_SECONDS, pipelining: WARM_UP_PIPELINING });
    const running = runLoad({ ...options, seconds: SECONDS + 2 });
    const [slots, { errors }] = await Promise.all([measureSlots(server, adminPort), running]);
    if (errors > 0) throw new Error(`${errors} errors`);
    return slots;
  } finally {
    dashboard?.close();
    await server.stop();
  }
}

async function measureSlots({ pids }: BenchServer, adminPort: number): Promise<Slot[]> {
  const [pid] = pids;
  const before = threadTimes(pid);
  await sleep(SLOT_MS);
  const busiest = [...threadTimes(pid)].map(([id, ns]) => ({ id, ns: ns - (before.get(id) ?? 0) }));
  const [acceptor] = busiest.toSorted((a, b) => b.ns - a.ns);
  pin(acceptor.id, ACCEPTOR_CORE);
  const snapshot = async () => {
    const requests = await countDecisions(adminPort);
    const times = threadTimes(pid);
    const cpu = [...times.values()].reduce((sum, ns) => sum + ns, 0);
    return { requests, cpu, acceptor: times.get(acceptor.id) ?? 0, ms: performance.now() };
  };
  const slots: Slot[] = [];
  const first = Math.floor(Date.now() / SLOT_MS) + 1;
  for (let number = first; number < first + (1_000 * SECONDS) / SLOT_MS; number++) {
    await sleep(number * SLOT_MS + MARGIN_MS - Date.now());
    const from = await snapshot();
    await sleep((number + 1) * SLOT_MS - MARGIN_MS - Date.now());
    const to = await snapshot();
    const requests = to.requests - from.requests;
    slots.push({
      number,
      rate: (1_000 * requests) / (to.ms - from.ms),
      cpu: (to.cpu - from.cpu) / requests,
      acceptor: (to.acceptor - from.acceptor) / requests,
    });
  }
  return slots;
}

function pin(thread: number | string, core: number): void {
  const { status } = spawnSync('taskset', ['-p', '-c', String(core), String(thread)]);
  if (status !== 0) throw new Error('taskset, which this benchmark needs, has failed');
}

/** Nanoseconds of CPU by thread. */
function threadTimes(pid: number): Map<string, number> {
  const times = new Map<string, number>();
  for (const id of readdirSync(`/proc/${pid}/task`)) {
    try {
      const [ns] = readFileSync(`/proc/${pid}/task/${id}/schedstat`, 'utf8').split(' ');
      times.set(id, Number(ns));
    } catch {
      // The thread has ended.
    }
  }
  return times;
}

async function countDecisions(adminPort: number): Promise<number> {
  const response = await fetch(`http://127.0.0.1:${adminPort}/metrics`);
  const lines = (await response.text()).matchAll(/^weir_decisions_total\S* (\S+)/gm);
  return [...lines].reduce((sum, [, value]) => sum + Number(value), 0);
}

/**
 * Logarithms of on to off: of three slots the one in the middle, with the mean of the others. No
 * slot counts twice, so the logarithms are independent.
 */
function logRatios(slots: readonly Slot[], figure: (slot: Slot) => number): number[] {
  const logs: number[] = [];
  for (let i = 1; i + 1 < slots.length; i += 3) {
    const around = (figure(slots[i - 1]) + figure(slots[i + 1])) / 2;
    const log = Math.log(figure(slots[i]) / around);
    logs.push(slots[i].number % 2 === 0 ? log : -log);
  }
  return logs;
}

/** The trimmed mean, and its standard error from the winsorized variance (Tukey, McLaughlin). */
function estimate(logs: readonly number[]): Estimate {
  const left = Math.floor(TRIMMED * logs.length);
  const kept = logs.toSorted((a, b) => a - b).slice(left, logs.length - left);
  const mean = meanOf(kept);
  const winsorized = logs.map((log) => Math.min(Math.max(log, kept[0]), kept[kept.length - 1]));
  const center = meanOf(winsorized);
  const squares = winsorized.reduce((sum, log) => sum + (log - center) ** 2, 0);
  const deviation = Math.sqrt(squares / (logs.length - 1));
  const error = deviation / ((1 - 2 * TRIMMED) * Math.sqrt(logs.length));
  return { ratio: Math.exp(mean), error };
}

function meanOf(values: readonly number[]): number {
  return values.reduce((sum, value) => sum + value, 0) / values.length;
}
