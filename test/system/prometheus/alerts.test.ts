/** The rules that weir prints, in `promtool` of Prometheus: each alert fires, with its summary. */

import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, describe, expect, test } from 'vitest';
import type { Alert } from '../../../src/observe/rules/alert.ts';
import { CLUSTER_ALERTS } from '../../../src/observe/rules/cluster-alerts.ts';
import { prometheusRules } from '../../../src/observe/rules/prometheus-rules.ts';
import { SERVER_ALERTS } from '../../../src/observe/rules/server-alerts.ts';
import { removeDirectory, temporaryDirectory } from '../../support/server.ts';
import { ALERT_CASES, type AlertCase } from './alert-cases.ts';
import { isPromtoolMissing, promtool } from './prometheus-programs.ts';

const ALERTS: Readonly<Record<string, Alert>> = { ...SERVER_ALERTS, ...CLUSTER_ALERTS };

/** Later than the longest `for`, and a few minutes after an event of the cases. */
const EVAL_TIME = '45m';

/** A series of the server `a` in the job `weir`, unless the case says otherwise. */
function inputSeries([series, values]: [string, string]): object {
  const [name, matchers = ''] = series.replace('}', '').split('{');
  const target = { job: '"weir"', instance: '"a:7071"' };
  const own = Object.fromEntries(
    matchers.split(', ').flatMap((pair) => {
      return pair === '' ? [] : [pair.split('=')];
    }),
  );
  const labels = Object.entries({ ...target, ...own }).map(([label, value]) => `${label}=${value}`);
  return { series: `${name}{${labels.join(', ')}}`, values };
}

function unitTest(alertname: string, { series, labels, summary }: AlertCase): object {
  const { severity, meaning, remedy, see } = ALERTS[alertname];
  const description = `${meaning} ${remedy}`;
  return {
    interval: '1m',
    input_series: Object.entries(series).map(inputSeries),
    alert_rule_test: [
      {
        alertname,
        eval_time: EVAL_TIME,
        exp_alerts: [
          {
            exp_labels: { severity, job: 'weir', ...labels },
            exp_annotations: { summary, description, documentation: `docs/${see}` },
          },
        ],
      },
    ],
  };
}

describe.skipIf(isPromtoolMissing)('the printed rules', () => {
  const directory = temporaryDirectory();
  afterAll(() => removeDirectory(directory));

  test('are accepted by promtool check rules', () => {
    const path = join(directory, 'job.yml');
    writeFileSync(path, prometheusRules('team a/weir-1'));
    expect(promtool(['check', 'rules', path])).toEqual([0, expect.stringContaining('SUCCESS')]);
  });

  test('have a case for each alert', () => {
    expect(Object.keys(ALERT_CASES).toSorted()).toEqual(Object.keys(ALERTS).toSorted());
  });

  test('fire in their case, with labels, summary and description', { timeout: 180_000 }, () => {
    writeFileSync(join(directory, 'rules.yml'), prometheusRules());
    // JSON is YAML.
    const tests = Object.entries(ALERT_CASES).map(([name, of]) => unitTest(name, of));
    const file = { rule_files: ['rules.yml'], evaluation_interval: '1m', tests };
    const path = join(directory, 'cases.json');
    writeFileSync(path, JSON.stringify(file));
    expect(promtool(['test', 'rules', path])).toEqual([0, expect.stringContaining('SUCCESS')]);
  });
});
