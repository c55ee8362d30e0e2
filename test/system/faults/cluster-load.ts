/**
 * Clients of machines that share their limits through Redis. Each client has a home machine, and
 * tries the others while that one is gone. All answers are recorded, and replayed by window.
 *
 * Two kinds of counters are used. The windows of the one kind never end, so they span a fault. When
 * it is over they are used up, which shows the tokens that are lost. The windows of the other kind
 * are short, and begin before, in and after the fault.
 */

import { setTimeout as sleep } from 'node:timers/promises';
import { expect } from 'vitest';
import { IS_LONG, newSeed, recordMeasurement } from '../../support/guarantees.ts';
import {
  type LimitResponse,
  LONGEST_WINDOW_MS,
  type ParsedResponse,
  requestBytes,
} from '../../support/http.ts';
import { CheckLog, replay } from '../../support/replay.ts';
import { seededRandom } from '../../support/seeded-random.ts';
import { waitUntil } from '../../support/server.ts';
import { type Machine, sumCounts, type UnprovenCounts } from './cluster-machines.ts';
import { ReconnectingClient } from './http-connections.ts';
import { expectHealthy } from './server-health.ts';

/** Windows are named by Redis. A machine without it knows the time this well. */
const CLOCK_TOLERANCE_MS = 1_000;
/** A check without an answer for so long was lost. No fault of a test lasts longer. */
const ANSWER_TIMEOUT_MS = 15_000;
/** Between two tries when no machine answers. */
const RETRY_MS = 20;
const TRIES = 250;
/** Tokens that nobody gets for so long are lost. It is longer than a machine remembers denials. */
const LOST_AFTER_MS = IS_LONG ? 5_500 : 2_500;
const ROUNDS_MAX = 5;
/** So many times more is asked for, if there is more than the limit. */
const PROBES_MAX = 1_000;

/** A counter that clients use. */
interface Counter {
  identifier: string;
  limit: number;
  duration: number;
}

export interface LoadOptions {
  /** Limits of the windows that span a fault. */
  spanning?: readonly number[];
  /** Limits and duration of the short windows. */
  short?: readonly number[];
  shortMs?: number;
  costs?: readonly number[];
  clientsPerMachine?: number;
  /** Between an answer and the next check of a client, on average. */
  pauseMs?: number;
  /** Of each client. Default: until the load is stopped. */
  checks?: number;
  /** Chooses a short window. Default: each as often. */
  nextShort?: (below: (n: number) => number) => number;
  /** Whether the clock of Redis, which names the windows, shows the true time. */
  isClockTrue?: boolean;
}

/** What a fault has cost. */
export interface Costs extends UnprovenCounts {
  checks: number;
  windows: number;
  /** Tokens that windows which span the fault have allowed; above their limits; that nobody got. */
  allowed: number;
  over: number;
  lost: number;
  /** The most that one machine has allowed of one of them. */
  mostByOne: number;
  /** Tokens above the limits of short windows. */
  shortOver: number;
  denials: number;
  /** Checks that were denied, although they certainly fitted. */
  deniedEarly: number;
  /** The least share of its limit that a short window has allowed which was used up. */
  leastUtilisation: number;
  /** Checks that had no answer, or a 503, and were sent again. */
  repeated: number;
  /** Checks that no machine has answered. */
  errors: number;
}

export const NOTHING_OVER = { over: 0, shortOver: 0, errors: 0 };
export const NOTHING_LOST = { ...NOTHING_OVER, lost: 0 };

let loads = 0;
const sum = (numbers: readonly number[]) => numbers.reduce((a, b) => a + b, 0);

