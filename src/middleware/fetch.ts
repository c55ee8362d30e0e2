/**
 * The package's `/fetch`: a limiter whose limits are in code, for applications with `fetch`, and a
 * wrapper for handlers of the form `(request: Request) => Response`. It sends checks to
 * `/v2/ratelimit.limit`.
 */

import { Breaker } from './breaker.ts';
import { startDeadline } from './deadline.ts';
import {
  type OnError,
  readKey,
  readOnError,
  readTimeout,
  requireKnownOptions,
  requireOption,
  shownUrl,
} from './options.ts';

export interface LimiterOptions {
  /** weir's port for checks; `http://127.0.0.1:7070` by default. */
  url?: string;
  /** An API key of weir with the permission `limit`. */
  key: string | undefined;
  namespace: string;
  /** Tokens per window. */
  limit: number;
  /** Length of the window, 1000 to 2592000000 ms. */
  duration: number;
  /** `sliding` by default. */
  algorithm?: 'fixed' | 'sliding' | 'gcra';
  /** For `gcra`: the tokens that may be used at once. */
  burst?: number;
  /** `allow` (default) or `deny`: the decision if weir does not decide. */
  onError?: OnError;
  /** How long a check may take, 1 to 60000 ms; 2000 by default. */
  timeoutMs?: number;
}

export const LIMITER_OPTIONS = [
  'url',
  'key',
  'namespace',
  'limit',
  'duration',
  'algorithm',
  'burst',
  'onError',
  'timeoutMs',
];

export interface Decision {
  allowed: boolean;
  /**
   * `RateLimit` for the response to the client, and `Retry-After` of a denial, unless the cost is
   * above the limit.
   */
  headers: Record<string, string>;
  /** Undefined if weir has not decided. */
  quota?: Quota;
  /** Why weir has not decided. Then `allowed` is that of `onError`. */
  error?: Error;
}

export interface Quota {
  limit: number;
  remaining: number;
  /** End of the window, in Unix time in ms. */
  reset: number;
}

export interface Limiter {
  /**
   * Counts an identifier, and decides. It rejects for invalid arguments only. A failure of weir is
   * a process warning. A check is sent once, because weir may have counted one without a response.
   * @param identifier of the client, not empty. A long one is replaced by its digest
   * @param cost tokens that it uses; 1 by default
   * @throws TypeError for invalid arguments
   */
  check(identifier: string, cost?: number): Promise<Decision>;
}

/** The windows that weir accepts. */
const DURATION_MIN_MS = 1_000;
const DURATION_MAX_MS = 2_592_000_000;
/** The longest identifier that weir accepts, in Unicode code points. */
const IDENTIFIER_MAX = 512;
/** A denial without a decision of weir. */
const RETRY_AFTER_S = '1';

/** @throws TypeError for invalid options */
export function createLimiter(options: LimiterOptions): Limiter {
  requireKnownOptions(options, LIMITER_OPTIONS);
  const { url = 'http://127.0.0.1:7070', namespace, limit, duration, algorithm, burst } = options;
  const target = `${readBaseUrl(url)}/v2/ratelimit.limit`;
  const isName = isText(namespace) && namespace.isWellFormed();
  requireOption(isName, 'namespace', 'a text that is not empty', namespace);
  requireOption(isCount(limit, 1), 'limit', 'a positive integer', limit);
  const isDuration = isCount(duration, DURATION_MIN_MS) && duration <= DURATION_MAX_MS;
  const range = `from ${DURATION_MIN_MS} to ${DURATION_MAX_MS}`;
  requireOption(isDuration, 'duration', `an integer number of milliseconds ${range}`, duration);
  const isAlgorithm = ['fixed', 'sliding', 'gcra', undefined].includes(algorithm);
  requireOption(isAlgorithm, 'algorithm', "'fixed', 'sliding' or 'gcra'", algorithm);
  const isBurst =
    burst === undefined || (algorithm === 'gcra' && isCount(burst, 1) && burst <= limit);
  requireOption(isBurst, 'burst', "an integer from 1 to the limit, with 'gcra' only", burst);
  const headers = {
    Authorization: `Bearer ${readKey(options.key)}`,
    'Content-Type': 'application/json',
  };
  // A header contains ASCII only.
  const policyName = encodeURIComponent(namespace);
  const timeoutMs = readTimeout(options.timeoutMs);
  const allowed = readOnError(options.onError) === 'allow';
  const breaker = new Breaker();

  const undecided = (error: Error): Decision => {
    return { allowed, headers: allowed ? {} : { 'Retry-After': RETRY_AFTER_S }, error };
  };

  return {
    async check(identifier, cost = 1) {
      requireOption(isText(identifier), 'identifier', 'a text that is not empty', identifier);
      requireOption(isCount(cost, 0), 'cost', 'an integer from 0', cost);
      if (breaker.isOpen && !breaker.takeProbe()) {
        return undecided(new Error('weir has not answered the last checks'));
      }
      const abort = new AbortController();
      const cancelDeadline = startDeadline(timeoutMs, () => {
        breaker.countTimeout();
        abort.abort(new Error(`weir has not answered within ${timeoutMs} ms`));
      });
      try {
        const fields = { namespace, limit, duration, algorithm, burst, cost };
        const body = JSON.stringify({ ...fields, identifier: await shorten(identifier) });
        const { signal } = abort;
        const init = { method: 'POST', headers, body, signal, redirect: 'error' } as const;
        const response = await fetch(target, init);
        breaker.countResponse();
        return readDecision(policyName, cost, burst, response.status, await response.text());
      } catch (error) {
        const { message } = readCause(error);
        process.emitWarning(message);
        return undecided(new Error(message));
      } finally {
        cancelDeadline();
      }
    },
  };
}

