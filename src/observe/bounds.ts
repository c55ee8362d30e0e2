/**
 * The bounds from which an operator should act. The alerts fire at them, and the Grafana dashboard
 * colours its values by them.
 */
export const BOUNDS = {
  /** Share of the checks of a namespace that are denied. */
  deniedShare: 0.2,
  /** Share of the table, and of the connections, that is in use. */
  tableShare: 0.8,
  connectionsShare: 0.8,
  /** The 99th percentile of the time of a check request, in seconds. */
  checkP99S: 0.01,
  checkpointAgeS: 30,
} as const;
