/**
 * The package's `/fetch`: a limiter whose limits are in code, for applications with `fetch`, and a
 * wrapper for handlers of the form `(request: Request) => Response`.
 */

import {
  type ConcurrencyOptions,
  type Lease,
  leaseSource,
  NO_LEASE,
  RETRY_SOON,
  readConcurrency,
} from './concurrency.ts';
import { shorten } from './identifier.ts';
import { type OnError, readOnError, requireKnownOptions, requireOption } from './options.ts';
import {
  type ReservationEnd,
  type ReserveRequest,
  requireReserveRequest,
  reservationEnd,
} from './reservation.ts';
import { isCount, isText } from './values.ts';
import { WeirClient } from './weir-client.ts';

export type { ConcurrencyOptions } from './concurrency.ts';
export type { ReserveRequest, Settlement } from './reservation.ts';

export interface LimiterOptions {
  /** weir's port for checks; `http://127.0.0.1:7070` by default. */
  url?: string;
  /** An API key of weir with the permission `limit`. */
  key: string | undefined;
  namespace: string;
  /** Tokens per window. With `concurrency`, `limit` and `duration` may be omitted together. */
  limit?: number;
  /** Length of the window, 1000 to 2592000000 ms. */
  duration?: number;
  /** `sliding` by default. */
  algorithm?: 'fixed' | 'sliding' | 'gcra';
  /** For `gcra`: the tokens that may be used at once. */
  burst?: number;
  /** How many requests of an identifier may run at once: for `acquire` and `rateLimit`. */
  concurrency?: ConcurrencyOptions;
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
  'concurrency',
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

/** A decision with the lease of `concurrency`. */
export interface LeaseDecision extends Decision, Pick<Lease, 'leaseId' | 'release'> {
  /** What has denied, if weir has decided. */
  deniedBy?: 'limit' | 'concurrency';
}

/** A decision with the functions that end the reservation. */
export interface Reservation extends Decision, ReservationEnd {}

export interface Limiter {
  /**
   * Counts an identifier, and decides. It rejects for invalid arguments only. A failure of weir is
   * a process warning. A check is sent once, because weir may have counted one without a response.
   * @param identifier of the client, not empty. A long one is replaced by its digest
   * @param cost tokens that it uses; 1 by default
   * @throws TypeError for invalid arguments, or without the options `limit` and `duration`
   */
  check(identifier: string, cost?: number): Promise<Decision>;
  /**
   * Decides whether work may begin: by a check, if the limiter has a limit, and then by a lease, if
   * it has `concurrency`. Release the lease when the work ends. Until then it is renewed.
   */
  acquire(identifier: string, cost?: number): Promise<LeaseDecision>;
  /**
   * Counts tokens before work whose cost is known only afterwards. Commit the cost when the work
   * has ended, or cancel. Failures are those of a check.
   */
  reserve(request: ReserveRequest): Promise<Reservation>;
}

/** The windows that weir accepts. */
const DURATION_MIN_MS = 1_000;
const DURATION_MAX_MS = 2_592_000_000;
const CONCURRENCY_OPTIONS = ['limit', 'ttl'];

/** @throws TypeError for invalid options */
export function createLimiter(options: LimiterOptions): Limiter {
  requireKnownOptions(options, LIMITER_OPTIONS);
  const { url = 'http://127.0.0.1:7070', namespace, limit, duration, algorithm, burst } = options;
  const isName = isText(namespace) && namespace.isWellFormed();
  requireOption(isName, 'namespace', 'a text that is not empty', namespace);
  // An option without a value is an error: it may be an environment variable that is not set.
  const hasConcurrency = 'concurrency' in options;
  const hasWindow = !hasConcurrency || 'limit' in options || 'duration' in options;
  if (hasWindow) requireWindow(options);
  const client = new WeirClient({ url, key: options.key, timeoutMs: options.timeoutMs });
  // A header contains ASCII only.
  const policyName = encodeURIComponent(namespace);
  const onError = readOnError(options.onError);
  const allowed = onError === 'allow';
  const undecided = (error: unknown): Decision => {
    return { allowed, headers: allowed ? {} : RETRY_SOON, error: error as Error };
  };
  const lease = hasConcurrency
    ? leaseSource(
        client,
        namespace,
        readConcurrency(options.concurrency, CONCURRENCY_OPTIONS),
        onError,
      )
    : undefined;
  const requireLimit = (method: string) => {
    if (!hasWindow) throw new TypeError(`${method}() needs the options "limit" and "duration"`);
  };

  const limiter: Limiter = {
    async check(identifier, cost = 1) {
      requireLimit('check');
      requireArguments(identifier, cost);
      try {
        const fields = { namespace, limit, duration, algorithm, burst, cost };
        const check = { ...fields, identifier: await shorten(identifier) };
        const state = await client.call('v2/ratelimit.limit', check, readChecked);
        return decisionOf(policyName, cost, burst, state);
      } catch (error) {
        return undecided(error);
      }
    },

    async acquire(identifier, cost = 1) {
      requireArguments(identifier, cost);
      const decision = hasWindow
        ? await limiter.check(identifier, cost)
        : { allowed: true, headers: {} };
      if (decision.quota !== undefined && !decision.allowed) {
        return { ...decision, ...NO_LEASE, deniedBy: 'limit' };
      }
      // Without weir a lease would only take more time to fail.
      if (lease === undefined || decision.error !== undefined) return { ...decision, ...NO_LEASE };
      const acquired = await lease(identifier);
      if (acquired.allowed) return { ...acquired, ...decision };
      return acquired.error === undefined ? { ...acquired, deniedBy: 'concurrency' } : acquired;
    },

    async reserve(request) {
      requireLimit('reserve');
      requireReserveRequest(request);
      const { identifier, cost, ttl } = request;
      try {
        // The same algorithm as that of a check.
        const window = { namespace, limit, duration, algorithm: algorithm ?? 'sliding', burst };
        const fields = { ...window, identifier: await shorten(identifier), cost, ttl };
        const state = await client.call('v1/ratelimits.reserve', fields, readReserved);
        const end = reservationEnd(client, state.reservationId);
        return { ...decisionOf(policyName, cost, burst, state), ...end };
      } catch (error) {
        return { ...undecided(error), ...reservationEnd(client, null) };
      }
    },
  };
  return limiter;
}

function requireArguments(identifier: unknown, cost: unknown): void {
  requireOption(isText(identifier), 'identifier', 'a text that is not empty', identifier);
  requireOption(isCount(cost, 0), 'cost', 'an integer from 0', cost);
}

/** @throws TypeError for an invalid window */
function requireWindow({ limit, duration, algorithm, burst }: LimiterOptions): void {
  requireOption(isCount(limit, 1), 'limit', 'a positive integer', limit);
  const isDuration = isCount(duration, DURATION_MIN_MS) && duration <= DURATION_MAX_MS;
  const range = `from ${DURATION_MIN_MS} to ${DURATION_MAX_MS}`;
  requireOption(isDuration, 'duration', `an integer number of milliseconds ${range}`, duration);
  const isAlgorithm = ['fixed', 'sliding', 'gcra', undefined].includes(algorithm);
  requireOption(isAlgorithm, 'algorithm', "'fixed', 'sliding' or 'gcra'", algorithm);
  const isBurst =
    burst === undefined || (algorithm === 'gcra' && isCount(burst, 1) && burst <= limit!);
  requireOption(isBurst, 'burst', "an integer from 1 to the limit, with 'gcra' only", burst);
}

/**
 * Wraps a handler, so that it is called for allowed requests only. A denied request gets a 429. All
 * responses get the headers of the decision. A lease is held until the body of the response has
 * been read or cancelled, or the request is aborted.
 *
 *     const limited = rateLimit(limiter, (request) => userOf(request), handler);
 *
 * @param identify returns the identifier of the client; it gets the arguments of the handler
 */
export function rateLimit<Arguments extends [Request, ...unknown[]]>(
  limiter: Pick<Limiter, 'acquire'>,
  identify: (...args: Arguments) => string | Promise<string>,
  handler: (...args: Arguments) => Response | Promise<Response>,
): (...args: Arguments) => Promise<Response> {
  return async (...args) => {
    const decision = await limiter.acquire(await identify(...args));
    const { allowed, headers, leaseId, release } = decision;
    if (!allowed) return withHeaders(denial(decision), headers);
    if (leaseId === null) return withHeaders(await handler(...args), headers);
    const [{ signal }] = args;
    if (signal.aborted) void release();
    else signal.addEventListener('abort', release, { once: true });
    try {
      return releaseAfter(withHeaders(await handler(...args), headers), release);
    } catch (error) {
      void release();
      throw error;
    }
  };
}

function denial({ deniedBy }: LeaseDecision): Response {
  const reason = deniedBy === 'concurrency' ? 'Too many requests at once' : 'Too many requests';
  return new Response(`${reason}\n`, {
    status: 429,
    headers: { 'Content-Type': 'text/plain; charset=utf-8', 'Cache-Control': 'no-store' },
  });
}

/** Bodies that are neither read nor cancelled, as that of a response to HEAD may be. */
const abandoned = new FinalizationRegistry<() => void>((release) => release());

function releaseAfter(response: Response, release: () => void): Response {
  if (response.body === null) {
    release();
    return response;
  }
  const reader = response.body.getReader();
  const body = new ReadableStream<Uint8Array>(
    {
      async pull(controller) {
        try {
          const { done, value } = await reader.read();
          if (!done) {
            controller.enqueue(value);
            return;
          }
          release();
          controller.close();
        } catch (error) {
          release();
          controller.error(error);
        }
      },
      cancel(reason) {
        release();
        return reader.cancel(reason);
      },
    },
    // It reads nothing before the client does.
    { highWaterMark: 0 },
  );
  abandoned.register(body, release);
  const { status, statusText, headers } = response;
  return new Response(body, { status, statusText, headers });
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

/** What weir's response to a check says. */
interface WindowState extends Quota {
  success: boolean;
  /** Of a denied check that can pass later: when, in Unix time in ms. */
  passesAt?: number | undefined;
}

/** @returns undefined if the body is not a decision */
function readChecked(body: unknown): WindowState | undefined {
  return readWindowState((body as { data?: unknown }).data ?? {});
}

function readReserved(
  body: unknown,
): (WindowState & Pick<Reservation, 'reservationId'>) | undefined {
  const state = readWindowState(body as object);
  const { reservationId } = body as { reservationId?: unknown };
  const isId = reservationId === null || typeof reservationId === 'string';
  return state !== undefined && isId ? { ...state, reservationId } : undefined;
}

function readWindowState(value: object): WindowState | undefined {
  const { success, limit, remaining, reset, passesAt } = value as Partial<WindowState>;
  const isState = isCount(limit, 0) && isCount(remaining, 0) && isCount(reset, 0);
  if (typeof success !== 'boolean' || !isState) return undefined;
  return { success, limit, remaining, reset, passesAt };
}

function decisionOf(
  policyName: string,
  cost: number,
  burst: number | undefined,
  { success, limit, remaining, reset, passesAt }: WindowState,
): Decision {
  const quota = { limit, remaining, reset };
  const item = `"${policyName}";r=${remaining}`;
  const isNever = cost > Math.min(limit, burst ?? limit);
  if (!success && isNever) return { allowed: false, headers: { RateLimit: item }, quota };
  // A reservation and an older server have no `passesAt`.
  const untilMs = !success && isCount(passesAt, 0) ? passesAt : reset;
  const seconds = Math.max(1, Math.ceil((untilMs - Date.now()) / 1_000));
  const headers = { RateLimit: `${item};t=${seconds}` };
  return {
    allowed: success,
    headers: success ? headers : { ...headers, 'Retry-After': String(seconds) },
    quota,
  };
}
