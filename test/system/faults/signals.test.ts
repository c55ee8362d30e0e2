/** Under load: a process that is suspended, one that gets SIGTERM, and one that loses a worker. */

import { connect } from 'node:net';
import { setTimeout as sleep } from 'node:timers/promises';
import { describe, expect, test } from 'vitest';
import { useDataDirectory } from '../../support/data-directory.ts';
import { IS_LONG, newSeed, recordMeasurements, trialCount } from '../../support/guarantees.ts';
import { parseResponses, readMetric } from '../../support/http.ts';
import {
  DECIDE_MODES,
  type ServerProcess,
  suspendProcess,
  waitUntil,
} from '../../support/server.ts';
import { readWorkerDeaths, startWithWorkerFaults } from '../../support/worker-faults.ts';
import { Ledger } from './ledger.ts';
import { expectCleanStop } from './server-health.ts';
import { prepareCheck, Traffic } from './traffic.ts';

const IDS = 400;
const CONNECTIONS = 32;
/** Clients that open a connection for each check. */
const NEW_CLIENTS = 4;
const CHECKS_PER_PACKET = { 'in-place': 16, worker: 1 } as const;
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

function startTraffic(
  { port }: ServerProcess,
  ledger: Ledger,
  mode: keyof typeof CHECKS_PER_PACKET,
  seed: number,
): Traffic {
  return new Traffic({
    port,
    connections: CONNECTIONS,
    checksPerPacket: CHECKS_PER_PACKET[mode],
    seed,
    ledger,
    nextCheck: (below) => preparedChecks[below(3) === 0 ? below(IDS) : below(4)],
  });
}

/** Every request got a decision, and every decision was right. */
function expectExactAndAnswered(traffic: Traffic, ledger: Ledger): void {
  expect([traffic.unanswered, traffic.connectionErrors, [...traffic.errors]]).toEqual([0, [], []]);
  expect(ledger.report()).toMatchObject({ falseDenials: 0, violations: [] });
}

function percentOf(after: number, before: number): string {
  return `${Math.round((100 * after) / before)} % of ${Math.round(before)} checks/s`;
}

describe.each(DECIDE_MODES)('with decisions %s, under load,', (mode) => {
  const STOPPED_MS = IS_LONG ? 10_000 : 1_200;
  test(`a process suspended for ${STOPPED_MS} ms continues without an error or a wrong decision`, async () => {
    const server = await own.start({ args: [...SIZES, '--decide', mode] });
    const seed = newSeed();
    const ledger = new Ledger(limitOf);
    const traffic = startTraffic(server, ledger, mode, seed);
    await traffic.rate(WARM_MS);
    const before = await traffic.rate(RATE_MS);
    await suspendProcess(server);
    await sleep(STOPPED_MS);
    server.child.kill('SIGCONT');
    await sleep(RATE_MS);
    const after = await traffic.rate(RATE_MS);
    await traffic.stop();
    const replaced = await readMetric(server.adminUrl, 'weir_workers_replaced_total');
    const { maxExcess, falseDenials, decisions } = ledger.report();
    recordMeasurements(`SIGSTOP, SIGCONT, ${mode}`, `${STOPPED_MS} ms, ${decisions} decisions`, {
      P1: `largest excess over a limit: ${maxExcess}; seed ${seed}`,
      P2: `${falseDenials} false denials`,
      P3: `${traffic.unanswered} of ${traffic.sent} unanswered`,
      P8: `${percentOf(after, before)}, ${RATE_MS} ms later`,
    });
    expectExactAndAnswered(traffic, ledger);
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
        port: server.port,
        connections: CONNECTIONS,
        checksPerPacket: 1,
        seed: seed + stop,
        ledger,
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
      expect(ledger.report()).toMatchObject({ falseDenials: 0, violations: [] });
    }
    const describeTally = ({ sent, lost }: ConnectionTally) => `${lost.length} of ${sent} lost`;
    const { decisions, maxExcess } = ledger.report();
    const perKind = `${describeTally(keepAlive)} on keep-alive connections, ${describeTally(opened)}`;
    recordMeasurements(`SIGTERM, ${mode}`, `${STOPS} stops, ${decisions} decisions; seed ${seed}`, {
      P1: `largest excess over a limit: ${maxExcess}`,
      P3: `${perKind} on connections opened meanwhile`,
    });
    expect(keepAlive.lost).toEqual([]);
    // The same connections. Each client opens one at a time, and ends when one is refused.
    expect(opened.lost.filter((why) => !/ECONNRESET|EPIPE/.test(why))).toEqual([]);
    const lostMax = IS_LONG ? 1 + STOPS / 10 : NEW_CLIENTS * STOPS;
    expect(opened.lost.length).toBeLessThanOrEqual(lostMax);
  }, 300_000);
});

