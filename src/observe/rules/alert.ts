/**
 * The shape of an alert and of a recording rule. The printed rules, the tables of
 * docs/operations.md and the rule files of the repository derive from these declarations.
 */

export interface Alert {
  /**
   * PromQL in one line. `JOB_MATCHER` selects series that other programs export too. An expression
   * keeps the labels `job` and `instance`, or only `job` if it is about all servers together.
   */
  expr: string;
  /** How long the expression is true before the alert fires. */
  for: `${number}m`;
  /** `page` wakes the person on call, `ticket` waits until the next working day. */
  severity: 'page' | 'ticket';
  /** One line without a full stop. May contain labels, as `{{ $labels.instance }}`. */
  summary: string;
  /** What has happened, in sentences. */
  meaning: string;
  /** What the operator does, in sentences. */
  remedy: string;
  /** The section of the documentation, relative to docs, as `operations.md#overload`. */
  see: string;
}

export interface RecordingRule {
  expr: string;
  /** What the value is: one sentence. */
  meaning: string;
}

/** The job of the scrape configurations of the documentation. */
export const DEFAULT_JOB = 'weir';
/** What stands in an expression for the job of the scrape configuration. */
export const JOB_MATCHER = `job="${DEFAULT_JOB}"`;
