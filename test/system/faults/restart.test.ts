/**
 * A restart while clients send checks: official clients with their own retries, and raw clients
 * without any. The server answers pending requests before it ends.
 */

import { connect } from 'node:net';
import { performance } from 'node:perf_hooks';
import { setTimeout as sleep } from 'node:timers/promises';
import { expect, test } from 'vitest';
import { useDataDirectory } from '../../support/data-directory.ts';
import { recordMeasurement, trialCount } from '../../support/guarantees.ts';
import { LONGEST_WINDOW_MS, sendCheck } from '../../support/http.ts';
import { freePort, waitUntil } from '../../support/server.ts';
import { type ClientResult, runSequentialClient } from './http-connections.ts';
import { officialClients, useRetryCount } from './official-clients.ts';

const RESTARTS = trialCount(1, 20);
/** Clients of each kind. */
const CLIENTS_PER_KIND = 3;
const RAW_CLIENTS = 8;
/** When listening ends, the kernel resets new connections that no acceptor has accepted. */
const RESET_AS_NEW = /^closed after 0 responses: (read|write) (ECONNRESET|EPIPE)$/;
/** Idle connections, as gateways keep them. Only weir can close them. */
const IDLE_CONNECTIONS = 4;
const PAUSE_MS = 25;

const RAW_CHECK = { identifier: 'raw', limit: 1_000_000_000, duration: LONGEST_WINDOW_MS };

const own = useDataDirectory([]);

const retries = useRetryCount();

test(`clients with retries see no error during ${RESTARTS} restarts`, async () => {
  const port = await freePort();
  const args = ['--counters', '1024', '--acceptors', '2', '--port', String(port)];
  let server = await own.start({ args });
  let isRunning = true;

  let calls = 0;
  /** Errors since the last restart, with the time for which the client retries. */
  let errors: { retryMs: number; message: string }[] = [];
  /** Clients with a response since the last restart. */
  const served = new Set<string>();
  const url = `http://127.0.0.1:${port}`;
  const officialRuns = officialClients(url).flatMap(({ name, retryMs, check }) => {
    return Array.from({ length: CLIENTS_PER_KIND }, async (_, i) => {
      while (isRunning) {
        calls++;
        await check(`${name} ${i}`).then(
          () => served.add(`${name} ${i}`),
          (error: Error) => errors.push({ retryMs, message: `${name}: ${error.message}` }),
        );
        await sleep(PAUSE_MS);
      }
    });
  });

  const open = () => connect(port, '127.0.0.1');
  const options = { connect: open, body: JSON.stringify(RAW_CHECK), pauseMs: PAUSE_MS };
  const rawResults: ClientResult[] = [];
  const rawRuns = Array.from({ length: RAW_CLIENTS }, async () => {
    while (isRunning) {
      rawResults.push(await runSequentialClient({ ...options, shouldContinue: () => isRunning }));
      await sleep(PAUSE_MS);
    }
  });

  /** Outcomes of clients that open a connection for each check and do not retry. */
  const single = { allowed: 0, refused: 0, reset: 0, other: [] as string[] };
  const singleRuns = Array.from({ length: CLIENTS_PER_KIND }, async () => {
    while (isRunning) {
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

  const restartMs: number[] = [];
  const startMs: number[] = [];
  let expectedErrors = 0;
  for (let i = 0; i <= RESTARTS; i++) {
    served.clear();
    await waitUntil('every client gets a response', () => served.size === officialRuns.length);
    const lastRestartMs = restartMs.at(-1) ?? 0;
    // A client that retries for less time than the restart took may fail.
    expect(errors.filter((error) => error.retryMs > lastRestartMs)).toEqual([]);
    expectedErrors += errors.length;
    if (i === RESTARTS) break;
    for (let j = 0; j < IDLE_CONNECTIONS; j++) open().on('error', () => {});
    await sleep(100);
    errors = [];
    const stoppingMs = performance.now();
    expect(await server.stop()).toEqual({ code: 0, signal: null });
    const stoppedMs = performance.now();
    server = await own.start({ args });
    restartMs.push(performance.now() - stoppingMs);
    startMs.push(performance.now() - stoppedMs);
  }
  isRunning = false;
  await Promise.all([...officialRuns, ...rawRuns, ...singleRuns]);

  // A connection that was refused, or reset before an acceptor accepted it, has no pending request.
  const isNotAccepted = (why: string) => why.includes(': connect ') || RESET_AS_NEW.test(why);
  const all = rawResults.flatMap((outcome) => outcome.failures);
  const lost = all.filter((why) => !isNotAccepted(why));
  const resets = all.filter((why) => RESET_AS_NEW.test(why)).length;
  const answered = rawResults.reduce((n, outcome) => n + outcome.responses, 0);
  const median = (times: number[]) => Math.round(times.toSorted((a, b) => a - b)[RESTARTS >> 1]);
  const trials = `${RESTARTS} restarts`;
  const ready = `${median(restartMs)} ms after SIGTERM, of which ${median(startMs)} ms to start`;
  recordMeasurement('P8', 'restart under load', trials, `ready ${ready} (median)`);
  const summary = `${calls} calls, ${retries()} retries of v1 clients, 0 errors`;
  const exceptions = `${expectedErrors} in restarts longer than v1 clients retry`;
  recordMeasurement('P3', 'restart, official clients', trials, `${summary}, except ${exceptions}`);
  const cut = `${answered} answered, ${lost.length} pending refused or reset, ${resets} new reset`;
  recordMeasurement('P3', 'restart, raw keep-alive', trials, cut);
  expect(lost).toEqual([]);
  const { allowed, refused, reset, other } = single;
  const failed = `${refused} refused and ${reset} reset of ${allowed + refused + reset} checks`;
  recordMeasurement('P3', 'restart, clients that do not retry', trials, failed);
  expect(other).toEqual([]);
  // No process listens for a while, so a client that does not retry sees every restart.
  expect(refused).toBeGreaterThanOrEqual(RESTARTS);
  // At most one connection for each restart and client is being opened when listening ends.
  expect(reset).toBeLessThanOrEqual(CLIENTS_PER_KIND * RESTARTS);
  expect(resets).toBeLessThanOrEqual(RAW_CLIENTS * RESTARTS);
  expect(answered).toBeGreaterThan(RAW_CLIENTS);
  // Every allowed check is counted, before and after each restart.
  const { limit, remaining } = await sendCheck(port, { ...RAW_CHECK, cost: 0 });
  const counted = `${limit - remaining} counted of ${answered} allowed`;
  recordMeasurement('P6', 'restart under load', trials, counted);
  expect(limit - remaining).toBe(answered);
  expect(await server.stop()).toEqual({ code: 0, signal: null });
}, 300_000);
