/**
 * The input of a template: active policies, the paths they protect, and all addresses; or the
 * domain and the addresses of a gateway that calls the rate limit service.
 */

import type { Policy } from '../../policies/policy.ts';

/** The address to which a gateway sends checks. The listener for gateways needs no key. */
export type WeirAddress =
  | { host: string; port: number; needsKey: boolean }
  | { socket: string; needsKey?: false };

/** A policy, and the paths whose requests are checked with it. */
export interface Route {
  policy: Policy;
  /** Begins with `/`. Of several matching prefixes, the longest applies. */
  prefix: string;
}

/** Where a gateway serves clients. */
export interface ListenAddress {
  /** An IP address. `[::]` means all addresses, also those of IPv4. */
  host: string;
  port: number;
}

/** The application behind the gateway. */
export interface Upstream {
  isHttps?: boolean;
  host: string;
  port: number;
  /** Put before the path of each request; begins with `/` and does not end with it. */
  path?: string;
}

export interface GatewaySetup {
  /** At least one; different policies and prefixes, with the same `trustedHops`. */
  routes: readonly Route[];
  weir: WeirAddress;
  listen: ListenAddress;
  upstream: Upstream;
}

/** Where the rate limit service listens. It needs no key. */
export type ServiceAddress = { host: string; port: number } | { socket: string };

/** The input of a template for the rate limit service. */
export interface RlsSetup {
  /** Its rules in the files of weir decide all requests. */
  domain: string;
  service: ServiceAddress;
  /** The decision if weir is stopped or late. */
  onError: Policy['onError'];
  listen: ListenAddress;
  upstream: Upstream;
}

/** A policy that protects all paths. */
export function everyPath(policy: Policy): Route[] {
  return [{ policy, prefix: '/' }];
}

/**
 * How long a gateway waits for a response of weir, and for a connection. A flood delays responses
 * on its machine; with a shorter timeout, `onError: allow` would allow the flood. The timeout also
 * exceeds the 1 s after which TCP repeats a SYN that a full queue has dropped. The cost: while weir
 * does not respond, each request waits this long.
 */
export const TIMEOUT_MS = 2_000;
/** The timeout of gateways that include the wait for a connection to weir, or for its thread. */
export const QUEUE_TIMEOUT_MS = 5_000;
/** Connections of a gateway to weir. A flood queues for them; weir reserves more for gateways. */
export const CONNECTIONS_MAX = 1_024;
