/** What a configuration is printed for: a policy in force, and where everybody is. */

import type { Policy } from '../../policies/policy.ts';

/** Where a gateway asks weir. Without a key it is the listener for gateways. */
export type Weir =
  | { host: string; port: number; needsKey: boolean }
  /** A Unix socket, which needs no key. */
  | { socket: string; needsKey?: false };

export interface Setup {
  policy: Policy;
  weir: Weir;
  /** Port on which the gateway serves clients. */
  listen: number;
  /** The application behind it. */
  upstream: { host: string; port: number };
}

/** Longer than weir takes, and shorter than anybody would wait for a limiter. */
export const TIMEOUT_MS = 50;
