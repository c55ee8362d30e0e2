/**
 * Logs when shard workers lose Redis and when they reach it again, with the number of checks that
 * were decided without it; and the beginning and the end of a recovery. It warns of one that did
 * not wait for all machines. It polls the statistics of all threads on the main thread.
 */

import type { Log } from '../core/log.ts';
import type { ClusterStats } from '../engine/engine.ts';
import type { Control } from '../shared-memory/control.ts';
import {
  ACCEPTOR_STAT,
  type AcceptorStats,
  totalOf,
  WORKER_STAT,
  type WorkerStats,
} from '../shared-memory/stats.ts';
import { CLOSED_REASON } from './faults.ts';

const POLL_INTERVAL_MS = 500;
/** The log line about slow checks appears at most once in so many polls. */
const SLOW_POLLS = 20;

export class ClusterWatch {
  readonly #acceptors: AcceptorStats[];
  readonly #workers: WorkerStats[];
  readonly #cluster: () => ClusterStats;
  readonly #log: Log;
  readonly #timer: NodeJS.Timeout;
  /** Decisions without Redis when it was lost; undefined while it is there. */
  #decisionsBefore: number | undefined;
  #decisionsSeen = 0;
  /** Decisions without Redis that were logged as slow, and polls since then. */
  #slowLogged = 0;
  #pollsSinceSlow = SLOW_POLLS;
  #isRecovering = false;
  /** Recoveries that were logged because they did not wait for all machines. */
  #incompleteLogged = 0;

  constructor(control: Control, cluster: () => ClusterStats, log: Log) {
    this.#acceptors = control.allAcceptorStats();
    this.#workers = control.allWorkerStats();
    this.#cluster = cluster;
    this.#log = log;
    this.#timer = setInterval(() => this.poll(), POLL_INTERVAL_MS);
  }

  close(): void {
    clearInterval(this.#timer);
  }

  /** Logs what has changed since the last poll. */
  poll(): void {
    const { connections, isRecovering, isExact } = this.#cluster();
    this.#pollConnections(connections);
    if (isRecovering !== this.#isRecovering) {
      this.#isRecovering = isRecovering;
      if (!isRecovering) this.#log.info('the usage that Redis had lost is restored');
      else this.#log.warn(isExact ? CLOSED_REASON : 'Redis lost usage: the machines restore it');
    }
    this.#pollIncomplete();
  }

  /** Every shard worker counts each recovery, most of them in the same poll. */
  #pollIncomplete(): void {
    const counts = this.#workers.map((stats) => stats.get(WORKER_STAT.recoveriesIncomplete));
    const count = Math.max(...counts);
    if (count === this.#incompleteLogged) return;
    this.#incompleteLogged = count;
    this.#log.warn(
      'a recovery did not wait for all machines: windows may allow again what the missing ones ' +
        'had allowed; weir_tokens_possibly_over_limit_total counts how much at most',
    );
  }

  #pollConnections(connections: readonly boolean[]): void {
    const decisions =
      totalOf(this.#acceptors, ACCEPTOR_STAT.engineDownAllowed) +
      totalOf(this.#acceptors, ACCEPTOR_STAT.engineDownDenied);
    const before = this.#decisionsSeen;
    this.#decisionsSeen = decisions;
    const lost = connections.filter((isConnected) => !isConnected).length;
    if (lost > 0 && this.#decisionsBefore === undefined) {
      this.#decisionsBefore = before;
      const fields = { workers: lost, of: connections.length };
      this.#log.warn(fields, 'Redis does not respond: WEIR_ON_ENGINE_DOWN decides checks');
    } else if (lost === 0 && this.#decisionsBefore !== undefined) {
      const fields = { decisionsWithoutRedis: decisions - this.#decisionsBefore };
      this.#log.info(fields, 'Redis responds again');
      this.#decisionsBefore = undefined;
      this.#slowLogged = decisions;
    } else if (lost === 0 && decisions > this.#slowLogged && this.#pollsSinceSlow >= SLOW_POLLS) {
      const fields = { decisionsWithoutRedis: decisions - this.#slowLogged };
      this.#log.warn(fields, 'Redis was too slow for some checks');
      this.#slowLogged = decisions;
      this.#pollsSinceSlow = 0;
    }
    this.#pollsSinceSlow++;
  }
}
