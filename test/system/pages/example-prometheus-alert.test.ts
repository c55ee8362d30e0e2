/** The example with Prometheus, and its alerts in a real Prometheus with shorter times. */

import { cpSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, describe, expect, test } from 'vitest';
import { prometheusRules } from '../../../src/observe/rules/prometheus-rules.ts';
import { useDataDirectory } from '../../support/data-directory.ts';
import { LONGEST_WINDOW_MS, sendCheck } from '../../support/http.ts';
import { removeDirectory, temporaryDirectory, waitUntil } from '../../support/server.ts';
import {
  isPrometheusMissing,
  isPromtoolMissing,
  promtool,
  startPrometheus,
} from '../prometheus/prometheus-programs.ts';
import { followPage, PAGE_TIMEOUT_MS } from './page-follower.ts';
import { canRunPages } from './page-runner.ts';

const EXAMPLE = new URL('../../../examples/prometheus-alert/', import.meta.url).pathname;
const RULES = 'weir-alerts.yml';

interface Alert {
  state: string;
  labels: Record<string, string>;
  annotations: Record<string, string>;
}

describe.skipIf(isPrometheusMissing || isPromtoolMissing)('the example with Prometheus', () => {
  const own = useDataDirectory(['--counters', '1024']);
  const directory = temporaryDirectory();
  afterAll(() => removeDirectory(directory));

  test.skipIf(!canRunPages())(
    'does what its README shows',
    () => followPage('examples/prometheus-alert/README.md'),
    PAGE_TIMEOUT_MS,
  );

  test.each([
    ['> 0.2', '> 0.05'],
    ['rate5m > 1', 'rate5m > 0'],
    ['increase(weir_live_evictions_total[10m])', 'weir_live_evictions_total'],
  ])('has unit tests that notice %s changed to %s', (from, to) => {
    cpSync(EXAMPLE, directory, { recursive: true });
    expect(prometheusRules()).toContain(from);
    writeFileSync(join(directory, RULES), prometheusRules().replace(from, to));
    const [code] = promtool(['test', 'rules', join(directory, 'weir-alerts.test.yml')]);
    expect(code).toBe(1);
  });

  test('fires for a namespace with denials, and for an eviction', async () => {
    const weir = await own.start({ args: ['--counters', '1024'] });
    // Minutes would take too long.
    const rules = prometheusRules().replaceAll('[5m]', '[4s]').replace('for: 5m', 'for: 2s');
    writeFileSync(join(directory, RULES), rules);
    const configuration = readFileSync(join(EXAMPLE, 'prometheus.yml'), 'utf8')
      .replaceAll('interval: 5s', 'interval: 1s')
      .replace('- weir-alerts.yml', `- ${join(directory, RULES)}`)
      .replace('127.0.0.1:7071', new URL(weir.adminUrl).host);
    const prometheus = await startPrometheus(configuration);
    const firing = async (): Promise<Alert[]> => {
      const response = await fetch(`${prometheus.url}/alerts`);
      const { data } = (await response.json()) as { data: { alerts: Alert[] } };
      return data.alerts.filter(({ state, labels: { alertname } }) => {
        // Others may fire too on a slow machine.
        const isExpected = ['WeirNamespaceDenies', 'WeirLiveEvictions'].includes(alertname);
        return isExpected && state === 'firing';
      });
    };
    let sent = 0;
    const send = async (namespace: string, identifier: string) => {
      const duration = LONGEST_WINDOW_MS;
      await sendCheck(weir.port, { namespace, identifier, limit: 1, duration });
      sent++;
    };
    let alerts: Alert[] = [];
    try {
      await waitUntil('both alerts fire', async () => {
        // Each identifier is allowed once, so most checks of the one namespace are denied.
        for (let i = 0; i < 20; i++) await send('login', 'alice');
        // The table has 1 024 counters, and evicts for further ones.
        for (let i = 0; i < 20; i++) await send('search', `${sent}`);
        alerts = await firing();
        return alerts.length === 2;
      });
      const { host } = new URL(weir.adminUrl);
      expect(alerts.map(({ labels }) => labels)).toEqual(
        expect.arrayContaining([
          { alertname: 'WeirNamespaceDenies', job: 'weir', namespace: 'login', severity: 'ticket' },
          { alertname: 'WeirLiveEvictions', instance: host, job: 'weir', severity: 'page' },
        ]),
      );
    } finally {
      await prometheus.stop();
    }
  }, 180_000);
});
