import { expect, test } from 'vitest';
import { useDataDirectory } from '../support/data-directory.ts';
import { exchange, LONGEST_WINDOW_MS, requestBytes } from '../support/http.ts';
import { waitUntil } from '../support/server.ts';

const own = useDataDirectory(['--counters', '1024']);

const body = (identifier: string) => ({ identifier, limit: 10, duration: LONGEST_WINDOW_MS });

test('the log warns, with figures, that live counters are evicted', async () => {
  const server = await own.start();
  for (let round = 0; round < 200; round++) {
    const requests = Array.from({ length: 100 }, (_, i) => {
      return requestBytes({ body: JSON.stringify(body(`${round}/${i}`)) });
    });
    await exchange(server.port, [Buffer.concat(requests)], requests.length);
  }
  interface Warning {
    live?: number;
    capacity?: number;
    evictions: number;
    fullTable: number;
  }
  const warnings = (): Warning[] => {
    const lines = server
      .stderr()
      .split('\n')
      .filter((line) => line.includes('raise WEIR_COUNTERS'));
    return lines.map((line) => JSON.parse(line));
  };
  const evictions = () => warnings().reduce((sum, warning) => sum + warning.evictions, 0);
  // 1 024 counters have 4 096 slots: 16 shards of one group of 256. The others were evicted.
  await waitUntil('a sweep has counted the live counters', async () => {
    return (await server.metric('weir_counters_live')) === 4_096;
  });
  await exchange(server.port, [requestBytes({ body: JSON.stringify(body('another')) })]);
  await waitUntil('the warning is in the log', () => warnings().some(({ live }) => live === 4_096));
  expect(warnings()[0]).toMatchObject({ capacity: 1_024, fullTable: 0 });
  expect(await server.metric('weir_live_evictions_total')).toBe(20_001 - 4_096);
  // Evictions after the last poll are logged at the stop.
  await exchange(server.port, [requestBytes({ body: JSON.stringify(body('late')) })]);
  expect(await server.stop()).toEqual({ code: 0, signal: null });
  expect(evictions()).toBe(20_002 - 4_096);
});
