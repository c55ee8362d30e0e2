/** Under load: a process that is suspended, and one that gets SIGTERM. */

import { setTimeout as sleep } from 'node:timers/promises';
import { describe, expect, test } from 'vitest';
import { useDataDirectory } from '../../support/data-directory.ts';
import { IS_LONG, newSeed, trialCount } from '../../support/guarantees.ts';
import { readMetric, sendCheck } from '../../support/http.ts';
import { DECIDE_MODES, suspendProcess, waitUntil } from '../../support/server.ts';
import { Ledger } from './ledger.ts';
import { expectCleanStop } from './server-health.ts';
import {
  CHECKS_PER_PACKET,
  expectAnswered,
  prepareCheck,
  recordTraffic,
  Traffic,
} from './traffic.ts';

const IDS = 400;
const CONNECTIONS = 32;
/** Clients that open a connection for each check. */
const NEW_CLIENTS = 4;
const limitOf = (id: number) => (id < 4 ? 3_000 + id : 20 + (id % 5));
const preparedChecks = Array.from({ length: IDS }, (_, id) =>
  prepareCheck(id, { identifier: `id_${id}`, limit: limitOf(id), duration: 2_000, cost: 1 }),
);
/** The drain ends with the last connection. A busy client needs more than the default of 250 ms. */
const DRAIN = ['--drain-ms', '5000'];
const SIZES = ['--acceptors', '2', '--workers', '1', '--counters', '16384', ...DRAIN];

/** Duration of a measurement of throughput. It starts so long after a fault ends. */
const RATE_MS = trialCount(300, 1_000);
/** Warm-up before the first measurement. */
const WARM_MS = trialCount(300, 4_000);

const own = useDataDirectory(SIZES);

describe.each(DECIDE_MODES)('with decisions %s, under load,', (mode) => {
  const STOPPED_MS = IS_LONG ? 10_000 : 1_200;
  test(`a process suspended for ${STOPPED_MS} ms continues without an error or a wrong decision`, async () => {
    const server = await own.start({ args: [...SIZES, '--decide', mode] });
    const seed = newSeed();
    const ledger = new Ledger(limitOf);
    const traffic = new Traffic({
      ...{ port: server.port, connections: CONNECTIONS, seed, ledger },
      checksPerPacket: CHECKS_PER_PACKET[mode],
      nextCheck: (below) => preparedChecks[below(3) === 0 ? below(IDS) : below(4)],
    });
    await traffic.rate(WARM_MS);
    const before = await traffic.rate(RATE_MS);
    await suspendProcess(server);
    await sleep(STOPPED_MS);
    server.child.kill('SIGCONT');
    await sleep(RATE_MS);
    const after = await traffic.rate(RATE_MS);
    await traffic.stop();
    const replaced = await readMetric(server.adminUrl, 'weir_workers_replaced_total');
    const share = `${Math.round((100 * after) / before)} % of ${Math.round(before)} checks/s`;
    const trials = `${STOPPED_MS} ms, seed ${seed}`;
    const P8 = `${share}, ${RATE_MS} ms later`;
    recordTraffic(`SIGSTOP, SIGCONT, ${mode}`, trials, traffic, ledger, { P8 });
    expectAnswered(traffic);
    ledger.expectExact();
    expect(replaced).toBe(0);
    expect(after).toBeGreaterThan(0);
    await expectCleanStop(server);
  });

  const STOPS = trialCount(1, 50);
  test(`after each of ${STOPS} SIGTERMs, requests that reached the server are answered, on old and new connections`, async () => {
    const seed = newSeed();
    const [keepAlive, opened] = [newTally(), newTally()];
    // One ledger for all stops, because counters survive them.
    const ledger = new Ledger(limitOf);
    for (let stop = 0; stop < STOPS; stop++) {
      const server = await own.start({ args: [...SIZES, '--decide', mode] });
      const newClients = Array.from({ length: NEW_CLIENTS }, () =>
        connectRepeatedly(server.port, opened),
      );
      const served = new Set<number>();
      const traffic = new Traffic({
        ...{ port: server.port, connections: CONNECTIONS, checksPerPacket: 1 },
        ...{ seed: seed + stop, ledger },
        nextCheck: (below) => preparedChecks[below(IDS)],
        onDecision: (_check, _allowed, _reset, connection) => served.add(connection),
      });
      // When listening ends, the kernel resets connections that no acceptor has accepted.
      await waitUntil('all connections are accepted', () => served.size === CONNECTIONS);
      await sleep(100 + ((seed + 37 * stop) % 100));
      await expectCleanStop(server);
      await traffic.stop();
      await Promise.all(newClients);
      keepAlive.sent += traffic.sent;
      keepAlive.lost.push(...traffic.connectionErrors);
      expect([...traffic.errors]).toEqual([]);
      ledger.expectExact();
    }
    const P3 = [keepAlive, opened].map(({ sent, lost }) => `${lost.length} of ${sent} lost`).join();
    const trials = `${STOPS} stops, seed ${seed}`;
    const both = { sent: keepAlive.sent, unanswered: keepAlive.lost.length };
    recordTraffic(`SIGTERM, ${mode}`, trials, both, ledger, {
      P3: `${P3} on connections opened meanwhile`,
    });
    expect(keepAlive.lost).toEqual([]);
    // The same connections. Each client opens one at a time, and ends when one is refused.
    expect(opened.lost.filter((why) => !/ECONNRESET|EPIPE/.test(why))).toEqual([]);
    const lostMax = IS_LONG ? 1 + STOPS / 10 : NEW_CLIENTS * STOPS;
    expect(opened.lost.length).toBeLessThanOrEqual(lostMax);
  }, 300_000);
});

interface ConnectionTally {
  sent: number;
  /** Why requests got no decision. */
  lost: string[];
}
const newTally = (): ConnectionTally => ({ sent: 0, lost: [] });

/** Opens connections one after the other, and sends a check on each, until one is refused. */
async function connectRepeatedly(port: number, tally: ConnectionTally): Promise<void> {
  const body = { identifier: 'new', limit: 1e9, duration: 2_000 };
  for (;;) {
    const error = await sendCheck(port, body).catch((error: Error) => error.message);
    if (String(error).includes('ECONNREFUSED')) return;
    tally.sent++;
    if (typeof error === 'string') tally.lost.push(error);
  }
}
