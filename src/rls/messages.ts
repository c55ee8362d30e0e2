/** The messages between the main thread and a thread of the rate limit service. */

import type {
  DecisionThreadData,
  FromDecisionThread,
  ToDecisionThread,
} from '../decision-thread/messages.ts';
import type { RlsConfiguration } from './config/configuration.ts';
import type { RlsSettings } from './config/settings.ts';
import type { AddedHits } from './hit-counts.ts';

/** The contents of PEM files. */
export interface RlsTlsContents {
  cert: string;
  key: string;
  clientCa: string | undefined;
}

/** The `workerData` of a thread that reads rules. */
export interface RulesToLoad {
  folder: string;
  isCompatible: boolean;
  mergesDomains: boolean;
}

/** What such a thread has read. */
export type LoadedRules =
  | { signature: string; configuration: RlsConfiguration }
  /** The signature is that of invalid files; undefined if they cannot be read. */
  | { signature: string | undefined; fault: string };

/** What a thread listens on. */
export interface RlsListeners {
  host: string;
  port: number | undefined;
  /** Only the first thread listens on a socket and on the port of /json. */
  socket: string | undefined;
  jsonPort: number | undefined;
  /** Whether other threads listen on the same port. */
  isPortShared: boolean;
}

/** The `workerData` of a thread of the rate limit service. */
export interface RlsThreadData extends DecisionThreadData {
  settings: RlsSettings;
  listeners: RlsListeners;
  tls: RlsTlsContents | undefined;
  configuration: RlsConfiguration;
  /** How many connections each thread may have open. */
  connectionsMax: number;
}

export type FromRlsThread =
  | FromDecisionThread
  | { kind: 'ready' }
  /** A configuration is active on this thread. */
  | { kind: 'configured'; version: number }
  | { kind: 'hits'; added: AddedHits };

export type ToRlsThread =
  | ToDecisionThread
  | { kind: 'listen' }
  /** Active from the next request on; `configured` answers. */
  | { kind: 'configuration'; version: number; configuration: RlsConfiguration }
  /** For new connections. */
  | { kind: 'tls'; contents: RlsTlsContents };
