/**
 * Servers that share their limits go through a fault of Redis under a steady load. Every answer is
 * recorded and replayed by window: what was allowed above the limit, what was denied although it
 * fitted, and what no check could use afterwards.
 *
 * Two kinds of counters are used. The windows of the one kind never end, so they span the fault: when
 * it is over they are used up, which shows the tokens that are lost. The windows of the other kind
 * are short, and begin before, in and after the fault.
 */

import { connect, type Socket } from 'node:net';
import { setTimeout as sleep } from 'node:timers/promises';
import { expect } from 'vitest';
import { IS_LONG } from '../../support/guarantees.ts';
import {
  type LimitResponse,
  LONGEST_WINDOW_MS,
  parseResponses,
  readMetrics,
  requestBytes,
} from '../../support/http.ts';
import { seededRandom } from '../../support/seeded-random.ts';
import { type ServerProcess, waitUntil } from '../../support/server.ts';
import { expectHealthy } from './server-health.ts';

const LANES_PER_SERVER = 4;
/** Between an answer and the next check of a lane. */
const PAUSE_MS = 6;
const LONG_IDS = 4;
const SHORT_IDS = 6;
const SHORT_LIMIT = 40;
const SHORT_MS = 2_000;
/** A fault begins when each long window has allowed so many tokens. */
const WARM_TOKENS = 60;
/** Tokens that nobody gets for so long are lost. It is longer than a machine remembers denials. */
const LOST_AFTER_MS = IS_LONG ? 5_500 : 2_500;
const ROUNDS_MAX = 5;
/** So many times more is asked for, if there is more than the limit. */
const PROBES_MAX = 1_000;
const RESPONSE_TIMEOUT_MS = 15_000;

interface Window {
  limit: number;
  allowed: number;
  /** By server. */
  allowedBy: number[];
  denied: number;
}

interface LoadCheck {
  id: string;
  limit: number;
  durationMs: number;
  cost: number;
}

export interface FaultReport {
  decisions: number;
  windows: number;
  /** Of the windows that span the fault. */
  limit: number;
  admitted: number;
  /** Most that one server has allowed of one of them. */
  mostByOne: number;
  /** Tokens above the limit, of these and of the short windows. */
  extra: number;
  extraShort: number;
  /** Tokens of the windows that span the fault which no check got. */
  lost: number;
  /** Checks denied from the beginning of the fault until all is normal, although they fitted. */
  deniedEarly: number;
  /** Decisions without Redis in the same time. */
  withoutRedis: number;
  errors: string[];
  /** From the end of the fault. */
  normalMs: number;
}

export interface FaultSteps {
  /** Part of the identifiers. */
  name: string;
  seed: number;
  /** Of each window that spans the fault. */
  limit: number;
  begin: (load: FaultLoad) => unknown;
  /** What happens, or how many ms pass, between `begin` and `end`, while the load goes on. */
  during: number | ((load: FaultLoad) => Promise<unknown>);
  end?: (load: FaultLoad) => unknown;
}

/** Sends checks to servers at a steady rate, until it is stopped, and records the answers. */
export class FaultLoad {
  readonly longIds: string[];
  readonly limit: number;
  decisions = 0;
  deniedEarly = 0;
  isCountingEarly = false;
  readonly #servers: readonly ServerProcess[];
  readonly #name: string;
  readonly #below: (n: number) => number;
  /** By identifier and the end of the window. */
  readonly #windows = new Map<string, Window>();
  /** Tokens of checks without an answer, by identifier. */
  readonly #unanswered = new Map<string, number>();
  readonly #errors = new Map<string, number>();
  readonly #answersOf: number[];
  readonly #dropped = new Set<ServerProcess>();
  #lanes: Promise<void>[] = [];
  #isStopping = false;

  constructor(servers: readonly ServerProcess[], name: string, limit: number, seed: number) {
    this.#servers = servers;
    this.#name = name;
    this.limit = limit;
    this.#below = seededRandom(seed);
    this.#answersOf = servers.map(() => 0);
    this.longIds = Array.from({ length: LONG_IDS }, (_, i) => `${name}_${seed}_long_${i}`);
  }

  get live(): ServerProcess[] {
    return this.#servers.filter((server) => !this.#dropped.has(server));
  }

