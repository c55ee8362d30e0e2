import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { deathsOf, inWords, startFaulty } from '../support/faults.ts';
import { check, LASTING_MS, metrics, request, requestBytes } from '../support/http.ts';
import { converse, random, type Tally, tallyOf } from '../support/load.ts';
import { scaled } from '../support/scale.ts';
import { removeDirectory, temporaryDirectory, until } from '../support/server.ts';

const IDS = 600;
const DEATHS = scaled(100);
const DURATION_MS = 3_000;
const limitOf = (id: number) => (id < 5 ? 2_000 + id : 10 + (id % 7));

const requests = Array.from({ length: IDS }, (_, id) =>
  requestBytes({
    body: JSON.stringify({ identifier: `id_${id}`, limit: limitOf(id), duration: DURATION_MS }),
  }),
);

test(`${DEATHS} deaths of a shard worker that decides, under load: every check is answered, nothing is admitted beyond a limit`, async () => {
  const dataDir = temporaryDirectory();
  const args = ['--acceptors', '2', '--workers', '1', '--counters', '16384', '--decide', 'worker'];
  const server = await startFaulty(dataDir, args, 150);
  const tallies = new Map<string, Tally>();
  let unavailable = 0;
  let ended = false;
  const clients = Array.from({ length: 32 }, async (_, i) => {
    const next = random(i + 1);
    let answered = 0;
    while (!ended) {
      answered += await converse<number>({
        port: server.port,
        checks: 200,
        depth: 1,
        next: () => (next(3) === 0 ? next(IDS) : next(5)),
        bytes: (id) => requests[id],
        record: (id, admitted, reset) => {
          if (reset === 0) unavailable++;
          else {
            const tally = tallyOf(tallies, `${id}/${reset}`);
            if (admitted) tally.admitted++;
            else tally.refused = 1;
          }
        },
      });
    }
    return answered;
  });
  for (let waits = 0; waits < 20 && deathsOf(server).total < DEATHS; waits++) {
    await Promise.race([
      Promise.all(clients),
      new Promise((resolve) => setTimeout(resolve, 5_000)),
    ]);
  }
  ended = true;
  const answered = (await Promise.all(clients)).reduce((a, b) => a + b, 0);
  await until('the worker is back', async () => {
    return (await (await fetch(`${server.adminUrl}/readyz`)).text()).includes('"ready"');
  });
  const measured = await metrics(server.adminUrl);
  const deaths = deathsOf(server);
  expect(deaths.total).toBeGreaterThanOrEqual(DEATHS);
  for (const count of Object.values(deaths.byKind))
    expect(count).toBeGreaterThanOrEqual(DEATHS / 20);
  expect(measured.get('weir_workers_replaced_total')).toBeGreaterThanOrEqual(DEATHS - 5);

  const repeated = measured.get('weir_entries_repeated_total')!;
  const lost = measured.get('weir_entries_lost_total')!;
  const over: string[] = [];
  let tooFew = 0;
  for (const [key, { admitted, refused }] of tallies) {
    const limit = limitOf(Number(key.split('/')[0]));
    if (admitted > limit) over.push(`${key}: ${admitted} of ${limit}`);
    if (refused === 1 && admitted < limit) tooFew += limit - admitted;
  }
  expect(over).toEqual([]);
  // What was counted and not admitted: an entry that was repeated, or answered with a 503.
  expect(tooFew).toBeLessThanOrEqual(repeated + unavailable);
  expect(repeated).toBeLessThanOrEqual(deaths.total);
  expect(measured.get('weir_errors_total{status="503",code="SERVICE_UNAVAILABLE"}')).toBe(
    unavailable,
  );
  expect(unavailable).toBeLessThanOrEqual(lost + deaths.total);
  expect((await request(server.port, { path: '/nowhere' })).status).toBe(404);
  expect(await server.stop()).toMatchObject({ code: 0 });
  removeDirectory(dataDir);
  console.info(
    `${inWords(deaths)}; ${answered} checks answered, ${unavailable} with a 503,` +
      ` ${measured.get('weir_ring_taken_back_total')} taken back, ${repeated} repeated,` +
      ` ${lost} lost, ${tooFew} too few admitted`,
  );
}, 180_000);

test('a shard worker that finds its memory damaged ends the process, with one sentence', async () => {
  const dataDir = temporaryDirectory();
  const server = await startFaulty(dataDir, ['--counters', '1024'], 0, ['damage']);
  writeFileSync(join(dataDir, 'strike'), '');
  const { code } = await server.exited;
  expect(code === 0).toBe(false);
  const said = server
    .stderr()
    .split('\n')
    .filter((line) => line.startsWith('weir: '));
  expect(said).toEqual(['weir: shard worker 0 failed: a ring of 1024 holds -5 items']);
  removeDirectory(dataDir);
});

test('workers of which one dies are replaced one by one, and SIGTERM finds them all', async () => {
  const dataDir = temporaryDirectory();
  const args = ['--acceptors', '1', '--workers', '4', '--counters', '1024', '--decide', 'worker'];
  const server = await startFaulty(dataDir, args, 400, ['exit', 'throw', 'bootstrap']);
  const body = { limit: 1_000, duration: LASTING_MS };
  for (let i = 0; deathsOf(server).total < 40; i++) {
    expect(await check(server.port, { ...body, identifier: `id_${i % 100}` })).toMatchObject({
      limit: 1_000,
    });
  }
  expect(await server.stop()).toEqual({ code: 0, signal: null });
  removeDirectory(dataDir);
}, 60_000);
