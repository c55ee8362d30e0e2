/** The system's clock steps, stands or runs too fast while checks are decided by windows of 1 s. */

import { renameSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, expect, test } from 'vitest';
import { useDataDirectory } from '../support/data-directory.ts';
import { IS_LONG, newSeed, recordMeasurement } from '../support/guarantees.ts';
import { readMetric, sendCheck } from '../support/http.ts';
import { Ledger } from '../support/ledger.ts';
import { removeDirectory, temporaryDirectory, waitUntil } from '../support/server.ts';
import { expectCleanStop } from '../support/server-health.ts';
import { prepareCheck, Traffic } from '../support/traffic.ts';

const CLOCK_FAULT = new URL('../support/clock-fault.preload.mjs', import.meta.url).pathname;
const DURATION_MS = 1_000;
const IDS = 60;
const limitOf = (id: number) => (id < 3 ? 1_000 + id : 5 + (id % 5));
const preparedChecks = Array.from({ length: IDS }, (_, id) =>
  prepareCheck(id, { identifier: `id_${id}`, limit: limitOf(id), duration: DURATION_MS, cost: 1 }),
);

const [SECOND, HOUR, DAY] = [1_000, 3_600_000, 86_400_000];

interface ClockFault {
  name: string;
  stepMs: number;
  rate: number;
}
const clockStep = (name: string, stepMs: number): ClockFault => ({ name, stepMs, rate: 1 });
const clockRate = (name: string, rate: number): ClockFault => ({ name, stepMs: 0, rate });
const FAULTS = IS_LONG
  ? [
      clockStep('+1 s', SECOND),
      clockStep('+1 h', HOUR),
      clockStep('+1 day', DAY),
      clockStep('-1 s', -SECOND),
      clockStep('-1 h', -HOUR),
      clockStep('-1 day', -DAY),
      clockRate('frozen', 0),
      clockRate('twice as fast', 2),
    ]
  : [
      clockStep('+1 h', HOUR),
      clockStep('-1 day', -DAY),
      clockRate('frozen', 0),
      clockRate('twice as fast', 2),
    ];
/** How long each lasts: some windows. */
const FAULT_MS = IS_LONG ? 8_500 : 1_200;
/** How exactly the test knows what the time was when the server looked. */
const NOISE_MS = 100;
/** How far apart two clocks of whole milliseconds are that show the same. */
const LEVEL_MS = 3;

const own = useDataDirectory([]);
const elsewhere = temporaryDirectory();
afterAll(() => removeDirectory(elsewhere));
const sleep = (ms: number) => new Promise((resolve) => setTimeout(resolve, ms));

/** A system's clock for the server, and what it shows now. */
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

  /** How far it is from the true time. */
  get aheadMs(): number {
    return this.now() - Date.now();
  }

  #write(): void {
    const text = JSON.stringify({ atMs: this.#atMs, wallMs: this.#wallMs, rate: this.#rate });
    writeFileSync(`${this.path}.new`, text);
    renameSync(`${this.path}.new`, this.path);
  }
}

/** Which windows were seen since a moment: when each was first seen, by its end. */
class WindowHistory {
  readonly #seen = new Map<number, number>();
  /** By connection, the last end that was answered on it. */
  readonly #last: number[] = [];
  /** Answers of a window that ended before one that was answered earlier on the connection. */
  reopened = 0;

  record(reset: number, connection: number): void {
    if (reset < (this.#last[connection] ?? 0)) this.reopened++;
    this.#last[connection] = reset;
    if (!this.#seen.has(reset)) this.#seen.set(reset, performance.now());
  }

  /** Windows that began since, and the longest time between the beginnings of two. */
  startedSince(ms: number): { fresh: number; longestMs: number } {
    const starts = [...this.#seen.values()];
    const first = starts.findIndex((at) => at >= ms);
    if (first < 1) return { fresh: 0, longestMs: performance.now() - (starts.at(-1) ?? 0) };
    const gaps = starts.slice(first).map((at, i) => at - starts[first + i - 1]);
    return { fresh: starts.length - first, longestMs: Math.max(...gaps) };
  }
}

test('a system clock that steps, stands or runs gives at most one fresh window, keeps nobody waiting and hands no spent window out again', async () => {
  const clock = new SystemClock(elsewhere);
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
    connections: 8,
    checksPerPacket: 4,
    seed,
    ledger,
    nextCheck: (below) => preparedChecks[below(IDS)],
    onDecision: (_ask, _admitted, reset, connection) => windows.record(reset, connection),
  });
  await sleep(DURATION_MS);

  /** The windows of a phase are those of real time, of the system's, and one that is fresh. */
  const watch = async (ms: number, name: string) => {
    const [since, systemBefore] = [performance.now(), clock.now()];
    await sleep(ms);
    const elapsedMs = Math.max(performance.now() - since, clock.now() - systemBefore);
    const { fresh, longestMs } = windows.startedSince(since);
    const most = Math.floor(elapsedMs / DURATION_MS) + 2;
    expect([name, fresh, fresh <= most]).toEqual([name, fresh, true]);
    expect([name, longestMs, longestMs < 2.1 * DURATION_MS]).toEqual([name, longestMs, true]);
    return { fresh, longestMs };
  };

  for (const { name, stepMs, rate } of FAULTS) {
    const { aheadMs } = clock;
    clock.set(stepMs, rate);
    const { fresh, longestMs } = await watch(FAULT_MS, name);

    // `reset` is the end of the window that runs, in weir's time.
    const before = clock.now() + (await offsetMs());
    const answer = { identifier: 'reset', limit: 1, duration: DURATION_MS, cost: 0 };
    const { reset } = await sendCheck(server.port, answer);
    const after = clock.now() + (await offsetMs());
    expect([name, reset - before > -NOISE_MS]).toEqual([name, true]);
    expect([name, reset - after <= DURATION_MS + NOISE_MS]).toEqual([name, true]);
    const offset = Math.round(await offsetMs());
    if (stepMs < -SECOND) expect([name, offset > -stepMs - FAULT_MS]).toEqual([name, true]);

    // A second is absorbed; what would take hours is put right, as an administrator would.
    const isUndone = stepMs < -SECOND || rate === 0;
    clock.set(isUndone ? aheadMs - clock.aheadMs : 0, 1);
    const seen = `${fresh} windows in ${FAULT_MS} ms, the longest ${(longestMs / DURATION_MS).toFixed(2)}`;
    recordMeasurement(
      'P1',
      `clock ${name}`,
      `windows of ${DURATION_MS} ms`,
      `${seen}; ahead by ${offset} ms`,
    );
    await waitUntil(`level again after ${name}`, async () => Math.abs(await offsetMs()) < LEVEL_MS);
    await watch(DURATION_MS / 2, `after ${name}`);
  }
  await traffic.stop();
  const { maxExcess, falseDenials, decisions, violations } = ledger.report();
  const tried = `${FAULTS.length} faults of it, ${decisions} decisions`;
  recordMeasurement(
    'P1',
    'clock',
    tried,
    `most beyond a limit: ${maxExcess}, ${windows.reopened} windows again; seed ${seed}`,
  );
  recordMeasurement('P2', 'clock', tried, `${falseDenials} false refusals`);
  recordMeasurement('P3', 'clock', `${traffic.sent} sent`, `${traffic.unanswered} unanswered`);
  expect([traffic.unanswered, traffic.connectionErrors, [...traffic.errors]]).toEqual([0, [], []]);
  expect([falseDenials, violations, windows.reopened]).toEqual([0, [], 0]);
  await expectCleanStop(server);
}, 300_000);
