/** What a call leaves in metrics and events besides the hits of its limits. */

import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { readMetrics } from '../support/http.ts';
import { useRlsServer } from '../support/rls/rls-server.ts';
import { waitUntil } from '../support/server.ts';

const files = {
  'd.yaml': [
    'domain: d',
    'descriptors:',
    '  - { key: a, rate_limit: { unit: year, requests_per_unit: 100 } }',
    '  - { key: b, rate_limit: { unit: year, requests_per_unit: 1 } }',
  ].join('\n'),
};
const server = useRlsServer({
  files,
  args: ['--events', 'all'],
  env: { WEIR_RLS_COUNTING: 'all-or-none', WEIR_RLS_SHADOW_MODE: 'true' },
});

test('tokens of a request that is not counted as a whole are not recorded as spent', async () => {
  await server.rls.call('d', [{ of: 'a=1', hits: 10 }, 'b=1']);
  await server.rls.call('d', [{ of: 'a=1', hits: 4 }, 'b=1']);
  const metrics = await readMetrics(server.adminUrl);
  const tokens = (outcome: string) =>
    metrics.get(`weir_tokens_total{namespace="d",outcome="${outcome}"}`);
  expect([tokens('allowed'), tokens('denied')]).toEqual([11, 5]);
});

test('the event of a request that passes in shadow mode says so', async () => {
  await server.rls.call('d', [{ of: 'b=2', hits: 2 }]);
  const shadowed = () => {
    const lines = readFileSync(join(server.dataDir, 'events.jsonl'), 'utf8').split('\n');
    return lines.find((line) => line.includes('"b=2"'));
  };
  await waitUntil('the event is written', () => shadowed() !== undefined);
  expect(JSON.parse(shadowed()!)).toMatchObject({ identifier: 'b=2', shadow: true });
});
