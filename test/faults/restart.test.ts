/**
 * A restart while clients call: the official ones, with the retries that they bring, and raw ones
 * without any, whose requests under way are answered before the server goes.
 */

import { connect } from 'node:net';
import { performance } from 'node:perf_hooks';
import { expect, test } from 'vitest';
import { useDataDirectory } from '../support/data-directory.ts';
import { recordMeasurement, trialCount } from '../support/guarantees.ts';
import { LONGEST_WINDOW_MS, sendCheck } from '../support/http.ts';
import { officialClients, useRetryCount } from '../support/official-clients.ts';
import { type ClientResult, runSequentialClient } from '../support/sequential-client.ts';
import { freePort, waitUntil } from '../support/server.ts';

const RESTARTS = trialCount(2, 20);
/** Of each kind. */
const CALLERS = 3;
const RAW = 8;
/** The kernel has a new connection that the acceptor has not, in the moment listening ends. */
const RESET_AS_NEW = 'closed after 0 answers: read ECONNRESET';
/** Connections that are kept and not used, as gateways have them: nothing ends them but weir. */
const IDLE = 4;
const PAUSE_MS = 25;

const RAW_CHECK = { identifier: 'raw', limit: 1_000_000_000, duration: LONGEST_WINDOW_MS };

const own = useDataDirectory([]);
const sleep = (ms: number) => new Promise((resolve) => setTimeout(resolve, ms));

const retries = useRetryCount();

test(`clients that try again see nothing of ${RESTARTS} restarts`, async () => {
  const port = await freePort();
  const args = ['--counters', '1024', '--acceptors', '2', '--port', String(port)];
  let server = await own.start({ args });
  let going = true;

  let calls = 0;
  /** Errors that callers have seen since the last restart, by how long their client tries. */
  let errors: { patienceMs: number; message: string }[] = [];
  /** Who has been answered since the last restart. */
  const served = new Set<string>();
  const url = `http://127.0.0.1:${port}`;
  const callers = officialClients(url).flatMap(({ name, retryMs, check }) => {
    return Array.from({ length: CALLERS }, async (_, i) => {
      while (going) {
        calls++;
        await check(`${name} ${i}`).then(
          () => served.add(`${name} ${i}`),
          (error: Error) =>
            errors.push({ patienceMs: retryMs, message: `${name}: ${error.message}` }),
        );
        await sleep(PAUSE_MS);
      }
    });
  });

  const body = JSON.stringify(RAW_CHECK);
  const to = () => connect(port, '127.0.0.1');
  const raw: ClientResult[] = [];
  const rawCallers = Array.from({ length: RAW }, async () => {
    while (going) {
      raw.push(
        await runSequentialClient({
          connect: to,
          body,
          pauseMs: PAUSE_MS,
          shouldContinue: () => going,
        }),
      );
      await sleep(PAUSE_MS);
    }
  });

  /** By clients that open a connection for each check and do not retry. */
  const single = { allowed: 0, refused: 0, reset: 0, other: [] as string[] };
  const singleCallers = Array.from({ length: CALLERS }, async () => {
    while (going) {
      await sendCheck(port, { ...RAW_CHECK, identifier: 'single' }).then(
        () => single.allowed++,
        ({ message }: Error) => {
          if (message.includes('ECONNREFUSED')) single.refused++;
          else if (message.includes('ECONNRESET')) single.reset++;
          else single.other.push(message);
        },
      );
      await sleep(PAUSE_MS);
    }
  });

  const awayMs: number[] = [];
  const startMs: number[] = [];
  let outlasted = 0;
  for (let i = 0; i <= RESTARTS; i++) {
    served.clear();
    await waitUntil('every client is answered', () => served.size === callers.length);
    const away = awayMs.at(-1) ?? 0;
    // One that gave up while weir was still away has done what it does.
    expect(errors.filter(({ patienceMs }) => patienceMs > away)).toEqual([]);
    outlasted += errors.length;
    if (i === RESTARTS) break;
    for (let j = 0; j < IDLE; j++) to().on('error', () => {});
    await sleep(100);
    errors = [];
    const atMs = performance.now();
    expect(await server.stop()).toEqual({ code: 0, signal: null });
    const goneMs = performance.now();
    server = await own.start({ args });
    awayMs.push(performance.now() - atMs);
    startMs.push(performance.now() - goneMs);
  }
  going = false;
  await Promise.all([...callers, ...rawCallers, ...singleCallers]);

  // Whoever was not taken in, refused or reset as the listening ended, has no request under way.
  const notTaken = (why: string) => why.includes(': connect ') || why === RESET_AS_NEW;
  const all = raw.flatMap((outcome) => outcome.failures);
  const lost = all.filter((why) => !notTaken(why));
  const resets = all.filter((why) => why === RESET_AS_NEW).length;
  const answered = raw.reduce((n, outcome) => n + outcome.responses, 0);
  const middle = (times: number[]) => Math.round(times.toSorted((a, b) => a - b)[RESTARTS >> 1]);
  const tried = `${RESTARTS} restarts`;
  const ready = `${middle(awayMs)} ms after SIGTERM, of which ${middle(startMs)} ms to start`;
  recordMeasurement('P8', 'restart under load', tried, `ready ${ready} (median)`);
  const seen = `${calls} calls, ${retries()} retries of v1, 0 errors`;
  const away = `${outlasted} while weir was away for longer than v1 tries`;
  recordMeasurement('P3', 'restart, official clients', tried, `${seen}, but for ${away}`);
  const cut = `${answered} answered, ${lost.length} refused or reset under way, ${resets} as new`;
  recordMeasurement('P3', 'restart, raw keep-alive', tried, cut);
  expect(lost).toEqual([]);
  const { allowed, refused, reset, other } = single;
  const failed = `${refused} refused and ${reset} reset of ${allowed + refused + reset} checks`;
  recordMeasurement('P3', 'restart, clients that do not retry', tried, failed);
  expect(other).toEqual([]);
  // Nobody listens for a while, so a client that does not retry sees every restart.
  expect(refused).toBeGreaterThanOrEqual(RESTARTS);
  // A connection that is opened in the moment of a stop, at most once a restart and client.
  expect(reset).toBeLessThanOrEqual(CALLERS * RESTARTS);
  // Each at most once a restart.
  expect(resets).toBeLessThanOrEqual(RAW * RESTARTS);
  expect(answered).toBeGreaterThan(RAW);
  // What was answered is counted, before and after each restart.
  const { limit, remaining } = await sendCheck(port, { ...RAW_CHECK, cost: 0 });
  recordMeasurement(
    'P6',
    'restart under load',
    tried,
    `${limit - remaining} counted of ${answered} admitted`,
  );
  expect(limit - remaining).toBe(answered);
  expect(await server.stop()).toEqual({ code: 0, signal: null });
}, 300_000);