/** Sends checks from its creation until it is stopped. */
export class ClusterLoad {
  readonly machines: readonly Machine[];
  readonly seed = newSeed();
  readonly spanning: readonly Counter[];
  answers = 0;
  /** Answers that no server may give. */
  readonly invalid: string[] = [];
  #repeated = 0;
  #errors = 0;
  readonly #options: LoadOptions;
  readonly #short: readonly Counter[];
  readonly #counters: Counter[];
  readonly #spanningLog = new CheckLog();
  readonly #shortLog = new CheckLog();
  /** Tokens by counter and machine. */
  readonly #allowed = new Map<Counter, number[]>();
  readonly #denied = new Map<Counter, number[]>();
  readonly #answersBy: number[];
  /** Ends of short windows that have allowed a check. */
  readonly #ends = new Set<number>();
  readonly #before: UnprovenCounts;
  readonly #ended: Promise<unknown>;
  #isStopping = false;

  constructor(machines: readonly Machine[], options: LoadOptions = {}) {
    const { spanning = [], short = [], shortMs = 2_000, clientsPerMachine = 4 } = options;
    const name = `load_${loads++}`;
    this.machines = machines;
    this.#options = options;
    this.spanning = spanning.map((limit, i) => {
      return { identifier: `${name}_spanning_${i}`, limit, duration: LONGEST_WINDOW_MS };
    });
    this.#short = short.map((limit, i) => {
      return { identifier: `${name}_short_${i}`, limit, duration: shortMs };
    });
    this.#counters = [...this.spanning, ...this.#short];
    this.#answersBy = machines.map(() => 0);
    this.#before = this.#counts();
    const clients = machines.length * clientsPerMachine;
    this.#ended = Promise.all(Array.from({ length: clients }, (_, i) => this.#runClient(i)));
  }

  get #serving(): Machine[] {
    return this.machines.filter(({ isServing }) => isServing);
  }

  /** Resolves when all checks are answered, if their number is set. */
  async end(): Promise<void> {
    await this.#ended;
    await this.readCounts();
  }

  /** Stops the clients. */
  async stop(): Promise<void> {
    this.#isStopping = true;
    await this.#ended;
  }

  /** Stops the clients, and uses up the windows that span the fault. */
  async finish(): Promise<void> {
    await this.stop();
    await this.exhaust();
    await this.readCounts();
  }

  async readCounts(): Promise<UnprovenCounts> {
    return sumCounts(await Promise.all(this.#serving.map((machine) => machine.readCounts())));
  }

  /** Waits until each counter has used a share of its limit, on all machines. */
  async used(share: number): Promise<void> {
    await waitUntil(`${share} of the windows is used on all machines`, () => {
      return this.spanning.every((counter) => {
        const byMachine = this.#allowed.get(counter) ?? [0];
        return sum(byMachine) >= share * counter.limit && byMachine.every((tokens) => tokens > 0);
      });
    });
  }

  /** Waits until clients have got so many more answers. */
  async answered(count: number): Promise<void> {
    const { answers } = this;
    await waitUntil('the load goes on', () => this.answers >= answers + count);
  }

  /** Waits until a short window that begins from now on allows a check. */
  async waitForNewWindow(): Promise<void> {
    const known = new Set(this.#ends);
    await waitUntil('a new window allows a check', () => {
      return [...this.#ends].some((end) => !known.has(end));
    });
  }

  /** Waits until the windows that span the fault allow nothing more for a while. */
  async waitUntilClosed(): Promise<void> {
    await waitUntil('these windows are closed', async () => {
      const before = this.tokens();
      await sleep(300);
      return this.tokens() === before;
    });
  }

  /** Waits until all machines that serve decide checks with Redis. */
  async waitUntilNormal(): Promise<void> {
    let before = -1;
    await waitUntil('all machines decide with Redis', async () => {
      const answersBefore = [...this.#answersBy];
      await sleep(50);
      const { withoutRedis } = await this.readCounts();
      const isQuiet = withoutRedis === before;
      before = withoutRedis;
      const areReady = await Promise.all(this.#serving.map((machine) => machine.isReady()));
      const haveAnswered = this.#serving.every((machine) => {
        const at = this.machines.indexOf(machine);
        return this.#answersBy[at] > answersBefore[at];
      });
      return isQuiet && haveAnswered && areReady.every((isReady) => isReady);
    });
  }

  /** Tokens that the windows which span the fault have allowed, on all machines or on one. */
  tokens(machine?: Machine): number {
    const index = machine === undefined ? undefined : this.machines.indexOf(machine);
    return sum(this.spanning.map((counter) => this.tokensOf(counter, index)));
  }

  /** Tokens that a counter has allowed, on all machines or on one. */
  tokensOf(counter: Counter, machine?: number): number {
    const byMachine = this.#allowed.get(counter) ?? [];
    return machine === undefined ? sum(byMachine) : (byMachine[machine] ?? 0);
  }

  /** Costs of denied checks, of one machine. */
  deniedBy(counter: Counter, machine: number): number {
    return this.#denied.get(counter)?.[machine] ?? 0;
  }

  /**
   * Sends checks of one token to all machines until the counters have allowed their limit so many
   * times, or allow nothing more. Afterwards what a window has not allowed is lost.
   */
  async exhaust(counters: readonly Counter[] = this.spanning, times = 1): Promise<void> {
    const isOpen = (counter: Counter) => this.tokensOf(counter) < times * counter.limit;
    for (let round = 0; round < ROUNDS_MAX; round++) {
      const before = await this.readCounts();
      let [tokens, changedMs] = [-1, 0];
      await this.#onEachMachine(2, async (check) => {
        for (let n = 0; ; n++) {
          const open = counters.filter(isOpen);
          const now = sum(counters.map((counter) => this.tokensOf(counter)));
          if (now !== tokens) [tokens, changedMs] = [now, performance.now()];
          if (open.length === 0 || performance.now() - changedMs > LOST_AFTER_MS) return;
          await check(open[n % open.length]);
        }
      });
      const after = await this.readCounts();
      // A busy machine: Redis was too slow for some checks, and another round finds its tokens.
      const wasSlow = after.unproven > before.unproven || after.withoutRedis > before.withoutRedis;
      if (times > 1 || !wasSlow || !counters.some(isOpen)) break;
    }
    for (let i = 0; times === 1 && i < PROBES_MAX; i++) {
      if ((await this.probe(counters)) === 0) break;
    }
  }

  /** Sends each machine one check for each of the counters. @returns how many were allowed */
  async probe(counters: readonly Counter[] = this.spanning): Promise<number> {
    const count = () => sum(counters.map((counter) => this.tokensOf(counter)));
    const before = count();
    await this.#onEachMachine(1, async (check) => {
      for (const counter of counters) await check(counter);
    });
    return count() - before;
  }

  /** New counters allow their limits and no more, whichever machines are used. */
  async expectExact(): Promise<void> {
    const counters = [15, 100, 300].map((limit) => {
      return { identifier: `exact_${loads++}`, limit, duration: LONGEST_WINDOW_MS };
    });
    // Redis may be too slow for some checks, which only `local` and `allow` allow then.
    const countAlone = async () => {
      const { withoutRedis, deniedWithoutRedis } = await this.readCounts();
      return withoutRedis - deniedWithoutRedis;
    };
    const before = await countAlone();
    await this.exhaust(counters);
    const allowedAlone = (await countAlone()) - before;
    expect(this.invalid).toEqual([]);
    const over = counters.map((counter) => this.tokensOf(counter) - counter.limit);
    expect(Math.min(...over)).toBeGreaterThanOrEqual(0);
    expect(sum(over)).toBeLessThanOrEqual(allowedAlone);
  }

  /** What the load has cost until now. Every answer was valid. */
  costs(): Costs {
    expect(this.invalid).toEqual([]);
    const [spanning, short] = [this.#spanningLog, this.#shortLog].map((log) => {
      return replay([log.rows()], (id) => this.#counters[id].limit);
    });
    const counts = this.#counts();
    for (const name of Object.keys(counts) as (keyof UnprovenCounts)[]) {
      counts[name] -= this.#before[name];
    }
    return {
      ...counts,
      checks: this.answers,
      windows: spanning.windows + short.windows,
      allowed: this.tokens(),
      over: spanning.overAdmission,
      lost: sum(this.spanning.map((one) => Math.max(0, one.limit - this.tokensOf(one)))),
      mostByOne: Math.max(0, ...this.spanning.flatMap((one) => this.#allowed.get(one) ?? [])),
      shortOver: short.overAdmission,
      denials: spanning.denials + short.denials,
      deniedEarly: spanning.certainlyFalse + short.certainlyFalse,
      leastUtilisation: short.leastUtilisation,
      repeated: this.#repeated,
      errors: this.#errors,
    };
  }

  #counts(): UnprovenCounts {
    return sumCounts(this.machines.map(({ counts }) => counts));
  }

  async #runClient(index: number): Promise<void> {
    const { costs = [1, 1, 1, 2, 3], pauseMs = 4 } = this.#options;
    const below = seededRandom(this.seed + 7_919 * index);
    const connections = new Connections();
    let { checks = Number.POSITIVE_INFINITY } = this.#options;
    for (; checks > 0 && !this.#isStopping; checks--) {
      const cost = costs[below(costs.length)];
      const home = index % this.machines.length;
      const decision = await this.#check(connections, this.#choose(below), cost, home);
      if (decision === undefined) this.#errors++;
      if (pauseMs > 0) await sleep(below(2 * pauseMs + 1));
    }
    connections.close();
  }

  #choose(below: (n: number) => number): Counter {
    const short = this.#short;
    const { nextShort = () => below(short.length) } = this.#options;
    const isSpanning = this.spanning.length > 0 && below(2) === 0;
    return isSpanning ? this.spanning[below(this.spanning.length)] : short[nextShort(below)];
  }

  /** Runs clients of each machine that serves, which get a function that sends a check. */
  async #onEachMachine(
    clients: number,
    run: (check: (counter: Counter) => Promise<unknown>) => Promise<void>,
  ): Promise<void> {
    const homes = this.#serving.map((machine) => this.machines.indexOf(machine));
    await Promise.all(
      homes.flatMap((home) => {
        return Array.from({ length: clients }, async () => {
          const connections = new Connections();
          await run((counter) => this.#check(connections, counter, 1, home));
          connections.close();
        });
      }),
    );
  }

  /** @returns undefined without a valid answer */
  async #check(
    connections: Connections,
    counter: Counter,
    cost: number,
    home: number,
  ): Promise<LimitResponse | undefined> {
    const bytes = requestBytes({ body: JSON.stringify({ ...counter, cost }) });
    const count = this.machines.length;
    for (let tries = 0; tries < TRIES; tries++) {
      const order = this.machines.map((_, i) => (home + tries + i) % count);
      const at = order.find((index) => this.machines[index].isServing) ?? home;
      const connection = connections.to(this.machines[at].port);
      const sentMs = performance.now();
      const [answer] = await connection.send([bytes], 1, ANSWER_TIMEOUT_MS);
      if (answer !== undefined && answer.status !== 503) {
        return this.#record(counter, cost, at, sentMs, answer);
      }
      this.#repeated++;
      if (answer === undefined) connection.close();
      if (tries >= count) await sleep(RETRY_MS);
    }
    return undefined;
  }

  #record(
    counter: Counter,
    cost: number,
    machine: number,
    sentMs: number,
    { status, body }: ParsedResponse,
  ): LimitResponse | undefined {
    const tookMs = performance.now() - sentMs;
    const decision: LimitResponse | undefined = status === 200 ? JSON.parse(body) : undefined;
    if (decision === undefined || !this.#isValid(decision, counter, tookMs)) {
      this.invalid.push(`${status} ${body}, answered at ${Date.now()} after ${tookMs} ms`);
      return undefined;
    }
    const { success, reset } = decision;
    this.answers++;
    this.#answersBy[machine]++;
    const isShort = counter.duration !== LONGEST_WINDOW_MS;
    const log = isShort ? this.#shortLog : this.#spanningLog;
    if (!this.#counters.includes(counter)) this.#counters.push(counter);
    const id = this.#counters.indexOf(counter);
    log.add(id, reset, cost, success, sentMs, performance.now());
    if (isShort && success) this.#ends.add(reset);
    const tokens = success ? this.#allowed : this.#denied;
    const byMachine = tokens.get(counter) ?? this.machines.map(() => 0);
    byMachine[machine] += cost;
    tokens.set(counter, byMachine);
    return decision;
  }

  #isValid(decision: LimitResponse, counter: Counter, tookMs: number): boolean {
    const { success, limit, remaining, reset } = decision;
    const { duration } = counter;
    const { isClockTrue = true } = this.#options;
    const now = Date.now();
    const isInTime =
      reset > now - tookMs - CLOCK_TOLERANCE_MS && reset - duration < now + CLOCK_TOLERANCE_MS;
    return (
      typeof success === 'boolean' &&
      limit === counter.limit &&
      Number.isInteger(remaining) &&
      remaining >= 0 &&
      remaining <= limit &&
      reset % duration === 0 &&
      (isInTime || !isClockTrue)
    );
  }
}

