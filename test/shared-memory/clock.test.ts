import fc from 'fast-check';
import { afterEach, describe, expect, test, vi } from 'vitest';
import { CLOCK_TICK_MS } from '../../src/core/constants.ts';
import {
  type Anchor,
  Clock,
  ClockPublisher,
  nextAnchor,
  wallAt,
} from '../../src/shared-memory/clock.ts';
import { allocateControl, Control } from '../../src/shared-memory/control.ts';
import { explore, type ThreadContext } from '../model/explorer.ts';
import { recordMeasurement } from '../support/guarantees.ts';

afterEach(() => {
  vi.restoreAllMocks();
});

const START: Anchor = { monotonicMs: 5_000, wallMs: 1_700_000_000_000, rate: 1 };

/** Ticks a clock against a system clock that has jumped by `offset(ms)` ms since the start. */
function runClock(ticks: number, offset: (ms: number) => number) {
  let anchor = START;
  const seen: { ms: number; wall: number; system: number }[] = [];
  for (let i = 1; i <= ticks; i++) {
    const ms = i * CLOCK_TICK_MS;
    const system = START.wallMs + ms + offset(ms);
    anchor = nextAnchor(anchor, START.monotonicMs + ms, system);
    seen.push({ ms, wall: wallAt(anchor, START.monotonicMs + ms), system });
  }
  return seen;
}

const HOUR_MS = 3_600_000;
/** The last 100 ms of a difference are absorbed at a lower rate. */
const SETTLING_MS = 6_000;
const LEVEL_MS = 2;

/**
 * @param offset how far the system clock has jumped since the start, at each tick
 * @param minimum the number of ticks before which the clocks are not compared
 * @returns the ticks until both clocks agree; throws where weir's time stops or runs backwards
 */
function ticksUntilLevel(offset: (tick: number) => number, minimum: number): number {
  let anchor = START;
  let { wallMs } = START;
  for (let tick = 1; ; tick++) {
    const ms = tick * CLOCK_TICK_MS;
    const system = START.wallMs + ms + offset(tick);
    anchor = nextAnchor(anchor, START.monotonicMs + ms, system);
    const now = wallAt(anchor, START.monotonicMs + ms);
    if (now - wallMs < 0.899 * CLOCK_TICK_MS) throw new Error(`${now - wallMs} ms at ${tick}`);
    wallMs = now;
    if (tick > minimum && Math.abs(now - system) <= LEVEL_MS) return tick;
    if (tick > (480 * HOUR_MS) / CLOCK_TICK_MS) throw new Error('the clocks never agree');
  }
}

