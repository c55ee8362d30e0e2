/**
 * Concurrency leases of weir: how many requests of an identifier run at once. A lease is renewed
 * until it is released. If the process dies or weir cannot be reached, it ends after its `ttl`.
 */

import { shorten } from './identifier.ts';
import { requireOption } from './options.ts';
import { isCount, readFields } from './values.ts';
import type { WeirClient } from './weir-client.ts';

export interface ConcurrencyOptions {
  /** Requests of an identifier that may run at once. */
  limit: number;
  /**
   * Time in ms after which a lease ends that is not renewed, 1000 to 86400000. Leases of running
   * requests are renewed.
   */
  ttl: number;
}

export interface Lease {
  allowed: boolean;
  /** For the response to the client. Empty if a lease is granted. */
  headers: Record<string, string>;
  /** Null without a lease: after a denial, and if weir has not recorded one. */
  leaseId: string | null;
  /** Why weir has not decided. Then `allowed` is that of `onError`. */
  error?: Error;
  /** Ends the lease. Only the first call does something. It never rejects. */
  release(): Promise<void>;
}

/** A lease ends only if two renewals in a row fail. */
const RENEWALS_PER_TTL = 3;
const TTL_MIN_MS = 1_000;
const TTL_MAX_MS = 86_400_000;
/** A lease may end at any time. Also for a denial without a decision of weir. */
export const RETRY_SOON = { 'Retry-After': '1' };

export const NO_LEASE = { leaseId: null, release: async () => {} };

/**
 * @param known the options of `concurrency`
 * @throws TypeError for invalid options
 */
export function readConcurrency(value: unknown, known: readonly string[]): ConcurrencyOptions {
  const options = readFields('concurrency', value, known) as Partial<ConcurrencyOptions>;
  const { limit, ttl } = options;
  requireOption(isCount(limit, 1), 'concurrency.limit', 'a positive integer', limit);
  requireTtl('concurrency.ttl', ttl);
  return options as ConcurrencyOptions;
}

/** @throws TypeError if weir does not accept it for a hold */
export function requireTtl(name: string, ttl: unknown): void {
  const isTtl = isCount(ttl, TTL_MIN_MS) && ttl <= TTL_MAX_MS;
  const accepted = `an integer number of milliseconds from ${TTL_MIN_MS} to ${TTL_MAX_MS}`;
  requireOption(isTtl, name, accepted, ttl);
}

/** @returns a function that acquires a lease. It never rejects */
export function leaseSource(
  client: WeirClient,
  namespace: string,
  { limit, ttl }: ConcurrencyOptions,
  onError: 'allow' | 'deny',
): (identifier: string) => Promise<Lease> {
  // A header contains ASCII only.
  const name = encodeURIComponent(namespace);
  const denied = (applied: number) => ({
    'RateLimit-Policy': `"${name}";q=${applied};qu="concurrent-requests"`,
    RateLimit: `"${name}";r=0`,
    ...RETRY_SOON,
  });

  return async (text) => {
    try {
      const identifier = await shorten(text);
      const fields = { namespace, identifier, limit, ttl };
      // Sent once: weir may have granted a lease without a response.
      const acquired = await client.call('v1/ratelimits.acquire', fields, readAcquired);
      const { success, leaseId } = acquired;
      if (!success) return { allowed: false, headers: denied(acquired.limit), ...NO_LEASE };
      // There was no room for a record: weir has granted it without one.
      if (leaseId === null) return { allowed: true, headers: {}, ...NO_LEASE };
      const release = keepLease(client, leaseId, ttl);
      return { allowed: true, headers: {}, leaseId, release };
    } catch (error) {
      const allowed = onError === 'allow';
      const headers = allowed ? {} : RETRY_SOON;
      return { allowed, headers, error: error as Error, ...NO_LEASE };
    }
  };
}

/** Renews a lease until it is released. */
function keepLease(client: WeirClient, leaseId: string, ttl: number): () => Promise<void> {
  let released: Promise<void> | undefined;
  let timer: ReturnType<typeof setTimeout>;
  const renewLater = () => {
    timer = setTimeout(renew, ttl / RENEWALS_PER_TTL);
    timer.unref();
  };
  const renew = async () => {
    let isLive = true;
    try {
      isLive = await client.call('v1/ratelimits.renew', { leaseId, ttl }, readSuccess);
    } catch {
      // The next renewal may be in time.
    }
    if (released !== undefined) return;
    if (isLive) renewLater();
    else process.emitWarning('a lease of weir has ended before its request');
  };
  const release = async () => {
    clearTimeout(timer);
    try {
      await client.callRepeatedly('v1/ratelimits.release', { leaseId }, readReleased);
    } catch {
      // It ends after its ttl.
    }
  };
  renewLater();
  return () => {
    released ??= release();
    return released;
  };
}

interface Acquired {
  success: boolean;
  leaseId: string | null;
  /** An override may have replaced that of the options. */
  limit: number;
}

function readAcquired(body: unknown): Acquired | undefined {
  const { success, leaseId, limit } = body as { [Name in keyof Acquired]?: unknown };
  const isLease = (leaseId === null || typeof leaseId === 'string') && isCount(limit, 0);
  return typeof success === 'boolean' && isLease ? { success, leaseId, limit } : undefined;
}

function readSuccess(body: unknown): boolean | undefined {
  const { success } = body as { success?: unknown };
  return typeof success === 'boolean' ? success : undefined;
}

function readReleased(body: unknown): number | undefined {
  const { released } = body as { released?: unknown };
  return isCount(released, 0) ? released : undefined;
}
