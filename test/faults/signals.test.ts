/** The whole process stopped, told to end, or short of a worker, under load. */

import { connect } from 'node:net';
import { describe, expect, test } from 'vitest';
import { useDataDirectory } from '../support/data-directory.ts';
import { IS_LONG, newSeed, recordMeasurement, trialCount } from '../support/guarantees.ts';
import { parseResponses, readMetric } from '../support/http.ts';
import { Ledger } from '../support/ledger.ts';
import { DECIDE_MODES, type ServerProcess, waitUntil } from '../support/server.ts';
import { expectCleanStop } from '../support/server-health.ts';
import { prepareCheck, Traffic } from '../support/traffic.ts';
import { readWorkerDeaths, startWithWorkerFaults } from '../support/worker-faults.ts';

const IDS = 400;
const DEPTH = { 'in-place': 16, worker: 1 } as const;
const limitOf = (id: number) => (id < 4 ? 3_000 + id : 20 + (id % 5));
const preparedChecks = Array.from({ length: IDS }, (_, id) =>
  prepareCheck(id, { identifier: `id_${id}`, limit: limitOf(id), duration: 2_000, cost: 1 }),
);
const SIZES = ['--acceptors', '2', '--workers', '1', '--counters', '16384'];
const sleep = (ms: number) => new Promise((resolve) => setTimeout(resolve, ms));

/** A rate is measured over so long; what is back within 2 s is measured in the second of them. */
const RATE_MS = IS_LONG ? 1_000 : 300;
/** What comes first: it is slower. */
const WARM_MS = IS_LONG ? 4_000 : 300;

const own = useDataDirectory(SIZES);

function startTraffic(
  { port }: ServerProcess,
  ledger: Ledger,
  mode: keyof typeof DEPTH,
  seed: number,
): Traffic {
  return new Traffic({
    port,
    connections: 32,
    checksPerPacket: DEPTH[mode],
    seed,
    ledger,
    nextCheck: (below) => preparedChecks[below(3) === 0 ? below(IDS) : below(4)],
  });
}

/** Every request was answered with a decision, and every decision was right. */
function expectExactAndAnswered(traffic: Traffic, ledger: Ledger): void {
  expect([traffic.unanswered, traffic.connectionErrors, [...traffic.errors]]).toEqual([0, [], []]);
  expect(ledger.report()).toMatchObject({ falseDenials: 0, violations: [] });
}

function percentOf(after: number, before: number): string {
  return `${Math.round((100 * after) / before)} % of ${Math.round(before)} checks/s`;
}

