/** What a configuration is printed for: a policy in force, and where everybody is. */

import type { Policy } from '../../policies/policy.ts';

/** Where a gateway asks weir. Without a key it is the listener for gateways. */
export type WeirAddress =
  | { host: string; port: number; needsKey: boolean }
  /** A Unix socket, which needs no key. */
  | { socket: string; needsKey?: false };

export interface GatewaySetup {
  policy: Policy;
  weir: WeirAddress;
  /** Port on which the gateway serves clients. */
  listenPort: number;
  /** The application behind it. */
  upstream: { host: string; port: number };
}

/**
 * How long a gateway waits for an answer of weir, and for a connection. A flood delays answers on
 * the machine that it loads: where a gateway gave up sooner, `onError: allow` would let the flood
 * in. It is also longer than the 1 s after which TCP repeats an attempt to connect that a full
 * queue has dropped. The cost: while weir does not answer, each request waits for so long.
 */
export const TIMEOUT_MS = 2_000;
/** Where the time in which a check waits for a connection counts as well. */
export const QUEUE_TIMEOUT_MS = 5_000;
/** Connections of a gateway to weir, in which a flood waits: fewer than weir keeps for gateways. */
export const CONNECTIONS_MAX = 1_024;