describe('the clock', () => {
  test('follows a forward step of the system clock at the next tick', () => {
    for (const step of [1_000, 3_600_000, 86_400_000]) {
      const seen = runClock(30, (ms) => (ms >= 1_000 ? step : 0));
      for (const { wall, system } of seen) expect(Math.abs(wall - system)).toBeLessThanOrEqual(2);
    }
  });

  test('never runs backwards and never stops under any steps of the system clock', () => {
    fc.assert(
      fc.property(fc.array(fc.integer({ min: -1e9, max: 1e9 }), { maxLength: 60 }), (steps) => {
        const seen = runClock(steps.length, (ms) => steps[ms / CLOCK_TICK_MS - 1]);
        for (let i = 1; i < seen.length; i++) {
          const moved = seen[i].wall - seen[i - 1].wall;
          expect(moved).toBeGreaterThanOrEqual(0.899 * CLOCK_TICK_MS);
        }
      }),
    );
  });

  test('starts at the time of the last run where the system clock is behind it, and runs slow', () => {
    const control = new Control(allocateControl(1, 1));
    const ahead = 50_000;
    const lastRunMs = Date.now() + ahead;
    const publisher = new ClockPublisher(control, lastRunMs);
    const clock = new Clock(control);
    expect(clock.nowMs()).toBeGreaterThanOrEqual(lastRunMs - 3);
    publisher.tick();
    const before = publisher.offsetMs();
    // Less, if this thread was suspended meanwhile.
    expect(before).toBeGreaterThan(ahead / 2);
    const until = performance.now() + 200;
    while (performance.now() < until);
    expect(before - publisher.offsetMs()).toBeGreaterThan(15);
    // A last run that ended before the system time has no effect.
    expect(new ClockPublisher(control, 1).offsetMs()).toBeLessThan(5);
  });

  test('agrees with the system again after backward steps, in ten times their size plus 6 s', () => {
    const steps = fc.array(fc.integer({ min: -HOUR_MS, max: HOUR_MS }), {
      minLength: 1,
      maxLength: 4,
    });
    fc.assert(
      fc.property(steps, fc.integer({ min: 0, max: 50 }), (offsets, apart) => {
        // Each offset applies for some ticks, and the last one from then on.
        const at = (tick: number) =>
          offsets[Math.min(offsets.length - 1, Math.floor(tick / (apart + 1)))];
        const lastStep = (offsets.length - 1) * (apart + 1);
        expect(ticksUntilLevel(at, offsets.length * (apart + 1)) - lastStep).toBeLessThanOrEqual(
          (10 * 2 * HOUR_MS + SETTLING_MS) / CLOCK_TICK_MS,
        );
      }),
      {
        numRuns: 50,
        examples: [
          [[0, HOUR_MS - 71, -HOUR_MS], 19],
          [[-HOUR_MS], 0],
        ],
      },
    );
  });

  test('shows the system time, from the anchor in the control words', () => {
    const control = new Control(allocateControl(1, 1));
    const publisher = new ClockPublisher(control);
    const clock = new Clock(control);
    for (let i = 0; i < 3; i++) {
      const before = Date.now();
      const now = clock.nowMs();
      expect(now).toBeGreaterThanOrEqual(before - 3);
      expect(now).toBeLessThanOrEqual(Date.now() + 3);
      expect(Number.isInteger(now)).toBe(true);
      publisher.tick();
    }
  });

  test('is never read from a mix of two anchors, in any order of threads', () => {
    let [monotonicMs, systemMs] = [0, 0];
    const setTo = (times: readonly number[]) => {
      [monotonicMs, systemMs] = times;
    };
    vi.spyOn(performance, 'now').mockImplementation(() => monotonicMs);
    vi.spyOn(process, 'hrtime').mockReturnValue([0, 0]);
    vi.spyOn(Date, 'now').mockImplementation(() => systemMs);
    // The system clock jumps forward, back and forward again, and each jump makes an anchor.
    const first = [0, 1_000_000];
    const others = [
      [100, 2_000_000],
      [200, 1_500_000],
      [300, 7_000_000],
    ];
    const publishAll = (control: Control, onPublished: () => void) => {
      setTo(first);
      const publisher = new ClockPublisher(control);
      onPublished();
      for (const times of others) {
        setTo(times);
        publisher.tick();
        onPublished();
      }
    };
    const readAt = (control: Control) => {
      setTo(first);
      return new Clock(control).wallMs(1_000);
    };

    const buffer = allocateControl(1, 1);
    const alone = new Control(allocateControl(1, 1));
    const expected: number[] = [];
    publishAll(alone, () => {
      const times = [monotonicMs, systemMs];
      expected.push(readAt(alone));
      setTo(times);
    });
    expect(new Set(expected).size).toBe(4);

    const controlOf = ({ memories: [{ words, doubles }] }: ThreadContext) => {
      const from = new Control(buffer);
      const anchor = (index: 0 | 1) => {
        const first = from.anchor(index).byteOffset / 8;
        return new Proxy(doubles, {
          get: (_, at) => doubles[first + Number(at)],
          set: (_, at, value) => {
            doubles[first + Number(at)] = value;
            return true;
          },
        });
      };
      return { words, anchor } as unknown as Control;
    };
    const read = new Set<unknown>();
    const threads = [
      {
        run: (world: ThreadContext) => {
          let isBegun = false;
          publishAll(controlOf(world), () => {
            if (!isBegun) world.send();
            isBegun = true;
          });
        },
      },
      {
        run: (world: ThreadContext) => {
          world.receive();
          return readAt(controlOf(world));
        },
      },
    ];
    const { states, endings } = explore(
      { memories: [{ buffer, waits: 'notified' }], threads },
      ({ results }) => read.add(results[1]),
    );
    expect([...read].sort()).toEqual(expected.toSorted());
    const explored = `${states} states, ${endings} endings`;
    recordMeasurement('P1', 'the clock is set while it is read, every order', explored, '0 broken');
  });
});
