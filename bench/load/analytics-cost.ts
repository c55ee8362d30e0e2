/**
 * The cost of recent decisions, analytics, events and a dashboard in one process, which has them in
 * some slots of time and not in others: see `switch-hooks.mjs`. A slot with them is compared with
 * the one without them beside it: both have the same speed of the machine, and the same code that
 * V8 has compiled.
 *
 * Short slots, of which there are many, measure the acceptor. Events reach the main thread later,
 * and a dashboard gets figures every second: long slots measure the other threads, in a process of
 * its own. The ratios leave out the main thread's work for analytics every second, which is in all
 * slots, and the start and the end of the stream of a dashboard.
 */

import { spawnSync } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { DashboardSession } from '../support/dashboard.ts';
import {
  ALLOWED_WORKLOAD,
  DENIED_WORKLOAD,
  runLoad,
  type Workload,
} from '../support/load-generator.ts';
import { freePort, startWeir } from '../support/servers.ts';
import { isOnIn, type Slot } from '../support/switch.thread.ts';

const STARTS = 4;
const WARM_UP_PIPELINING = 16;
/** After that many seconds of pipelined checks, few checks take an entry of a sketch. */
const WARM_UP_SECONDS = 25;
/** After this time more checks take one, as at the beginning of each hour. */
const EARLY_SECONDS = 6;
/** The lowest and the highest tenth of a process are left out: other work of the machine. */
const TRIMMED = 0.1;
/** An acceptor has the other core for itself: see `switch.thread.ts`. */
const OTHER_CORE = 1;

interface SlotTimes {
  slotMs: number;
  /** The beginning of a slot, which is not measured. */
  settleMs: number;
  /** How long a process is measured. */
  seconds: number;
}

const SHORT_SLOTS: SlotTimes = { slotMs: 47, settleMs: 4, seconds: 16 };
/** Each measures one second: one snapshot of a dashboard. */
const LONG_SLOTS: SlotTimes = { slotMs: 1_500, settleMs: 500, seconds: 30 };

interface Variant {
  load: 'allowed' | 'denied';
  name: string;
  /** The parts, as `switch.thread.ts` names them. */
  switched: string;
  warmUpSeconds: number;
  /** Whether a dashboard is open. It uses the main thread, so there are long slots too. */
  hasDashboard: boolean;
  args: readonly string[];
}

const ANALYTICS = {
  name: 'analytics',
  switched: 'analytics',
  warmUpSeconds: WARM_UP_SECONDS,
  hasDashboard: false,
  args: [],
};
const RECENT = { ...ANALYTICS, name: 'recent decisions', switched: 'recent' };
const VARIANTS: readonly Variant[] = [
  { ...RECENT, load: 'allowed' },
  { ...RECENT, load: 'denied' },
  { ...ANALYTICS, load: 'allowed' },
  { ...ANALYTICS, load: 'denied' },
  { ...ANALYTICS, load: 'denied', name: 'analytics, after 6 s', warmUpSeconds: EARLY_SECONDS },
  {
    ...ANALYTICS,
    load: 'denied',
    name: 'and dashboard, 1 % of denials',
    switched: 'analytics,events',
    hasDashboard: true,
    args: ['--events', 'denied', '--events-one-in', '100'],
  },
];
const WORKLOADS: Readonly<Record<Variant['load'], Workload>> = {
  allowed: ALLOWED_WORKLOAD,
  denied: DENIED_WORKLOAD,
};

/** A ratio of on to off, and its standard error, from the differences between starts. */
export interface Estimate {
  ratio: number;
  error: number;
}

export interface CostRow {
  load: string;
  name: string;
  /** Pairs of short slots. */
  compared: number;
  throughput: Estimate;
  /** CPU per request: of all threads, and of the acceptor alone. */
  cpu: Estimate;
  acceptor: Estimate;
}

export async function measureAnalyticsCost(progress: (what: string) => void): Promise<CostRow[]> {
  const cores = /^Cpus_allowed_list:\s*(\S+)/m.exec(readFileSync('/proc/self/status', 'utf8'))![1];
  // Servers and wrk inherit it.
  pinSelf(String(OTHER_CORE));
  try {
    const rows: CostRow[] = [];
    for (const variant of VARIANTS) rows.push(await measureRow(variant, progress));
    return rows;
  } finally {
    pinSelf(cores);
  }
}

async function measureRow(variant: Variant, progress: (what: string) => void): Promise<CostRow> {
  const { load, name } = variant;
  const starts: { short: Pair[]; long: Pair[] }[] = [];
  for (let start = 1; start <= STARTS; start++) {
    progress(`${load}, ${name}, start ${start}`);
    const short = pairsOf(await measureStart(variant, SHORT_SLOTS));
    const long = variant.hasDashboard ? pairsOf(await measureStart(variant, LONG_SLOTS)) : short;
    starts.push({ short, long });
  }
  const acceptorOf = ({ acceptor, requests }: Slot) => acceptor / requests;
  const othersOf = ({ cpu, acceptor, requests }: Slot) => (cpu - acceptor) / requests;
  return {
    load,
    name,
    compared: starts.flatMap(({ short }) => short).length,
    throughput: estimate(
      starts.map(({ short }) => ratioOf(short, ({ requests, ms }) => requests / ms)),
    ),
    cpu: estimate(
      starts.map(({ short, long }) => {
        const off = long.map((pair) => pair.off);
        const acceptor = trimmedMean(off.map(acceptorOf));
        const othersOff = trimmedMean(off.map(othersOf));
        const othersOn = trimmedMean(long.map(({ on }) => othersOf(on)));
        return (acceptor * ratioOf(short, acceptorOf) + othersOn) / (acceptor + othersOff);
      }),
    ),
    acceptor: estimate(starts.map(({ short }) => ratioOf(short, acceptorOf))),
  };
}

