import { describe, expect, test } from 'vitest';
import { METRIC_NAMESPACES_MAX } from '../../src/core/constants.ts';
import { OTHER_NAMESPACE } from '../../src/core/namespace.ts';
import { useDataDirectory } from '../support/data-directory.ts';
import { LONGEST_WINDOW_MS, readMetrics } from '../support/http.ts';
import { waitUntil } from '../support/server.ts';
import { addRecords } from '../support/store.ts';
import { useServer } from '../support/test-server.ts';

const STORED = METRIC_NAMESPACES_MAX - 2;

const server = useServer({
  args: ['--acceptors', '2'],
  prepare: (store) => {
    const records = Array.from({ length: STORED }, (_, i) => {
      return { id: `rlns_${i}`, name: `stored_${i}`, createdMs: 1 };
    });
    addRecords(store, 'namespaces', records);
  },
});

const decisions = (namespace: string, outcome: string) => {
  return `weir_decisions_total{namespace="${namespace}",outcome="${outcome}"}`;
};

describe('the metrics', () => {
  test('have series for a bounded number of namespaces, and one for all others', async () => {
    const body = { identifier: 'a', limit: 3, duration: LONGEST_WINDOW_MS };
    const names = Array.from({ length: 6 }, (_, i) => `new "${i}"`);
    const checkAll = async (namespaces: string[]) => {
      for (const namespace of namespaces) {
        for (let i = 0; i < 5; i++) await server.check({ ...body, namespace });
      }
    };
    await checkAll(['stored_7', ...names.slice(0, 2)]);
    // The first namespaces get rows; acceptors report theirs in no particular order.
    await waitUntil('the first two are stored', async () => {
      const { total } = await server.ok('ratelimits.listNamespaces');
      return total === STORED + 2;
    });
    await checkAll(names.slice(2));
    const escaped = names.map((name) => name.replaceAll('"', '\\"'));
    let measured = new Map<string, number>();
    await waitUntil('all are durable and have their counts', async () => {
      measured = await readMetrics(server.adminUrl);
      const denied = measured.get(decisions(OTHER_NAMESPACE, 'denied'));
      return denied === 4 * 2 && measured.get(decisions(OTHER_NAMESPACE, 'allowed')) === 4 * 3;
    });
    expect(measured.get(decisions('stored_7', 'allowed'))).toBe(3);
    for (const name of escaped.slice(0, 2)) {
      expect([name, measured.get(decisions(name, 'allowed'))]).toEqual([name, 3]);
    }
    for (const name of escaped.slice(2))
      expect(measured.has(decisions(name, 'allowed'))).toBe(false);
    const series = [...measured.keys()].filter((name) => name.startsWith('weir_decisions_total'));
    expect(series.length).toBe(2 * (METRIC_NAMESPACES_MAX + 1));
  });

  test('count errors by status and code, each once', async () => {
    const name = 'weir_errors_total{status="401",code="UNAUTHORIZED"}';
    const before = await readMetrics(server.adminUrl);
    await server.send({ headers: { Authorization: 'Bearer wrong' }, body: '{}' });
    await server.send({ body: '{}' });
    await server.send({ path: '/v2/nowhere' });
    const after = await readMetrics(server.adminUrl);
    const grown = [...after].filter(([key, value]) => {
      return key.startsWith('weir_errors_total') && value !== before.get(key);
    });
    expect(grown.map(([key, value]) => [key, value - before.get(key)!])).toEqual([
      ['weir_errors_total{status="400",code="BAD_REQUEST"}', 1],
      [name, 1],
      ['weir_errors_total{status="404",code="NOT_FOUND"}', 1],
    ]);
  });

  test('have a histogram of durations from 5 us on, whose count is the number of checks', async () => {
    const measured = await readMetrics(server.adminUrl);
    const buckets = [...measured].filter(([name]) => {
      return name.startsWith('weir_check_duration_seconds_bucket');
    });
    expect(buckets[0][0]).toContain('le="0.000005"');
    const values = buckets.map(([, value]) => value);
    expect(values).toEqual(values.toSorted((a, b) => a - b));
    const checks = [...measured]
      .filter(([name]) => name.startsWith('weir_decisions_total'))
      .reduce((sum, [, value]) => sum + value, 0);
    expect(buckets.at(-1)).toEqual(['weir_check_duration_seconds_bucket{le="+Inf"}', checks]);
    expect(measured.get('weir_check_duration_seconds_count')).toBe(checks);
    expect(measured.get('weir_check_duration_seconds_sum')).toBeGreaterThan(0);
  });

  test('show how full the table is, and count expired counters', async () => {
    const body = { limit: 3, duration: 1_000 };
    for (let i = 0; i < 50; i++) await server.check({ ...body, identifier: `short_${i}` });
    let measured = new Map<string, number>();
    // A sweep counts live counters at its end, and expired ones before.
    await waitUntil('the expired counters are removed, and 7 are live', async () => {
      measured = await readMetrics(server.adminUrl);
      const [removed, live] = ['weir_expired_counters_total', 'weir_counters_live'];
      return measured.get(removed) === 50 && measured.get(live) === 7;
    });
    expect(measured.get('weir_counters_capacity')).toBe(1_024);
    expect(measured.get('weir_table_slots')).toBe(4_096);
    expect(Math.abs(measured.get('weir_clock_offset_seconds')!)).toBeLessThan(1);
    expect(measured.get('weir_workers_running')).toBe(1);
    expect(measured.get('process_resident_memory_bytes')).toBeGreaterThan(1e7);
  });
});

describe('with the policy for a full table', () => {
  const own = useDataDirectory(['--counters', '1024', '--acceptors', '1', '--on-full', 'allow']);

  test('its decisions are counted', async () => {
    const server = await own.start();
    const name = 'weir_full_table_decisions_total{decision="allow"}';
    // A counter with a denial in its window is protected from eviction while its namespace has at
    // most half of the slots; so the counters belong to 50 namespaces.
    for (let i = 0; (await server.metric(name)) === 0 && i < 200; i++) {
      await Promise.all(
        Array.from({ length: 100 }, async (_, j) => {
          const terms = { limit: 1, duration: LONGEST_WINDOW_MS };
          const check = { ...terms, namespace: `n${j % 50}`, identifier: `${i}/${j}` };
          for (let times = 0; times < 2; times++) await server.check(check);
        }),
      );
    }
    expect(await server.metric(name)).toBeGreaterThan(0);
  });
});
