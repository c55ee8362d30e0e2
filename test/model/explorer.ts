/**
 * Runs the real code of a few threads in every possible order, on a model of shared memory.
 *
 * The explorer replaces `Atomics` and passes the code proxies of its memory. Each access is a step,
 * plain accesses included. To advance a thread by one step, the explorer runs its code again from
 * the start: it replays the recorded readings, then executes accesses until the next step. The
 * local state of a thread follows from its readings. States with equal memory and readings are
 * therefore equal, and each is explored once.
 *
 * An access to a place (eight bytes) that only one thread uses, or that no thread writes, does not
 * affect other threads. It is executed with the preceding step. A place without writes is not part
 * of the state. The explorer learns these places: it first runs the threads one after another. When
 * a thread writes a further place, or a second thread uses a written one, the exploration restarts.
 * Every store of a thread that may die is a step, because it may be the last one.
 *
 * Not modelled: reordering of plain accesses by a processor or compiler, and torn doubles, which no
 * supported processor produces.
 */

export interface MemoryView {
  /** In error messages. */
  name: string;
  /** The real buffer, to attach to. Accesses through it are not steps. */
  buffer: SharedArrayBuffer;
  words: Int32Array;
  doubles: Float64Array;
}

/** The interface of a thread to the explorer. The final state has all events in order. */
export interface ThreadContext {
  memories: MemoryView[];
  /** Records an event, or a description of the memory at this moment. */
  recordEvent(what: string | ((memories: MemoryView[]) => string)): void;
  send(channel?: number): void;
  /** Waits for a message. */
  receive(channel?: number): void;
}

type ThreadCode = (world: ThreadContext) => unknown;

export interface ModelThread {
  /** The return value is the result of the thread. */
  run: ThreadCode;
  /** Whether the thread may stop forever, at any step. */
  isMortal?: boolean;
  /** Runs after the thread has died. */
  restart?: ThreadCode;
}

export interface ModelMemory {
  /** The initial content, which is restored after the exploration. */
  buffer: SharedArrayBuffer;
  /**
   * notified: a wait ends only with a notification; it never times out.
   * polled: a wait ends when the word has changed. Repeated reads of one word are one step.
   */
  waits: 'notified' | 'polled';
}

export interface Scenario {
  memories: ModelMemory[];
  threads: ModelThread[];
  /** The maximum number of preemptions of threads that could continue. Default: unlimited. */
  preemptions?: number;
}

export interface FinalState {
  events: readonly string[];
  /** By thread; undefined if the thread has not ended. */
  results: unknown[];
  /** Threads that wait and will never be woken. */
  stuck: number[];
  deaths: number;
  /** The memory at the end. */
  memories: MemoryView[];
}

export interface ExplorationResult {
  states: number;
  endings: number;
}

/** The readings of a thread so far: a node in the tree of all possible readings. */
interface ReadHistory {
  id: number;
  depth: number;
  parent: ReadHistory | undefined;
  value: unknown;
  children: Map<unknown, ReadHistory>;
}

interface ThreadState {
  history: ReadHistory;
  status: 'runs' | 'waits' | 'polls' | 'receives' | 'ended' | 'dead';
  /** The word of a wait and its expected value, or the channel. */
  at: number;
  value: number;
  generation: number;
  result: unknown;
}

interface ModelState {
  /** The content of the written places, two words each, in the order of `#places`. */
  words: Int32Array;
  messages: number[];
  events: readonly string[];
  threads: ThreadState[];
  /** The thread that ran last, and the number of preemptions so far. */
  lastThread: number;
  preemptions: number;
  parent: ModelState | undefined;
  /** The step from the parent to this state, for printed schedules. */
  step: string;
}

const STOPPED = Symbol('stopped');

/** Places of eight bytes, and words, have numbers that are unique over all memories. */
const PLACES_PER_MEMORY = 2 ** 24;
/** A place outside all memories that every thread uses. */
const GLOBAL_PLACE = -1;
const CHANNELS = 2;
const NO_THREAD = -1;

/**
 * Runs every schedule.
 * @param check gets every final state once; its errors are rethrown with their schedule
 */
export function explore(
  scenario: Scenario,
  check: (ending: FinalState) => void,
): ExplorationResult {
  const places: KnownPlaces = { written: new Set(), contended: new Set() };
  new Exploration(scenario, places).survey();
  for (;;) {
    const exploration = new Exploration(scenario, places);
    const explored = exploration.run(check);
    if (!exploration.hasNewPlaces) return explored;
  }
}

/** The places that explorations have found so far. */
interface KnownPlaces {
  written: Set<number>;
  /** Used by more than one thread, and written. */
  contended: Set<number>;
}