/** The connections of a client, one to each machine. */
class Connections {
  readonly #byPort = new Map<number, ReconnectingClient>();

  to(port: number): ReconnectingClient {
    const connection = this.#byPort.get(port) ?? new ReconnectingClient(port);
    this.#byPort.set(port, connection);
    return connection;
  }

  close(): void {
    for (const connection of this.#byPort.values()) connection.close();
  }
}

interface FaultRun {
  name: string;
  /** For the measurement. Default: the number of repetitions. */
  trials?: string;
  /** Repetitions, each with new counters. */
  times?: number;
  /** What happens under the load, when all machines have used the counters. */
  act: (load: ClusterLoad) => unknown;
  load: LoadOptions;
  /** Called when the windows are used up. Default: nothing is lost. */
  expectCosts?: (costs: Costs, load: ClusterLoad) => void;
}

/** Takes machines through a fault. All windows that span it are used up at the end. */
export async function runFault(machines: readonly Machine[], run: FaultRun): Promise<Costs[]> {
  const { name, times = 1, trials = `${times} times`, act, load: options } = run;
  const { expectCosts = (costs) => expect(costs).toMatchObject(NOTHING_LOST) } = run;
  const all: Costs[] = [];
  let normalMs = 0;
  for (let i = 0; i < times; i++) {
    const load = new ClusterLoad(machines, options);
    try {
      await load.used(0.1);
      await act(load);
      const endedMs = performance.now();
      await load.waitUntilNormal();
      normalMs = Math.max(normalMs, performance.now() - endedMs);
    } finally {
      await load.stop();
    }
    await load.finish();
    const costs = load.costs();
    all.push(costs);
    expectCosts(costs, load);
    await load.expectExact();
    for (const { isServing, server } of machines) if (isServing) expectHealthy(server);
  }
  recordCosts(name, `${trials}, normal after ${(normalMs / 1_000).toFixed(1)} s`, all);
  return all;
}

/** Records what a fault has cost in all of its repetitions. */
export function recordCosts(fault: string, trials: string, all: readonly Costs[]): void {
  const total = (name: keyof Costs) => sum(all.map((costs) => costs[name]));
  const what = `${trials}, ${total('checks')} checks in ${total('windows')} windows`;
  const over = `${total('over')} of ${total('allowed')} tokens over`;
  recordMeasurement('P1', fault, what, `${over}, ${total('shortOver')} of short windows`);
  const early = `of ${total('denials')} denials ${total('deniedEarly')} early`;
  const without = `${total('withoutRedis')} without Redis, ${total('unproven')} without proof`;
  const lost = `${total('lost')} tokens lost, ${total('writtenOff')} leases written off`;
  recordMeasurement('P2', fault, what, `${early}; ${lost}; ${without}`);
  const repeated = `${total('repeated')} sent again, ${total('errors')} errors`;
  recordMeasurement('P3', fault, what, repeated);
}
