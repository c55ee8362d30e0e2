/**
 * Decides a request by the policy of weir, and then by a concurrency lease of the client. The lease
 * is held until the response to the client has been sent, or its connection is closed.
 */

import { isIPv6 } from 'node:net';
import { type ConcurrencyOptions, leaseSource, readConcurrency } from './concurrency.ts';
import {
  addressOf,
  CHECK_OPTIONS,
  type CheckedRequest,
  type CheckOptions,
  type ClosingResponse,
  DENIED,
  type GatewayDecision,
  gatewayCheck,
} from './gateway-check.ts';
import { readOnError, requireKnownOptions, requireOption } from './options.ts';
import { isText } from './values.ts';
import { WeirClient } from './weir-client.ts';

export interface RateLimitOptions extends CheckOptions {
  /** How many requests of a client may run at once. It needs `key`. */
  concurrency?: ClientConcurrency;
  /** Whether the policy checks requests; true by default. False needs `concurrency`. */
  checks?: boolean;
}

export interface ClientConcurrency extends ConcurrencyOptions {
  /**
   * Returns the identifier of the client, not empty. By default it is the address, or the network
   * of an IPv6 address. Required if the option `identify` is not `ip`.
   */
  identify?(request: CheckedRequest): string;
}

export const RATE_LIMIT_OPTIONS = [...CHECK_OPTIONS, 'concurrency', 'checks'];
const CONCURRENCY_FIELDS = ['limit', 'ttl', 'identify'];

/**
 * @param gateway for which the policy is
 * @returns a function that decides a request. It rejects only if `concurrency.identify` fails
 * @throws TypeError for invalid options
 */
export function gatewayLimit(
  gateway: 'express' | 'fastify',
  options: RateLimitOptions,
): (request: CheckedRequest, response: ClosingResponse) => Promise<GatewayDecision> {
  requireKnownOptions(options, RATE_LIMIT_OPTIONS);
  const { concurrency: given, checks = true, ...rest } = options;
  const check = gatewayCheck(gateway, rest);
  const hasConcurrency = 'concurrency' in options;
  const isChecks = checks === true || (checks === false && hasConcurrency);
  requireOption(isChecks, 'checks', 'true, or false with "concurrency"', checks);
  if (!hasConcurrency) return async (request) => check(request);

  const { namespace, onError } = options;
  const concurrency = readConcurrency(given, CONCURRENCY_FIELDS);
  const identify = readIdentify(options);
  const client = new WeirClient({ key: undefined, ...options });
  const acquire = leaseSource(client, namespace, concurrency, readOnError(onError));
  return async (request, response) => {
    // The client may go away while weir decides. HTTP/2 has no `destroyed`.
    const closed = new Promise<void>((resolve) => {
      if (response.destroyed) resolve();
      else response.once('close', resolve);
    });
    const decision = checks ? await check(request) : NOT_CHECKED;
    // Without a quota, the policy skips the request, or weir has not decided.
    const isCounted = !checks || decision.headers.RateLimit !== undefined;
    if (decision.status !== 200 || !isCounted) return decision;
    const lease = await acquire(identify(request));
    if (!lease.allowed) {
      return lease.error === undefined ? busy(namespace, lease.headers) : DENIED;
    }
    void closed.then(lease.release);
    return decision;
  };
}

const NOT_CHECKED: GatewayDecision = { status: 200, headers: {}, body: '' };

function busy(namespace: string, headers: Record<string, string>): GatewayDecision {
  return {
    status: 429,
    headers: {
      ...headers,
      'Cache-Control': 'no-store',
      'Content-Type': 'application/problem+json',
    },
    body: JSON.stringify({
      type: 'https://iana.org/assignments/http-problem-types#quota-exceeded',
      title: 'Request cannot be satisfied as assigned quota has been exceeded',
      status: 429,
      detail: 'too many requests of this client run at once',
      'violated-policies': [namespace],
    }),
  };
}

/**
 * A policy of weir reads all spellings of a header as one value. This code does not, so only the
 * application can identify a client by one.
 */
function readIdentify(options: RateLimitOptions): (request: CheckedRequest) => string {
  const { concurrency, identify = 'ip', trustedHops = 1 } = options;
  const own = concurrency?.identify;
  const isByAddress = [identify].flat().join() === 'ip';
  const isValid = typeof own === 'function' || (own === undefined && isByAddress);
  const accepted = 'a function, required if "identify" is not \'ip\'';
  requireOption(isValid, 'concurrency.identify', accepted, own);
  return (request) => {
    if (own === undefined) {
      const addresses = addressOf(request, trustedHops).split(',');
      return networkOf(addresses.at(-trustedHops)?.trim() || 'unknown');
    }
    const identifier = own(request);
    requireOption(isText(identifier), 'identifier', 'a text that is not empty', identifier);
    return identifier;
  };
}

/** A client with IPv6 has a whole network, and could use another address for each request. */
function networkOf(address: string): string {
  const mapped = /^::ffff:([\d.]+)$/i.exec(address);
  if (mapped !== null) return mapped[1];
  if (!isIPv6(address)) return address;
  // A URL has the canonical form, without a zone.
  const canonical = new URL(`http://[${address.replace(/%.*/, '')}]`).hostname.slice(1, -1);
  const [start, end] = canonical.split('::').map((part) => part.split(':').filter(Boolean));
  const zeros = end === undefined ? 0 : 8 - start.length - end.length;
  const groups = [...start, ...Array<string>(zeros).fill('0'), ...(end ?? [])];
  return `${groups.slice(0, 4).join(':')}::/64`;
}