class Exploration {
  /** Whether this exploration has found new written or contended places. */
  hasNewPlaces = false;
  readonly #actors: readonly ModelThread[];
  readonly #preemptions: number;
  readonly #waits: ModelMemory['waits'][];
  /** The real memories, with the content of the current state. */
  readonly #memories: MemoryView[];
  readonly #initialWords: Int32Array[];
  /** The written places, in their order in `ModelState.words`. */
  readonly #places: number[];
  /** Per place: bit sets of the threads that use it and that write it. */
  readonly #users = new Map<number, { all: number; writers: number }>();
  readonly #knownPlaces: KnownPlaces;
  readonly #roots = new Map<number, ReadHistory>();
  #historyCount = 0;

  constructor({ memories, threads, preemptions }: Scenario, known: KnownPlaces) {
    this.#actors = threads;
    this.#preemptions = preemptions ?? Number.POSITIVE_INFINITY;
    this.#waits = memories.map(({ waits }) => waits);
    this.#memories = memories.map(({ buffer }, memory) => {
      const name = `memory ${memory}`;
      return { name, buffer, words: new Int32Array(buffer), doubles: new Float64Array(buffer) };
    });
    this.#initialWords = this.#memories.map(({ words }) => words.slice());
    this.#knownPlaces = known;
    this.#places = [...known.written];
  }

  /** Runs the threads one after another, in a few orders, to find the places that they use. */
  survey(): void {
    const lives = this.#actors.flatMap(({ restart }, index) => {
      return restart === undefined ? [{ index, life: 0 }] : [0, 1].map((life) => ({ index, life }));
    });
    for (let from = 0; from < lives.length; from++) {
      let state = this.#initialState();
      for (const { index, life } of [...lives.slice(from), ...lives.slice(0, from)]) {
        const threads = [...state.threads];
        threads[index] = this.#newThread(index, life);
        state = this.#step({ ...state, threads }, index, 0, true);
      }
    }
    this.#resetMemories();
  }

  /** Explores all schedules. Stops early when a new place is found. */
  run(check: (ending: FinalState) => void): ExplorationResult {
    /** By state: the smallest number of preemptions that led to it. */
    const seen = new Map<string, number>();
    let endings = 0;
    const pending = [this.#initialState()];
    while (pending.length > 0) {
      if (this.hasNewPlaces) break;
      const state = pending.pop()!;
      const key = this.#keyOf(state);
      if ((seen.get(key) ?? Number.POSITIVE_INFINITY) <= state.preemptions) continue;
      const isNew = !seen.has(key);
      seen.set(key, state.preemptions);
      this.#restore(state);
      const runnable = state.threads.map((thread) => this.#canRun(thread));
      const canContinue = runnable[state.lastThread] === true;
      for (const index of runnable.keys()) {
        if (!runnable[index]) continue;
        const preempted = state.preemptions + Number(canContinue && index !== state.lastThread);
        if (preempted > this.#preemptions || this.hasNewPlaces) continue;
        pending.push(this.#step(state, index, preempted));
      }
      pending.push(...this.#deathStates(state));
      if (runnable.includes(true) || !isNew) continue;
      endings++;
      this.#restore(state);
      this.#checkEnding(state, check);
    }
    this.#resetMemories();
    return { states: seen.size, endings };
  }

  #initialState(): ModelState {
    return {
      words: new Int32Array(0),
      messages: Array.from({ length: CHANNELS }, () => 0),
      events: [],
      threads: this.#actors.map((_, index) => this.#newThread(index, 0)),
      lastThread: NO_THREAD,
      preemptions: 0,
      parent: undefined,
      step: '',
    };
  }

  #resetMemories(): void {
    for (const [i, { words }] of this.#memories.entries()) words.set(this.#initialWords[i]);
  }

  #checkEnding(state: ModelState, check: (ending: FinalState) => void): void {
    const { threads, events } = state;
    const isStuck = ({ status }: ThreadState) => status !== 'ended' && status !== 'dead';
    try {
      check({
        events,
        results: threads.map(({ result }) => result),
        stuck: [...threads.keys()].filter((index) => isStuck(threads[index])),
        deaths: threads.filter(({ generation, status }) => generation > 0 || status === 'dead')
          .length,
        memories: this.#memories,
      });
    } catch (error) {
      if (error instanceof Error) error.message += `\n\nin the schedule: ${formatSchedule(state)}`;
      throw error;
    }
  }

  #newThread(index: number, generation: number): ThreadState {
    const of = index * 2 + generation;
    const history = this.#roots.get(of) ?? this.#newHistory(undefined, undefined);
    this.#roots.set(of, history);
    return { history, status: 'runs', at: 0, value: 0, generation, result: undefined };
  }

  #newHistory(parent: ReadHistory | undefined, value: unknown): ReadHistory {
    const depth = parent === undefined ? 0 : parent.depth + 1;
    return { id: this.#historyCount++, depth, parent, value, children: new Map() };
  }

  #appendReading(thread: ThreadState, reading: unknown): void {
    const { history } = thread;
    const next = history.children.get(reading) ?? this.#newHistory(history, reading);
    history.children.set(reading, next);
    thread.history = next;
  }

  #keyOf({ words, messages, events, threads, lastThread }: ModelState): string {
    let key = this.#preemptions === Number.POSITIVE_INFINITY ? '' : `${lastThread}`;
    for (let i = 0; i < words.length; i += 2) {
      const place = this.#places[i / 2];
      const first = this.#initialWords[Math.floor(place / PLACES_PER_MEMORY)];
      const at = (place % PLACES_PER_MEMORY) * 2;
      if (words[i] === first[at] && words[i + 1] === first[at + 1]) continue;
      key += ` ${i}:${words[i]}:${words[i + 1]}`;
    }
    for (const { status, generation, history } of threads)
      key += `|${status}${generation}:${history.id}`;
    return `${key}|${messages.join()}|${events.join()}`;
  }

  #restore({ words }: ModelState): void {
    for (const [i, place] of this.#places.entries()) {
      const memory = Math.floor(place / PLACES_PER_MEMORY);
      const at = (place % PLACES_PER_MEMORY) * 2;
      const from = i * 2 < words.length ? words : this.#initialWords[memory];
      const of = from === words ? i * 2 : at;
      this.#memories[memory].words[at] = from[of];
      this.#memories[memory].words[at + 1] = from[of + 1];
    }
  }

  #captureWords(): Int32Array {
    const words = new Int32Array(this.#places.length * 2);
    for (const [i, place] of this.#places.entries()) {
      const from = this.#memories[Math.floor(place / PLACES_PER_MEMORY)].words;
      const at = (place % PLACES_PER_MEMORY) * 2;
      words[i * 2] = from[at];
      words[i * 2 + 1] = from[at + 1];
    }
    return words;
  }

  /** Whether a thread can make a step in the current state of the memories. */
  #canRun({ status, at, value }: ThreadState): boolean {
    if (status !== 'polls') return status === 'runs';
    return (
      this.#memories[Math.floor(at / PLACES_PER_MEMORY)].words[at % PLACES_PER_MEMORY] !== value
    );
  }

  #deathStates(state: ModelState): ModelState[] {
    return state.threads.flatMap((thread, index) => {
      const { isMortal, restart } = this.#actors[index];
      if (isMortal !== true || thread.generation > 0) return [];
      if (thread.status === 'ended' || thread.status === 'dead') return [];
      const threads = [...state.threads];
      threads[index] =
        restart === undefined ? { ...thread, status: 'dead' } : this.#newThread(index, 1);
      const lastThread = state.lastThread === index ? NO_THREAD : state.lastThread;
      return [{ ...state, threads, lastThread, parent: state, step: `death of ${index}` }];
    });
  }

  /** Records the user of a place, and whether the order of accesses to it matters. */
  #recordAccess(place: number, thread: number, writes: boolean): void {
    const users = this.#users.get(place) ?? { all: 0, writers: 0 };
    this.#users.set(place, users);
    users.all |= 1 << thread;
    if (writes) users.writers |= 1 << thread;
    const isAlone = (users.all & (users.all - 1)) === 0;
    if (isAlone || users.writers === 0 || this.#knownPlaces.contended.has(place)) return;
    this.#knownPlaces.contended.add(place);
    this.hasNewPlaces = true;
  }

  /** Advances one thread by one step, or until it waits or ends. */
  #step(from: ModelState, index: number, preemptions: number, runsToEnd = false): ModelState {
    this.#restore(from);
    const threads = from.threads.map((thread) => ({ ...thread }));
    const messages = [...from.messages];
    let { events } = from;
    const thread = threads[index];
    if (thread.status === 'polls') {
      thread.status = 'runs';
      this.#appendReading(thread, 'timed-out');
    }
    const { run, restart, isMortal } = this.#actors[index];
    const storesCount = isMortal === true && thread.generation === 0;
    const readings = readingsIn(thread.history);
    // If no other thread may run before this one waits or ends, all its steps are one.
    const isOver = ({ status }: ThreadState) => status === 'ended' || status === 'dead';
    const isAlone = threads.every((other) => other === thread || isOver(other));
    const isLast = (preemptions === this.#preemptions || isAlone) && !storesCount;
    const runsOn = runsToEnd || isLast;
    let at = 0;
    let moved = false;
    let stopped = false;
    /** The word and value of the last access, if it was a polled read. */
    let lastRead = GLOBAL_PLACE;
    let lastValue = 0;
    const stop = (): never => {
      stopped = true;
      throw STOPPED;
    };
    /** One access: replayed if it is in the history, else executed, unless it is the next step. */
    const access = <T>(place: number, writes: boolean, make: () => T): T => {
      // The thread code may catch STOPPED in a `finally` and access memory there.
      if (stopped) throw STOPPED;
      lastRead = GLOBAL_PLACE;
      const isConstant = place !== GLOBAL_PLACE && !this.#knownPlaces.written.has(place);
      if (isConstant && !writes) {
        this.#recordAccess(place, index * 2 + thread.generation, false);
        return make();
      }
      if (at < readings.length) return readings[at++] as T;
      if (place !== GLOBAL_PLACE) this.#recordAccess(place, index * 2 + thread.generation, writes);
      const { contended } = this.#knownPlaces;
      const isStep = place === GLOBAL_PLACE || contended.has(place) || (writes && storesCount);
      if (isStep && moved && !runsOn) stop();
      moved ||= isStep;
      if (isConstant) {
        this.#knownPlaces.written.add(place);
        this.#places.push(place);
        this.hasNewPlaces = true;
      }
      const reading = make();
      this.#appendReading(thread, reading);
      at++;
      return reading;
    };
    const waitFor = (what: 'waits' | 'polls' | 'receives', where: number, value: number): never => {
      thread.status = what;
      thread.at = where;
      thread.value = value;
      return stop();
    };
    const wake = (what: 'waits' | 'receives', where: number): boolean => {
      const woken = threads.filter(({ status, at }) => status === what && at === where);
      for (const other of woken) {
        other.status = 'runs';
        this.#appendReading(other, 'ok');
      }
      return woken.length > 0;
    };
    const memoryOf = new Map<unknown, number>();
    const view = <T extends Int32Array | Float64Array>(memory: number, real: T): T => {
      const wordsEach = real.BYTES_PER_ELEMENT / 4;
      const placeOf = (key: string | symbol) =>
        memory * PLACES_PER_MEMORY + Math.floor((Number(key) * wordsEach) / 2);
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
      return access(memory * PLACES_PER_MEMORY + (word >> 1), writes, () => {
        const was = words[word];
        words[word] = to(was);
        return was;
      });
    };
    const model = {
      load: (of: unknown, word: number) => {
        const memory = memoryOf.get(of)!;
        const wordAt = memory * PLACES_PER_MEMORY + word;
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
        return access(memory * PLACES_PER_MEMORY + (word >> 1), false, () => {
          if (this.#memories[memory].words[word] !== value) return 'not-equal';
          const how = this.#waits[memory] === 'polled' ? 'polls' : 'waits';
          return waitFor(how, memory * PLACES_PER_MEMORY + word, value);
        });
      },
      notify: (of: unknown, word: number) =>
        access(
          GLOBAL_PLACE,
          true,
          () => void wake('waits', memoryOf.get(of)! * PLACES_PER_MEMORY + word),
        ),
    };
    const world: ThreadContext = {
      memories: this.#memories.map(({ name, buffer, words, doubles }, memory) => {
        return { name, buffer, words: view(memory, words), doubles: view(memory, doubles) };
      }),
      recordEvent: (what) =>
        access(GLOBAL_PLACE, true, () => {
          events = [...events, typeof what === 'string' ? what : what(this.#memories)];
        }),
      send: (channel = 0) =>
        access(GLOBAL_PLACE, true, () => {
          if (!wake('receives', channel)) messages[channel]++;
        }),
      receive: (channel = 0) =>
        access(GLOBAL_PLACE, true, () => {
          if (messages[channel] === 0) waitFor('receives', channel, 0);
          messages[channel]--;
        }),
    };
    const real = globalThis.Atomics;
    globalThis.Atomics = model as unknown as Atomics;
    try {
      thread.result = (thread.generation === 0 ? run : restart!)(world);
      thread.status = 'ended';
    } catch (thrown) {
      if (thrown !== STOPPED) throw thrown;
    } finally {
      globalThis.Atomics = real;
    }
    const words = this.#captureWords();
    const step = `${index}`;
    return { words, messages, events, threads, lastThread: index, preemptions, parent: from, step };
  }
}

function readingsIn(history: ReadHistory): unknown[] {
  const readings = new Array<unknown>(history.depth);
  for (let of = history; of.parent !== undefined; of = of.parent) {
    readings[of.depth - 1] = of.value;
  }
  return readings;
}

/** The steps of a schedule in order, as thread x number of steps. */
function formatSchedule(state: ModelState): string {
  const runs: { by: string; steps: number }[] = [];
  for (let of: ModelState | undefined = state; of?.parent !== undefined; of = of.parent) {
    const run = runs.at(-1);
    if (run?.by === of.step) run.steps++;
    else runs.push({ by: of.step, steps: 1 });
  }
  return runs
    .reverse()
    .map(({ by, steps }) => (steps === 1 ? by : `${by} x ${steps}`))
    .join(', ');
}
