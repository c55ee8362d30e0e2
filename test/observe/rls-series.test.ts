/** The metrics of the rate limit service. */

import { connect } from 'node:net';
import { describe, expect, test } from 'vitest';
import { RLS_HIT_PATHS_MAX } from '../../src/core/constants.ts';
import { HitTotals } from '../../src/observe/rls-series.ts';
import { readMetrics } from '../support/http.ts';
import { RlsClient } from '../support/rls/client.ts';
import { useRlsServer } from '../support/rls/rls-server.ts';
import { waitUntil } from '../support/server.ts';

const CASES = [
  // Limit, hits, used after them, and what is added, as in cases 23 to 31.
  { limit: 15, hits: 1, after: 11, added: { within_limit: 1 } },
  { limit: 15, hits: 1, after: 13, added: { within_limit: 1, near_limit: 1 } },
  { limit: 15, hits: 1, after: 16, added: { over_limit: 1 } },
  { limit: 20, hits: 3, after: 5, added: { within_limit: 3 } },
  { limit: 8, hits: 2, after: 7, added: { within_limit: 2, near_limit: 1 } },
  { limit: 20, hits: 3, after: 19, added: { within_limit: 3, near_limit: 3 } },
  { limit: 20, hits: 3, after: 22, added: { over_limit: 2, near_limit: 1 } },
  { limit: 20, hits: 7, after: 22, added: { over_limit: 2, near_limit: 4 } },
  { limit: 10, hits: 3, after: 30, added: { over_limit: 3 } },
] as const;

const server = useRlsServer({
  files: {
    'd.yaml': [
      'domain: d',
      'descriptors:',
      ...CASES.map(({ limit }, i) => {
        return `  - { key: c${i}, rate_limit: { unit: year, requests_per_unit: ${limit} } }`;
      }),
    ].join('\n'),
  },
});

const metric = (name: string) => server.metric(name);
const hit = (i: number, result: string) =>
  `weir_rls_hits_total{limit="d.c${i}",result="${result}"}`;

describe('the hits of a limit', () => {
  test('are what envoyproxy/ratelimit counts for requests with these hits and usages', async () => {
    const results = ['total_hits', 'within_limit', 'near_limit', 'over_limit', 'shadow_mode'];
    const read = async () => {
      const metrics = await readMetrics(server.adminUrl);
      return CASES.map((_, i) => results.map((result) => metrics.get(hit(i, result)) ?? 0));
    };
    const countedTotals = async (totals: readonly number[]) => {
      await waitUntil('all hits are in the metrics', async () => {
        return (await read()).every(([total], i) => total === totals[i]);
      });
    };
    for (const [i, { hits, after }] of CASES.entries()) {
      await server.rls.call('d', [{ of: `c${i}=1`, hits: after - hits }]);
    }
    await countedTotals(CASES.map(({ hits, after }) => after - hits));
    const before = await read();
    for (const [i, { hits }] of CASES.entries()) {
      await server.rls.call('d', [{ of: `c${i}=1`, hits }]);
    }
    await countedTotals(CASES.map(({ after }) => after));
    const added = (await read()).map((counts, i) => {
      const differences = counts.map((count, j) => [results[j], count - before[i][j]] as const);
      return Object.fromEntries(differences.filter(([, difference]) => difference !== 0));
    });
    expect(added).toEqual(CASES.map(({ hits, added }) => ({ total_hits: hits, ...added })));
  });

  test('of paths beyond the bound have the path other', () => {
    const totals = new HitTotals();
    for (let n = 0; n < RLS_HIT_PATHS_MAX; n++) totals.add([[`p${n}`, [1, 1, 0, 0, 0]]]);
    totals.add([['one more', [1, 0, 0, 1, 0]]]);
    totals.add([['p0', [1, 1, 0, 0, 0]]]);
    const of = (path: string) => totals.samples().filter(([labels]) => labels.limit === path);
    expect(of('one more')).toEqual([]);
    expect(of('other').map(([, count]) => count)).toEqual([1, 0, 0, 1, 0]);
    expect(of('p0').map(([, count]) => count)).toEqual([2, 2, 0, 0, 0]);
  });
});

describe('a call', () => {
  const calls = async () => {
    const metrics = await readMetrics(server.adminUrl);
    return ['ok', 'over_limit', 'fault'].map((result) => {
      return metrics.get(`weir_rls_calls_total{result="${result}"}`);
    });
  };

  test('is counted once, by its result', async () => {
    const [ok = 0, over = 0, fault = 0] = await calls();
    await server.rls.call('d', ['c0=calls']);
    expect(await calls()).toEqual([ok + 1, over, fault]);
    await server.rls.call('d', [{ of: 'c0=calls', hits: 100 }, 'c0=calls']);
    expect(await calls()).toEqual([ok + 1, over + 1, fault]);
    await server.rls.ask('', ['c0=calls']);
    await server.rls.ask('d', [{ of: 'c0=calls', isRefund: true }]);
    expect(await calls()).toEqual([ok + 1, over + 1, fault + 2]);
  });

  test('for a domain without rules is counted', async () => {
    const name = 'weir_rls_unknown_domain_calls_total';
    const before = await metric(name);
    await server.rls.call('nobody', ['a=1']);
    expect(await metric(name)).toBe(before + 1);
  });
});

test('open connections are counted until they are closed', async () => {
  const name = 'weir_rls_connections';
  const before = await metric(name);
  const client = new RlsClient(`127.0.0.1:${server.rlsPort}`);
  await client.call('d', ['c0=connections']);
  const socket = connect(server.rlsPort, '127.0.0.1');
  await waitUntil('both are counted', async () => (await metric(name)) === before + 2);
  client.close();
  socket.destroy();
  await waitUntil('none of them is counted', async () => (await metric(name)) === before);
});
