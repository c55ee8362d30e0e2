/**
 * A client that knows of a cluster only what the answers to its checks say. It counts the tokens
 * that it was allowed, by counter and window, and judges each answer by that count: a denial is
 * false if the cost still fitted, and allowed tokens above the limit are over. A sliding window is
 * judged by its own tokens, so a denial may also be right because of the window before it.
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
  verdict: Verdict;
  isAllowed: boolean;
  /** Tokens above the limit that this check was allowed. */
  over: number;
  /** From sending it to its answer, with all tries. */
  ms: number;
  /** Servers that did not listen, and servers that did not answer. */
  refused: number;
  unanswered: number;
}

/** What the client has seen since the last `clear`. */
export interface Seen {
  checks: number;
  /** Allowed tokens above limits. */
  over: number;
  /** Checks that no server has answered, or with an answer other than a decision. */
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

  /** @param ports servers, of which the next is tried if one does not answer */
  async check(ports: readonly number[], counter: Counter, cost = 1): Promise<Judged> {
    const usage = this.#usageOf(counter);
    const bytes = checkBytes(counter, cost);
    const sentMs = performance.now();
    const judged = { isAllowed: false, over: 0, ms: 0, refused: 0, unanswered: 0 };
    let answer: ParsedResponse | undefined;
    for (const port of ports) {
      // If there is no answer, the server may have counted it.
      usage.unknown += cost;
      const result = await this.#connections.send(port, bytes, ANSWER_TIMEOUT_MS);
      if (result !== 'no answer') usage.unknown -= cost;
      if (result === 'refused') judged.refused++;
      else if (result === 'no answer') judged.unanswered++;
      else {
        answer = result;
        break;
      }
    }
    judged.ms = performance.now() - sentMs;
    this.seen.checks++;
    this.seen.longestMs = Math.max(this.seen.longestMs, judged.ms);
    if (answer?.status !== 200) {
      this.seen.failed++;
      this.seen.failure = answer === undefined ? 'no answer' : `${answer.status} ${answer.body}`;
      return { ...judged, verdict: 'failed' };
    }
    const { success, reset } = decisionIn(answer);
    if (!success) return { ...judged, verdict: judgeDenial(counter, usage, reset, cost) };
    const over = this.#allow(counter, usage, reset, cost);
    return { ...judged, isAllowed: true, over, verdict: over > 0 ? 'over' : 'right' };
  }

  close(): void {
    this.#connections.close();
  }

  /** @returns tokens above the limit */
  #allow(counter: Counter, { allowed, sinceMs }: Usage, reset: number, cost: number): number {
    const { limit, duration, algorithm } = counter;
    const window = windowOf(counter, reset);
    const used = (allowed.get(window) ?? 0) + cost;
    allowed.set(window, used);
    const refilled = (limit * (performance.now() - sinceMs)) / duration;
    const most = limit + (algorithm === 'gcra' ? Math.ceil(refilled) : 0);
    const over = Math.min(cost, Math.max(0, used - most));
    this.seen.over += over;
    return over;
  }

  #usageOf(counter: Counter): Usage {
    const usage = this.#usages.get(counter) ?? {
      ...{ allowed: new Map(), unknown: 0, sinceMs: performance.now() },
    };
    this.#usages.set(counter, usage);
    return usage;
  }
}

function judgeDenial(counter: Counter, usage: Usage, reset: number, cost: number): Verdict {
  const used = usage.allowed.get(windowOf(counter, reset)) ?? 0;
  return used + usage.unknown + cost <= counter.limit ? 'denied falsely' : 'right';
}

const windowOf = ({ algorithm }: Counter, reset: number) => (algorithm === 'gcra' ? 0 : reset);

/** Sliding windows by v2, whose default they are, and the others by v1. */
function checkBytes({ algorithm, ...counter }: Counter, cost: number): Buffer {
  if (algorithm !== 'sliding') {
    return requestBytes({ body: JSON.stringify({ ...counter, algorithm, cost }) });
  }
  const body = JSON.stringify({ namespace: 'default', ...counter, cost });
  return requestBytes({ path: '/v2/ratelimit.limit', body });
}

function decisionIn({ body }: ParsedResponse): LimitResponse {
  const response = JSON.parse(body) as LimitResponse & { data?: LimitResponse };
  return response.data ?? response;
}

/** Connections to several servers. A request takes a free one, or opens one. */
export class ConnectionPool {
  readonly #free = new Map<number, ReconnectingClient[]>();

  async send(
    port: number,
    bytes: Buffer,
    timeoutMs: number,
  ): Promise<ParsedResponse | 'refused' | 'no answer'> {
    const free = this.#free.get(port) ?? [];
    this.#free.set(port, free);
    const connection = free.pop() ?? new ReconnectingClient(port);
    const [answer] = await connection.send([bytes], 1, timeoutMs);
    // The answer may come later, and is not that of the next request.
    if (answer === undefined) connection.close();
    free.push(connection);
    return answer ?? (connection.isRefused ? 'refused' : 'no answer');
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
