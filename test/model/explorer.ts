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

export interface MemoryView {
  /** To attach to: what is read and written through it is no step. */
  buffer: SharedArrayBuffer;
  words: Int32Array;
  doubles: Float64Array;
}

/** What the code of a thread may use. Events are visible in the end, in their order. */
export interface ThreadContext {
  memories: MemoryView[];
  /** What happened, or what can be seen in the memory at that moment. */
  recordEvent(what: string | ((memories: MemoryView[]) => string)): void;
  send(channel?: number): void;
  /** Waits for a message. */
  receive(channel?: number): void;
}

type ThreadCode = (world: ThreadContext) => unknown;

export interface ModelThread {
  /** What it returns is its result. */
  run: ThreadCode;
  /** Whether it may stop for ever, at any step. */
  isMortal?: boolean;
  /** Runs when it has done so. */
  restart?: ThreadCode;
}

export interface ModelMemory {
  /** As it is in the beginning, and again in the end. */
  buffer: SharedArrayBuffer;
  /**
   * notified: a wait ends when somebody notifies, however long that takes.
   * polled: it ends when the word has changed; to read the same word again and again is one step.
   */
  waits: 'notified' | 'polled';
}

export interface Scenario {
  memories: ModelMemory[];
  threads: ModelThread[];
  /** How often a thread that could go on may be interrupted by another; as often as you like. */
  preemptions?: number;
}

export interface FinalState {
  events: readonly string[];
  /** By thread; undefined where it has not come to its end. */
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

/** What a thread has read so far: a leaf of the tree of all that it could have. */
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
  /** The word in a memory, and what it holds; or the channel. */
  at: number;
  value: number;
  generation: number;
  result: unknown;
}

interface ModelState {
  /** What is not as in the beginning, as pairs of words in the order of `places`. */
  words: Int32Array;
  messages: number[];
  events: readonly string[];
  threads: ThreadState[];
  /** The thread that ran last, and how often one was interrupted. */
  lastThread: number;
  preemptions: number;
  parent: ModelState | undefined;
  /** What led here from there, for who reads a schedule. */
  step: string;
}

const STOPPED = Symbol('stopped');

/** Places of eight bytes, and words, are numbered over all memories. */
const PLACES_PER_MEMORY = 2 ** 24;
/** What all threads see, in no memory. */
const GLOBAL_PLACE = -1;
const CHANNELS = 2;
const NO_THREAD = -1;

/**
 * Runs every schedule.
 * @param check sees every ending once; what it throws is said with the schedule that led to it
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

/** What is known of all places, from one exploration to the next. */
interface KnownPlaces {
  written: Set<number>;
  /** Used by more than one thread, and written. */
  contended: Set<number>;
}

class Exploration {
  /** Whether more is known of places than in the beginning. */
  hasNewPlaces = false;
  readonly #actors: readonly ModelThread[];
  readonly #preemptions: number;
  readonly #waits: ModelMemory['waits'][];
  /** The memories themselves: of the state that is gone on from. */
  readonly #memories: MemoryView[];
  readonly #initialWords: Int32Array[];
  /** Those that are written, in the order in which states have them. */
  readonly #places: number[];
  /** Who uses a place, and who writes it, in bits. */
  readonly #users = new Map<number, { all: number; writers: number }>();
  readonly #knownPlaces: KnownPlaces;
  readonly #roots = new Map<number, ReadHistory>();
  #historyCount = 0;

  constructor({ memories, threads, preemptions }: Scenario, known: KnownPlaces) {
    this.#actors = threads;
    this.#preemptions = preemptions ?? Number.POSITIVE_INFINITY;
    this.#waits = memories.map(({ waits }) => waits);
    this.#memories = memories.map(({ buffer }) => {
      return { buffer, words: new Int32Array(buffer), doubles: new Float64Array(buffer) };
    });
    this.#initialWords = this.#memories.map(({ words }) => words.slice());
    this.#knownPlaces = known;
    this.#places = [...known.written];
  }

  /** Runs the threads one after the other, in a few orders. */
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

  /** Ends early when more is found out about places. */
  run(check: (ending: FinalState) => void): ExplorationResult {
    /** By state: how few interruptions led to it. */
    const seen = new Map<string, number>();
    let endings = 0;
    const left = [this.#initialState()];
    while (left.length > 0) {
      if (this.hasNewPlaces) break;
      const state = left.pop()!;
      const key = this.#keyOf(state);
      if ((seen.get(key) ?? Number.POSITIVE_INFINITY) <= state.preemptions) continue;
      const isNew = !seen.has(key);
      seen.set(key, state.preemptions);
      this.#restore(state);
      const able = state.threads.map((thread) => this.#canRun(thread));
      const goesOn = able[state.lastThread] === true;
      for (const index of able.keys()) {
        if (!able[index]) continue;
        const preempted = state.preemptions + Number(goesOn && index !== state.lastThread);
        if (preempted > this.#preemptions || this.hasNewPlaces) continue;
        left.push(this.#step(state, index, preempted));
      }
      left.push(...this.#deathStates(state));
      if (able.includes(true) || !isNew) continue;
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
      if (error instanceof Error) error.message += `\n\nin the schedule ${formatSchedule(state)}`;
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

  /** Whether a thread has a step to make, in the state that is in the memories. */
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
      const last = state.lastThread === index ? NO_THREAD : state.lastThread;
      return [{ ...state, threads, last, before: state, by: `death of ${index}` }];
    });
  }

  /** Notes who is at a place, and whether it is one where the order matters. */
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

  /** Moves one thread by one step, or to where it waits or ends. */
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
    const made = readingsIn(thread.history);
    // Where no other may run before it waits or ends, it makes all its steps at once.
    const isOver = ({ status }: ThreadState) => status === 'ended' || status === 'dead';
    const isAlone = threads.every((other) => other === thread || isOver(other));
    const isLast = (preemptions === this.#preemptions || isAlone) && !storesCount;
    const runsOn = runsToEnd || isLast;
    let at = 0;
    let moved = false;
    let stopped = false;
    /** The word that was read last, where nothing was done since, and what it was. */
    let lastRead = GLOBAL_PLACE;
    let lastValue = 0;
    const stop = (): never => {
      stopped = true;
      throw STOPPED;
    };
    /** One access: given again where it was made before, made, or not made yet. */
    const access = <T>(place: number, writes: boolean, make: () => T): T => {
      // On its way out it may pass by a `finally`.
      if (stopped) throw STOPPED;
      lastRead = GLOBAL_PLACE;
      const isConstant = place !== GLOBAL_PLACE && !this.#knownPlaces.written.has(place);
      if (isConstant && !writes) {
        this.#recordAccess(place, index * 2 + thread.generation, false);
        return make();
      }
      if (at < made.length) return made[at++] as T;
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
      memories: this.#memories.map(({ buffer, words, doubles }, memory) => {
        return { buffer, words: view(memory, words), doubles: view(memory, doubles) };
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

/** Which thread made how many steps, in their order. */
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
