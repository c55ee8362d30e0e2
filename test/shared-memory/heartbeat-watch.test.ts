import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import {
  afterProcessMs,
  computeProcessMs,
  describeSilence,
  HeartbeatWatch,
  type PollInterval,
  PollTimes,
} from '../../src/shared-memory/heartbeat-watch.ts';
import {
  kernelThreadId,
  type ProcessTimes,
  parseStat,
} from '../../src/shared-memory/thread-times.ts';

const POLL_MS = 200;
const THREAD = 11;
const OTHER = 12;

/** What a thread does between two polls. @param state at the second of them */
interface Activity {
  state: string;
  cpuMs: number;
}

const SLEEP: Activity = { state: 'S', cpuMs: 0 };
const loop = (ms = POLL_MS): Activity => ({ state: 'R', cpuMs: ms });
const NO_CPU: Activity = { state: 'R', cpuMs: 0 };

/** A line of procfs, as recorded. */
const statLine = (thread: number, state: string, cpuMs: number) => {
  const ticks = Math.floor(cpuMs / 10);
  return `${thread} (node) ${state} 1 1 1 0 -1 4194368 2 0 0 0 ${ticks} 0 0 0 20 0 11 0 79 117 148`;
};

/** A watcher whose polls are at given times, and threads that do what the test says. */
class World {
  readonly watch = new HeartbeatWatch();
  heartbeats = 1;
  announced = THREAD;
  reads = 0;
  hasProcfs = true;
  readonly #cpuMs = new Map<number, number>();
  #states = new Map<number, string>();
  #nowMs = 0;
  readonly #times = new PollTimes(
    POLL_MS,
    () => this.#nowMs,
    () => {
      this.reads++;
      if (!this.hasProcfs) return new Map();
      const all = [...this.#states].map(([thread, state]) => {
        return [thread, parseStat(statLine(thread, state, this.#cpuMs.get(thread) ?? 0))] as const;
      });
      // The watcher itself runs whenever it reads, and uses little.
      return new Map([...all, [kernelThreadId(), { state: 'R', cpuMs: 0 }]]);
    },
  );

  poll(thread: Activity, other: Activity = SLEEP, ms = POLL_MS): number {
    this.#nowMs += ms;
    for (const [id, { state, cpuMs }] of [[THREAD, thread] as const, [OTHER, other] as const]) {
      this.#cpuMs.set(id, (this.#cpuMs.get(id) ?? 0) + cpuMs);
      this.#states.set(id, state);
    }
    this.#times.poll();
    this.watch.observe(this.#times, this.heartbeats, this.announced);
    return this.watch.missedMs;
  }

  /** The last heartbeat is seen; the next two polls find none, and the second reads procfs. */
  beginSilence(thread: Activity = SLEEP): this {
    for (let i = 0; i < 3; i++) this.poll(thread);
    return this;
  }
}

const fromIdle = () => new World().beginSilence();
/** What shared memory may have as the id of the thread. */
const anyId = fc.oneof(
  fc.constantFrom(THREAD, OTHER, kernelThreadId(), 0, -1),
  fc.integer({ min: -(2 ** 31), max: 2 ** 31 - 1 }),
);
const anyMs = fc.integer({ min: 1, max: 5_000 });
const anyState = fc.constantFrom('R', 'S', 'D', 'T', 't', 'Z', 'X', 'I', '?');
const anyActivity: fc.Arbitrary<Activity> = fc.record({
  state: anyState,
  cpuMs: fc.integer({ min: 0, max: 20 }).map((ticks) => ticks * 10),
});

describe('a heartbeat is missed', () => {
  test('only in the CPU time of a thread that is runnable at each poll, however long that takes', () => {
    const step = fc.record({
      cpuMs: fc.constantFrom(0, 0, 0, 10, 20, 200),
      other: anyActivity,
      ms: anyMs,
    });
    fc.assert(
      fc.property(fc.array(step, { maxLength: 200 }), (steps) => {
        const world = new World().beginSilence(NO_CPU);
        let usedMs = 0;
        for (const { cpuMs, other, ms } of steps) {
          usedMs += cpuMs;
          expect(world.poll({ state: 'R', cpuMs }, other, ms)).toBe(usedMs);
        }
      }),
    );
  });

  test('in the time that a thread is asleep, in polls that are on time while no thread lacks a CPU', () => {
    const step = fc.constantFrom('counts', 'is late', 'starves another thread', 'is half starved');
    fc.assert(
      fc.property(fc.array(step), fc.constantFrom('S', 'D', 'Z', 'I'), (steps, state) => {
        const world = fromIdle();
        const asleep = { state, cpuMs: 0 };
        let missedMs = 0;
        for (const kind of steps) {
          if (kind === 'counts') missedMs += POLL_MS;
          if (kind === 'is half starved') missedMs += POLL_MS / 2;
          const other = { 'starves another thread': NO_CPU, 'is half starved': loop(100) }[
            kind as string
          ];
          const ms = kind === 'is late' ? 2 * POLL_MS : POLL_MS;
          expect(world.poll(asleep, other ?? SLEEP, ms)).toBe(missedMs);
        }
      }),
    );
  });

  test('not by a thread that is stopped, or that was runnable or stopped at the poll before', () => {
    const world = fromIdle();
    expect(world.poll({ state: 'T', cpuMs: 0 })).toBe(0);
    expect(world.poll({ state: 't', cpuMs: 0 })).toBe(0);
    expect(world.poll(SLEEP)).toBe(0);
    expect(world.poll(NO_CPU)).toBe(0);
    expect(world.poll(SLEEP)).toBe(0);
    expect(world.poll(SLEEP)).toBe(POLL_MS);
  });

  test('at most in the time that passes, and in the CPU time, whatever happens', () => {
    const step = fc.record({ thread: anyActivity, other: anyActivity, ms: anyMs });
    fc.assert(
      fc.property(fc.array(step), anyId, (steps, announced) => {
        const world = fromIdle();
        world.announced = announced;
        let [beforeMs, passedMs, usedMs] = [0, 0, 0];
        for (const { thread, other, ms } of steps) {
          passedMs += ms;
          usedMs += Math.max(thread.cpuMs, other.cpuMs);
          const missedMs = world.poll(thread, other, ms);
          expect(missedMs).toBeGreaterThanOrEqual(beforeMs);
          expect(missedMs).toBeLessThanOrEqual(passedMs + usedMs);
          beforeMs = missedMs;
        }
      }),
    );
  });

  test('no longer after a heartbeat', () => {
    const world = fromIdle();
    for (let i = 0; i < 5; i++) world.poll(SLEEP);
    expect(world.watch.missedMs).toBe(5 * POLL_MS);
    world.heartbeats++;
    expect(world.poll(SLEEP)).toBe(0);
    expect(world.watch.silence.silentMs).toBe(0);
    expect([world.poll(SLEEP), world.poll(SLEEP), world.poll(SLEEP)]).toEqual([0, 0, POLL_MS]);
  });
});

describe('a thread that is unresponsive is found', () => {
  const POLLS_MAX = 60;
  const polls = (world: World, thread: Activity, other?: Activity) => {
    for (let n = 1; n <= POLLS_MAX; n++) if (world.poll(thread, other) >= 2_000) return n;
    return undefined;
  };

  test.each([
    ['loops', loop(), 10],
    ['loops with half of a CPU', loop(POLL_MS / 2), 20],
    ['sleeps', SLEEP, 10],
    ['waits for the disk', { state: 'D', cpuMs: 0 }, 10],
    ['sleeps and uses some CPU', { state: 'S', cpuMs: 10 }, 10],
  ])('if it %s', (_name, activity, count) => {
    expect(polls(fromIdle(), activity)).toBeLessThanOrEqual(count + 1);
    expect(polls(fromIdle(), activity, loop())).toBeLessThanOrEqual(count + 1);
  });

  test('whatever id is in shared memory', () => {
    const hang = fc.constantFrom(loop(), SLEEP);
    fc.assert(
      fc.property(anyId, hang, hang, (id, activity, other) => {
        const world = fromIdle();
        world.announced = id;
        expect(polls(world, activity, other)).toBeLessThanOrEqual(11);
      }),
    );
  });

  test('without procfs, by the number of polls', () => {
    const world = new World();
    world.hasProcfs = false;
    world.beginSilence();
    // Late polls count too: there is no other sign of the thread.
    for (let n = 2; n <= 10; n++) expect(world.poll(NO_CPU, NO_CPU, 5_000)).toBe(n * POLL_MS);
    expect(describeSilence(world.watch.silence)).toBe('no heartbeat for 45400 ms');
  });
});

describe('the time in which a process could run', () => {
  const times = (...threads: [id: number, state: string, cpuMs: number][]) =>
    new Map(threads.map(([id, state, cpuMs]) => [id, { state, cpuMs }]));
  const before = times([1, 'R', 500], [2, 'R', 500], [3, 'S', 500]);
  const ms = (after: ProcessTimes, fields: Partial<PollInterval> = {}) =>
    computeProcessMs({ ms: 210, pollMs: 200, before, after, watcher: 1, ...fields });

  test('is the CPU time of the runnable thread that used least, without the watcher', () => {
    expect(ms(times([1, 'R', 500], [2, 'S', 500], [3, 'S', 500]))).toBe(210);
    expect(ms(times([1, 'R', 500], [2, 'R', 570], [3, 'R', 540]))).toBe(40);
    expect(ms(times([1, 'R', 500], [2, 'R', 500], [3, 'R', 700]))).toBe(0);
    // A thread that began since then, and one whose id belonged to another thread.
    expect(ms(times([4, 'R', 10]))).toBe(10);
    expect(ms(times([2, 'R', 30]))).toBe(0);
  });

  test('is nothing in a late poll and in the first one, and all of it without procfs', () => {
    expect(ms(before, { ms: 400 })).toBe(0);
    expect(ms(before, { before: undefined })).toBe(0);
    expect(ms(new Map(), { ms: 5_000 })).toBe(200);
  });

  test('ends a wait, unless the wait is ended before', async () => {
    const ended: string[] = [];
    const stopWaiting = afterProcessMs(20, 10, () => ended.push('the first'));
    stopWaiting();
    await new Promise<void>((resolve) => {
      afterProcessMs(20, 10, () => {
        ended.push('the second');
        resolve();
      });
    });
    expect(ended).toEqual(['the second']);
  });
});

test('procfs is read only at polls at which a heartbeat is overdue', () => {
  const world = new World();
  for (let i = 0; i < 50; i++) {
    // Every second poll comes before the heartbeat.
    world.heartbeats += i % 2;
    world.poll(SLEEP);
  }
  expect(world.reads).toBe(0);
  world.beginSilence();
  expect(world.reads).toBeGreaterThan(0);
});

test('the message says how long there was no heartbeat, and how the thread spent the time', () => {
  const world = fromIdle();
  for (let i = 0; i < 4; i++) world.poll(loop());
  for (let i = 0; i < 3; i++) world.poll(NO_CPU);
  world.poll(SLEEP);
  world.poll(loop(50));
  expect(describeSilence(world.watch.silence)).toBe(
    'no heartbeat for 2200 ms, in which it used 850 ms of CPU time, was runnable without a CPU for' +
      ' 750 ms and asleep for 200 ms; its state is R',
  );
});
