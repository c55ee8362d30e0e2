/**
 * Runs the real code of a few threads in every order that there is, on a model of shared memory.
 *
 * `Atomics` is replaced for the time, and the memory that the code is given is seen through the
 * model; each access to it, plain ones too, is a step. A thread is moved by one step by running its
 * code anew from the start: accesses made before give what they gave then, and more are made until
 * the next step. What a thread keeps to itself follows from what it has read, so two states with
 * the same memory and the same readings are the same, and each is gone on from once.
 *
 * An access to a place that no two threads use, or that none writes, changes nothing for others and
 * sees nothing of them: it needs no order of its own, and is made with the step before it. What
 * nobody writes needs no remembering either. Which places those are is found out: begin with what
 * the threads do one after the other; when one is seen to write another place, or a second to use
 * one that is written, everything begins anew. A place is eight bytes. Of a thread that may die
 * each store is a step, for it may be the last one.
 *
 * What it does not try: a processor or a compiler that changes the order of plain accesses, and
 * half of a double, which is written at once by every processor that weir runs on.
 */

export interface Memory {
  /** To attach to: what is read and written through it is no step. */
  buffer: SharedArrayBuffer;
  words: Int32Array;
  doubles: Float64Array;
}

/** What the code of a thread may use. Events are visible in the end, in their order. */
export interface World {
  memories: Memory[];
  /** What happened, or what can be seen in the memory at that moment. */
  event(what: string | ((memories: Memory[]) => string)): void;
  send(channel?: number): void;
  /** Waits for a message. */
  receive(channel?: number): void;
}

type Code = (world: World) => unknown;

export interface Actor {
  /** What it returns is its result. */
  run: Code;
  /** Whether it may stop for ever, at any step. */
  isMortal?: boolean;
  /** Runs when it has done so. */
  successor?: Code;
}

export interface Shared {
  /** As it is in the beginning, and again in the end. */
  buffer: SharedArrayBuffer;
  /**
   * notified: a wait ends when somebody notifies, however long that takes.
   * polled: it ends when the word has changed; to read the same word again and again is one step.
   */
  waits: 'notified' | 'polled';
}

export interface Scenario {
  memories: Shared[];
  actors: Actor[];
  /** How often a thread that could go on may be interrupted by another; as often as you like. */
  preemptions?: number;
}

export interface Ending {
  events: readonly string[];
  /** By thread; undefined where it has not come to its end. */
  results: unknown[];
  /** Threads that wait and will never be woken. */
  stuck: number[];
  deaths: number;
  /** The memory at the end. */
  memories: Memory[];
}

export interface Explored {
  states: number;
  endings: number;
}

/** What a thread has read so far: a leaf of the tree of all that it could have. */
interface History {
  id: number;
  depth: number;
  before: History | undefined;
  reading: unknown;
  children: Map<unknown, History>;
}

interface Thread {
  history: History;
  state: 'runs' | 'waits' | 'polls' | 'receives' | 'ended' | 'dead';
  /** The word in a memory, and what it holds; or the channel. */
  at: number;
  value: number;
  life: number;
  result: unknown;
}

interface State {
  /** What is not as in the beginning, as pairs of words in the order of `places`. */
  words: Int32Array;
  messages: number[];
  events: readonly string[];
  threads: Thread[];
  /** The thread that ran last, and how often one was interrupted. */
  last: number;
  preempted: number;
  before: State | undefined;
  /** What led here from there, for who reads a schedule. */
  by: string;
}

const STOPPED = Symbol('stopped');

/** Places of eight bytes, and words, are numbered over all memories. */
const PLACES = 2 ** 24;
/** What all threads see, in no memory. */
const EVERYWHERE = -1;
const CHANNELS = 2;
const NOBODY = -1;

/**
 * Runs every schedule.
 * @param check sees every ending once; what it throws is said with the schedule that led to it
 */
export function explore(scenario: Scenario, check: (ending: Ending) => void): Explored {
  const places: Places = { written: new Set(), contended: new Set() };
  new Exploration(scenario, places).survey();
  for (;;) {
    const exploration = new Exploration(scenario, places);
    const explored = exploration.run(check);
    if (!exploration.hasFound) return explored;
  }
}

/** What is known of all places, from one exploration to the next. */
interface Places {
  written: Set<number>;
  /** Used by more than one thread, and written. */
  contended: Set<number>;
}

class Exploration {
  /** Whether more is known of places than in the beginning. */
  hasFound = false;
  readonly #actors: readonly Actor[];
  readonly #preemptions: number;
  readonly #waits: Shared['waits'][];
  /** The memories themselves: of the state that is gone on from. */
  readonly #memories: Memory[];
  readonly #first: Int32Array[];
  /** Those that are written, in the order in which states have them. */
  readonly #places: number[];
  /** Who uses a place, and who writes it, in bits. */
  readonly #users = new Map<number, { all: number; writers: number }>();
  readonly #known: Places;
  readonly #roots = new Map<number, History>();
  #histories = 0;

