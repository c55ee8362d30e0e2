/**
 * Runs the real code of a few threads in every order that there is, on a model of shared memory.
 *
 * `Atomics` is replaced for the time, and the memory that the code is given is the model's; each
 * access to it, plain ones too, is a step. A thread is moved by one step by running its code anew
 * from the start: accesses made before give what they gave then, one more is made, and the next one
 * stops it. What a thread keeps to itself follows from what it has read, so two states with the
 * same memory and the same readings are the same, and each is gone on from once.
 *
 * A wait has no timeout here: a thread that nobody wakes stays where it is.
 */

type Values = Record<number, number>;

/** What is in the memory: words, doubles, the messages that were sent, and a list of events. */
interface Memory {
  words: Values;
  doubles: Values;
  /** The words of another buffer. */
  lane: Values;
  messages: number;
  events: string[];
}

interface Thread {
  readings: unknown[];
  state: 'runs' | 'waits' | 'receives' | 'ended' | 'dead';
  /** The buffer and the word. */
  waitsAt: string;
}

interface State {
  memory: Memory;
  threads: Thread[];
}

/** What the code of a thread may use. Events are visible in the end, in their order. */
export interface World {
  words: Int32Array;
  doubles: Float64Array;
  lane: Int32Array;
  event(what: string): void;
  send(): void;
  /** Waits for a message. */
  receive(): void;
}

export interface Scenario {
  /** The threads of the start, by the code they run. */
  threads: ((world: World) => void)[];
  /** Which of them may die, at any step, to be followed by another run of the same code. */
  mortal?: number;
}

export interface Ending {
  events: string[];
  words: Values;
  /** Threads that wait and will never be woken. */
  stuck: number[];
  deaths: number;
}

export interface Explored {
  states: number;
  endings: Ending[];
}

const STOPPED = Symbol('stopped');

/** Runs every schedule. @returns every ending, once */
export function explore({ threads, mortal }: Scenario): Explored {
  const fresh = (): Thread => ({ readings: [], state: 'runs', waitsAt: '' });
  const first: State = {
    memory: { words: {}, doubles: {}, lane: {}, messages: 0, events: [] },
    threads: threads.map(fresh),
  };
  const seen = new Set<string>();
  const endings = new Map<string, Ending>();
  const left: State[] = [first];
  while (left.length > 0) {
    const state = left.pop()!;
    const key = JSON.stringify(state);
    if (seen.has(key)) continue;
    seen.add(key);
    const able = [...state.threads.keys()].filter((i) => state.threads[i].state === 'runs');
    for (const i of able) {
      const next = structuredClone(state);
      step(next, i, threads[i]);
      left.push(next);
    }
    const victim = mortal === undefined ? undefined : state.threads[mortal];
    const deaths = state.memory.events.filter((event) => event === 'death').length;
    if (mortal !== undefined && deaths === 0 && victim !== undefined && isAlive(victim)) {
      const next = structuredClone(state);
      next.memory.events.push('death');
      next.threads[mortal] = fresh();
      left.push(next);
    }
    if (able.length > 0) continue;
    const { words, events } = state.memory;
    const stuck = [...state.threads.keys()].filter((i) => state.threads[i].state !== 'ended');
    endings.set(key, { events, words, stuck, deaths });
  }
  return { states: seen.size, endings: [...endings.values()] };
}

function isAlive({ state }: Thread): boolean {
  return state === 'runs' || state === 'waits' || state === 'receives';
}

/** Moves one thread by one access. */
function step(state: State, index: number, code: (world: World) => void): void {
  const { memory, threads } = state;
  const thread = threads[index];
  let at = 0;
  let moved = false;
  /** One access: given again where it was made before, made, or not made yet. */
  const access = <T>(make: () => T): T => {
    if (at < thread.readings.length) return thread.readings[at++] as T;
    if (moved) throw STOPPED;
    moved = true;
    const reading = make();
    thread.readings.push(reading ?? null);
    at++;
    return reading;
  };
  const waitFor = (what: 'waits' | 'receives', waitsAt = ''): never => {
    thread.state = what;
    thread.waitsAt = waitsAt;
    throw STOPPED;
  };
  const wake = (which: (other: Thread) => boolean) => {
    for (const other of threads.filter(which)) {
      other.state = 'runs';
      other.readings.push('ok');
    }
  };
  const views = new Map<unknown, 'words' | 'doubles' | 'lane'>();
  const view = (name: 'words' | 'doubles' | 'lane') => {
    const values = memory[name];
    const proxy = new Proxy(values, {
      get: (_, key) => access(() => values[Number(key)] ?? 0),
      set: (_, key, value) => {
        access(() => {
          values[Number(key)] = value;
        });
        return true;
      },
    });
    views.set(proxy, name);
    return proxy;
  };
  const change = (of: unknown, at: number, to: (was: number) => number) =>
    access(() => {
      const values = memory[views.get(of)!];
      const was = values[at] ?? 0;
      values[at] = to(was) | 0;
      return was;
    });
  const real = globalThis.Atomics;
  const model = {
    load: (of: unknown, at: number) => change(of, at, (was) => was),
    store: (of: unknown, at: number, value: number) => change(of, at, () => value),
    add: (of: unknown, at: number, value: number) => change(of, at, (was) => was + value),
    exchange: (of: unknown, at: number, value: number) => change(of, at, () => value),
    compareExchange: (of: unknown, at: number, expected: number, value: number) =>
      change(of, at, (was) => (was === expected ? value : was)),
    wait: (of: unknown, at: number, value: number) =>
      access(() => {
        const name = views.get(of)!;
        return (memory[name][at] ?? 0) === value ? waitFor('waits', `${name} ${at}`) : 'not-equal';
      }),
    notify: (of: unknown, at: number) =>
      access(() => {
        const place = `${views.get(of)} ${at}`;
        wake((other) => other.state === 'waits' && other.waitsAt === place);
      }),
  };
  const world: World = {
    words: view('words') as unknown as Int32Array,
    doubles: view('doubles') as unknown as Float64Array,
    lane: view('lane') as unknown as Int32Array,
    event: (what) => access(() => void memory.events.push(what)),
    send: () =>
      access(() => {
        if (threads.some((other) => other.state === 'receives')) {
          wake((other) => other.state === 'receives');
        } else memory.messages++;
      }),
    receive: () =>
      access(() => {
        if (memory.messages === 0) waitFor('receives');
        memory.messages--;
      }),
  };
  globalThis.Atomics = model as unknown as Atomics;
  try {
    code(world);
    thread.state = 'ended';
  } catch (thrown) {
    if (thrown !== STOPPED) throw thrown;
  } finally {
    globalThis.Atomics = real;
  }
}
