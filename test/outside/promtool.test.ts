/** Checks the metrics, and the alerts of `docs/operations.md`, with `promtool` of Prometheus. */

import { spawnSync } from 'node:child_process';
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, describe, expect, test } from 'vitest';
import { parse } from 'yaml';
import {
  METRICS,
  type MetricName,
  metricDeclaration,
} from '../../src/observe/metric-declarations.ts';
import { ClusterMetrics } from '../support/cluster-metrics.ts';
import { useDataDirectory } from '../support/data-directory.ts';
import { isMissing } from '../support/gateway-process.ts';
import { LONGEST_WINDOW_MS, readMetrics, sendCheck, sendRequest } from '../support/http.ts';
import { callOperationOk } from '../support/operations.ts';
import { forwardedFor, sendGatewayCheck, writeConfig } from '../support/policy-config.ts';
import {
  DECIDE_MODES,
  freePort,
  removeDirectory,
  temporaryDirectory,
  waitUntil,
} from '../support/server.ts';

const NAMES = ['plain', 'a "quoted" name', 'back\\slash', 'two\nlines', '{a="b"} 1', 'é€😀'];

const OPERATIONS = new URL('../../docs/operations.md', import.meta.url);
const METRICS_PAGE = new URL('../../docs/metrics.md', import.meta.url);

interface Alert {
  alert: string;
  expr: string;
  for: string;
}

/** The rows of the table of alerts. */
function documentedAlerts(): Alert[] {
  const rows = readFileSync(OPERATIONS, 'utf8').matchAll(
    /^\| (Weir\w+) \| `(.+?)` \| (\d+m) \| (?:page|ticket) \|/gm,
  );
  // A table needs an escape before a bar.
  return [...rows].map(([, alert, expr, period]) => {
    return { alert, expr: expr.replaceAll('\\|', '|'), for: period };
  });
}

