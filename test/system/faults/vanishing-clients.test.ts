/** Leases of clients that go away: no limit is exceeded, and every token is free again. */

import { setTimeout as sleep } from 'node:timers/promises';
import { expect, test, vi } from 'vitest';
import { useDataDirectory } from '../../support/data-directory.ts';
import { newSeed, recordMeasurement, trialCount } from '../../support/guarantees.ts';
import { readMetric } from '../../support/http.ts';
import { seededRandom } from '../../support/seeded-random.ts';
import { waitUntil } from '../../support/server.ts';
import { callOn, inspectHolds, operationBytes } from './hold-clients.ts';
import { type HttpConnection, openConnections } from './http-connections.ts';
import { expectCleanStop } from './server-health.ts';

vi.setConfig({ testTimeout: trialCount(180_000, 7_200_000) });

const OPERATIONS = trialCount(20_000, 10_000_000);
const CONNECTIONS = 64;
const IDENTIFIERS = 24;
const TTL_MIN_MS = 1_000;
const TTL_MAX_MS = 3_000;
/** The clocks of the server and of the test may differ by this. */
const CLOCK_SLACK_MS = 20;
const LIVE = 'weir_holds_live{kind="lease"}';

const own = useDataDirectory(['--acceptors', '2', '--workers', '1', '--counters', '16384']);

const limitOf = (id: number) => 1 + (id % 6);

interface Grant {
  leaseId: string;
  id: number;
  cost: number;
  /** Unix time, ms. */
  aliveUntil: number;
}

/** The grants that are surely alive, by the clock of the clients. */
class AliveGrants {
  readonly #grants = Array.from({ length: IDENTIFIERS }, () => new Set<Grant>());
  granted = 0;
  /** The largest excess over a limit; at most 0 if the limits hold. */
  maxExcess = Number.NEGATIVE_INFINITY;
  /** Grants that used up the rest of their limit. */
  full = 0;

  add(grant: Grant): void {
    const grants = this.#grants[grant.id];
    grants.add(grant);
    this.granted++;
    const nowMs = Date.now();
    let sum = 0;
    for (const one of grants) {
      if (one.aliveUntil <= nowMs) grants.delete(one);
      else sum += one.cost;
    }
    const excess = sum - limitOf(grant.id);
    if (excess === 0) this.full++;
    this.maxExcess = Math.max(this.maxExcess, excess);
  }

  /** Before its release is sent. */
  remove(grant: Grant): void {
    this.#grants[grant.id].delete(grant);
  }
}

test('clients that vanish exceed no limit of concurrent leases, and leave no token in use', async () => {
  const server = await own.start();
  const seed = newSeed();
  const grants = new AliveGrants();
  const done = { operations: 0, denied: 0, abandoned: 0, cut: 0 };

  const runClient = async (number: number) => {
    const below = seededRandom(seed + number);
    const held: Grant[] = [];
    let connection: HttpConnection | undefined;
    while (done.operations < OPERATIONS) {
      done.operations++;
      connection ??= openConnections(server.port, 1)[0];
      const grant = held[0];
      if (grant !== undefined && below(2) === 0) {
        held.shift();
        // Some are never released.
        if (below(30) === 0) {
          done.abandoned++;
          continue;
        }
        grants.remove(grant);
        const { leaseId, cost } = grant;
        const { released } = await callOn(connection, 'ratelimits.release', { leaseId });
        expect([0, cost]).toContain(released);
        continue;
      }
      const id = below(IDENTIFIERS);
      const limit = limitOf(id);
      const cost = 1 + below(Math.min(2, limit));
      const ttl = TTL_MIN_MS + below(TTL_MAX_MS - TTL_MIN_MS + 1);
      const fields = { identifier: `id_${id}`, limit, cost, ttl };
      if (below(50) === 0) {
        const bytes = operationBytes('ratelimits.acquire', fields);
        // In the middle of the request, or of the response.
        const length = below(2) === 0 ? below(bytes.length) : bytes.length;
        const { socket, closed } = connection;
        socket.write(bytes.subarray(0, length), () => socket.resetAndDestroy());
        await closed;
        connection = undefined;
        done.cut++;
        continue;
      }
      const answer = await callOn(connection, 'ratelimits.acquire', fields);
      expect(Number(answer.inUse)).toBeLessThanOrEqual(limit);
      if (!answer.success) {
        done.denied++;
        continue;
      }
      const aliveUntil = Number(answer.expiresAt) - CLOCK_SLACK_MS;
      const granted = { leaseId: String(answer.leaseId), id, cost, aliveUntil };
      grants.add(granted);
      held.push(granted);
    }
    connection?.socket.destroy();
  };
  await Promise.all(Array.from({ length: CONNECTIONS }, (_, i) => runClient(i)));

  await sleep(TTL_MAX_MS);
  await waitUntil('no lease is live', async () => (await readMetric(server.adminUrl, LIVE)) === 0);
  const inUse = [];
  for (let id = 0; id < IDENTIFIERS; id++) {
    inUse.push((await inspectHolds(server.port, `id_${id}`)).inUse);
  }
  const { operations, denied, abandoned, cut } = done;
  const trials = `${operations} operations, ${grants.granted} leases, ${grants.full} at the limit`;
  const left = `${abandoned} leases abandoned, ${cut} connections closed in the middle`;
  const excess = `largest excess over a limit: ${grants.maxExcess}`;
  const measured = `${excess}; in use afterwards: ${inUse.reduce((a, b) => a + b)}; seed ${seed}`;
  recordMeasurement('P1', `leases of clients that vanish: ${left}`, trials, measured);
  expect(grants.maxExcess).toBeLessThanOrEqual(0);
  expect(inUse).toEqual(Array(IDENTIFIERS).fill(0));
  // The limits were tried.
  expect(grants.full).toBeGreaterThan(OPERATIONS / 100);
  expect(Math.min(denied, abandoned, cut)).toBeGreaterThan(0);
  await expectCleanStop(server);
});

test('the tokens of an expired lease are available again at once', async () => {
  const server = await own.start();
  const TRIALS = trialCount(20, 200);
  const acquire = (connection: HttpConnection, identifier: string) => {
    const fields = { identifier, limit: 1, ttl: TTL_MIN_MS };
    return callOn(connection, 'ratelimits.acquire', fields);
  };
  const lateMs: number[] = [];
  for (let trial = 0; trial < TRIALS; trial += 10) {
    const connections = openConnections(server.port, 10);
    await Promise.all(
      connections.map(async (connection, i) => {
        const identifier = `late_${trial + i}`;
        const { expiresAt } = await acquire(connection, identifier);
        await sleep(Number(expiresAt) - Date.now() - 50);
        let answer = await acquire(connection, identifier);
        for (; !answer.success; answer = await acquire(connection, identifier)) await sleep(2);
        lateMs.push(Date.now() - Number(expiresAt));
        connection.socket.destroy();
      }),
    );
  }
  lateMs.sort((a, b) => a - b);
  const measured = `${lateMs[TRIALS >> 1]} ms late (median), ${lateMs.at(-1)} ms (max)`;
  recordMeasurement('P2', 'acquire after the expiry of a lease', `${TRIALS} leases`, measured);
  expect(lateMs[0]).toBeGreaterThan(-CLOCK_SLACK_MS);
  expect(lateMs.at(-1)).toBeLessThan(2_000);
  await expectCleanStop(server);
});