  start(): void {
    this.#isStopping = false;
    this.#lanes = this.live.flatMap((server) => {
      return Array.from({ length: LANES_PER_SERVER }, () => {
        const isOver = () => this.#isStopping || this.#dropped.has(server);
        return this.#runLane(server, PAUSE_MS, () => (isOver() ? undefined : this.#choose()));
      });
    });
  }

  async stop(): Promise<void> {
    this.#isStopping = true;
    await Promise.all(this.#lanes);
  }

  /** Sends nothing more to a server, which the test is about to end. */
  async drop(server: ServerProcess): Promise<void> {
    this.#dropped.add(server);
    await sleep(100);
  }

  /** Tokens that the windows which span the fault have allowed, on all servers or on one. */
  admitted(server?: ServerProcess): number {
    const index = server === undefined ? -1 : this.#servers.indexOf(server);
    return this.#long().reduce((sum, { allowed, allowedBy }) => {
      return sum + (allowedBy[index] ?? allowed);
    }, 0);
  }

  /** Waits until a short window allows something that begins from now on. */
  async waitForNewWindow(): Promise<void> {
    const known = new Set(this.#windows.keys());
    await waitUntil('a new window allows a check', () => {
      return [...this.#windows].some(([name, { allowed }]) => !known.has(name) && allowed > 0);
    });
  }

  async warmUp(): Promise<void> {
    await waitUntil('the windows are in use on all servers', () => {
      const windows = this.#long();
      if (windows.length < LONG_IDS) return false;
      return windows.every(({ allowed, allowedBy }) => {
        return allowed >= WARM_TOKENS && allowedBy.every((tokens) => tokens > 0);
      });
    });
  }

  /** Waits until the windows that span the fault allow nothing more for a while. */
  async waitUntilClosed(): Promise<void> {
    await waitUntil('these windows are closed', async () => {
      const before = this.admitted();
      await sleep(300);
      return this.admitted() === before;
    });
  }

  /** Waits until all servers decide checks with Redis. */
  async waitUntilNormal(): Promise<void> {
    let before: number[] | undefined;
    await waitUntil('all servers decide with Redis', async () => {
      await sleep(50);
      const answers = [...this.#answersOf];
      const states = await Promise.all(this.live.map(readState));
      const isReady = states.every((state) => state.isReady && state.isJoined);
      const downs = states.map(({ withoutRedis }) => withoutRedis);
      const hadAnswers = this.live.every((server) => {
        return answers[this.#servers.indexOf(server)] > 0;
      });
      const isSame = before !== undefined && downs.every((count, i) => count === before?.[i]);
      if (isSame && isReady && hadAnswers) return true;
      before = downs;
      this.#answersOf.fill(0);
      return false;
    });
  }

  /**
   * Sends checks of one token to all servers until the windows of the identifiers have allowed
   * `most` tokens each, or allow nothing more. If that is the limit, the servers are then asked for
   * more until none of them allows any. Without Redis `most` may be more than the limit.
   * @returns how many tokens of the limit nobody got
   */
  async exhaust(
    ids: readonly string[] = this.longIds,
    limit = this.limit,
    most = limit,
  ): Promise<number> {
    const tokensOf = (id: string) => this.#windowOf(id)?.allowed ?? 0;
    for (let round = 0; round < ROUNDS_MAX; round++) {
      const before = await countWithoutRedis(this.live);
      let [total, changedMs] = [-1, performance.now()];
      const next = (at: number): LoadCheck | undefined => {
        const open = ids.filter((id) => tokensOf(id) < most);
        const sum = ids.reduce((tokens, id) => tokens + tokensOf(id), 0);
        if (sum !== total) [total, changedMs] = [sum, performance.now()];
        if (open.length === 0 || performance.now() - changedMs > LOST_AFTER_MS) return undefined;
        return { id: open[at % open.length], limit, durationMs: LONGEST_WINDOW_MS, cost: 1 };
      };
      const lanes = this.live.flatMap((server, i) => {
        return [0, 1].map((lane) => this.#runLane(server, 0, () => next(i + lane)));
      });
      await Promise.all(lanes);
      const after = await countWithoutRedis(this.live);
      // A busy machine: Redis was too slow for some checks, and another round finds its tokens.
      const wasSlow = [...after].some(([server, count]) => count !== before.get(server));
      if (most > limit || !wasSlow || ids.every((id) => tokensOf(id) >= most)) break;
    }
    for (let i = 0; most === limit && i < PROBES_MAX; i++) {
      if ((await this.probe(ids, limit)) === 0) break;
    }
    return ids.reduce((sum, id) => sum + Math.max(0, limit - tokensOf(id)), 0);
  }

  /** Sends each server one check for each of the identifiers. @returns how many were allowed */
  async probe(ids: readonly string[] = this.longIds, limit = this.limit): Promise<number> {
    const count = () => ids.reduce((sum, id) => sum + (this.#windowOf(id)?.allowed ?? 0), 0);
    const before = count();
    const lanes = this.live.map((server) => {
      const rest = [...ids];
      return this.#runLane(server, 0, () => {
        const id = rest.pop();
        return id === undefined ? undefined : { id, limit, durationMs: LONGEST_WINDOW_MS, cost: 1 };
      });
    });
    await Promise.all(lanes);
    return count() - before;
  }

  /** A new counter allows its limit and no more, whichever servers are used. */
  async expectExact(): Promise<void> {
    const limit = 90;
    const ids = [`${this.longIds[0]}_new`, `${this.longIds[1]}_new`];
    const lost = await this.exhaust(ids, limit);
    const allowed = ids.map((id) => this.#windowOf(id)?.allowed);
    expect([lost, allowed]).toEqual([0, [limit, limit]]);
  }

  report(): Omit<FaultReport, 'lost' | 'withoutRedis' | 'normalMs'> {
    const long = this.#long();
    const excessOf = (windows: Window[]) => {
      return windows.reduce((sum, { allowed, limit }) => sum + Math.max(0, allowed - limit), 0);
    };
    const all = [...this.#windows.values()];
    return {
      decisions: this.decisions,
      windows: all.length,
      limit: LONG_IDS * this.limit,
      admitted: this.admitted(),
      mostByOne: Math.max(0, ...long.flatMap(({ allowedBy }) => allowedBy)),
      extra: excessOf(all),
      extraShort: excessOf(all) - excessOf(long),
      deniedEarly: this.deniedEarly,
      errors: [...this.#errors].map(([error, count]) => `${count} × ${error}`),
    };
  }

  #long(): Window[] {
    return this.longIds.flatMap((id) => this.#windowOf(id) ?? []);
  }

  /** The window of an identifier whose window never ends. */
  #windowOf(id: string): Window | undefined {
    return this.#windows.get(`${id} ${LONGEST_WINDOW_MS}`);
  }

  #choose(): LoadCheck {
    const below = this.#below;
    const cost = below(5) === 0 ? 3 : 1;
    if (below(5) < 2) {
      const id = this.longIds[below(LONG_IDS)];
      return { id, limit: this.limit, durationMs: LONGEST_WINDOW_MS, cost };
    }
    const id = `${this.#name}_short_${below(SHORT_IDS)}`;
    return { id, limit: SHORT_LIMIT, durationMs: SHORT_MS, cost };
  }

  /** Sends checks on one connection, each after the answer to the one before. */
  #runLane(
    server: ServerProcess,
    pauseMs: number,
    next: () => LoadCheck | undefined,
  ): Promise<void> {
    const index = this.#servers.indexOf(server);
    return new Promise((resolve) => {
      const socket: Socket = connect(server.port, '127.0.0.1');
      let current: LoadCheck | undefined;
      let received = '';
      let isToClose = false;
      const send = () => {
        const check = isToClose ? undefined : next();
        current = check;
        if (check === undefined) {
          socket.end();
          return;
        }
        const { id, cost, limit, durationMs } = check;
        this.#addUnanswered(id, cost);
        const body = JSON.stringify({ identifier: id, cost, limit, duration: durationMs });
        socket.write(requestBytes({ body }));
      };
      socket.setNoDelay(true);
      socket.setEncoding('latin1');
      socket.setTimeout(RESPONSE_TIMEOUT_MS, () => socket.destroy(new Error('no response')));
      socket.on('connect', send);
      socket.on('error', ({ message }) => {
        if (!this.#dropped.has(server)) this.#addError(message);
      });
      socket.on('close', () => {
        if (current !== undefined && !this.#dropped.has(server)) this.#addError('no response');
        if (isToClose) this.#runLane(server, pauseMs, next).then(resolve);
        else resolve();
      });
      socket.on('data', (data) => {
        const { answers, rest } = parseResponses(received + data);
        received = rest;
        if (answers.length === 0 || current === undefined) return;
        const [{ status, headers, body }] = answers;
        this.#addUnanswered(current.id, -current.cost);
        if (status === 200) this.#record(index, current, JSON.parse(body));
        else this.#addError(`${status} ${body}`);
        current = undefined;
        isToClose = headers.connection === 'close';
        if (isToClose) return;
        if (pauseMs === 0) send();
        else setTimeout(send, pauseMs);
      });
    });
  }

  #record(server: number, check: LoadCheck, response: LimitResponse): void {
    const { id, limit, durationMs, cost } = check;
    const { success, remaining, reset } = response;
    this.decisions++;
    this.#answersOf[server]++;
    const isValid =
      typeof success === 'boolean' &&
      response.limit === limit &&
      Number.isSafeInteger(remaining) &&
      remaining >= 0 &&
      remaining <= limit &&
      reset % durationMs === 0;
    if (!isValid) this.#addError(`invalid: ${JSON.stringify(response)}`);
    const name = `${id} ${reset}`;
    let window = this.#windows.get(name);
    if (window === undefined) {
      window = { limit, allowed: 0, allowedBy: this.#servers.map(() => 0), denied: 0 };
      this.#windows.set(name, window);
    }
    if (success) {
      window.allowed += cost;
      window.allowedBy[server] += cost;
      return;
    }
    window.denied++;
    // Even if all checks under way are allowed, this one would have fitted.
    const most = window.allowed + (this.#unanswered.get(id) ?? 0);
    if (this.isCountingEarly && most + cost <= limit) this.deniedEarly++;
  }

  #addUnanswered(id: string, cost: number): void {
    this.#unanswered.set(id, (this.#unanswered.get(id) ?? 0) + cost);
  }

  #addError(error: string): void {
    this.#errors.set(error, (this.#errors.get(error) ?? 0) + 1);
  }
}

/** Takes servers through a fault. All windows that span it are used up at the end. */
export async function runFault(
  servers: readonly ServerProcess[],
  steps: FaultSteps,
): Promise<FaultReport> {
  const { name, seed, limit, begin, during, end } = steps;
  const load = new FaultLoad(servers, name, limit, seed);
  load.start();
  try {
    await load.warmUp();
    const before = await countWithoutRedis(load.live);
    load.isCountingEarly = true;
    await begin(load);
    if (typeof during === 'number') await sleep(during);
    else await during(load);
    await end?.(load);
    const endedMs = performance.now();
    await load.waitUntilNormal();
    load.isCountingEarly = false;
    const normalMs = performance.now() - endedMs;
    let withoutRedis = 0;
    for (const [server, count] of await countWithoutRedis(load.live)) {
      withoutRedis += count - (before.get(server) ?? 0);
    }
    await load.stop();
    const lost = await load.exhaust();
    await load.expectExact();
    for (const server of load.live) expectHealthy(server);
    return { ...load.report(), lost, withoutRedis, normalMs };
  } finally {
    await load.stop();
  }
}

async function countWithoutRedis(
  servers: readonly ServerProcess[],
): Promise<Map<ServerProcess, number>> {
  const states = await Promise.all(servers.map(readState));
  return new Map(servers.map((server, i) => [server, states[i].withoutRedis]));
}

async function readState({ adminUrl }: ServerProcess) {
  const metrics = await readMetrics(adminUrl);
  let withoutRedis = 0;
  for (const [name, value] of metrics) {
    if (name.startsWith('weir_engine_down_decisions_total')) withoutRedis += value;
  }
  const { status } = (await (await fetch(`${adminUrl}/readyz`)).json()) as { status: string };
  return {
    isReady: status === 'ready' && metrics.get('weir_cluster_recovering') === 0,
    isJoined: metrics.get('weir_cluster_joined') === 1,
    withoutRedis,
  };
}
