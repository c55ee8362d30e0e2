/** The input of a template: an active policy, and the addresses of all parties. */

import type { Policy } from '../../policies/policy.ts';

/** The address to which a gateway sends checks. The listener for gateways needs no key. */
export type WeirAddress =
  | { host: string; port: number; needsKey: boolean }
  | { socket: string; needsKey?: false };

export interface GatewaySetup {
  policy: Policy;
  weir: WeirAddress;
  /** The port on which the gateway serves clients. */
  listenPort: number;
  /** The application behind the gateway. */
  upstream: { host: string; port: number };
}

/**
 * How long a gateway waits for a response of weir, and for a connection. A flood delays responses
 * on its machine; with a shorter timeout, `onError: allow` would allow the flood. The timeout also
 * exceeds the 1 s after which TCP repeats a SYN that a full queue has dropped. The cost: while weir
 * does not respond, each request waits this long.
 */
export const TIMEOUT_MS = 2_000;
/** The timeout of gateways that include the wait for a connection to weir. */
export const QUEUE_TIMEOUT_MS = 5_000;
/** Connections of a gateway to weir. A flood queues for them; weir reserves more for gateways. */
export const CONNECTIONS_MAX = 1_024;
