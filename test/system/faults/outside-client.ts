/**
 * A client that knows of a cluster only what the answers to its checks say. It counts the tokens
 * that it was allowed, by counter and window, and judges each answer by that count: a denial is
 * false if the cost still fitted, and allowed tokens above the limit are over.
 */

import { type LimitResponse, type ParsedResponse, requestBytes } from '../../support/http.ts';
import { ReconnectingClient } from './http-connections.ts';

export type Algorithm = 'fixed' | 'sliding' | 'gcra';

export interface Counter {
  identifier: string;
  limit: number;
  /** In ms. */
  duration: number;
  algorithm: Algorithm;
}

export type Verdict = 'right' | 'over' | 'denied falsely' | 'failed';

export interface Judged {
  counter: Counter;
  verdict: Verdict;
  isAllowed: boolean;
}

/** What the client has seen since the last `clear`. */
export interface Seen {
  checks: number;
  /** Allowed tokens above limits. */
  over: number;
  /** Checks without an answer, or with one other than a decision. */
  failed: number;
  longestMs: number;
  /** One of the answers that are no decisions. */
  failure: string;
}

const ANSWER_TIMEOUT_MS = 5_000;
const NOTHING_SEEN: Seen = { checks: 0, over: 0, failed: 0, longestMs: 0, failure: '' };

interface Usage {
  /** By the `reset` of the window. A GCRA bucket has one that does not end. */
  allowed: Map<number, number>;
  /** Of checks in flight and without an answer, and what was lost: they may have been allowed. */
  unknown: number;
  sinceMs: number;
}

export class OutsideClient {
  seen = { ...NOTHING_SEEN };
  readonly #usages = new Map<Counter, Usage>();
  readonly #connections = new ConnectionPool();

  /** Tokens that were allowed, in all windows. */
  allowed(counter: Counter): number {
    const { allowed } = this.#usageOf(counter);
    return [...allowed.values()].reduce((sum, tokens) => sum + tokens, 0);
  }

  /** So many tokens may be lost, for example with a machine that held a lease. */
  concede(counter: Counter, tokens: number): void {
    this.#usageOf(counter).unknown += tokens;
  }

  /** Forgets what it has seen, but not what it was allowed. */
  clear(): void {
    this.seen = { ...NOTHING_SEEN };
  }

  async check(port: number, counter: Counter, cost = 1): Promise<Judged> {
    const usage = this.#usageOf(counter);
    const bytes = requestBytes({ body: JSON.stringify({ ...counter, cost }) });
    const sentMs = performance.now();
    usage.unknown += cost;
    const answer = await this.#connections.send(port, bytes, ANSWER_TIMEOUT_MS);
    this.seen.checks++;
    this.seen.longestMs = Math.max(this.seen.longestMs, performance.now() - sentMs);
    if (answer?.status !== 200) {
      // A response with another status says that the check was not counted, or that it may be.
      this.seen.failed++;
      this.seen.failure = answer === undefined ? 'no answer' : `${answer.status} ${answer.body}`;
      return { counter, verdict: 'failed', isAllowed: false };
    }
    usage.unknown -= cost;
    const { success, reset } = JSON.parse(answer.body) as LimitResponse;
    const verdict = success
      ? this.#allow(counter, usage, reset, cost)
      : this.#deny(counter, usage, reset, cost);
    return { counter, verdict, isAllowed: success };
  }

  close(): void {
    this.#connections.close();
  }

  #allow(counter: Counter, { allowed, sinceMs }: Usage, reset: number, cost: number): Verdict {
    const { limit, duration, algorithm } = counter;
    const window = algorithm === 'gcra' ? 0 : reset;
    const used = (allowed.get(window) ?? 0) + cost;
    allowed.set(window, used);
    const refilled = (limit * (performance.now() - sinceMs)) / duration;
    const over = used - limit - (algorithm === 'gcra' ? Math.ceil(refilled) : 0);
    if (over <= 0) return 'right';
    this.seen.over += Math.min(cost, over);
    return 'over';
  }

  #deny(counter: Counter, usage: Usage, reset: number, cost: number): Verdict {
    const used = usage.allowed.get(counter.algorithm === 'gcra' ? 0 : reset) ?? 0;
    return used + usage.unknown + cost <= counter.limit ? 'denied falsely' : 'right';
  }

  #usageOf(counter: Counter): Usage {
    const usage = this.#usages.get(counter) ?? {
      ...{ allowed: new Map(), unknown: 0, sinceMs: performance.now() },
    };
    this.#usages.set(counter, usage);
    return usage;
  }
}

/** Connections to several servers. A request takes a free one, or opens one. */
export class ConnectionPool {
  readonly #free = new Map<number, ReconnectingClient[]>();

  /** @returns undefined without an answer */
  async send(port: number, bytes: Buffer, timeoutMs: number): Promise<ParsedResponse | undefined> {
    const free = this.#free.get(port) ?? [];
    this.#free.set(port, free);
    const connection = free.pop() ?? new ReconnectingClient(port);
    const [answer] = await connection.send([bytes], 1, timeoutMs);
    // The answer may come later, and is not that of the next request.
    if (answer === undefined) connection.close();
    free.push(connection);
    return answer;
  }

  close(): void {
    for (const connection of [...this.#free.values()].flat()) connection.close();
  }
}

/** With so much of them left no window ends while a test runs. */
const LEFT_MIN_MS = 600_000;

/** An hour, or a little more. The window of now has minutes left. */
export function hourMs(nowMs = Date.now()): number {
  let ms = 3_600_000;
  while (ms - (nowMs % ms) < LEFT_MIN_MS) ms += 60_000;
  return ms;
}
