/** Checks the metrics, and the expressions of `docs/metrics.md`, with `promtool` of Prometheus. */

import { copyFileSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, describe, expect, test } from 'vitest';
import { ClusterMetrics } from '../../support/cluster-metrics.ts';
import { useDataDirectory } from '../../support/data-directory.ts';
import { LONGEST_WINDOW_MS, readMetrics, sendCheck, sendRequest } from '../../support/http.ts';
import { callOperationOk } from '../../support/operations.ts';
import { forwardedFor, sendGatewayCheck, writeConfig } from '../../support/policy-config.ts';
import {
  DECIDE_MODES,
  freePort,
  removeDirectory,
  temporaryDirectory,
  waitUntil,
} from '../../support/server.ts';
import { isPromtoolMissing, promtool } from './prometheus-programs.ts';

const NAMES = ['plain', 'a "quoted" name', 'back\\slash', 'two\nlines', '{a="b"} 1', 'é€😀'];

const METRICS_PAGE = new URL('../../../docs/metrics.md', import.meta.url);

interface Query {
  alert: string;
  expr: string;
}

/** The expressions of docs/metrics.md, with the question as the name of an alert. */
function documentedQueries(): Query[] {
  const rows = readFileSync(METRICS_PAGE, 'utf8').matchAll(/^\| ([^|]+) \| `([^`|]+)` \|$/gm);
  return [...rows].map(([, alert, expr]) => ({ alert, expr }));
}

describe.skipIf(isPromtoolMissing)('promtool check metrics', () => {
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
    const text = `${scraped}\n${await new ClusterMetrics().text()}`;
    expect(promtool(['check', 'metrics'], text)).toEqual([0, '']);
  });

  test('finds a metric name that violates its rules', () => {
    const input = '# HELP weir_counter_slots Slots.\n# TYPE weir_counter_slots gauge\n';
    const finding = expect.stringContaining('should not include type');
    expect(promtool(['check', 'metrics'], `${input}weir_counter_slots 1\n`)).toEqual([3, finding]);
  });
});

describe('the expressions of docs/metrics.md', () => {
  const own = useDataDirectory(['--counters', '1024']);
  const directory = temporaryDirectory();
  afterAll(() => removeDirectory(directory));
  const queries = documentedQueries();

  test.skipIf(isPromtoolMissing)('are accepted by promtool check rules', () => {
    const file = join(directory, 'rules.json');
    // JSON is YAML.
    writeFileSync(file, JSON.stringify({ groups: [{ name: 'weir', rules: queries }] }));
    const success = `SUCCESS: ${queries.length} rules found`;
    expect(promtool(['check', 'rules', file])).toEqual([0, expect.stringContaining(success)]);
    const sections = readFileSync(METRICS_PAGE, 'utf8').split(/^## /m).slice(1);
    expect(queries.length).toBeGreaterThan(sections.length);
  });

  test('name metrics and labels that a server has', async () => {
    const server = await own.start({ args: ['--counters', '1024', '--checkpoint-ms', '100'] });
    await sendCheck(server.port, { identifier: 'a', limit: 1, duration: LONGEST_WINDOW_MS });
    await waitUntil('metrics of checkpoints exist', async () => {
      return (await readMetrics(server.adminUrl)).has('weir_checkpoint_age_seconds');
    });
    const scraped = await (await fetch(`${server.adminUrl}/metrics`)).text();
    const text = `${scraped}\n${await new ClusterMetrics().text()}`;
    for (const { alert, expr } of queries) {
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

test.skipIf(isPromtoolMissing)('accepts the configuration of Compose', () => {
  const compose = new URL('../../../deploy/compose/', import.meta.url);
  const text = readFileSync(new URL('compose.yaml', compose), 'utf8');
  // The files that Compose mounts for Prometheus, in one folder as there.
  const mounts = [...text.matchAll(/- (\S+):\/etc\/prometheus\/(\S+):ro/g)];
  const directory = temporaryDirectory();
  for (const [, from, to] of mounts) copyFileSync(new URL(from, compose), join(directory, to));
  const result = promtool(['check', 'config', join(directory, 'prometheus.yml')]);
  removeDirectory(directory);
  expect(result).toEqual([0, expect.stringContaining('rules found')]);
});