  constructor({ memories, actors, preemptions }: Scenario, known: Places) {
    this.#actors = actors;
    this.#preemptions = preemptions ?? Number.POSITIVE_INFINITY;
    this.#waits = memories.map(({ waits }) => waits);
    this.#memories = memories.map(({ buffer }) => {
      return { buffer, words: new Int32Array(buffer), doubles: new Float64Array(buffer) };
    });
    this.#first = this.#memories.map(({ words }) => words.slice());
    this.#known = known;
    this.#places = [...known.written];
  }

  /** Runs the threads one after the other, in a few orders. */
  survey(): void {
    const lives = this.#actors.flatMap(({ successor }, index) => {
      return successor === undefined
        ? [{ index, life: 0 }]
        : [0, 1].map((life) => ({ index, life }));
    });
    for (let from = 0; from < lives.length; from++) {
      let state = this.#begin();
      for (const { index, life } of [...lives.slice(from), ...lives.slice(0, from)]) {
        const threads = [...state.threads];
        threads[index] = this.#newThread(index, life);
        state = this.#step({ ...state, threads }, index, 0, true);
      }
    }
    this.#leave();
  }

  /** Ends early when more is found out about places. */
  run(check: (ending: Ending) => void): Explored {
    /** By state: how few interruptions led to it. */
    const seen = new Map<string, number>();
    let endings = 0;
    const left = [this.#begin()];
    while (left.length > 0) {
      if (this.hasFound) break;
      const state = left.pop()!;
      const key = this.#keyOf(state);
      if ((seen.get(key) ?? Number.POSITIVE_INFINITY) <= state.preempted) continue;
      const isNew = !seen.has(key);
      seen.set(key, state.preempted);
      this.#restore(state);
      const able = state.threads.map((thread) => this.#isAble(thread));
      const goesOn = able[state.last] === true;
      for (const index of able.keys()) {
        if (!able[index]) continue;
        const preempted = state.preempted + Number(goesOn && index !== state.last);
        if (preempted > this.#preemptions || this.hasFound) continue;
        left.push(this.#step(state, index, preempted));
      }
      left.push(...this.#deaths(state));
      if (able.includes(true) || !isNew) continue;
      endings++;
      this.#restore(state);
      this.#judge(state, check);
    }
    this.#leave();
    return { states: seen.size, endings };
  }

  #begin(): State {
    return {
      words: new Int32Array(0),
      messages: Array.from({ length: CHANNELS }, () => 0),
      events: [],
      threads: this.#actors.map((_, index) => this.#newThread(index, 0)),
      last: NOBODY,
      preempted: 0,
      before: undefined,
      by: '',
    };
  }

  #leave(): void {
    for (const [i, { words }] of this.#memories.entries()) words.set(this.#first[i]);
  }

  #judge(state: State, check: (ending: Ending) => void): void {
    const { threads, events } = state;
    const isStuck = ({ state }: Thread) => state !== 'ended' && state !== 'dead';
    try {
      check({
        events,
        results: threads.map(({ result }) => result),
        stuck: [...threads.keys()].filter((index) => isStuck(threads[index])),
        deaths: threads.filter(({ life, state }) => life > 0 || state === 'dead').length,
        memories: this.#memories,
      });
    } catch (error) {
      if (error instanceof Error) error.message += `\n\nin the schedule ${scheduleOf(state)}`;
      throw error;
    }
  }

  #newThread(index: number, life: number): Thread {
    const of = index * 2 + life;
    const history = this.#roots.get(of) ?? this.#newHistory(undefined, undefined);
    this.#roots.set(of, history);
    return { history, state: 'runs', at: 0, value: 0, life, result: undefined };
  }

  #newHistory(before: History | undefined, reading: unknown): History {
    const depth = before === undefined ? 0 : before.depth + 1;
    return { id: this.#histories++, depth, before, reading, children: new Map() };
  }

  #goOn(thread: Thread, reading: unknown): void {
    const { history } = thread;
    const next = history.children.get(reading) ?? this.#newHistory(history, reading);
    history.children.set(reading, next);
    thread.history = next;
  }

  #keyOf({ words, messages, events, threads, last }: State): string {
    let key = this.#preemptions === Number.POSITIVE_INFINITY ? '' : `${last}`;
    for (let i = 0; i < words.length; i += 2) {
      const place = this.#places[i / 2];
      const first = this.#first[Math.floor(place / PLACES)];
      const at = (place % PLACES) * 2;
      if (words[i] === first[at] && words[i + 1] === first[at + 1]) continue;
      key += ` ${i}:${words[i]}:${words[i + 1]}`;
    }
    for (const { state, life, history } of threads) key += `|${state}${life}:${history.id}`;
    return `${key}|${messages.join()}|${events.join()}`;
  }

  #restore({ words }: State): void {
    for (const [i, place] of this.#places.entries()) {
      const memory = Math.floor(place / PLACES);
      const at = (place % PLACES) * 2;
      const from = i * 2 < words.length ? words : this.#first[memory];
      const of = from === words ? i * 2 : at;
      this.#memories[memory].words[at] = from[of];
      this.#memories[memory].words[at + 1] = from[of + 1];
    }
  }

  #captured(): Int32Array {
    const words = new Int32Array(this.#places.length * 2);
    for (const [i, place] of this.#places.entries()) {
      const from = this.#memories[Math.floor(place / PLACES)].words;
      const at = (place % PLACES) * 2;
      words[i * 2] = from[at];
      words[i * 2 + 1] = from[at + 1];
    }
    return words;
  }

  /** Whether a thread has a step to make, in the state that is in the memories. */
  #isAble({ state, at, value }: Thread): boolean {
    if (state !== 'polls') return state === 'runs';
    return this.#memories[Math.floor(at / PLACES)].words[at % PLACES] !== value;
  }

  #deaths(state: State): State[] {
    return state.threads.flatMap((thread, index) => {
      const { isMortal, successor } = this.#actors[index];
      if (isMortal !== true || thread.life > 0) return [];
      if (thread.state === 'ended' || thread.state === 'dead') return [];
      const threads = [...state.threads];
      threads[index] =
        successor === undefined ? { ...thread, state: 'dead' } : this.#newThread(index, 1);
      const last = state.last === index ? NOBODY : state.last;
      return [{ ...state, threads, last, before: state, by: `death of ${index}` }];
    });
  }

  /** Notes who is at a place, and whether it is one where the order matters. */
  #note(place: number, thread: number, writes: boolean): void {
    const users = this.#users.get(place) ?? { all: 0, writers: 0 };
    this.#users.set(place, users);
    users.all |= 1 << thread;
    if (writes) users.writers |= 1 << thread;
    const isAlone = (users.all & (users.all - 1)) === 0;
    if (isAlone || users.writers === 0 || this.#known.contended.has(place)) return;
    this.#known.contended.add(place);
    this.hasFound = true;
  }

  /** Moves one thread by one step, or to where it waits or ends. */
  #step(from: State, index: number, preempted: number, toItsEnd = false): State {
    this.#restore(from);
    const threads = from.threads.map((thread) => ({ ...thread }));
    const messages = [...from.messages];
    let { events } = from;
    const thread = threads[index];
    if (thread.state === 'polls') {
      thread.state = 'runs';
      this.#goOn(thread, 'timed-out');
    }
    const { run, successor, isMortal } = this.#actors[index];
    const storesCount = isMortal === true && thread.life === 0;
    const made = readingsOf(thread.history);
    // Where no other may run before it waits or ends, it makes all its steps at once.
    const isOver = ({ state }: Thread) => state === 'ended' || state === 'dead';
    const isAlone = threads.every((other) => other === thread || isOver(other));
    const isLast = (preempted === this.#preemptions || isAlone) && !storesCount;
    const runsOn = toItsEnd || isLast;
    let at = 0;
    let moved = false;
    let stopped = false;
    /** The word that was read last, where nothing was done since, and what it was. */
    let lastRead = EVERYWHERE;
    let lastValue = 0;
    const stop = (): never => {
      stopped = true;
      throw STOPPED;
    };
    /** One access: given again where it was made before, made, or not made yet. */
    const access = <T>(place: number, writes: boolean, make: () => T): T => {
      // On its way out it may pass by a `finally`.
      if (stopped) throw STOPPED;
      lastRead = EVERYWHERE;
      const isConstant = place !== EVERYWHERE && !this.#known.written.has(place);
      if (isConstant && !writes) {
        this.#note(place, index * 2 + thread.life, false);
        return make();
      }
      if (at < made.length) return made[at++] as T;
      if (place !== EVERYWHERE) this.#note(place, index * 2 + thread.life, writes);
      const { contended } = this.#known;
      const isStep = place === EVERYWHERE || contended.has(place) || (writes && storesCount);
      if (isStep && moved && !runsOn) stop();
      moved ||= isStep;
      if (isConstant) {
        this.#known.written.add(place);
        this.#places.push(place);
        this.hasFound = true;
      }
      const reading = make();
      this.#goOn(thread, reading);
      at++;
      return reading;
    };
    const waitFor = (what: 'waits' | 'polls' | 'receives', where: number, value: number): never => {
      thread.state = what;
      thread.at = where;
      thread.value = value;
      return stop();
    };
    const wake = (what: 'waits' | 'receives', where: number): boolean => {
      const woken = threads.filter(({ state, at }) => state === what && at === where);
      for (const other of woken) {
        other.state = 'runs';
        this.#goOn(other, 'ok');
      }
      return woken.length > 0;
    };
    const memoryOf = new Map<unknown, number>();
    const view = <T extends Int32Array | Float64Array>(memory: number, real: T): T => {
      const wordsEach = real.BYTES_PER_ELEMENT / 4;
      const placeOf = (key: string | symbol) =>
        memory * PLACES + Math.floor((Number(key) * wordsEach) / 2);
      const proxy = new Proxy({} as T, {
        get: (_, key) => access(placeOf(key), false, () => real[Number(key)]),
        set: (_, key, value) => {
          access(placeOf(key), true, () => {
            real[Number(key)] = value;
          });
          return true;
        },
      });
      memoryOf.set(proxy, memory);
      return proxy;
    };
    const change = (of: unknown, word: number, to: (was: number) => number, writes = true) => {
      const memory = memoryOf.get(of)!;
      const { words } = this.#memories[memory];
      return access(memory * PLACES + (word >> 1), writes, () => {
        const was = words[word];
        words[word] = to(was);
        return was;
      });
    };
    const model = {
      load: (of: unknown, word: number) => {
        const memory = memoryOf.get(of)!;
        const wordAt = memory * PLACES + word;
        if (lastRead === wordAt) return lastValue;
        const value = change(of, word, (was) => was, false);
        if (this.#waits[memory] === 'polled') {
          lastRead = wordAt;
          lastValue = value;
        }
        return value;
      },
      store: (of: unknown, word: number, value: number) => change(of, word, () => value),
      add: (of: unknown, word: number, value: number) => change(of, word, (was) => was + value),
      exchange: (of: unknown, word: number, value: number) => change(of, word, () => value),
      compareExchange: (of: unknown, word: number, expected: number, value: number) =>
        change(of, word, (was) => (was === expected ? value : was)),
      wait: (of: unknown, word: number, value: number) => {
        const memory = memoryOf.get(of)!;
        return access(memory * PLACES + (word >> 1), false, () => {
          if (this.#memories[memory].words[word] !== value) return 'not-equal';
          const how = this.#waits[memory] === 'polled' ? 'polls' : 'waits';
          return waitFor(how, memory * PLACES + word, value);
        });
      },
      notify: (of: unknown, word: number) =>
        access(EVERYWHERE, true, () => void wake('waits', memoryOf.get(of)! * PLACES + word)),
    };
    const world: World = {
      memories: this.#memories.map(({ buffer, words, doubles }, memory) => {
        return { buffer, words: view(memory, words), doubles: view(memory, doubles) };
      }),
      event: (what) =>
        access(EVERYWHERE, true, () => {
          events = [...events, typeof what === 'string' ? what : what(this.#memories)];
        }),
      send: (channel = 0) =>
        access(EVERYWHERE, true, () => {
          if (!wake('receives', channel)) messages[channel]++;
        }),
      receive: (channel = 0) =>
        access(EVERYWHERE, true, () => {
          if (messages[channel] === 0) waitFor('receives', channel, 0);
          messages[channel]--;
        }),
    };
    const real = globalThis.Atomics;
    globalThis.Atomics = model as unknown as Atomics;
    try {
      thread.result = (thread.life === 0 ? run : successor!)(world);
      thread.state = 'ended';
    } catch (thrown) {
      if (thrown !== STOPPED) throw thrown;
    } finally {
      globalThis.Atomics = real;
    }
    const words = this.#captured();
    const by = `${index}`;
    return { words, messages, events, threads, last: index, preempted, before: from, by };
  }
}

function readingsOf(history: History): unknown[] {
  const readings = new Array<unknown>(history.depth);
  for (let of = history; of.before !== undefined; of = of.before) {
    readings[of.depth - 1] = of.reading;
  }
  return readings;
}

/** Which thread made how many steps, in their order. */
function scheduleOf(state: State): string {
  const runs: { by: string; steps: number }[] = [];
  for (let of: State | undefined = state; of?.before !== undefined; of = of.before) {
    const run = runs.at(-1);
    if (run?.by === of.by) run.steps++;
    else runs.push({ by: of.by, steps: 1 });
  }
  return runs
    .reverse()
    .map(({ by, steps }) => (steps === 1 ? by : `${by} x ${steps}`))
    .join(', ');
}