/**
 * Wraps a handler, so that it is called for allowed requests only. A denied request gets a 429. All
 * responses get the headers of the decision.
 *
 *     const limited = rateLimit(limiter, (request) => userOf(request), handler);
 *
 * @param identify returns the identifier of the client; it gets the arguments of the handler
 */
export function rateLimit<Arguments extends [Request, ...unknown[]]>(
  limiter: Limiter,
  identify: (...args: Arguments) => string | Promise<string>,
  handler: (...args: Arguments) => Response | Promise<Response>,
): (...args: Arguments) => Promise<Response> {
  return async (...args) => {
    const { allowed, headers } = await limiter.check(await identify(...args));
    const response = allowed
      ? await handler(...args)
      : new Response('Too many requests\n', {
          status: 429,
          headers: { 'Content-Type': 'text/plain; charset=utf-8', 'Cache-Control': 'no-store' },
        });
    return withHeaders(response, headers);
  };
}

function withHeaders(response: Response, headers: Record<string, string>): Response {
  try {
    for (const [name, value] of Object.entries(headers)) response.headers.set(name, value);
    return response;
  } catch {
    // The headers of some responses are immutable, such as those that fetch() returns.
    const all = new Headers([...response.headers, ...Object.entries(headers)]);
    const { status, statusText } = response;
    return new Response(response.body, { status, statusText, headers: all });
  }
}

/** @returns the URL without a slash at its end */
function readBaseUrl(value: string): string {
  const url = URL.canParse(value) ? new URL(value) : undefined;
  const isHttp = url !== undefined && /^https?:$/.test(url.protocol);
  const isBase = isHttp && url.href === `${url.origin}${url.pathname}`;
  requireOption(isBase, 'url', 'a URL such as http://127.0.0.1:7070', shownUrl(value));
  return url!.href.replace(/\/+$/, '');
}

/** What weir's response has of a check. */
interface DecidedCheck extends Quota {
  success: boolean;
  /** Of a denied check that can pass later: when, in Unix time in ms. */
  passesAt: number;
}

/** @throws Error if the response is not a decision */
function readDecision(
  policyName: string,
  cost: number,
  burst: number | undefined,
  status: number,
  text: string,
): Decision {
  const problem = new Error(`weir answered ${status}: ${text.slice(0, 300)}`);
  if (status !== 200) throw problem;
  const { data } = JSON.parse(text) as { data?: Partial<DecidedCheck> };
  const { success, limit, remaining, reset, passesAt } = data ?? {};
  const isDecision = isCount(limit, 0) && isCount(remaining, 0) && isCount(reset, 0);
  if (typeof success !== 'boolean' || !isDecision) throw problem;
  const quota = { limit, remaining, reset };
  const item = `"${policyName}";r=${remaining}`;
  const isNever = cost > Math.min(limit, burst ?? limit);
  if (!success && isNever) return { allowed: false, headers: { RateLimit: item }, quota };
  // An older server does not send `passesAt`.
  const untilMs = !success && isCount(passesAt, 0) ? passesAt : reset;
  const seconds = Math.max(1, Math.ceil((untilMs - Date.now()) / 1_000));
  const headers = { RateLimit: `${item};t=${seconds}` };
  return {
    allowed: success,
    headers: success ? headers : { ...headers, 'Retry-After': String(seconds) },
    quota,
  };
}

/**
 * weir rejects a long identifier, and one that is not well-formed Unicode. A client must not get
 * the decision of `onError` by it.
 */
async function shorten(identifier: string): Promise<string> {
  // JSON escapes what is not well-formed, so that different texts stay different.
  if (!identifier.isWellFormed()) return `sha256-json:${await digest(JSON.stringify(identifier))}`;
  const { length } = identifier;
  const isShort =
    length <= IDENTIFIER_MAX ||
    // A code point has at most two units, so a longer text need not be counted.
    (length <= 2 * IDENTIFIER_MAX && [...identifier].length <= IDENTIFIER_MAX);
  return isShort ? identifier : `sha256:${await digest(identifier)}`;
}

async function digest(text: string): Promise<string> {
  const bytes = await crypto.subtle.digest('SHA-256', new TextEncoder().encode(text));
  return Buffer.from(bytes).toString('hex');
}

/** `fetch` hides the cause of a failure, such as ECONNREFUSED. */
function readCause(error: unknown): Error {
  const { cause } = error as { cause?: unknown };
  if (cause instanceof Error) return new Error(`weir has not answered: ${cause.message}`);
  return error instanceof Error ? error : new Error(String(error));
}

function isText(value: unknown): value is string {
  return typeof value === 'string' && value !== '';
}

function isCount(value: unknown, minimum: number): value is number {
  return Number.isSafeInteger(value) && (value as number) >= minimum;
}