const DEATHS = 10;
test.runIf(IS_LONG)(
  'the throughput recovers after a deciding shard worker dies',
  async () => {
    const mode = 'worker';
    const lifeMs = WARM_MS + 3 * RATE_MS;
    const server = await startWithWorkerFaults(own.dataDir, [...SIZES, '--decide', mode], lifeMs, [
      'exit',
    ]);
    own.started.push(server);
    const ledger = new Ledger(limitOf);
    const seed = newSeed();
    const traffic = startTraffic(server, ledger, mode, seed);
    await traffic.rate(WARM_MS / 2);
    const shares: number[] = [];
    let before = 0;
    for (let death = 1; death <= DEATHS; death++) {
      before = await traffic.rate(RATE_MS);
      const deaths = readWorkerDeaths(server).total;
      await waitUntil('a worker dies', () => readWorkerDeaths(server).total > deaths);
      await sleep(RATE_MS);
      shares.push((await traffic.rate(RATE_MS)) / before);
    }
    await traffic.stop();
    const { maxExcess, decisions } = ledger.report();
    const percents = shares.map((share) => Math.round(100 * share)).toSorted((a, b) => a - b);
    recordMeasurements(`a worker exits, ${mode}`, `${DEATHS} deaths; seed ${seed}`, {
      P3: `${traffic.unanswered} of ${traffic.sent} unanswered`,
      P8: `${percents.join(' %, ')} %, ${RATE_MS} ms later`,
    });
    expect([traffic.unanswered, traffic.connectionErrors]).toEqual([0, []]);
    expect(decisions).toBeGreaterThan(0);
    expect(maxExcess).toBeLessThanOrEqual(0);
    expect(Math.min(...shares)).toBeGreaterThan(0);
    await expectCleanStop(server);
  },
  120_000,
);

interface ConnectionTally {
  sent: number;
  /** Why requests got no decision. */
  lost: string[];
}
const newTally = (): ConnectionTally => ({ sent: 0, lost: [] });

/** Opens connections one after the other, and sends a check on each, until one is refused. */
async function connectRepeatedly(port: number, tally: ConnectionTally): Promise<void> {
  const { bytes } = prepareCheck(0, { identifier: 'new', limit: 1e9, duration: 2_000, cost: 1 });
  let isAccepted = true;
  while (isAccepted) {
    isAccepted = await new Promise<boolean>((resolve) => {
      let received = '';
      const socket = connect(port, '127.0.0.1', () => {
        tally.sent++;
        socket.write(bytes);
      });
      const isOpen = () => socket.bytesWritten > 0;
      socket.setEncoding('latin1');
      socket.on('data', (data) => {
        received += data;
        const [response] = parseResponses(received).answers;
        if (response === undefined) return;
        if (response.status !== 200) tally.lost.push(`${response.status}`);
        socket.destroy();
        resolve(true);
      });
      socket.on('error', (error) => {
        if (isOpen()) tally.lost.push(error.message);
        resolve(isOpen());
      });
      socket.on('end', () => {
        tally.lost.push('closed without a response');
        resolve(true);
      });
    });
  }
}
