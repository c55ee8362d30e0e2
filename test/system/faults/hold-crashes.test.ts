/** `kill -9` under a load of holds: what a restart brings back, and that every hold ends. */

import { setTimeout as sleep } from 'node:timers/promises';
import { expect, test, vi } from 'vitest';
import { useDataDirectory } from '../../support/data-directory.ts';
import { newSeed, recordMeasurement, trialCount } from '../../support/guarantees.ts';
import { readMetrics } from '../../support/http.ts';
import { seededRandom } from '../../support/seeded-random.ts';
import { type ServerProcess, waitUntil } from '../../support/server.ts';
import { callOn, HoldClient, inspectHolds, readUsage } from './hold-clients.ts';
import type { HoldHistory } from './hold-history.ts';
import { openConnections } from './http-connections.ts';
import { expectCleanStop } from './server-health.ts';

vi.setConfig({ testTimeout: trialCount(180_000, 3_600_000) });

const KILLS = trialCount(4, 200);
const CLIENTS = 8;
const TTL_MIN_MS = 1_000;
const TTL_MAX_MS = 2_000;
const CHECKPOINT_MS = 100;
/** How long a checkpoint may take on a busy machine, before the metric shows its age. */
const CHECKPOINT_SLACK_MS = 1_000;
/** How late a shard worker may end a hold on a busy machine. */
const EXPIRY_SLACK_MS = 1_000;

const own = useDataDirectory([
  ...['--acceptors', '2', '--workers', '2', '--counters', '16384'],
  // So few that the long form uses records again, yet not those of a moment ago.
  ...['--checkpoint-ms', String(CHECKPOINT_MS), '--holds', '32768'],
]);

/** @returns the longest time before the kill from which a change may be lost */
async function kill9({ adminUrl, child }: ServerProcess): Promise<number> {
  const askedMs = performance.now();
  let ageMs = Number.NaN;
  await waitUntil('each shard has a checkpoint', async () => {
    ageMs =
      1_000 * ((await readMetrics(adminUrl)).get('weir_checkpoint_age_seconds') ?? Number.NaN);
    return !Number.isNaN(ageMs);
  });
  child.kill('SIGKILL');
  ageMs += performance.now() - askedMs;
  // As in recovery.test.ts: on a busy machine writing takes longer, and the metric says so.
  return Math.max(CHECKPOINT_MS + CHECKPOINT_SLACK_MS, ageMs + 10);
}

/** The changes missing after all kills. */
const total = { changes: 0, lost: 0, oldestMs: 0 };

/** Compares what is in use with a history. Each difference must be younger than the bound. */
function expectState(
  [identifier, history]: [string, HoldHistory],
  tokens: number,
  [fromMs, untilMs]: [number, number],
  killed: { atMs: number; boundMs: number },
): void {
  const loss = history.lossIn(tokens, fromMs, untilMs);
  const described = `${identifier}: ${tokens} tokens, ${history.range(fromMs, untilMs)} expected`;
  expect(loss === undefined ? described : undefined).toBeUndefined();
  const { lost, oldestMs } = loss!;
  if (lost === 0) return;
  total.lost += lost;
  total.oldestMs = Math.max(total.oldestMs, killed.atMs - oldestMs);
  expect([described, killed.atMs - oldestMs < killed.boundMs]).toEqual([described, true]);
}

test('after each kill -9, holds and windows are those of the last checkpoint, and every hold ends', async () => {
  const seed = newSeed();
  const below = seededRandom(seed);
  const nextTtlMs = () => TTL_MIN_MS + below(TTL_MAX_MS - TTL_MIN_MS + 1);
  const clients = Array.from({ length: CLIENTS }, (_, i) => {
    return new HoldClient({ name: `client_${i}`, below, nextTtlMs });
  });
  const windows = () => clients.flatMap((client) => [...client.windows]);
  const leases = () => clients.flatMap((client) => [...client.leases]);
  let repeated = 0;
  let lateMs = 0;
  let server = await own.start();
  for (let kill = 0; kill < KILLS; kill++) {
    const running = clients.map((client) => client.run(server.port));
    // The first time so long that some commits are surely in a checkpoint.
    await sleep(kill === 0 ? 3 * CHECKPOINT_SLACK_MS : 100 + below(1_400));
    const boundMs = await kill9(server);
    const killed = { atMs: performance.now(), boundMs };
    const killedMs = Date.now();
    const lastExpiryMs = killedMs + TTL_MAX_MS;
    await server.exited;
    await Promise.all(running);

    server = await own.start();
    for (const [identifier, history] of leases()) {
      const fromMs = Date.now();
      const { inUse } = await inspectHolds(server.port, identifier);
      expectState([identifier, history], inUse, [fromMs, Date.now()], killed);
      expect(inUse).toBeGreaterThanOrEqual(0);
    }
    const usedNow = await readUsage(
      server.port,
      windows().map(([identifier]) => identifier),
    );
    for (const [identifier, history] of windows()) {
      const used = usedNow.get(identifier)!;
      // Holds that expired meanwhile end when the shard workers have started.
      expectState([identifier, history], used, [killedMs, Date.now()], killed);
    }
    // A commit that was acknowledged before the checkpoint gets its answer again.
    const [connection] = openConnections(server.port, 1);
    const saved = clients
      .flatMap(({ commits }) => commits)
      .filter(({ answeredMs }) => killed.atMs - answeredMs > boundMs);
    for (const { fields, answer } of saved) {
      expect(await callOn(connection, 'ratelimits.commit', fields)).toEqual(answer);
    }
    connection.socket.destroy();
    repeated += saved.length;

    const live = async () => {
      const metrics = await readMetrics(server.adminUrl);
      const names = ['weir_holds_live', 'weir_held_tokens'].flatMap((name) => {
        return ['reservation', 'lease'].map((kind) => `${name}{kind="${kind}"}`);
      });
      return names.map((name) => metrics.get(name));
    };
    const waitingMs = Math.max(lastExpiryMs, Date.now());
    await sleep(waitingMs - Date.now());
    await waitUntil('all holds have ended', async () => (await live()).every((n) => n === 0));
    lateMs = Math.max(lateMs, Date.now() - waitingMs);
    expect(lateMs).toBeLessThan(EXPIRY_SLACK_MS);
    for (const [identifier] of leases()) {
      expect((await inspectHolds(server.port, identifier)).inUse).toBe(0);
    }
    const endedMs = Date.now();
    const usage = await readUsage(
      server.port,
      windows().map(([identifier]) => identifier),
    );
    for (const [identifier, history] of windows()) {
      expectState([identifier, history], usage.get(identifier)!, [endedMs, endedMs], killed);
    }
    for (const client of clients) {
      total.changes += client.operations;
      client.operations = 0;
      client.restart(usage);
    }
  }
  await expectCleanStop(server);
  const fault = `kill -9 under holds, checkpoints every ${CHECKPOINT_MS} ms`;
  const trials = `${KILLS} kills, ${total.changes} operations`;
  const oldest = `the oldest ${Math.round(total.oldestMs)} ms before`;
  const ended = `no hold live ${lateMs} ms after the longest ttl`;
  const again = `${repeated} repeated commits got the same answer`;
  const measured = `${total.lost} lost, ${oldest}; ${again}; ${ended}; seed ${seed}`;
  recordMeasurement('P6', fault, trials, measured);
  expect(total.changes).toBeGreaterThan(KILLS * 100);
  expect(repeated).toBeGreaterThan(0);
});
