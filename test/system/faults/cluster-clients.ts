/**
 * Clients of a cluster: each has a home machine, and tries the others while that one is gone. They
 * record every answer, so that windows can be replayed although machines fail.
 */

import { setTimeout as sleep } from 'node:timers/promises';
import { type LimitResponse, requestBytes } from '../../support/http.ts';
import { seededRandom } from '../../support/seeded-random.ts';
import type { Machine } from './cluster-machines.ts';
import { ReconnectingClient } from './reconnecting-client.ts';

/** A counter that clients use. */
export interface Counter {
  identifier: string;
  limit: number;
  duration: number;
}

/** What one window of a counter has answered. Times are Unix times in ms. */
export interface WindowAnswers {
  counter: Counter;
  allowed: { sentMs: number; cost: number; machine: number }[];
  denied: { answeredMs: number; cost: number; machine: number }[];
}

/** What a fault has cost, in the windows of some counters. */
export interface WindowCosts {
  windows: number;
  allowedTokens: number;
  deniedChecks: number;
  /** Tokens allowed above limits. */
  over: number;
  /** Denied checks for whose cost checks that were sent later have got tokens. */
  deniedEarly: number;
  /** Tokens that windows still had although they have denied a smaller cost. */
  lost: number;
}

/** Windows are named by Redis. A machine without it knows the time this well. */
const CLOCK_TOLERANCE_MS = 1_000;
/** A check without an answer for so long was lost. No fault of a test lasts longer. */
const ANSWER_TIMEOUT_MS = 15_000;
/** Between an answer and the next check of a client, on average. */
const PAUSE_MS = 2;
/** Between two tries when no machine answers. */
const RETRY_MS = 20;
const TRIES = 250;
/** How often a counter denies before it is exhausted, and how long after each other. */
const EXHAUSTED_DENIALS = 3;
const EXHAUSTED_PAUSE_MS = 25;
const EXHAUST_ROUNDS_MAX = 3;

export class AnswerRecord {
  readonly windows = new Map<string, WindowAnswers>();
  /** Answers that no server may give. */
  readonly invalid: string[] = [];
  answers = 0;
  /** Responses with a 503: such a check may have been counted. */
  unavailable = 0;
  readonly #tokens = new Map<Counter, number>();

  /** @param sentMs when the check was sent; it is answered now */
  record(
    counter: Counter,
    cost: number,
    machine: number,
    sentMs: number,
    status: number,
    text: string,
  ): LimitResponse | undefined {
    const answeredMs = now();
    const body = status === 200 ? (JSON.parse(text) as LimitResponse) : undefined;
    if (status === 503) {
      this.unavailable++;
      return undefined;
    }
    if (body === undefined || !isValid(body, counter, sentMs, answeredMs)) {
      this.invalid.push(`${status} ${text}, sent at ${sentMs}, answered at ${answeredMs}`);
      return undefined;
    }
    this.answers++;
    const name = `${counter.identifier} ${body.reset}`;
    let window = this.windows.get(name);
    if (window === undefined) {
      window = { counter, allowed: [], denied: [] };
      this.windows.set(name, window);
    }
    if (body.success) {
      window.allowed.push({ sentMs, cost, machine });
      this.#tokens.set(counter, this.tokensOf(counter) + cost);
    } else window.denied.push({ answeredMs, cost, machine });
    return body;
  }

  /** Tokens that the windows of a counter have allowed. */
  tokensOf(counter: Counter): number {
    return this.#tokens.get(counter) ?? 0;
  }

  /** Tokens that one machine has allowed. */
  allowedBy(counter: Counter, machine: number): number {
    const allowed = this.#windowsOf([counter]).flatMap((window) => window.allowed);
    return sum(allowed.filter((check) => check.machine === machine).map(costOf));
  }

  /** Costs of denied checks, of one machine. */
  deniedBy(counter: Counter, machine: number): number {
    const denied = this.#windowsOf([counter]).flatMap((window) => window.denied);
    return sum(denied.filter((check) => check.machine === machine).map(costOf));
  }

  costs(counters: readonly Counter[]): WindowCosts {
    const windows = this.#windowsOf(counters);
    const totals = windows.map(({ counter, allowed, denied }) => {
      const tokens = sum(allowed.map(costOf));
      const smallestDenied = Math.min(Number.POSITIVE_INFINITY, ...denied.map(costOf));
      return {
        tokens,
        over: Math.max(0, tokens - counter.limit),
        lost: tokens + smallestDenied <= counter.limit ? counter.limit - tokens : 0,
        deniedEarly: countDeniedEarly(allowed, denied),
      };
    });
    return {
      windows: windows.length,
      allowedTokens: sum(totals.map(({ tokens }) => tokens)),
      deniedChecks: sum(windows.map(({ denied }) => denied.length)),
      over: sum(totals.map(({ over }) => over)),
      deniedEarly: sum(totals.map(({ deniedEarly }) => deniedEarly)),
      lost: sum(totals.map(({ lost }) => lost)),
    };
  }

  #windowsOf(counters: readonly Counter[]): WindowAnswers[] {
    return [...this.windows.values()].filter(({ counter }) => counters.includes(counter));
  }
}

interface ClientOptions {
  machines: readonly Machine[];
  clientsPerMachine: number;
  record: AnswerRecord;
  seed: number;
  nextCheck: (below: (n: number) => number) => { counter: Counter; cost: number };
}

export class ClusterClients {
  /** Checks without an answer, which may have been counted. They were sent again. */
  unanswered = 0;
  /** Checks that no machine has answered, although a client has tried for seconds. */
  errors = 0;
  readonly #options: ClientOptions;
  readonly #ended: Promise<unknown>;
  #isStopping = false;

