/** The system clock jumps, stops or runs too fast while checks are decided in windows of 1 s. */

import { renameSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { afterAll, expect, test } from 'vitest';
import { useDataDirectory } from '../../support/data-directory.ts';
import { IS_LONG, newSeed, recordMeasurement } from '../../support/guarantees.ts';
import { readMetric, sendCheck } from '../../support/http.ts';
import { removeDirectory, temporaryDirectory, waitUntil } from '../../support/server.ts';
import { Ledger } from './ledger.ts';
import { expectCleanStop } from './server-health.ts';
import { expectAnswered, prepareCheck, recordTraffic, Traffic } from './traffic.ts';

const CLOCK_FAULT = new URL('../../support/system-clock.preload.mjs', import.meta.url).pathname;
const DURATION_MS = 1_000;
const IDS = 60;
const CONNECTIONS = 8;
const limitOf = (id: number) => (id < 3 ? 1_000 + id : 5 + (id % 5));
const preparedChecks = Array.from({ length: IDS }, (_, id) =>
  prepareCheck(id, { identifier: `id_${id}`, limit: limitOf(id), duration: DURATION_MS, cost: 1 }),
);

const [SECOND, HOUR, DAY] = [1_000, 3_600_000, 86_400_000];

const LONG_FAULTS = [
  { name: '+1 s', stepMs: SECOND, rate: 1 },
  { name: '+1 day', stepMs: DAY, rate: 1 },
  { name: '-1 s', stepMs: -SECOND, rate: 1 },
  { name: '-1 h', stepMs: -HOUR, rate: 1 },
];
const FAULTS = [
  ...(IS_LONG ? LONG_FAULTS : []),
  { name: '+1 h', stepMs: HOUR, rate: 1 },
  { name: '-1 day', stepMs: -DAY, rate: 1 },
  { name: 'frozen', stepMs: 0, rate: 0 },
  { name: 'double rate', stepMs: 0, rate: 2 },
];
/** Duration of each fault: several windows. */
const FAULT_MS = IS_LONG ? 8_500 : 1_200;
/** Uncertainty about the time at which the server read its clock. */
const NOISE_MS = 100;
/** Acceptors' clocks agree within 0.1 ms; their responses arrive later than that. */
const SKEW_MS = 100;
/** Largest difference of two clocks with a resolution of 1 ms that show the same time. */
const EQUAL_MS = 3;

const own = useDataDirectory([]);
const clockDirectory = temporaryDirectory();
afterAll(() => removeDirectory(clockDirectory));

/** The system clock of the server. */
class SystemClock {
  readonly path: string;
  #atMs = Date.now();
  #wallMs = this.#atMs;
  #rate = 1;

  constructor(directory: string) {
    this.path = join(directory, 'clock');
    this.#write();
  }

  now(): number {
    return this.#wallMs + (Date.now() - this.#atMs) * this.#rate;
  }

  set(stepMs: number, rate: number): void {
    const now = this.now();
    this.#atMs = Date.now();
    this.#wallMs = now + stepMs;
    this.#rate = rate;
    this.#write();
  }

  /** Its difference from the true time. */
  get aheadMs(): number {
    return this.now() - Date.now();
  }

  #write(): void {
    const text = JSON.stringify({ atMs: this.#atMs, wallMs: this.#wallMs, rate: this.#rate });
    writeFileSync(`${this.path}.new`, text);
    renameSync(`${this.path}.new`, this.path);
  }
}

/** The windows in which checks were decided, and the time at which each first appeared. */
class WindowHistory {
  readonly #firstSeen = new Map<number, number>();
  /** By connection and identifier, the end of the window of the last response. */
  readonly #last = new Float64Array(CONNECTIONS * IDS);
  /** By connection, the latest end of a window. */
  readonly #latest = new Float64Array(CONNECTIONS);
  /** Responses in a window before that of an earlier response for the identifier. */
  reopened = 0;
  /** Responses in a window that was over for SKEW_MS on the connection. */
  late = 0;

  record(id: number, reset: number, connection: number): void {
    const at = connection * IDS + id;
    if (reset < this.#last[at]) this.reopened++;
    this.#last[at] = reset;
    if (!this.#firstSeen.has(reset)) this.#firstSeen.set(reset, performance.now());
    const latest = this.#latest[connection];
    if (reset >= latest) this.#latest[connection] = reset;
    else if (performance.now() - this.#firstSeen.get(latest)! > SKEW_MS) this.late++;
  }

  /** Windows that began since a time, and the longest time between two beginnings. */
  startedSince(ms: number): { started: number; longestMs: number } {
    const starts = [...this.#firstSeen.values()];
    const first = starts.findIndex((at) => at >= ms);
    if (first < 1) return { started: 0, longestMs: performance.now() - (starts.at(-1) ?? 0) };
    const gaps = starts.slice(first).map((at, i) => at - starts[first + i - 1]);
    return { started: starts.length - first, longestMs: Math.max(...gaps) };
  }
}

test('a system clock that jumps, stops or runs fast opens at most one extra window, delays none, and reopens none', async () => {
  const clock = new SystemClock(clockDirectory);
  const server = await own.start({
    args: ['--acceptors', '2', '--workers', '1', '--counters', '4096'],
    execArgv: ['--import', CLOCK_FAULT],
    env: { CLOCK_FILE: clock.path },
  });
  const offsetMs = async () => {
    return 1_000 * (await readMetric(server.adminUrl, 'weir_clock_offset_seconds'));
  };
  const seed = newSeed();
  const ledger = new Ledger(limitOf);
  const windows = new WindowHistory();
  const traffic = new Traffic({
    port: server.port,
    connections: CONNECTIONS,
    checksPerPacket: 4,
    seed,
    ledger,
    nextCheck: (below) => preparedChecks[below(IDS)],
    onDecision: ({ id }, _allowed, reset, connection) => windows.record(id, reset, connection),
  });
  await sleep(DURATION_MS);

  /** A phase has the windows of the faster of both clocks, one in progress, and an extra one. */
  const watch = async (ms: number, name: string) => {
    const [startedMs, startedClockMs] = [performance.now(), clock.now()];
    await sleep(ms);
    const elapsedMs = Math.max(performance.now() - startedMs, clock.now() - startedClockMs);
    const { started, longestMs } = windows.startedSince(startedMs);
    const max = Math.floor(elapsedMs / DURATION_MS) + 2;
    expect([name, started, started <= max]).toEqual([name, started, true]);
    if (IS_LONG) expect([name, longestMs < 2.1 * DURATION_MS]).toEqual([name, true]);
    return { started, longestMs };
  };

  for (const { name, stepMs, rate } of FAULTS) {
    const { aheadMs } = clock;
    clock.set(stepMs, rate);
    const faultMs = performance.now();
    const { started, longestMs } = await watch(FAULT_MS, name);
    await waitUntil(`a window begins under ${name}`, () => {
      return windows.startedSince(faultMs).started > 0;
    });

    // `reset` is the end of the current window, in weir's time.
    const before = clock.now() + (await offsetMs());
    const body = { identifier: 'reset', limit: 1, duration: DURATION_MS, cost: 0 };
    const { reset } = await sendCheck(server.port, body);
    const after = clock.now() + (await offsetMs());
    expect([name, reset - before > -NOISE_MS]).toEqual([name, true]);
    expect([name, reset - after <= DURATION_MS + NOISE_MS]).toEqual([name, true]);
    const offset = Math.round(await offsetMs());
    if (stepMs < -SECOND) expect([name, offset > -stepMs - FAULT_MS]).toEqual([name, true]);

    // Weir absorbs a second. The test undoes larger faults, as an administrator would.
    const isUndone = stepMs < -SECOND || rate === 0;
    clock.set(isUndone ? aheadMs - clock.aheadMs : 0, 1);
    const measured = `${started} windows in ${FAULT_MS} ms, the longest ${(longestMs / DURATION_MS).toFixed(2)}`;
    const fault = `clock ${name}, windows of ${DURATION_MS} ms`;
    recordMeasurement('P1', fault, measured, `ahead by ${offset} ms`);
    await waitUntil(`the clocks agree after ${name}`, async () => {
      return Math.abs(await offsetMs()) < EQUAL_MS;
    });
    await watch(DURATION_MS / 2, `after ${name}`);
  }
  await traffic.stop();
  const trials = `${FAULTS.length} clock faults, ${windows.reopened} windows reopened, seed ${seed}`;
  recordTraffic('clock', trials, traffic, ledger);
  expectAnswered(traffic);
  const { falseDenials, violations } = ledger.report();
  expect([falseDenials, violations, windows.reopened]).toEqual([0, [], 0]);
  if (IS_LONG) expect(windows.late).toBe(0);
  await expectCleanStop(server);
}, 300_000);
