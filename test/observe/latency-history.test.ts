import { describe, expect, test } from 'vitest';
import { LATENCY_HISTORY_MS } from '../../src/core/constants.ts';
import { LatencyHistory } from '../../src/observe/latency-history.ts';
import { LATENCY_BOUNDS_US } from '../../src/shared-memory/stats.ts';

const BUCKETS = LATENCY_BOUNDS_US.length + 1;
const HOUR_S = LATENCY_HISTORY_MS / 1_000;

/** Two threads and a clock. */
function setUp() {
  const threads = [0, 1].map(() => ({ latencyCounts: new Float64Array(BUCKETS) }));
  const clock = { ms: 5_000 };
  const history = new LatencyHistory(threads, () => clock.ms);
  /** @param requests of each second, all in one bucket of both threads in turn */
  const run = (seconds: number, requests: number, bucket = 0) => {
    for (let i = 0; i < seconds; i++) {
      threads[i % 2].latencyCounts[bucket] += requests;
      clock.ms += 1_000;
      history.tick();
    }
  };
  const spans = () => {
    return history.spans().map(({ spanMs, coveredMs, counts }) => {
      return [spanMs / 1_000, coveredMs / 1_000, ...counts.slice(0, 2)];
    });
  };
  return { clock, history, threads, run, spans };
}

describe('the latency of the last time', () => {
  test('covers each span exactly, also while no dashboard is open', () => {
    const { run, spans } = setUp();
    run(HOUR_S, 1);
    run(100, 7, 1);
    expect(spans()).toEqual([
      [10, 10, 0, 70],
      [60, 60, 0, 420],
      [300, 300, 200, 700],
      [HOUR_S, HOUR_S, HOUR_S - 100, 700],
    ]);
  });

  test('says how much of a span is covered after a start', () => {
    const { run, spans } = setUp();
    expect(spans().map(([, coveredS]) => coveredS)).toEqual([0, 0, 0, 0]);
    run(40, 2);
    expect(spans()).toEqual([
      [10, 10, 20, 0],
      [60, 40, 80, 0],
      [300, 40, 80, 0],
      [HOUR_S, 40, 80, 0],
    ]);
  });

  test('includes what was counted since the last reading', () => {
    const { clock, history, threads, run } = setUp();
    run(20, 1);
    clock.ms += 500;
    threads[0].latencyCounts[0] += 5;
    expect(history.spans()[0].counts[0]).toBe(10 + 5);
    expect(history.between(clock.ms - 500, clock.ms + 1)?.[0]).toBe(5);
  });

  test('begins earlier if the main thread was late, and never later', () => {
    const { clock, history, run } = setUp();
    run(20, 1);
    clock.ms += 7_500;
    history.tick();
    run(1, 1);
    // 10 s ago there is a reading at 9.5 s; the one before it is taken.
    const [{ counts }] = history.spans();
    expect(counts[0]).toBe(3);
  });

  test('is exact beyond 2^32 requests', () => {
    const { run, spans } = setUp();
    run(5, 2 ** 30);
    run(10, 3);
    expect(spans()[0]).toEqual([10, 10, 30, 0]);
  });
});

describe('the latency between two times', () => {
  test('adds up to all of it, and does not exist before the start', () => {
    const { clock, history, run } = setUp();
    run(150, 1);
    const startMs = 5_000;
    expect(history.between(startMs - 60_000, startMs)).toBeUndefined();
    const minutes = [0, 60_000, 120_000].map((ms) => {
      return history.between(startMs + ms, startMs + ms + 60_000)?.[0];
    });
    expect(minutes).toEqual([60, 60, 30]);
    expect(history.between(clock.ms, clock.ms + 60_000)).toBeUndefined();
  });
});
