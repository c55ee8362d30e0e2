/**
 * The types of what the dashboard gets from the server: the session, and one snapshot a second. The
 * server and the browser share this file, so it imports types only.
 */

import type { Role } from '../../auth/roles.ts';
import type { Figures } from '../../core/figures.ts';
import type { PastFault } from '../faults.ts';
import type { LatencySpan } from '../latency-history.ts';

/** The response to GET /dashboard/session. */
export interface SessionState {
  session: SessionInfo | null;
  /** Whom a proxy has signed in: a session needs no key then. */
  user?: string;
  /** The page about keys. Absent where weir does not know the URL of its port for checks. */
  keysUrl?: string;
}

/** The holder of the key that has signed in. */
export interface KeyHolder {
  keyId: string;
  keyName: string;
  /** Unix time in ms from which the key is rejected; absent for a key that does not expire. */
  keyExpires?: number;
}

/** A user whom a proxy has signed in. */
export interface ProxyUser {
  user: string;
  role: Role;
}

/** A session, as its own browser sees it. */
export interface SessionInfo {
  holder: KeyHolder | ProxyUser;
  permissions: readonly string[];
  /** For the header X-Weir-Csrf of requests that may change something. */
  csrfToken: string;
  server: {
    version: string;
    engine: 'memory' | 'redis';
    host: string;
    /** Upper bounds of the buckets of `latency` and `calls.latency`, in us; one more has none. */
    latencyBoundsUs: readonly number[];
  };
}

/** Figures of one namespace. `rlns_other` sums up all namespaces without figures of their own. */
export interface NamespaceFigures {
  /** Absent for `rlns_other`. */
  id?: string;
  name: string;
  /** Since weir started. */
  total: Figures;
  /** In the interval of the snapshot. */
  recent: Figures;
}

/** The decisions of one namespace in each of some minutes. */
export interface MinuteCounts {
  /** Absent for `rlns_other`. */
  id?: string;
  name: string;
  allowed: number[];
  denied: number[];
}

/**
 * What was counted before the snapshots. The first event of a stream has the last hour. When a
 * minute has ended, an event has it and the current one.
 */
export interface Minutes {
  nowMs: number;
  /** The begin of each minute in Unix ms, ascending. The last one is not over. */
  at: number[];
  /** Check requests by latency bucket; null before weir has started. */
  latency: (number[] | null)[];
  /** Absent without analytics. */
  decisions?: {
    /** How long weir ran in each minute, in ms: 0 while it was down. */
    ranMs: number[];
    /** Only namespaces with decisions whose analytics the key may read. */
    namespaces: MinuteCounts[];
  };
}

export interface Snapshot {
  /** Unix time in ms. */
  at: number;
  /** Time since the snapshot before; 0 in the first one, which has no recent figures. */
  intervalMs: number;
  /** Only namespaces whose analytics the key may read. */
  namespaces: NamespaceFigures[];
  /** Check requests of the interval by latency bucket. */
  latency: number[];
  /** The last 10 s, minute, 5 minutes and hour. */
  latencySpans: LatencySpan[];
  health: Health;
  /** Only with the engine `redis`. */
  redis?: RedisFigures;
}

/** A count since weir started, and in the interval of the snapshot. */
export interface Count {
  total: number;
  recent: number;
}

export interface Health {
  status: string;
  /** Why the status is `degraded`. */
  reasons: string[];
  /** Of the last day since the start. The one that ended last is the first. */
  pastFaults: PastFault[];
  counters: { live: number; capacity: number; isNearlyFull: boolean };
  evictions: Count;
  /** Checks decided by WEIR_ON_FULL. */
  fullTableDecisions: Count;
  /** Waiting entries by shard worker. */
  queues: number[];
  acceptors: number;
  workers: { wanted: number; running: number; replaced: number };
  /** Absent with the engine `redis`, and before the first checkpoint. */
  checkpointAgeMs?: number;
  checkpointFailures: Count;
  /** Error responses by code; codes without any are left out. */
  errors: Record<string, Count>;
  /** Requests, bodies, operations and responses that were rejected because of overload. */
  shed: Count;
  /** Requests with fields that weir does not know and ignores. */
  unknownFields: Count;
  connections: { open: number; max: number };
  memoryBytes: number;
}

export interface RedisFigures {
  /** By shard worker. */
  connected: boolean[];
  machines: number;
  leasesHeld: number;
  tokensHeld: number;
  leasesGranted: Count;
  /** Script calls and their failures, and the calls of the interval by latency bucket. */
  calls: Count & { failures: Count; latency: number[] };
  /** Decisions by WEIR_ON_ENGINE_DOWN. */
  withoutRedis: Count;
}