  constructor(options: ClientOptions) {
    this.#options = options;
    const { machines, clientsPerMachine } = options;
    this.#ended = Promise.all(
      Array.from({ length: clientsPerMachine * machines.length }, (_, i) => this.#run(i)),
    );
  }

  async stop(): Promise<void> {
    this.#isStopping = true;
    await this.#ended;
  }

  async #run(index: number): Promise<void> {
    const { machines, seed, nextCheck } = this.#options;
    const below = seededRandom(seed + 7_919 * index);
    const client = new RetryingClient(this.#options, () => this.unanswered++);
    while (!this.#isStopping) {
      const { counter, cost } = nextCheck(below);
      const body = await client.check(counter, cost, index % machines.length);
      if (body === undefined) this.errors++;
      await sleep(below(2 * PAUSE_MS + 1));
    }
    client.close();
  }
}

/** Sends one check after the other, to a machine or, while that one is gone, to the next one. */
class RetryingClient {
  readonly #connections = new Map<number, ReconnectingClient>();
  readonly #machines: readonly Machine[];
  readonly #record: AnswerRecord;
  readonly #onUnanswered: () => void;

  constructor(
    { machines, record }: Pick<ClientOptions, 'machines' | 'record'>,
    onUnanswered = () => {},
  ) {
    this.#machines = machines;
    this.#record = record;
    this.#onUnanswered = onUnanswered;
  }

  /** @returns undefined without a valid answer */
  async check(counter: Counter, cost: number, home: number): Promise<LimitResponse | undefined> {
    const bytes = requestBytes({ body: JSON.stringify({ ...counter, cost }) });
    for (let tries = 0; tries < TRIES; tries++) {
      const at = this.#choose(home, tries);
      const { port } = this.#machines[at];
      let connection = this.#connections.get(port);
      if (connection === undefined) {
        connection = new ReconnectingClient(port);
        this.#connections.set(port, connection);
      }
      const sentMs = now();
      const [answer] = await connection.send([bytes], 1, ANSWER_TIMEOUT_MS);
      if (answer !== undefined) {
        const body = this.#record.record(counter, cost, at, sentMs, answer.status, answer.body);
        if (answer.status !== 503) return body;
      } else {
        this.#onUnanswered();
        connection.close();
      }
      if (tries >= this.#machines.length) await sleep(RETRY_MS);
    }
    return undefined;
  }

  /** Sends checks of one token until the counter denies them. */
  async exhaust(counter: Counter, home: number): Promise<void> {
    for (let denials = 0; denials < EXHAUSTED_DENIALS; ) {
      const body = await this.check(counter, 1, home);
      if (body === undefined) return;
      denials = body.success ? 0 : denials + 1;
      if (!body.success) await sleep(EXHAUSTED_PAUSE_MS);
    }
  }

  close(): void {
    for (const connection of this.#connections.values()) connection.close();
  }

  /** The next machine that serves. */
  #choose(home: number, tries: number): number {
    const order = this.#machines.map((_, i) => (home + tries + i) % this.#machines.length);
    return order.find((at) => this.#machines[at].isServing) ?? home;
  }
}

/**
 * Uses up the windows of counters through the machines that serve: afterwards what a window has not
 * allowed is lost. On a busy computer Redis may be too slow for some checks. Another round then
 * finds the tokens.
 */
export async function exhaust(
  machines: readonly Machine[],
  record: AnswerRecord,
  counters: readonly Counter[],
  rounds = EXHAUST_ROUNDS_MAX,
): Promise<void> {
  const serving = machines.filter(({ isServing }) => isServing);
  const countUnproven = async () => {
    const counts = await Promise.all(serving.map((machine) => machine.readCounts()));
    return sum(counts.map(({ unproven, withoutRedis }) => unproven + withoutRedis));
  };
  for (let round = 0; round < rounds; round++) {
    const before = await countUnproven();
    await Promise.all(
      serving.map(async (machine) => {
        const home = machines.indexOf(machine);
        const client = new RetryingClient({ machines, record });
        for (const counter of counters) await client.exhaust(counter, home);
        client.close();
      }),
    );
    if (counters.every((counter) => record.tokensOf(counter) >= counter.limit)) return;
    if ((await countUnproven()) === before) return;
  }
}

/** A duration of about `ms` whose present window has just begun: a test does not see its end. */
export function durationOfYoungWindow(ms: number): number {
  const at = Date.now();
  let duration = ms;
  while (at % duration > ms / 20) duration++;
  return duration;
}

/** Denied checks for whose cost checks that were sent later have got tokens. */
function countDeniedEarly(
  allowed: WindowAnswers['allowed'],
  denied: WindowAnswers['denied'],
): number {
  const newest = allowed.toSorted((a, b) => b.sentMs - a.sentMs);
  return denied.filter(({ cost, answeredMs }) => {
    let tokens = 0;
    for (const later of newest) {
      if (later.sentMs <= answeredMs || tokens >= cost) break;
      tokens += later.cost;
    }
    return tokens >= cost;
  }).length;
}

function isValid(body: LimitResponse, counter: Counter, sentMs: number, answeredMs: number) {
  const { success, limit, remaining, reset } = body;
  const { duration } = counter;
  return (
    typeof success === 'boolean' &&
    limit === counter.limit &&
    Number.isInteger(remaining) &&
    remaining >= 0 &&
    remaining <= limit &&
    reset % duration === 0 &&
    reset > sentMs - CLOCK_TOLERANCE_MS &&
    reset - duration < answeredMs + CLOCK_TOLERANCE_MS
  );
}

function now(): number {
  return performance.timeOrigin + performance.now();
}

function costOf({ cost }: { cost: number }): number {
  return cost;
}

function sum(numbers: readonly number[]): number {
  return numbers.reduce((a, b) => a + b, 0);
}
