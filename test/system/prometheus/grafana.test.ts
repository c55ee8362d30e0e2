/**
 * The queries of the printed dashboard in a real Prometheus, which scrapes a server with traffic and
 * the metrics of the engine in Redis. Grafana itself is not in a registry that tests can use.
 */

import { mkdirSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { grafanaDashboard } from '../../../src/observe/grafana/dashboard.ts';
import { ClusterMetrics } from '../../support/cluster-metrics.ts';
import { LONGEST_WINDOW_MS, sendCheck, sendRequest } from '../../support/http.ts';
import {
  freePort,
  removeDirectory,
  type ServerProcess,
  startServer,
  temporaryDirectory,
  waitUntil,
} from '../../support/server.ts';
import { isPrometheusMissing, startPrometheus } from './prometheus-programs.ts';

interface Panel {
  title: string;
  type: string;
  panels?: Panel[];
  targets?: { expr: string }[];
}

interface Variable {
  name: string;
  query: string | { query: string };
}

const { panels, templating, annotations } = JSON.parse(grafanaDashboard()) as {
  panels: Panel[];
  annotations: { list: { name: string; target: { expr: string } }[] };
  templating: { list: Variable[] };
};
const targets = panels
  .flatMap((panel) => [panel, ...(panel.panels ?? [])])
  .flatMap(({ title, targets = [] }) => targets.map(({ expr }) => ({ title, expr })))
  .concat(annotations.list.map(({ name, target }) => ({ title: name, expr: target.expr })));

/** Panels without a result on a healthy server. */
const MAY_BE_EMPTY = ['Degraded, by reason'];

/** Of the rate limit service, whose metrics only a server with rules has. */
const RULES =
  'domain: d\ndescriptors: [{ key: k, rate_limit: { unit: day, requests_per_unit: 1 } }]';
const CALL = JSON.stringify({
  domain: 'd',
  descriptors: [{ entries: [{ key: 'k', value: '1' }] }],
});

/** Which a reload reads again. */
const POLICIES = {
  site: { gateway: 'nginx', windows: [{ limit: 9, duration: 60_000 }], identify: ['ip'] },
};

/** As Grafana replaces the variables of a query when All is selected. */
const interpolate = (expr: string) => {
  return expr.replaceAll('$__rate_interval', '4s').replaceAll(/\$(job|instance|namespace)/g, '.*');
};

describe.skipIf(isPrometheusMissing)('the printed dashboard', () => {
  const directory = temporaryDirectory();
  /** Serves the metrics of weir, and those that it would have with Redis. */
  const exporter = createServer(async (_request, response) => {
    const own = await (await fetch(`${weir.adminUrl}/metrics`)).text();
    response.setHeader('Content-Type', 'text/plain; version=0.0.4');
    response.end(`${own}\n${await new ClusterMetrics().text()}`);
  });
  let weir: ServerProcess;
  let prometheus: { url: string; stop: () => Promise<void> };
  let sendTraffic: () => Promise<void>;

  beforeAll(async () => {
    const rules = join(directory, 'rules');
    mkdirSync(rules);
    writeFileSync(join(rules, 'd.yaml'), RULES);
    const config = join(directory, 'weir.json');
    writeFileSync(config, JSON.stringify({ policies: POLICIES }));
    const [rlsPort, jsonPort] = [await freePort(), await freePort()];
    weir = await startServer(join(directory, 'data'), {
      args: [
        ...['--counters', '1024', '--checkpoint-ms', '100', '--rls-config', rules],
        ...['--config', config],
      ],
      env: { WEIR_RLS_PORT: String(rlsPort), WEIR_RLS_JSON_PORT: String(jsonPort) },
    });
    await new Promise<void>((resolve) => exporter.listen(0, '127.0.0.1', resolve));
    const { port: exporterPort } = exporter.address() as AddressInfo;
    prometheus = await startPrometheus(
      [
        'global: { scrape_interval: 1s }',
        'scrape_configs:',
        `  - { job_name: weir, static_configs: [{ targets: ["127.0.0.1:${exporterPort}"] }] }`,
      ].join('\n'),
    );
    let sent = 0;
    sendTraffic = async () => {
      const body = { namespace: 'login', limit: 1, duration: LONGEST_WINDOW_MS };
      await sendCheck(weir.port, { ...body, identifier: `${sent++}`, unknownField: 1 });
      await sendRequest(weir.port, { path: '/nowhere' });
      await fetch(`http://127.0.0.1:${jsonPort}/json`, { method: 'POST', body: CALL });
      weir.child.kill('SIGHUP');
    };
  });
  afterAll(async () => {
    await prometheus.stop();
    await weir.stop();
    exporter.close();
    removeDirectory(directory);
  });

  async function query(expr: string): Promise<{ metric: Record<string, string> }[]> {
    const search = new URLSearchParams({ query: interpolate(expr) });
    const response = await fetch(`${prometheus.url}/query?${search}`);
    const { status, error, data } = (await response.json()) as {
      status: string;
      error?: string;
      data?: { result: { metric: Record<string, string> }[] };
    };
    expect([expr, status, error]).toEqual([expr, 'success', undefined]);
    return data!.result;
  }

  test('gets a result for every query of every panel', { timeout: 120_000 }, async () => {
    expect(targets.length).toBeGreaterThan(50);
    const required = targets.filter(({ title }) => !MAY_BE_EMPTY.includes(title));
    const withoutResult = new Set(required.map(({ expr }) => expr));
    await waitUntil('each query has a result', async () => {
      await sendTraffic();
      for (const expr of withoutResult) {
        if ((await query(expr)).length > 0) withoutResult.delete(expr);
      }
      return withoutResult.size === 0;
    }).catch((error) => {
      expect([...withoutResult], String(error)).toEqual([]);
    });
  });

  test('finds values for every variable', async () => {
    for (const { name, query: of } of templating.list) {
      if (typeof of === 'string') continue;
      const [, series, label] = /^label_values\((.*), (\w+)\)$/.exec(of.query)!;
      // A scrape that took too long ends all series until the next one.
      await waitUntil(`the variable ${name} has values`, async () => {
        return (await query(series)).some(({ metric }) => metric[label] !== undefined);
      });
    }
  });
});
