import { afterAll, expect, test } from 'vitest';
import { exchange, requestBytes } from '../support/http.ts';
import { removeDirectory, startServer, temporaryDirectory, until } from '../support/server.ts';

const dataDir = temporaryDirectory();
afterAll(() => removeDirectory(dataDir));

test('an operator is warned, with figures, that live counters are evicted', async () => {
  const server = await startServer(dataDir, { args: ['--counters', '1024'] });
  for (let round = 0; round < 200; round++) {
    const requests = Array.from({ length: 100 }, (_, i) => {
      const body = { identifier: `${round}/${i}`, limit: 10, duration: 3_600_000 };
      return requestBytes({ body: JSON.stringify(body) });
    });
    await exchange(server.port, [Buffer.concat(requests)], requests.length);
  }
  await until('the census has warned', () => server.stderr().includes('raise WEIR_COUNTERS'));
  const line = server
    .stderr()
    .split('\n')
    .find((text) => text.includes('raise WEIR_COUNTERS'));
  const { live, capacity, evicted } = JSON.parse(line ?? '');
  expect(capacity).toBe(1_024);
  // 1 024 counters have 4 096 slots: 16 shards of one group of 256. All are live, the rest gone.
  expect(live).toBeGreaterThan(4_000);
  expect(live + evicted).toBe(20_000);
  expect(await server.stop()).toEqual({ code: 0, signal: null });
});
