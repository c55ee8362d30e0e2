/**
 * Compares the declarations of the metrics with a scrape of a server. Those of the engine that
 * shares its counters come from the same code without a server.
 */

import { beforeAll, describe, expect, test } from 'vitest';
import {
  METRIC_GROUPS,
  METRICS,
  type MetricName,
  metricDeclaration,
} from '../../src/observe/metric-declarations.ts';
import { ClusterMetrics } from '../support/cluster-metrics.ts';
import { LONGEST_WINDOW_MS, readMetrics } from '../support/http.ts';
import { useRlsServer } from '../support/rls/rls-server.ts';
import { TREE } from '../support/rls-configuration.ts';
import { waitUntil } from '../support/server.ts';
import { useServer } from '../support/test-server.ts';

const NAMES = Object.keys(METRICS) as MetricName[];

const server = useRlsServer({ args: ['--checkpoint-ms', '100'], files: { 'd.yaml': TREE } });
const plainServer = useServer();
/** The metrics of a server with the engine in memory, and of one without the rate limit service. */
let serverNames: string[];
let plainNames: string[];
let lines: string[];
beforeAll(async () => {
  await server.check({ identifier: 'a', limit: 1, duration: LONGEST_WINDOW_MS });
  await server.rls.call('d', ['c=1']);
  await waitUntil('each metric has a sample', async () => {
    const names = await readMetrics(server.adminUrl);
    const hits = 'weir_rls_hits_total{limit="d.c",result="total_hits"}';
    return names.has('weir_checkpoint_age_seconds') && names.has(hits);
  });
  const scrape = async (adminUrl: string) => (await fetch(`${adminUrl}/metrics`)).text();
  const namesIn = (of: string) => [...of.matchAll(/^# TYPE (\w+)/gm)].map(([, name]) => name);
  const text = await scrape(server.adminUrl);
  serverNames = namesIn(text);
  plainNames = namesIn(await scrape(plainServer.adminUrl));
  lines = [text, await new ClusterMetrics().text()]
    .flatMap((scrape) => scrape.split('\n'))
    .filter((line) => line !== '');
});
/** The names, or the name and a text, of comment lines of one kind. */
const comments = (kind: 'HELP' | 'TYPE') => {
  const prefix = `# ${kind} `;
  return lines.filter((line) => line.startsWith(prefix)).map((line) => line.slice(prefix.length));
};

describe('a scrape', () => {
  test('has exactly the declared metrics, with their types and help texts', () => {
    const types = NAMES.map((name) => `${name} ${metricDeclaration(name).type}`);
    expect(comments('TYPE').toSorted()).toEqual(types.toSorted());
    const helps = NAMES.map((name) => `${name} ${metricDeclaration(name).help}`);
    expect(comments('HELP').toSorted()).toEqual(helps.toSorted());
  });

  test('of a server with the engine in memory has no metric of Redis', () => {
    const expected = NAMES.filter((name) => metricDeclaration(name).engine !== 'redis');
    expect(serverNames.toSorted()).toEqual(expected.toSorted());
  });

  test('of a server without the rate limit service has no metric of it', () => {
    const expected = serverNames.filter((name) => !metricDeclaration(name as MetricName).needsRls);
    // This one has no checkpoint yet.
    const without = 'weir_checkpoint_age_seconds';
    expect(plainNames.filter((name) => name !== without).toSorted()).toEqual(
      expected.filter((name) => name !== without).toSorted(),
    );
  });

  test('has for each metric samples with exactly the declared labels', () => {
    for (const name of NAMES) {
      const { type, labels = {} } = metricDeclaration(name);
      const series = type === 'histogram' ? `${name}_(?:bucket|sum|count)` : name;
      const samples = lines.filter((line) => new RegExp(`^${series}[{ ]`).test(line));
      const found = samples.flatMap((line) => {
        const names = [...line.matchAll(/[{,](\w+)="/g)].map(([, label]) => label);
        return names.filter((label) => type !== 'histogram' || label !== 'le');
      });
      expect([name, samples.length > 0]).toEqual([name, true]);
      expect([name, [...new Set(found)]]).toEqual([name, Object.keys(labels)]);
    }
  });

  test('has exactly the values that the declaration of a label lists', () => {
    for (const name of NAMES) {
      for (const [label, values] of Object.entries(metricDeclaration(name).labels ?? {})) {
        if (!/^`\w+`(, `\w+`)+$/.test(values)) continue;
        const listed = [...values.matchAll(/\w+/g)].map(([value]) => value);
        const samples = lines.filter((line) => line.startsWith(`${name}{`));
        const found = new Set(samples.map((line) => line.split(`${label}="`)[1].split('"')[0]));
        // A server has one policy for a full table, which is deny by default.
        const isPolicy = /^weir_full_(table|hold)_decisions_total$/.test(name);
        expect([name, label, [...found]]).toEqual([name, label, isPolicy ? ['deny'] : listed]);
      }
    }
  });
});

describe('a declaration', () => {
  test('has a unit that its name ends with, if Prometheus has one', () => {
    for (const name of NAMES) {
      const [unit] = /(?:seconds|bytes)(?=_total$|$)/.exec(name) ?? [];
      if (unit !== undefined) expect([name, metricDeclaration(name).unit]).toEqual([name, unit]);
      expect([name, name.endsWith('_total')]).toEqual([
        name,
        metricDeclaration(name).type === 'counter',
      ]);
    }
  });

  test('exists in each group of the documentation', () => {
    const groups = new Set(NAMES.map((name) => metricDeclaration(name).group));
    expect(groups).toEqual(new Set(METRIC_GROUPS));
  });
});