/** The expressions of docs/metrics.md, with the question as the name of the alert. */
function documentedQueries(): Alert[] {
  const rows = readFileSync(METRICS_PAGE, 'utf8').matchAll(/^\| ([^|]+) \| `([^`|]+)` \|$/gm);
  return [...rows].map(([, alert, expr]) => ({ alert, expr, for: '0m' }));
}

/** The rule that the page shows as a file. */
function documentedRule(): Omit<Alert, 'for'> {
  const [, text] = /```yaml\n(groups:.*?)```/s.exec(readFileSync(OPERATIONS, 'utf8'))!;
  return parse(text).groups[0].rules[0];
}

describe.skipIf(isMissing('promtool', '--version'))('promtool check metrics', () => {
  const own = useDataDirectory(['--counters', '1024']);
  const directory = temporaryDirectory();
  afterAll(() => removeDirectory(directory));

  test.each(DECIDE_MODES)('finds no problem in /metrics after traffic (%s)', async (mode) => {
    const gatewayPort = await freePort();
    const config = writeConfig(directory, { login: { limit: 1, onError: 'deny' } });
    const gatewayArgs = ['--config', config, '--gateway-port', `${gatewayPort}`];
    const args = ['--counters', '1024', '--acceptors', '2', '--decide', mode, ...gatewayArgs];
    const server = await own.start({ args: [...args, '--checkpoint-ms', '100'] });
    for (const namespace of NAMES) {
      const body = { namespace, identifier: 'a', limit: 1, duration: LONGEST_WINDOW_MS };
      for (const more of [{}, {}, { async: true }])
        await sendCheck(server.port, { ...body, ...more });
    }
    await sendRequest(server.port, { path: '/nowhere' });
    for (let i = 0; i < 2; i++)
      await sendGatewayCheck(gatewayPort, '/v1/check/login', forwardedFor('10.0.0.1'));
    const override = {
      namespaceName: 'plain',
      identifier: 'abc',
      limit: 2,
      duration: LONGEST_WINDOW_MS,
    };
    await callOperationOk(server.port, 'ratelimits.setOverride', override);
    await waitUntil('metrics of checkpoints and of every namespace exist', async () => {
      const names = [...(await readMetrics(server.adminUrl)).keys()].join();
      return names.includes('weir_checkpoint_age_seconds') && names.includes('é€😀');
    });
    const scraped = await (await fetch(`${server.adminUrl}/metrics`)).text();
    const input = `${scraped}\n${await new ClusterMetrics().text()}`;
    const { status, stdout, stderr, error } = spawnSync('promtool', ['check', 'metrics'], {
      input,
      encoding: 'utf8',
    });
    expect([error, status, stdout + stderr]).toEqual([undefined, 0, '']);
  });

  test('finds a metric name that violates its rules', () => {
    const input = '# HELP weir_counter_slots Slots.\n# TYPE weir_counter_slots gauge\n';
    const text = `${input}weir_counter_slots 1\n`;
    const { status, stderr } = spawnSync('promtool', ['check', 'metrics'], {
      input: text,
      encoding: 'utf8',
    });
    expect([status, stderr]).toEqual([3, expect.stringContaining('should not include type')]);
  });
});

describe('the alerts of docs/operations.md and the expressions of docs/metrics.md', () => {
  const own = useDataDirectory(['--counters', '1024']);
  const directory = temporaryDirectory();
  afterAll(() => removeDirectory(directory));
  const alerts = documentedAlerts();
  const queries = documentedQueries();
  const all = [...alerts, ...queries];

  test.skipIf(isMissing('promtool', '--version'))('are accepted by promtool check rules', () => {
    const file = join(directory, 'rules.json');
    // JSON is YAML.
    writeFileSync(file, JSON.stringify({ groups: [{ name: 'weir', rules: all }] }));
    const { status, stdout, stderr } = spawnSync('promtool', ['check', 'rules', file], {
      encoding: 'utf8',
    });
    expect([status, stderr]).toEqual([0, '']);
    expect(stdout).toContain(`SUCCESS: ${all.length} rules found`);
    const rows = readFileSync(OPERATIONS, 'utf8').match(/^\| Weir/gm);
    expect(alerts.length).toBe(rows?.length);
    const sections = readFileSync(METRICS_PAGE, 'utf8').split(/^## /m).slice(1);
    expect(queries.length).toBeGreaterThan(sections.length);
    const { alert, expr } = documentedRule();
    expect(alerts).toContainEqual(expect.objectContaining({ alert, expr }));
  });

  test('warn of every metric of the engine in Redis', () => {
    const named = new Set(alerts.flatMap(({ expr }) => expr.match(/weir_\w+/g) ?? []));
    const names = (Object.keys(METRICS) as MetricName[]).filter((name) => {
      return metricDeclaration(name).engine === 'redis';
    });
    // A histogram is named by its series.
    const isNamed = (name: string) => named.has(name) || named.has(`${name}_bucket`);
    expect(names.filter((name) => !isNamed(name))).toEqual([]);
  });

  test('name metrics and labels that a server has', async () => {
    const server = await own.start({ args: ['--counters', '1024', '--checkpoint-ms', '100'] });
    await sendCheck(server.port, { identifier: 'a', limit: 1, duration: LONGEST_WINDOW_MS });
    await waitUntil('metrics of checkpoints exist', async () => {
      return (await readMetrics(server.adminUrl)).has('weir_checkpoint_age_seconds');
    });
    const scraped = await (await fetch(`${server.adminUrl}/metrics`)).text();
    const text = `${scraped}\n${await new ClusterMetrics().text()}`;
    for (const { alert, expr } of all) {
      for (const [, name, matchers] of expr.matchAll(/((?:weir|process)_\w+)(?:\{([^}]*)\})?/g)) {
        const series = text.split('\n').filter((line) => new RegExp(`^${name}[{ ]`).test(line));
        expect([alert, name, series.length > 0]).toEqual([alert, name, true]);
        for (const [, label, value] of (matchers ?? '').matchAll(/(\w+)=~?"([^"]*)"/g)) {
          // Prometheus adds it.
          if (label === 'job') continue;
          const exists = series.some((line) => new RegExp(`\\b${label}="(${value})"`).test(line));
          expect([alert, name, label, exists]).toEqual([alert, name, label, true]);
        }
        const [, groups] = /sum by \((\w+)\)/.exec(expr) ?? [];
        const isGrouped =
          groups === undefined || series.some((line) => line.includes(`${groups}="`));
        expect([alert, name, groups, isGrouped]).toEqual([alert, name, groups, true]);
      }
    }
  });
});