describe.each(DECIDE_MODES)('decided %s, under load:', (mode) => {
  const STOPPED_MS = IS_LONG ? 10_000 : 1_200;
  test(`a process that was stopped for ${STOPPED_MS} ms goes on as before`, async () => {
    const server = await own.start({ args: [...SIZES, '--decide', mode] });
    const seed = newSeed();
    const ledger = new Ledger(limitOf);
    const traffic = startTraffic(server, ledger, mode, seed);
    await traffic.rate(WARM_MS);
    const before = await traffic.rate(RATE_MS);
    server.child.kill('SIGSTOP');
    await sleep(STOPPED_MS);
    server.child.kill('SIGCONT');
    await sleep(RATE_MS);
    const after = await traffic.rate(RATE_MS);
    await traffic.stop();
    const replaced = await readMetric(server.adminUrl, 'weir_workers_replaced_total');
    const fault = `SIGSTOP, SIGCONT, ${mode}`;
    const tried = `${STOPPED_MS} ms`;
    const { maxExcess, falseDenials, decisions } = ledger.report();
    recordMeasurement(
      'P1',
      fault,
      `${decisions} decisions`,
      `most beyond a limit: ${maxExcess}; seed ${seed}`,
    );
    recordMeasurement('P2', fault, `${decisions} decisions`, `${falseDenials} false refusals`);
    recordMeasurement('P3', fault, `${traffic.sent} sent`, `${traffic.unanswered} unanswered`);
    recordMeasurement('P8', fault, tried, `${percentOf(after, before)}, ${RATE_MS} ms later`);
    expectExactAndAnswered(traffic, ledger);
    expect(replaced).toBe(0);
    expect(after).toBeGreaterThan(0);
    await expectCleanStop(server);
  });

  const STOPS = trialCount(2, 50);
  test(`SIGTERM, ${STOPS} times: what has reached the server is answered, on old connections and new ones`, async () => {
    const seed = newSeed();
    const [kept, opened] = [newTally(), newTally()];
    // One for all of them: counters outlive a stop.
    const ledger = new Ledger(limitOf);
    for (let stop = 0; stop < STOPS; stop++) {
      const server = await own.start({ args: [...SIZES, '--decide', mode] });
      const newcomers = Array.from({ length: 4 }, () => connectRepeatedly(server.port, opened));
      const traffic = new Traffic({
        port: server.port,
        connections: 32,
        checksPerPacket: 1,
        seed: seed + stop,
        ledger,
        nextCheck: (below) => preparedChecks[below(IDS)],
      });
      await sleep(100 + ((seed + 37 * stop) % 100));
      await expectCleanStop(server);
      await traffic.stop();
      await Promise.all(newcomers);
      kept.sent += traffic.sent;
      kept.lost.push(...traffic.connectionErrors);
      expect([...traffic.errors]).toEqual([]);
      expect(ledger.report()).toMatchObject({ falseDenials: 0, violations: [] });
    }
    const inWords = ({ sent, lost }: ArrivalTally) => `${lost.length} of ${sent} lost`;
    const tried = `${STOPS} stops; seed ${seed}`;
    const { decisions, maxExcess } = ledger.report();
    recordMeasurement(
      'P1',
      `SIGTERM and starts, ${mode}`,
      `${decisions} decisions`,
      `most beyond a limit: ${maxExcess}`,
    );
    recordMeasurement(
      'P3',
      `SIGTERM, ${mode}`,
      tried,
      `${inWords(kept)} on connections that were there`,
    );
    recordMeasurement(
      'P3',
      `SIGTERM, ${mode}`,
      tried,
      `${inWords(opened)} on those opened meanwhile`,
    );
    expect(kept.lost).toEqual([]);
    // The kernel resets what it has taken and nobody has accepted when listening ends.
    expect(opened.lost.filter((why) => !/ECONNRESET|EPIPE/.test(why))).toEqual([]);
    expect(opened.lost.length).toBeLessThanOrEqual(1 + STOPS / 10);
  }, 300_000);
});

const DEATHS = trialCount(1, 10);
test('the rate is back when a shard worker that decides is', async () => {
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
  const fault = `a worker exits, ${mode}`;
  const all = shares
    .map((share) => `${Math.round(100 * share)} %`)
    .sort()
    .join(', ');
  recordMeasurement('P8', fault, `${DEATHS} deaths`, `${all}, ${RATE_MS} ms later`);
  recordMeasurement(
    'P3',
    fault,
    `${traffic.sent} sent`,
    `${traffic.unanswered} unanswered; seed ${seed}`,
  );
  expect([traffic.unanswered, traffic.connectionErrors]).toEqual([0, []]);
  expect(decisions).toBeGreaterThan(0);
  expect(maxExcess).toBeLessThanOrEqual(0);
  expect(Math.min(...shares)).toBeGreaterThan(0);
  await expectCleanStop(server);
}, 120_000);

interface ArrivalTally {
  sent: number;
  /** What became of requests that were not answered with a decision. */
  lost: string[];
}
const newTally = (): ArrivalTally => ({ sent: 0, lost: [] });

/** Opens connections, one after the other, and asks once on each, until no more are taken. */
async function connectRepeatedly(port: number, tally: ArrivalTally): Promise<void> {
  const { bytes } = prepareCheck(0, { identifier: 'new', limit: 1e9, duration: 2_000, cost: 1 });
  let isTaken = true;
  while (isTaken) {
    isTaken = await new Promise<boolean>((resolve) => {
      let received = '';
      const socket = connect(port, '127.0.0.1', () => {
        tally.sent++;
        socket.write(bytes);
      });
      const isOpen = () => socket.bytesWritten > 0;
      socket.setEncoding('latin1');
      socket.on('data', (data) => {
        received += data;
        const [answer] = parseResponses(received).answers;
        if (answer === undefined) return;
        if (answer.status !== 200) tally.lost.push(`${answer.status}`);
        socket.destroy();
        resolve(true);
      });
      socket.on('error', (error) => {
        if (isOpen()) tally.lost.push(error.message);
        resolve(isOpen());
      });
      socket.on('end', () => {
        tally.lost.push('closed without an answer');
        resolve(true);
      });
    });
  }
}
