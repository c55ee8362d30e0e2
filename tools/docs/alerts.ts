/** The tables of the alerts and of the recording rules in docs/operations.md. */

import type { Alert } from '../../src/observe/rules/alert.ts';
import { CLUSTER_ALERTS } from '../../src/observe/rules/cluster-alerts.ts';
import { RECORDING_RULES } from '../../src/observe/rules/recording-rules.ts';
import { SERVER_ALERTS } from '../../src/observe/rules/server-alerts.ts';
import { inlineCode, markdownTable } from './markdown.ts';

const PAGE = 'operations.md';
const HEADER = [
  ...['alert', 'expression', 'for', 'severity'],
  ...['what it means', 'what to do', 'section'],
];

export const ALERT_PARTS: Readonly<Record<string, () => string>> = {
  alerts: () => alertsTable(SERVER_ALERTS),
  'alerts-redis': () => alertsTable(CLUSTER_ALERTS),
  'recording-rules': recordingRulesTable,
};

function alertsTable(alerts: Readonly<Record<string, Alert>>): string {
  const rows = Object.entries(alerts).map(([name, alert]) => {
    const { expr, severity, meaning, remedy, see } = alert;
    return [name, inlineCode(expr), alert.for, severity, meaning, remedy, sectionLink(see)];
  });
  return markdownTable(HEADER, rows);
}

function recordingRulesTable(): string {
  const rows = Object.entries(RECORDING_RULES).map(([name, { expr, meaning }]) => {
    return [inlineCode(name), inlineCode(expr), meaning];
  });
  return markdownTable(['recorded series', 'expression', 'meaning'], rows);
}

/** @param see as in `cluster.md#what-each-fault-does` */
function sectionLink(see: string): string {
  const [, anchor] = see.split('#');
  const target = see.startsWith(`${PAGE}#`) ? `#${anchor}` : see;
  return `[${anchor.replaceAll('-', ' ')}](${target})`;
}
