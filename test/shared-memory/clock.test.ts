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

/** Ticks a clock against a system clock that is `offset(t)` ms away from where it started. */
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
const DAY_MS = 24 * HOUR_MS;
/** The last tenth of a second is not run off at the full rate. */
const SETTLING_MS = 6_000;
const LEVEL_MS = 2;

/**
 * @param offset how far the system's clock is from where it started, at each tick
 * @returns the ticks until both show the same, after so many at least; fails where weir's time
 * stands or runs back on the way
 */
function ticksUntilLevel(offset: (tick: number) => number, least: number): number {
  let anchor = START;
  let { wallMs } = START;
  for (let tick = 1; ; tick++) {
    const ms = tick * CLOCK_TICK_MS;
    const system = START.wallMs + ms + offset(tick);
    anchor = nextAnchor(anchor, START.monotonicMs + ms, system);
    const now = wallAt(anchor, START.monotonicMs + ms);
    if (now - wallMs < 0.899 * CLOCK_TICK_MS) throw new Error(`${now - wallMs} ms at ${tick}`);
    wallMs = now;
    if (tick > least && Math.abs(now - system) <= LEVEL_MS) return tick;
    if (tick > (20 * DAY_MS) / CLOCK_TICK_MS) throw new Error('it is never level');
  }
}

describe('the clock', () => {
  test('follows a forward step of the system at the next tick', () => {
    for (const step of [1_000, 3_600_000, 86_400_000]) {
      const seen = runClock(30, (ms) => (ms >= 1_000 ? step : 0));
      for (const { wall, system } of seen) expect(Math.abs(wall - system)).toBeLessThanOrEqual(2);
    }
  });

  test('absorbs a backward step by running slow, at most 10 %, until level', () => {
    const seen = runClock(400, (ms) => (ms >= 1_000 ? -1_000 : 0));
    for (let i = 1; i < seen.length; i++) {
      const moved = seen[i].wall - seen[i - 1].wall;
      expect(moved).toBeGreaterThanOrEqual(0.899 * CLOCK_TICK_MS);
      expect(moved).toBeLessThanOrEqual(CLOCK_TICK_MS + 0.001);
    }
    const last = seen.at(-1)!;
    expect(last.wall - last.system).toBeLessThan(2);
    // 1 s at 10 % takes 9 s to all but the last tenth.
    expect(seen[105].wall - seen[105].system).toBeLessThan(100);
  });

  test('never runs back, and never stands still, whatever the system clock does', () => {
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

  test('goes on from its last run where the system is behind it, and runs slow until level', () => {
    const control = new Control(allocateControl(1, 1));
    const ahead = 50_000;
    const keeper = new ClockPublisher(control, Date.now() + ahead);
    const clock = new Clock(control);
    expect(clock.nowMs() - Date.now()).toBeGreaterThan(ahead - 100);
    keeper.tick();
    const before = keeper.offsetMs();
    expect(before).toBeGreaterThan(ahead - 1_000);
    const until = performance.now() + 200;
    while (performance.now() < until);
    expect(before - keeper.offsetMs()).toBeGreaterThan(15);
    // A last run that is behind the system says nothing.
    expect(new ClockPublisher(control, 1).offsetMs()).toBeLessThan(5);
  });

  test('is level with the system again after steps back: ten times as long later, and some seconds', () => {
    const steps = fc.array(fc.integer({ min: -HOUR_MS, max: HOUR_MS }), {
      minLength: 1,
      maxLength: 4,
    });
    fc.assert(
      fc.property(steps, fc.integer({ min: 0, max: 50 }), (offsets, apart) => {
        // Each offset holds for some ticks, the last one from then on.
        const at = (tick: number) =>
          offsets[Math.min(offsets.length - 1, Math.floor(tick / (apart + 1)))];
        expect(ticksUntilLevel(at, offsets.length * (apart + 1))).toBeLessThanOrEqual(
          (10 * 2 * HOUR_MS + SETTLING_MS) / CLOCK_TICK_MS,
        );
      }),
      { numRuns: 50 },
    );
  });

  test('is level again ten days after a step back of a day', () => {
    const ticks = ticksUntilLevel(() => -DAY_MS, 0);
    expect(ticks).toBeLessThanOrEqual((10 * DAY_MS + SETTLING_MS) / CLOCK_TICK_MS);
    expect(ticks).toBeGreaterThan((9.9 * DAY_MS) / CLOCK_TICK_MS);
  });

  test('shows the time of the system, from the anchor in the control words', () => {
    const control = new Control(allocateControl(1, 1));
    const keeper = new ClockPublisher(control);
    const clock = new Clock(control);
    for (let i = 0; i < 3; i++) {
      const before = Date.now();
      const now = clock.nowMs();
      expect(now).toBeGreaterThanOrEqual(before - 3);
      expect(now).toBeLessThanOrEqual(Date.now() + 3);
      expect(Number.isInteger(now)).toBe(true);
      keeper.tick();
    }
  });

  test('is never read half from one anchor and half from another, in every order', () => {
    let [monotonicMs, systemMs] = [0, 0];
    const setTo = (times: readonly number[]) => {
      [monotonicMs, systemMs] = times;
    };
    vi.spyOn(performance, 'now').mockImplementation(() => monotonicMs);
    vi.spyOn(process, 'hrtime').mockReturnValue([0, 0]);
    vi.spyOn(Date, 'now').mockImplementation(() => systemMs);
    // The system's clock goes ahead, back and ahead again: an anchor each.
    const first = [0, 1_000_000];
    const others = [
      [100, 2_000_000],
      [200, 1_500_000],
      [300, 7_000_000],
    ];
    const keep = (control: Control, published: () => void) => {
      setTo(first);
      const keeper = new ClockPublisher(control);
      published();
      for (const times of others) {
        setTo(times);
        keeper.tick();
        published();
      }
    };
    const readAt = (control: Control) => {
      setTo(first);
      return new Clock(control).wallMs(1_000);
    };

    const buffer = allocateControl(1, 1);
    const alone = new Control(allocateControl(1, 1));
    const whole: number[] = [];
    keep(alone, () => {
      const times = [monotonicMs, systemMs];
      whole.push(readAt(alone));
      setTo(times);
    });
    expect(new Set(whole).size).toBe(4);

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
          keep(controlOf(world), () => {
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
    expect([...read].sort()).toEqual(whole.toSorted());
    const tried = `${states} states, ${endings} endings`;
    recordMeasurement('P1', 'the clock is set while it is read, every order', tried, '0 broken');
  });
});
