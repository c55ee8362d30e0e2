/**
 * The rule file for Prometheus, as `weir print prometheus-rules` prints it. Its text depends on the
 * declarations and on the job only.
 */

import { type Alert, DEFAULT_JOB, JOB_MATCHER, type RecordingRule } from './alert.ts';
import { CLUSTER_ALERTS } from './cluster-alerts.ts';
import { RECORDING_RULES } from './recording-rules.ts';
import { SERVER_ALERTS } from './server-alerts.ts';

const HEAD = `\
# Recording rules and alerts for weir. Printed by: weir print prometheus-rules
#
# Thresholds are starting points: adapt them to the usual values of your servers. The severity page
# wakes the person on call, ticket waits until the next working day. The alerts of the group
# weir-redis fire only for servers with WEIR_ENGINE=redis.
`;

/** @param job of the scrape configuration; without quotes, backslashes and control characters */
export function prometheusRules(job = DEFAULT_JOB): string {
  const alertsOf = (alerts: Readonly<Record<string, Alert>>) => {
    return Object.entries(alerts).map(([name, alert]) => alertRule(name, alert, job));
  };
  const groups = [
    group('weir-records', Object.entries(RECORDING_RULES).map(recordRule)),
    group('weir', alertsOf(SERVER_ALERTS)),
    group('weir-redis', alertsOf(CLUSTER_ALERTS)),
  ];
  return `${HEAD}groups:\n${groups.join('\n')}`;
}

function group(name: string, rules: readonly string[]): string {
  return `  - name: ${name}\n    rules:\n${rules.join('\n')}`;
}

function recordRule([name, { expr, meaning }]: [string, RecordingRule]): string {
  return `\
      # ${meaning}
      - record: ${name}
        expr: ${quote(expr)}
`;
}

function alertRule(name: string, alert: Alert, job: string): string {
  return `\
      - alert: ${name}
        expr: ${quote(alert.expr.replaceAll(JOB_MATCHER, `job="${job}"`))}
        for: ${alert.for}
        labels:
          severity: ${alert.severity}
        annotations:
          summary: ${quote(alert.summary)}
          description: ${quote(`${alert.meaning} ${alert.remedy}`)}
          documentation: docs/${alert.see}
`;
}

/** A YAML string in single quotes, in which only a single quote has a meaning. */
function quote(text: string): string {
  return `'${text.replaceAll("'", "''")}'`;
}
