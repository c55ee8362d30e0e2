/** The declarations of the rules agree with the metrics and with the documentation. */

import { readFileSync } from 'node:fs';
import { describe, expect, test } from 'vitest';
import { parse } from 'yaml';
import {
  METRICS,
  type MetricName,
  metricDeclaration,
} from '../../../src/observe/metric-declarations.ts';
import type { Alert } from '../../../src/observe/rules/alert.ts';
import { CLUSTER_ALERTS } from '../../../src/observe/rules/cluster-alerts.ts';
import { prometheusRules } from '../../../src/observe/rules/prometheus-rules.ts';
import { RECORDING_RULES } from '../../../src/observe/rules/recording-rules.ts';
import { SERVER_ALERTS } from '../../../src/observe/rules/server-alerts.ts';
import { anchorsOf, wordCount } from '../../support/markdown.ts';
import { faultsOf, metricsOf, referencesOf, resultLabels } from '../../support/promql.ts';

const ALERTS: Readonly<Record<string, Alert>> = { ...SERVER_ALERTS, ...CLUSTER_ALERTS };
const ALL = { ...RECORDING_RULES, ...ALERTS };

interface PrintedRule {
  record?: string;
  alert?: string;
  expr: string;
  for?: string;
  labels?: Record<string, string>;
  annotations?: Record<string, string>;
}

const rulesOf = (text: string): PrintedRule[] => {
  const { groups } = parse(text) as { groups: { rules: PrintedRule[] }[] };
  return groups.flatMap(({ rules }) => rules);
};

describe('a rule', () => {
  test('names declared series with their labels only', () => {
    const faults = Object.entries(ALL).flatMap(([name, { expr }]) => {
      return faultsOf(expr).map((fault) => `${name}: ${fault}`);
    });
    expect(faults).toEqual([]);
  });

  test('that records a series is named for its labels', () => {
    for (const [name, { expr }] of Object.entries(RECORDING_RULES)) {
      expect([name, name.split(':')[0]]).toEqual([name, resultLabels(expr).join('_')]);
    }
  });

  test('that names an unknown series or label is noticed', () => {
    expect(faultsOf('weir_nothing_total > 0')).toEqual(['weir_nothing_total is not declared']);
    expect(faultsOf('weir_keys{namespace="a"}')).toEqual(['weir_keys has no label namespace']);
    expect(faultsOf('sum by (job, le) (rate(weir_shed_total[5m]))')).toEqual(['no series has le']);
    expect(faultsOf('weir_check_duration_seconds')).toHaveLength(1);
    expect(faultsOf('vector(1)')).toEqual(['it names no series']);
  });
});

describe('an alert', () => {
  test('shows labels that its expression keeps, and at least one', () => {
    for (const [name, { expr, summary }] of Object.entries(ALERTS)) {
      const labels = resultLabels(expr);
      const shown = [...summary.matchAll(/\$labels\.(\w+)/g)].map(([, label]) => label);
      const unknown = shown.filter((label) => !labels.includes(label));
      expect([name, unknown, labels.includes('job')]).toEqual([name, [], true]);
      expect([name, shown.length > 0]).toEqual([name, true]);
    }
  });

  test('is explained in short sentences', () => {
    for (const [name, { summary, meaning, remedy }] of Object.entries(ALERTS)) {
      expect([name, summary]).toEqual([name, expect.stringMatching(/[^.]$/)]);
      for (const text of [meaning, remedy]) {
        expect([name, text]).toEqual([name, expect.stringMatching(/^[`\w].*\.$/)]);
        const long = text.split(/\. /).filter((sentence) => wordCount(sentence) > 25);
        expect([name, long]).toEqual([name, []]);
      }
    }
  });

  test('links a section of the documentation that exists', () => {
    for (const [name, { see }] of Object.entries(ALERTS)) {
      const [page, anchor] = see.split('#');
      const text = readFileSync(new URL(`../../../docs/${page}`, import.meta.url), 'utf8');
      expect([name, see, anchorsOf(text).has(anchor)]).toEqual([name, see, true]);
    }
  });

  test('exists for every metric of the engine in Redis', () => {
    const named = new Set(Object.values(ALERTS).flatMap(({ expr }) => [...metricsOf(expr)]));
    const names = (Object.keys(METRICS) as MetricName[]).filter((name) => {
      return metricDeclaration(name).engine === 'redis';
    });
    expect(names.filter((name) => !named.has(name))).toEqual([]);
  });

  test('that is about several servers keeps their job', () => {
    const aggregations = Object.values(ALL).flatMap(({ expr }) => {
      return [...expr.matchAll(/\b(?:sum|max|min|count|avg)\b(.{0,9})/g)].map(([, rest]) => rest);
    });
    expect(aggregations.filter((rest) => !rest.startsWith(' by (job'))).toEqual([]);
  });
});

describe('the printed file', () => {
  test('has every rule with its fields, and no other', () => {
    const expected = [
      ...Object.entries(RECORDING_RULES).map(([record, { expr }]) => ({ record, expr })),
      ...Object.entries(ALERTS).map(([alert, declared]) => ({
        alert,
        expr: declared.expr,
        for: declared.for,
        labels: { severity: declared.severity },
        annotations: {
          summary: declared.summary,
          description: `${declared.meaning} ${declared.remedy}`,
          documentation: `docs/${declared.see}`,
        },
      })),
    ];
    expect(rulesOf(prometheusRules())).toEqual(expected);
  });

  test('selects the job that was given, wherever an expression names one', () => {
    const text = prometheusRules('team a/weir-1');
    expect(text).not.toContain('job="weir"');
    const named = rulesOf(text).filter(({ expr }) => expr.includes('job="team a/weir-1"'));
    expect(named.map(({ alert }) => alert)).toEqual(['WeirDown', 'WeirCpuBound']);
    const withJob = Object.values(ALERTS).filter(({ expr }) => {
      return referencesOf(expr).selectors.some(({ labels }) => labels.includes('job'));
    });
    expect(withJob).toHaveLength(named.length);
  });

  test('has the rule that docs/operations.md shows', () => {
    const page = readFileSync(new URL('../../../docs/operations.md', import.meta.url), 'utf8');
    const [, shown] = /```yaml\n(groups:.*?)```/s.exec(page)!;
    expect(rulesOf(prometheusRules())).toEqual(expect.arrayContaining(rulesOf(shown)));
  });
});
