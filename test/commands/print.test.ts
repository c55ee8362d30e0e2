/** `weir print` without a server. */

import { describe, expect, test } from 'vitest';
import { EXIT } from '../../src/core/exit.ts';
import { grafanaDashboard } from '../../src/observe/grafana/dashboard.ts';
import { prometheusRules } from '../../src/observe/rules/prometheus-rules.ts';
import { callWeir } from '../support/weir-command.ts';

/** Without an address and a key of a server. */
const print = (...args: string[]) => {
  return callWeir('', ['print', ...args], { env: { WEIR_URL: undefined, WEIR_KEY: undefined } });
};
const printed = (stdout: string) => ({ code: EXIT.OK, stdout, stderr: '' });

describe('weir print', () => {
  test('lists the files that it can print', async () => {
    const { code, stdout } = await print();
    expect([code, stdout]).toEqual([EXIT.OK, expect.stringMatching(/^NAME +CONTENT\n/)]);
    expect(stdout).toMatch(/^prometheus-rules +recording rules/m);
    expect(stdout).toMatch(/^grafana +a dashboard/m);
  });

  test('prints the rules for Prometheus, and nothing else', async () => {
    expect(await print('prometheus-rules')).toEqual(printed(prometheusRules()));
  });

  test('prints the dashboard for Grafana, and nothing else', async () => {
    expect(await print('grafana')).toEqual(printed(grafanaDashboard()));
  });

  test('prints the rules for the job that --job names', async () => {
    const expected = printed(prometheusRules('monitoring/weir 2'));
    expect(await print('prometheus-rules', '--job', 'monitoring/weir 2')).toEqual(expected);
  });
});