function pinSelf(cores: string): void {
  const { status } = spawnSync('taskset', ['-apc', cores, String(process.pid)]);
  if (status !== 0) throw new Error('taskset, which this benchmark needs, has failed');
}

async function measureStart(variant: Variant, slots: SlotTimes): Promise<Slot[]> {
  const { load, switched, hasDashboard, warmUpSeconds, args } = variant;
  const { slotMs, settleMs, seconds } = slots;
  const adminPort = await freePort();
  const place = mkdtempSync(join(tmpdir(), 'weir-bench-'));
  const file = join(place, 'slots');
  const hooks = new URL('../../bench/support/switch.mjs', import.meta.url).href;
  const server = await startWeir('weir', 'in-place', {
    args: [...args, '--admin-port', String(adminPort)],
    nodeFlags: ['--import', hooks],
    env: {
      SWITCHED: switched,
      SLOT_MS: String(slotMs),
      SETTLE_MS: String(settleMs),
      SLOTS_FILE: file,
    },
  });
  const target = { workload: WORKLOADS[load], connections: 64, port: server.port };
  try {
    await runLoad({ ...target, seconds: warmUpSeconds, pipelining: WARM_UP_PIPELINING });
    const firstSlot = Math.ceil((Date.now() + 1_000) / slotMs);
    const count = Math.floor((1_000 * seconds) / slotMs);
    const [{ errors }] = await Promise.all([
      runLoad({ ...target, seconds: seconds + 4 }),
      hasDashboard ? openDashboard(adminPort, firstSlot, count, slots) : undefined,
    ]);
    if (errors > 0) throw new Error(`${errors} errors`);
    const lines = readFileSync(file, 'utf8').trimEnd().split('\n');
    const measured = lines.map((line) => JSON.parse(line) as Slot);
    return measured.filter(({ number, isOn, hasAnalytics }) => {
      if (number < firstSlot || number >= firstSlot + count) return false;
      // The main thread switches analytics on when an hour begins.
      return !switched.includes('analytics') || hasAnalytics === isOn;
    });
  } finally {
    await server.stop();
    rmSync(place, { recursive: true });
  }
}

/** A dashboard that is open in all short slots, and in the long slots that are on. */
async function openDashboard(
  adminPort: number,
  firstSlot: number,
  count: number,
  slots: SlotTimes,
): Promise<void> {
  const session = await DashboardSession.signIn(adminPort);
  const { slotMs } = slots;
  const openUntil = async (slot: number) => {
    const stream = await session.openEvents();
    await sleep(slot * slotMs - Date.now());
    stream.close();
  };
  const end = firstSlot + count;
  if (slots === SHORT_SLOTS) return openUntil(end);
  for (let slot = firstSlot; slot < end; slot++) {
    await sleep(slot * slotMs - Date.now());
    if (isOnIn(slot)) await openUntil(slot + 1);
  }
}

interface Pair {
  on: Slot;
  off: Slot;
}

function pairsOf(slots: readonly Slot[]): Pair[] {
  const pairs: Pair[] = [];
  for (let i = 0; i + 1 < slots.length; i++) {
    const [first, second] = slots.slice(i, i + 2);
    // A slot is missing where the one before it took too long.
    if (first.number % 2 === 1 || second.number !== first.number + 1) continue;
    pairs.push(first.isOn ? { on: first, off: second } : { on: second, off: first });
  }
  if (pairs.length === 0) throw new Error('no slot could be compared with the one beside it');
  return pairs;
}

/** @returns the ratio of on to off */
function ratioOf(pairs: readonly Pair[], figure: (slot: Slot) => number): number {
  return Math.exp(trimmedMean(pairs.map(({ on, off }) => Math.log(figure(on) / figure(off)))));
}

/** @param ratios one of each start */
function estimate(ratios: readonly number[]): Estimate {
  const ratio = meanOf(ratios);
  const squares = ratios.reduce((sum, value) => sum + (value - ratio) ** 2, 0);
  return { ratio, error: Math.sqrt(squares / (ratios.length - 1) / ratios.length) };
}

function trimmedMean(values: readonly number[]): number {
  const left = Math.floor(TRIMMED * values.length);
  return meanOf(values.toSorted((a, b) => a - b).slice(left, values.length - left));
}

function meanOf(values: readonly number[]): number {
  return values.reduce((sum, value) => sum + value, 0) / values.length;
}
