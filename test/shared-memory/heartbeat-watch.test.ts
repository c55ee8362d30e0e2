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
  parseTimes,
} from '../../src/shared-memory/thread-times.ts';

const POLL_MS = 200;
/** What a poll counts at least for a thread that is asleep, or of which nothing is known. */
const SLEEP_MIN_MS = 4;
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
  isReadable = true;
  readonly #cpuMs = new Map<number, number>();
  #states = new Map<number, string>();
  #nowMs = 0;
  readonly #times = new PollTimes(
    POLL_MS,
    () => this.#nowMs,
    () => {
      this.reads++;
      if (!this.isReadable) return undefined;
      if (!this.hasProcfs) return new Map();
      const all = [...this.#states].map(([thread, state]) => {
        return [thread, parseTimes(statLine(thread, state, this.#cpuMs.get(thread) ?? 0))] as const;
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
const anyMs = fc.integer({ min: SLEEP_MIN_MS, max: 5_000 });
const anyState = fc.constantFrom('R', 'S', 'D', 'T', 't', 'Z', 'X', 'I', '?');
const anyActivity: fc.Arbitrary<Activity> = fc.record({
  state: anyState,
  cpuMs: fc.integer({ min: 0, max: 20 }).map((ticks) => ticks * 10),
});

describe('a heartbeat is missed', () => {
  test('only in the CPU time of a thread that is runnable at each poll, however long that takes', () => {
    const step = fc.record({
      // The clock of CPU times may jump, as when a virtual machine continues elsewhere.
      cpuMs: fc.constantFrom(0, 0, 0, 10, 20, 200, 1_000_000),
      other: anyActivity,
      ms: anyMs,
    });
    fc.assert(
      fc.property(fc.array(step, { maxLength: 200 }), (steps) => {
        const world = new World().beginSilence(NO_CPU);
        let usedMs = 0;
        for (const { cpuMs, other, ms } of steps) {
          usedMs += Math.min(cpuMs, ms, 2 * POLL_MS);
          expect(world.poll({ state: 'R', cpuMs }, other, ms)).toBe(usedMs);
        }
      }),
    );
  });

  test('in the time that a thread is asleep, and if a poll is late or threads lack a CPU, in a fiftieth', () => {
    /** The other thread, the time between the polls, and what counts. */
    const STEPS: Record<string, [Activity, number, number]> = {
      counts: [SLEEP, POLL_MS, POLL_MS],
      'is late': [SLEEP, 2 * POLL_MS, SLEEP_MIN_MS],
      'is very late': [SLEEP, 3_600_000, SLEEP_MIN_MS],
      'starves another thread': [NO_CPU, POLL_MS, SLEEP_MIN_MS],
      'is half starved': [loop(100), POLL_MS, 100],
    };
    const step = fc.constantFrom(...Object.keys(STEPS));
    fc.assert(
      fc.property(fc.array(step), fc.constantFrom('S', 'D', 'Z', 'I'), (steps, state) => {
        const world = fromIdle();
        const asleep = { state, cpuMs: 0 };
        let missedMs = SLEEP_MIN_MS;
        let otherState = 'S';
        for (const kind of steps) {
          const [other, ms, counted] = STEPS[kind];
          // The other thread lacks a CPU only if it was runnable at the poll before, too.
          const isNew = other.state === 'R' && otherState !== 'R';
          missedMs += isNew ? POLL_MS : counted;
          otherState = other.state;
          expect(world.poll(asleep, other, ms)).toBe(missedMs);
        }
      }),
    );
  });

  test('not by a thread that is stopped, or that was runnable or stopped at the poll before', () => {
    const world = fromIdle();
    const missedMs = world.watch.missedMs;
    expect(world.poll({ state: 'T', cpuMs: 0 })).toBe(missedMs);
    expect(world.poll({ state: 't', cpuMs: 0 })).toBe(missedMs);
    expect(world.poll(SLEEP)).toBe(missedMs);
    expect(world.poll(NO_CPU)).toBe(missedMs);
    expect(world.poll(SLEEP)).toBe(missedMs);
    expect(world.poll(SLEEP)).toBe(missedMs + POLL_MS);
  });

  test('in a fiftieth of each interval while procfs cannot be read', () => {
    const world = fromIdle();
    world.poll(NO_CPU);
    const missedMs = world.watch.missedMs;
    world.isReadable = false;
    for (let n = 1; n <= 100; n++) {
      expect(world.poll(NO_CPU, NO_CPU, 5_000)).toBe(missedMs + n * SLEEP_MIN_MS);
    }
    world.isReadable = true;
    for (let n = 0; n < 10; n++) {
      expect(world.poll(NO_CPU)).toBe(missedMs + 100 * SLEEP_MIN_MS);
    }
  });

  test('at most in the time that passes, and in the CPU time, whatever happens', () => {
    const step = fc.record({ thread: anyActivity, other: anyActivity, ms: anyMs });
    fc.assert(
      fc.property(fc.array(step), anyId, (steps, announced) => {
        const world = fromIdle();
        world.announced = announced;
        // The poll that found the silence counts already.
        let beforeMs = world.watch.missedMs;
        let [passedMs, usedMs] = [beforeMs, 0];
        for (const { thread, other, ms } of steps) {
          passedMs += ms;
          usedMs += Math.max(thread.cpuMs, other.cpuMs);
          const missedMs = world.poll(thread, other, ms);
          expect(missedMs).toBeGreaterThanOrEqual(beforeMs);
          expect(missedMs).toBeLessThanOrEqual(passedMs + usedMs);
          beforeMs = missedMs;
        }
      }),
      { examples: [[[{ thread: SLEEP, other: NO_CPU, ms: SLEEP_MIN_MS }], THREAD]] },
    );
  });

  test('no longer after a heartbeat', () => {
    const world = fromIdle();
    for (let i = 0; i < 5; i++) world.poll(SLEEP);
    expect(world.watch.missedMs).toBe(5 * POLL_MS + SLEEP_MIN_MS);
    world.heartbeats++;
    expect(world.poll(SLEEP)).toBe(0);
    expect(world.watch.silence.silentMs).toBe(0);
    const missedMs = [world.poll(SLEEP), world.poll(SLEEP), world.poll(SLEEP)];
    expect(missedMs).toEqual([0, SLEEP_MIN_MS, POLL_MS + SLEEP_MIN_MS]);
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

  test('if it sleeps while other threads are runnable by chance', () => {
    const world = fromIdle();
    // Each of them is runnable at every second poll.
    let n = 0;
    while (world.poll(SLEEP, n % 2 === 0 ? NO_CPU : SLEEP) < 2_000) n++;
    expect(n).toBeLessThanOrEqual(10);
  });

  test('within 500 polls if it sleeps, whatever other threads do and however late the polls are', () => {
    const step = fc.record({ other: anyActivity, ms: anyMs, isReadable: fc.boolean() });
    fc.assert(
      fc.property(fc.array(step, { minLength: 1, maxLength: 20 }), (steps) => {
        const world = fromIdle();
        for (let n = 0; n < 500; n++) {
          const { other, ms, isReadable } = steps[n % steps.length];
          world.isReadable = isReadable;
          world.poll(SLEEP, other, ms);
        }
        expect(world.watch.missedMs).toBeGreaterThanOrEqual(2_000);
      }),
    );
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
    expect(describeSilence(world.watch.silence)).toBe(
      'no heartbeat for 45400 ms; 2000 ms of it count',
    );
  });
});

describe('the time in which a process could run', () => {
  const times = (...threads: [id: number, state: string, cpuMs: number][]) =>
    new Map(threads.map(([id, state, cpuMs]) => [id, { state, cpuMs }]));
  const before = times([1, 'R', 500], [2, 'R', 500], [3, 'S', 500]);
  const ms = (after: ProcessTimes, fields: Partial<PollInterval> = {}) =>
    computeProcessMs({ ms: 210, pollMs: 200, before, after, watcher: 1, ...fields });

  test('is the CPU time of the thread that is runnable at both polls and used least', () => {
    expect(ms(times([1, 'R', 500], [2, 'S', 500], [3, 'S', 500]))).toBe(210);
    expect(ms(times([1, 'R', 500], [2, 'R', 570], [3, 'S', 500]))).toBe(70);
    // One that was asleep before, one that began since then, and one whose id another one had.
    expect(ms(times([1, 'R', 500], [2, 'R', 570], [3, 'R', 500]))).toBe(70);
    expect(ms(times([4, 'R', 0]))).toBe(210);
    expect(ms(times([2, 'R', 30]))).toBe(4);
  });

  test('is a fiftieth where it is unknown, and all of it without procfs', () => {
    expect(ms(times([1, 'R', 500], [2, 'R', 500]))).toBe(4);
    expect(ms(before, { ms: 400 })).toBe(4);
    expect(ms(before, { before: undefined })).toBe(4);
    expect(ms(before, { after: undefined, ms: 5_000 })).toBe(4);
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
      ' 750 ms and asleep for 200 ms; 854 ms of it count; its state is R',
  );
  // The first two polls are not read. Stopped, it uses nothing and is neither runnable nor asleep.
  world.poll({ state: 'T', cpuMs: 0 }, SLEEP, 5_000);
  expect(world.watch.silence).toEqual({
    silentMs: 7_200,
    countedMs: 854,
    threadState: 'T',
    cpuMs: 850,
    runnableMs: 750,
    asleepMs: 200,
  });
});
