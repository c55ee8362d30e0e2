/** The metrics of the engine that shares its counters, without a server and without Redis. */

import type { ClusterStats } from '../../src/engine/engine.ts';
import { registerClusterSeries } from '../../src/observe/cluster-series.ts';
import type { ReplicaStats } from '../../src/observe/faults.ts';
import { MetricSeries } from '../../src/observe/series.ts';
import { StatsRows } from '../../src/registry/stats-rows.ts';
import { allocateControl, Control } from '../../src/shared-memory/control.ts';

/** Two acceptors and two shard workers of a machine that has joined two others. */
export const CLUSTER: ClusterStats = {
  connections: [true, false],
  hasJoined: true,
  isRecovering: false,
  isExact: false,
  machines: 3,
};
const REPLICA: ReplicaStats = { version: 41, ageMs: 250, state: 'current', evicting: [] };

/** The tag of each is its place, from 1 on. */
export const NAMESPACE_TAGS = ['sms', 'api', 'later'];

export class ClusterMetrics {
  readonly control = new Control(allocateControl(2, 2));
  readonly rows = new StatsRows(this.control.allAcceptorStats());
  readonly #series = new MetricSeries();

  constructor() {
    registerClusterSeries(this.#series, {
      acceptors: this.control.allAcceptorStats(),
      workers: this.control.allWorkerStats(),
      cluster: () => CLUSTER,
      replica: () => REPLICA,
      rows: this.rows,
      namespaceTag: (key) => NAMESPACE_TAGS.indexOf(key) + 1,
    });
  }

  /** A scrape. */
  text(): Promise<string> {
    return this.#series.text();
  }
}
