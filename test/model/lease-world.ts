/**
 * Machines, one Redis and the network between them, as plain data, and every event that may come
 * next. A machine does what a shard worker does with one counter; all its threads are one here,
 * because the lock of the slot orders them.
 *
 * The time advances in ticks. Machines measure the same time as Redis, but learn of a window's end
 * only from answers. Messages, answers and publications are delivered in any order; a scenario says
 * how many may be lost or repeated, and how many other faults may happen.
 */

import {
  CALL_STATUS,
  type CallAnswer,
  type CallHeader,
  type CounterAnswer,
  type CounterMessage,
  MESSAGE_STATUS,
  NO_WINDOW,
  SERVED,
  type TokenCheck,
} from '../../src/engine/redis/scripts/protocol.ts';
import {
  counterAt,
  exchange,
  forgetMember,
  type GuardRule,
  joinedRedis,
  keyOfMessage,
  leaveMember,
  newRedis,
  type Publication,
  presentMembers,
  type RedisState,
  RULES,
  type Rules,
  resetCounter,
} from './lease-model.ts';

export type CheckKind = 'sync' | 'async' | 'reserve';

export interface ScenarioCheck extends TokenCheck {
  kind: CheckKind;
}

/** What may go wrong, each so often as a scenario says. */
const FAULTS = [
  ...(['losses', 'repeats', 'timeouts', 'kills', 'pauses', 'evictions', 'withdrawals'] as const),
  /** Machines that return their leases, report their usage, leave, and end. */
  'stops',
  /** Redis restarts with what it had at a snapshot, which may be nothing. */
  'failovers',
  ...(['prefetches', 'refunds', 'resets'] as const),
  /** All counters of Redis are deleted. */
  'deletions',
  /** A member is removed from the list: dead, suspended or alive. */
  'forgets',
  /** The clock of the server is set, by one of the steps of the scenario. */
  'clockSteps',
] as const;
export type Faults = Record<(typeof FAULTS)[number], number>;
const NO_FAULTS = Object.fromEntries(FAULTS.map((name) => [name, 0])) as Faults;

export interface LeaseScenario {
  /** The checks of each machine, in their order. */
  checks: readonly (readonly ScenarioCheck[])[];
  faults?: Partial<Faults>;
  durationMs: number;
  tickMs: number;
  ticks: number;
  /** Time passes only when nothing is under way: each machine answers at once. */
  isPrompt?: boolean;
  /** How often the only check of a machine may have to wait for tokens. */
  mostTries?: number;
  /** Machines that are new, and not in the list of members at the beginning. */
  newMachines?: number[];
  /** Whether a deletion of counters deletes the index too, once all machines have used them. */
  losesIndex?: boolean;
  /** How far the clock of the server may be set, ms. */
  clockStepsMs?: readonly number[];
  rules?: Partial<Rules>;
}

export interface WaitingCheck extends ScenarioCheck {
  sinceMs: number;
  /** The time of the last unproven denial; -1 if it shall be sent at once. */
  triedMs: number;
  tries: number;
  /** Whether it was decided without Redis while its message was in flight. */
  isWithdrawn?: true;
}

export interface Slot {
  window: number;
  isStored: boolean;
  spent: number;
  previousSpent: number;
  previousReserved: number;
  previousKnown: number;
  lease: number;
  leaseLimit: number;
  leaseIsSliding: boolean;
  reserved: number;
  deadlineMs: number;
  others: number;
  boundMs: number;
  lastLimit: number;
  firstSequence: number;
  /** Usage that has not been reported in an answered message. */
  isDirty: boolean;
}

export interface Flight {
  sequence: number;
  sentMs: number;
  checks: WaitingCheck[];
  isSliding: boolean;
  /** Whether the answer shows the use of the window before, if it is of this window or the next. */
  hasPrevious: boolean;
  window: number;
  refund: number;
  isReport: boolean;
  /** The epoch for which it reports. */
  reports: string;
  /** Whether the message counted reserved tokens. */
  mayFree: boolean;
  /** Whether tokens may have come back since Redis answered. */
  isWoken?: true;
}

export interface Machine {
  isAlive: boolean;
  isPaused: boolean;
  sequence: number;
  slot?: Slot;
  flight?: Flight;
  waiting: WaitingCheck[];
  isRecalled: boolean;
  /** The number of the request for a report that it has not answered; 0 for none. */
  report: number;
  /** Of the last answer, and the one in which all counters were reported; '' for none. */
  epoch: string;
  reportedEpoch: string;
  membersVersion: number;
  members: string[];
  isJoining: boolean;
  clockUs: number;
}

export interface Request {
  machine: number;
  header: CallHeader;
  message: CounterMessage;
}

export interface Answer {
  machine: number;
  sequence: number;
  call: CallAnswer;
  /** Whether known use may have contained more than was allowed. */
  isVague: boolean;
}

/** Tokens of one window that checks of one limit were allowed, less refunds. */
type Usage = Record<string, Record<string, number>>;

export interface World {
  nowMs: number;
  /** The clock of the server less that of the machines. */
  serverAheadMs: number;
  /** The newest clock of the bucket that an answer had since the last failover. */
  clockUs: number;
  redis: RedisState;
  /** What a replica has, and Redis after a failover. */
  snapshot: RedisState;
  machines: Machine[];
  arrived: number[];
  requests: Request[];
  answers: Answer[];
  news: { machine: number; kind: Publication['kind']; window: number; report: number }[];
  faults: Faults;
  /** By window and limit, of checks that are not asynchronous. */
  allowed: Usage;
  /** By window: all tokens, also of asynchronous checks. */
  total: Record<string, number>;
  refunded: number;
  /** By window: usage that Redis may have lost for good; and how much more may be allowed. */
  lost: Record<string, number>;
  extra: Record<string, number>;
  /** Whether counters were deleted, and no member has noticed yet. */
  isDeleted: boolean;
  /** Members that were removed while they may still hold tokens. */
  forgotten: number[];
  /** Machines for whose reports Redis no longer waits. */
  givenUp: number[];
  unproven: number;
  /** Whether known usage may contain more than was allowed. */
  isKnownVague: boolean;
}

const IDENTITY = { h0: 1, h1: 2, h2: 3, h3: 4 };
const FIRST_WINDOW = 1_000;
const PARK_MS = 10;
const RETRY_MS = 4;
const BOUND_MS = 1_000;
/** After this time an available recovery waits for members no longer that have not called. */
const AWAIT_US = 1_000_000;
/** A failover takes longer than any two changes of the list of members are apart. */
const FAILOVER_MS = 20;

export interface WorldEvent {
  name: string;
  apply: (world: World) => void;
}

/** Adds an event; one of a fault, if the world may still have that fault. */
type AddEvent = (name: string, apply: (world: World) => void, fault?: keyof Faults) => void;

const memberOf = (machine: number) => `${machine}.0`;

/** A scenario with its rules: makes the first world, the events of each world, and the checks. */
export class LeaseWorld {
  readonly #scenario: LeaseScenario;
  readonly #rules: Rules;
  readonly #key: string;

  constructor(scenario: LeaseScenario) {
    this.#scenario = scenario;
    this.#rules = { ...RULES, ...scenario.rules };
    this.#key = keyOfMessage({
      identity: IDENTITY,
      durationMs: scenario.durationMs,
    } as CounterMessage);
  }

  first(): World {
    const { checks, newMachines, faults } = this.#scenario;
    const names = checks.map((_, i) => memberOf(i));
    const members = names.filter((_, i) => !newMachines?.includes(i));
    const startMs = this.#startMs();
    const redis = joinedRedis('r0', startMs * 1_000, members);
    const epoch = `r0.${startMs}`;
    return {
      ...{ nowMs: startMs, serverAheadMs: 0, clockUs: 0 },
      redis,
      snapshot: newRedis('r0'),
      machines: checks.map((_, i): Machine => {
        const isNew = newMachines?.includes(i) === true;
        return {
          ...{ isAlive: true, isPaused: false, sequence: 0, waiting: [], isRecalled: false },
          report: 0,
          ...{ epoch: isNew ? '' : epoch, reportedEpoch: isNew ? '' : epoch, clockUs: 0 },
          ...{ membersVersion: isNew ? 0 : startMs, members: isNew ? [] : members },
          isJoining: isNew,
        };
      }),
      arrived: checks.map(() => 0),
      ...{ requests: [], answers: [], news: [], allowed: {}, total: {} },
      ...{ refunded: 0, lost: {}, extra: {}, isDeleted: false, forgotten: [], givenUp: [] },
      ...{ unproven: 0, isKnownVague: false },
      faults: { ...NO_FAULTS, ...faults },
    };
  }

  #keeps(rule: GuardRule): boolean {
    return this.#rules.without !== rule;
  }

  /** A moment after the beginning of a window. */
  #startMs(): number {
    return FIRST_WINDOW * this.#scenario.durationMs + 1;
  }

  events(world: World): WorldEvent[] {
    const events: WorldEvent[] = [];
    const add: AddEvent = (name, apply, fault) => {
      if (fault === undefined) events.push({ name, apply });
      else if (world.faults[fault] > 0) {
        events.push({
          name,
          apply: (w) => {
            w.faults[fault]--;
            apply(w);
          },
        });
      }
    };
    for (let i = 0; i < world.machines.length; i++) this.#machineEvents(world, i, add);
    this.#networkEvents(world, add);
    this.#redisEvents(world, add);
    const { isPrompt, ticks, tickMs } = this.#scenario;
    const isQuiet = !events.some(({ name }) => !/^(arrive|prefetch|refund)/.test(name));
    const endMs = this.#startMs() + ticks * tickMs;
    if (world.nowMs < endMs && (isPrompt !== true || isQuiet)) {
      add('tick', (w) => {
        w.nowMs += tickMs;
      });
    }
    return events;
  }

  #redisEvents(world: World, add: AddEvent): void {
    if (world.faults.failovers > 0) {
      add('snapshot', (w) => {
        w.snapshot = structuredClone(w.redis);
      });
    }
    const failOver = (w: World) => {
      w.isKnownVague ||= isVague(w);
      w.nowMs += FAILOVER_MS;
      w.redis = { ...structuredClone(w.snapshot), runId: 'r1' };
      w.news = [];
      w.clockUs = 0;
      // Another server, with a clock of its own.
      w.serverAheadMs = 0;
      for (const i of w.forgotten) this.#lose(w, i);
    };
    add('failover', failOver, 'failovers');
    const isUsedByAll = world.machines.every(({ slot }) => slot?.isStored);
    const { losesIndex = false } = this.#scenario;
    if (Object.keys(world.redis.counters).length > 0 && (isUsedByAll || !losesIndex)) {
      // What machines know of tokens that were written off is restored as used.
      const deleteAll = (w: World) => {
        w.isKnownVague ||= isVague(w);
        w.redis.counters = {};
        if (losesIndex) w.redis.index = {};
        w.isDeleted = true;
      };
      add('delete counters', deleteAll, 'deletions');
      const previous = counterAt(this.#key, this.#windowOfRedis(world) - 1);
      if (world.redis.counters[previous] !== undefined) {
        const deletePrevious = (w: World) => {
          w.isKnownVague ||= isVague(w);
          delete w.redis.counters[previous];
        };
        add('delete the window before', deletePrevious, 'deletions');
      }
    }
    for (const ms of this.#scenario.clockStepsMs ?? []) {
      const step = (w: World) => {
        w.serverAheadMs += ms;
      };
      add(`set the clock by ${ms} ms`, step, 'clockSteps');
    }
    add('reset', (w) => this.#reset(w), 'resets');
  }

  #reset(world: World): void {
    const { redis } = world;
    const window = Math.floor(world.nowMs / this.#scenario.durationMs);
    if (redis.meta === undefined || redis.meta.fenceUs > 0) return;
    delete world.allowed[window];
    world.total[window] = 0;
    this.#publish(world, resetCounter(redis, this.#key, window));
    // Tokens that a machine has not reported yet, and those in leases, count after the reset.
    const isReported = world.machines.every(({ slot, flight }) => {
      return !slot?.isDirty && flight === undefined;
    });
    const { used } = redis.counters[counterAt(this.#key, window)] ?? { used: 0 };
    if (used > 0 || !isReported) world.isKnownVague = true;
  }

  #machineEvents(world: World, i: number, add: AddEvent): void {
    const machine = world.machines[i];
    if (!machine.isAlive) return;
    if (machine.isPaused) {
      add(`resume ${i}`, (w) => {
        w.machines[i].isPaused = false;
      });
      return;
    }
    const { slot, flight, waiting } = machine;
    if (world.arrived[i] < this.#scenario.checks[i].length) {
      add(`arrive ${i}`, (w) => this.#arrive(w, i));
    }
    if (this.#needsContact(world, machine)) add(`contact ${i}`, (w) => this.#contact(w, i));
    const mustReport = machine.epoch !== machine.reportedEpoch && slot !== undefined;
    if (flight === undefined) {
      const isDue = ({ triedMs }: WaitingCheck) => {
        return triedMs < 0 || world.nowMs - triedMs >= RETRY_MS || machine.report !== 0;
      };
      if (machine.report !== 0) {
        add(`answer ${i}`, (w) => this.#send(w, i, { keepsLease: true }));
      }
      if (mustReport) {
        add(`report ${i}`, (w) => this.#send(w, i, { keepsLease: true, isReport: true }));
      } else if (machine.isRecalled) add(`return ${i}`, (w) => this.#sendReturn(w, i));
      else if (waiting.some(isDue) && !machine.isJoining) {
        const options = { keepsLease: false, wantsLease: true, hasChecks: true };
        add(`send ${i}`, (w) => this.#send(w, i, options));
      }
      if (slot !== undefined && slot.lastLimit > 0) {
        const options = { keepsLease: true, wantsLease: true };
        add(`prefetch ${i}`, (w) => this.#send(w, i, options), 'prefetches');
      }
      if (slot !== undefined && slot.spent > 0) {
        const refund = (w: World) => {
          w.refunded++;
          this.#send(w, i, { keepsLease: false, refund: 1 });
        };
        add(`refund ${i}`, refund, 'refunds');
      }
      if (slot !== undefined && this.#canEvict(world, slot)) {
        const evict = ({ machines }: World) => {
          delete machines[i].slot;
        };
        add(`evict ${i}`, evict, 'evictions');
      }
    } else add(`time out ${i}`, ({ machines }) => this.#endFlight(machines[i]), 'timeouts');
    if (waiting.some(({ sinceMs }) => world.nowMs - sinceMs >= PARK_MS) && flight === undefined) {
      add(`give up ${i}`, (w) => {
        const { waiting } = w.machines[i];
        const isOver = ({ sinceMs, triedMs }: WaitingCheck) =>
          triedMs >= 0 && w.nowMs - sinceMs >= PARK_MS;
        w.unproven += waiting.filter(isOver).length;
        w.machines[i].waiting = waiting.filter((check) => !isOver(check));
      });
    }
    if (flight !== undefined && flight.checks.length > 0) {
      const withdraw = ({ machines }: World) => {
        machines[i].flight!.checks[0].isWithdrawn = true;
      };
      add(`withdraw ${i}`, withdraw, 'withdrawals');
    }
    if (slot !== undefined && slot.reserved > 0) {
      add(`commit ${i}`, ({ machines, allowed, total }) => {
        const slot = machines[i].slot!;
        addUsage(allowed, slot.window, slot.lastLimit, slot.reserved);
        addTokens(total, slot.window, slot.reserved);
        slot.spent += slot.reserved;
        slot.reserved = 0;
        slot.isDirty = true;
      });
      add(`abort ${i}`, ({ machines }) => {
        const slot = machines[i].slot!;
        slot.lease += slot.reserved;
        slot.reserved = 0;
      });
    }
    const setMachine = (changes: Partial<Machine>) => {
      return ({ machines }: World) => void Object.assign(machines[i], changes);
    };
    add(`kill ${i}`, setMachine({ isAlive: false }), 'kills');
    if (world.faults.stops > 0 && flight === undefined && waiting.length === 0) {
      const isReported = slot === undefined || (!slot.isDirty && slot.lease + slot.reserved === 0);
      if (isReported && !machine.isJoining) add(`stop ${i}`, (w) => this.#stop(w, i), 'stops');
      else if (!isReported && !mustReport) add(`drain ${i}`, (w) => this.#sendReturn(w, i));
    }
    if (world.redis.meta?.members[memberOf(i)] !== undefined) {
      const forget = (w: World) => {
        // Redis has lost its usage in a failover, and gets no report of it any more.
        if (!isSettled(w)) this.#lose(w, i);
        w.forgotten.push(i);
        forgetMember(w.redis, this.#serverUs(w), memberOf(i));
      };
      add(`forget ${i}`, forget, 'forgets');
    }
    add(`pause ${i}`, setMachine({ isPaused: true }), 'pauses');
  }

  #stop(world: World, i: number): void {
    const machine = world.machines[i];
    machine.isAlive = false;
    const { reportedEpoch, membersVersion, clockUs, slot } = machine;
    const header = { member: memberOf(i), reportedEpoch, membersVersion, clockUs };
    const { window } = slot ?? { window: NO_WINDOW };
    const endMs = window === NO_WINDOW ? 0 : (window + 2) * this.#scenario.durationMs;
    leaveMember(world.redis, this.#serverUs(world), header, endMs * 1_000, this.#rules);
  }

  /** Tokens that a machine has used or holds may be allowed once more. */
  #lose(world: World, i: number): void {
    const { slot, flight } = world.machines[i];
    if (slot === undefined) return;
    const { spent, lease, reserved } = slot;
    const present = Math.floor(world.nowMs / this.#scenario.durationMs);
    const window = slot.window === NO_WINDOW ? present : slot.window;
    const asked = flight?.checks.reduce((sum, { cost }) => sum + cost, 0) ?? 0;
    const lent = world.answers
      .filter(({ machine }) => machine === i)
      .reduce((sum, { call }) => sum + (call.counters[0]?.lent ?? 0), 0);
    const tokens = Math.max(0, spent) + lease + reserved + asked + lent;
    addTokens(world.lost, window, tokens);
    addTokens(world.extra, window, tokens);
  }

  #serverUs({ nowMs, serverAheadMs }: World): number {
    return (nowMs + serverAheadMs) * 1_000;
  }

  /** Whether a heartbeat would change something. */
  #needsContact({ redis, nowMs }: World, machine: Machine): boolean {
    const { meta } = redis;
    const isOverdue = nowMs * 1_000 >= (meta?.epochNumber ?? 0) * 1_000 + AWAIT_US;
    return (
      meta === undefined ||
      machine.isJoining ||
      machine.epoch !== machine.reportedEpoch ||
      machine.membersVersion < meta.version ||
      meta.runId !== redis.runId ||
      epochOf(redis) !== machine.epoch ||
      (this.#rules.isAvailable && meta.fenceUs > 0 && isOverdue)
    );
  }

  #canEvict({ nowMs }: World, slot: Slot): boolean {
    if (slot.reserved > 0) return false;
    const isOver = nowMs >= (slot.window + 1) * this.#scenario.durationMs;
    if (slot.lease > 0 && !isOver) return false;
    return !slot.isDirty || !this.#keeps('keepsUnanswered');
  }

  #networkEvents(world: World, add: AddEvent): void {
    for (const [n, request] of world.requests.entries()) {
      const name = `request ${request.machine}/${request.message.sequence}`;
      add(`deliver ${name}`, (w) => {
        w.requests.splice(n, 1);
        this.#execute(w, request);
      });
      add(`lose ${name}`, (w) => void w.requests.splice(n, 1), 'losses');
      add(`repeat ${name}`, (w) => this.#execute(w, request), 'repeats');
    }
    for (const [n, answer] of world.answers.entries()) {
      const { isAlive, isPaused } = world.machines[answer.machine];
      const name = `answer ${answer.machine}/${answer.sequence}`;
      if (!isPaused) {
        add(`deliver ${name}`, (w) => {
          w.answers.splice(n, 1);
          if (isAlive) this.#answer(w, answer);
        });
      }
      add(`lose ${name}`, (w) => void w.answers.splice(n, 1), 'losses');
    }
    for (const [n, news] of world.news.entries()) {
      const { machine, kind } = news;
      const { isAlive, isPaused } = world.machines[machine];
      if (!isPaused) {
        add(`deliver ${kind} ${machine}`, (w) => {
          w.news.splice(n, 1);
          if (isAlive) this.#inform(w.machines[machine], news);
        });
      }
      add(`lose ${kind} ${machine}`, (w) => void w.news.splice(n, 1), 'losses');
    }
  }

  /** The next check of a machine: decided at once, or waiting for tokens. */
  #arrive(world: World, i: number): void {
    const machine = world.machines[i];
    const check = this.#scenario.checks[i][world.arrived[i]++];
    const { cost, limit, kind, isSliding } = check;
    const { slot } = machine;
    const isCurrent = slot !== undefined && world.nowMs < slot.deadlineMs;
    if (kind === 'async' && isCurrent) {
      slot.spent += cost;
      slot.isDirty = true;
      addTokens(world.total, slot.window, cost);
      return;
    }
    if (isCurrent && slot.lease >= cost && this.#mayServe(slot, check)) {
      slot.lease -= cost;
      slot.lastLimit = limit;
      const isOver = Math.floor(world.nowMs / this.#scenario.durationMs) !== slot.window;
      if (isOver && this.#scenario.clockStepsMs === undefined) {
        throw new Error('a lease is used after its window');
      }
      if (kind === 'reserve') slot.reserved += cost;
      else this.#allow(world, slot, check);
      return;
    }
    const isDenied = isCurrent && world.nowMs < slot.boundMs;
    if (isDenied && !isSliding && slot.others + slot.spent + cost > limit) {
      // It may be false until the machine is told of refunds and resets.
      if (!world.news.some(({ machine, kind }) => machine === i && kind !== 'recall')) {
        this.#deny(world, slot.window, check, slot.others + slot.spent);
      }
      return;
    }
    machine.waiting.push({ ...check, sinceMs: world.nowMs, triedMs: -1, tries: 0 });
  }

  #mayServe(slot: Slot, { limit, isSliding }: TokenCheck): boolean {
    if (isSliding && !slot.leaseIsSliding && this.#keeps('checksSlidingLease')) return false;
    return slot.leaseLimit <= limit || !this.#keeps('checksLeaseLimit');
  }

  #allow(world: World, slot: Slot, { cost, limit, isSliding }: TokenCheck): void {
    const { window } = slot;
    slot.spent += cost;
    slot.lastLimit = limit;
    slot.isDirty = true;
    addUsage(world.allowed, window, limit, cost);
    addTokens(world.total, window, cost);
    if (!isSliding) return;
    const carried = this.#carriedAt(world, window);
    const sum = usageUpTo(world.allowed[window], limit) + carried;
    if (sum > limit) throw new Error(`${sum} of ${limit} tokens are allowed in a sliding window`);
  }

  #windowOfRedis(world: World): number {
    const us = Math.max(this.#serverUs(world), world.redis.meta?.clockUs ?? 0);
    return Math.floor(us / 1_000 / this.#scenario.durationMs);
  }

  /** A final denial must be true, unless known usage is vague. */
  #deny(world: World, window: number, { cost, limit }: TokenCheck, bound: number): void {
    if (isVague(world) || cost + (world.total[window] ?? 0) > limit) return;
    // Redis tells members what falls in the window that it is in. Its clock was set.
    if (this.#windowOfRedis(world) > window) return;
    throw new Error(`a denial of ${cost} of ${limit} is false; known use is ${bound}`);
  }

  #sendReturn(world: World, i: number): void {
    world.machines[i].isRecalled = false;
    this.#send(world, i, { keepsLease: false });
  }

  #send(
    world: World,
    i: number,
    options: {
      keepsLease: boolean;
      wantsLease?: boolean;
      hasChecks?: boolean;
      isReport?: boolean;
      refund?: number;
    },
  ): void {
    const machine = world.machines[i];
    const { nowMs } = world;
    const sequence = ++machine.sequence;
    machine.slot ??= newSlot(sequence);
    const { slot } = machine;
    if (nowMs >= slot.deadlineMs || (!options.keepsLease && this.#keeps('takesLease'))) {
      slot.lease = 0;
    }
    const lease = options.keepsLease ? slot.lease : 0;
    const kept = lease + (this.#keeps('keepsReserved') ? slot.reserved : 0);
    const checks = options.hasChecks === true ? machine.waiting : [];
    if (options.hasChecks === true) machine.waiting = [];
    const isSliding = checks.some((check) => check.isSliding) || (kept > 0 && slot.leaseIsSliding);
    const { refund = 0, isReport = false, wantsLease = false } = options;
    const mayFree = slot.reserved > 0;
    const reports = isReport ? machine.epoch : '';
    const { window, spent, isStored, firstSequence, lastLimit, others, previousKnown } = slot;
    const { report } = machine;
    machine.report = 0;
    const hasPrevious = slot.previousSpent !== 0 || previousKnown > 0;
    machine.flight = {
      ...{ sequence, sentMs: nowMs, checks, isSliding, refund, isReport, reports, mayFree },
      ...{ hasPrevious, window },
    };
    world.requests.push({
      machine: i,
      header: {
        member: memberOf(i),
        reportedEpoch: machine.reportedEpoch,
        membersVersion: machine.membersVersion,
        clockUs: machine.clockUs,
      },
      message: {
        identity: IDENTITY,
        durationMs: this.#scenario.durationMs,
        ...{ window, spent, sequence, kept, lastLimit, wantsLease, isSliding, firstSequence },
        previousSpent: slot.previousSpent + slot.previousReserved,
        ...{ hasPrevious, isStored, others, previousKnown, report, inherits: 0 },
        ...{ recalls: false, refund, rate: 1 },
        refundWindow: refund > 0 ? window : NO_WINDOW,
        checks: checks.map(({ cost, limit, isSliding, countsDenied }) => {
          return { cost, limit, isSliding, countsDenied };
        }),
      },
    });
  }

  /** The end of a flight without an answer. Its checks are sent again. */
  #endFlight(machine: Machine): void {
    const { flight, slot } = machine;
    if (slot !== undefined) slot.isDirty = true;
    if (flight === undefined) return;
    const again = flight.checks.filter(({ isWithdrawn }) => isWithdrawn === undefined);
    machine.waiting = [...again.map((check) => ({ ...check, triedMs: -1 })), ...machine.waiting];
    delete machine.flight;
  }

  #execute(world: World, { machine, header, message }: Request): void {
    const { redis } = world;
    const wasFenced = (redis.meta?.fenceUs ?? 0) > 0;
    const serverUs = this.#serverUs(world);
    const { answer, published } = exchange(redis, serverUs, header, [message], this.#rules);
    const { sequence } = message;
    world.answers.push({ machine, sequence, call: answer, isVague: isVague(world) });
    this.#publish(world, published);
    this.#afterCall(world, wasFenced, header, answer);
    const [counter] = answer.counters;
    // A counter that exists again was verified.
    if (redis.counters[counterAt(this.#key, counter?.window ?? NO_WINDOW)]) world.isDeleted = false;
    // A message that was repeated in a later window may take tokens that nobody uses.
    const isLate = message.sequence < world.machines[machine].sequence;
    if (isLate && counter?.status === MESSAGE_STATUS.done) world.isKnownVague = true;
    this.#checkDenials(world, message, answer);
  }

  /** The clock of a bucket never runs back. A recovery without all reports loses usage. */
  #afterCall(world: World, wasFenced: boolean, header: CallHeader, answer: CallAnswer): void {
    const { redis, machines } = world;
    const { clockUs, status } = answer;
    const seenUs = Math.max(world.clockUs, header.clockUs);
    if (status === CALL_STATUS.done && clockUs < seenUs) {
      throw new Error(`the clock has run back by ${seenUs - clockUs} us`);
    }
    world.clockUs = Math.max(world.clockUs, clockUs);
    const { meta } = redis;
    for (const { members } of Object.values(redis.counters)) {
      for (const [i] of machines.entries()) {
        if (members[memberOf(i)]?.isMissed && !world.givenUp.includes(i)) this.#giveUp(world, i);
      }
    }
    if (!wasFenced || meta === undefined || meta.fenceUs > 0) return;
    for (const [i] of machines.entries()) {
      const known = meta.members[memberOf(i)];
      const isMissing = known?.hasJoined && known.reported < meta.epochNumber;
      if (isMissing && this.#rules.isAvailable) this.#giveUp(world, i);
    }
  }

  #giveUp(world: World, i: number): void {
    world.givenUp.push(i);
    this.#lose(world, i);
  }

  /** A denial that Redis calls proven must be true at that moment. */
  #checkDenials(world: World, message: CounterMessage, { counters }: CallAnswer): void {
    const [answer] = counters;
    if (answer?.status !== MESSAGE_STATUS.done || isVague(world)) return;
    const { checks, kept } = message;
    const { window, served } = answer;
    // Tokens that this message is granted or keeps: its member asks again if it does not use them.
    const taken = checks.reduce(
      (sum, { cost }, n) => {
        return served[n] === SERVED.allowed ? sum + cost : sum;
      },
      window === message.window ? kept : 0,
    );
    for (const [n, { cost, limit, isSliding }] of checks.entries()) {
      if (served[n] !== SERVED.denied) continue;
      const carried = isSliding ? this.#carriedAt(world, window) : 0;
      const used = (world.total[window] ?? 0) + carried + taken;
      if (cost + used <= limit) throw new Error(`Redis denies ${cost} of ${limit}; used: ${used}`);
    }
  }

  /** Tokens of the window before that count in a sliding window now. */
  #carriedAt({ nowMs, total }: World, window: number): number {
    const { durationMs } = this.#scenario;
    const left = Math.min(durationMs, Math.max(0, (window + 1) * durationMs - nowMs));
    return Math.floor(((total[window - 1] ?? 0) * left) / durationMs);
  }

  #publish(world: World, published: readonly Publication[]): void {
    for (const { to, kind, window, report = 0 } of published) {
      if (kind === 'epoch') continue;
      world.news.push({ machine: Number(to.split('.')[0]), kind, window, report });
    }
  }

  #inform(machine: Machine, { kind, window, report }: World['news'][number]): void {
    const { slot, flight } = machine;
    if (kind === 'report') {
      machine.report = report;
      return;
    }
    // The answer in flight may be of a later window than the slot's.
    const isKnown = slot?.window === window || flight !== undefined;
    if (slot === undefined || !isKnown) return;
    if (kind === 'recall') {
      machine.isRecalled = true;
      return;
    }
    if (this.#keeps('clearsDenialsWhenWoken')) slot.boundMs = 0;
    for (const check of machine.waiting) check.triedMs = -1;
    // What is in flight may have been answered before.
    if (flight !== undefined) flight.isWoken = true;
  }

  #answer(world: World, { machine: i, call, sequence, isVague }: Answer): void {
    const machine = world.machines[i];
    const { flight, slot } = machine;
    machine.clockUs = Math.max(machine.clockUs, call.clockUs);
    const [counter] = call.counters;
    if (flight?.sequence !== sequence && this.#keeps('ignoresOtherAnswers')) return;
    if (flight === undefined || slot === undefined) return;
    if (call.status === CALL_STATUS.done) this.#learnEpoch(machine, call.epoch);
    const { status } = counter ?? { status: MESSAGE_STATUS.stale };
    const isDone = status === MESSAGE_STATUS.done || status === MESSAGE_STATUS.retryRefund;
    if (call.status !== CALL_STATUS.done || !isDone) {
      this.#endFlight(machine);
      if (call.status === CALL_STATUS.joining) machine.isJoining = true;
      for (const check of machine.waiting) check.triedMs = world.nowMs;
      return;
    }
    delete machine.flight;
    // Later messages name the epoch. All of the counters are this one.
    if (flight.isReport) machine.reportedEpoch = flight.reports;
    if (counter.window < slot.window) return;
    this.#take(world, machine, slot, flight, counter, isVague);
  }

  #take(
    world: World,
    machine: Machine,
    slot: Slot,
    flight: Flight,
    answer: CounterAnswer,
    wasVague: boolean,
  ): void {
    const { nowMs } = world;
    const tokens = { unused: 0 };
    // Tokens that the machine holds may not be used in the end.
    const mayFree =
      flight.mayFree ||
      flight.checks.some(({ kind, isWithdrawn }) => kind === 'reserve' || isWithdrawn);
    const isOpen = (check: WaitingCheck, served: number) => {
      if (check.isWithdrawn || served === SERVED.allowed) return false;
      return served === SERVED.unproven || (mayFree && this.#keeps('doubtsOwnTokens'));
    };
    if (answer.window > slot.window) {
      const isNext = answer.window === slot.window + 1;
      slot.previousSpent = isNext ? slot.spent : 0;
      slot.previousReserved = isNext ? slot.reserved : 0;
      slot.previousKnown = isNext ? Math.max(0, slot.others + slot.spent) : 0;
      // A reservation of a window that has ended is given up.
      Object.assign(slot, { window: answer.window, spent: 0, reserved: 0, lease: 0, boundMs: 0 });
    }
    const from = this.#keeps('deadlineFromSending') ? flight.sentMs : nowMs;
    slot.deadlineMs = from + Math.floor(answer.leftUs / 1_000);
    slot.isStored = answer.isStored;
    slot.others = answer.others;
    const isShown = flight.isSliding || flight.hasPrevious || flight.window === answer.window - 1;
    if (isShown) slot.previousKnown = answer.previousKnownUse;
    if (answer.report !== 0) machine.report = answer.report;
    slot.spent -= answer.refunded;
    addTokens(world.total, slot.window, -answer.refunded);
    slot.isDirty = false;
    slot.boundMs = flight.isWoken || !answer.mayDeny ? 0 : nowMs + BOUND_MS;
    for (const [n, check] of flight.checks.entries()) {
      const served = answer.served[n];
      if (check.isWithdrawn) {
        if (served === SERVED.allowed) tokens.unused += check.cost;
      } else if (served === SERVED.allowed) {
        if (check.kind === 'reserve') {
          slot.reserved += check.cost;
          slot.lastLimit = check.limit;
        } else this.#allow(world, slot, check);
      } else if (isOpen(check, served)) {
        const tries = check.tries + 1;
        const { mostTries = tries, checks } = this.#scenario;
        const isAlone = checks[world.machines.indexOf(machine)].length === 1;
        if (isAlone && tries > mostTries) throw new Error('a check waits again');
        machine.waiting.push({ ...check, triedMs: flight.isWoken ? -1 : nowMs, tries });
      }
    }
    for (const [n, check] of flight.checks.entries()) {
      const served = answer.served[n];
      const isFinal = served === SERVED.denied && !isOpen(check, served);
      // Redis has decided before refunds that are known now.
      if (!isFinal || check.isSliding || check.isWithdrawn) continue;
      if (wasVague || world.refunded > 0) continue;
      this.#deny(world, answer.window, check, answer.others);
    }
    const held = answer.lent + tokens.unused;
    if (held === 0) return;
    const limits = flight.checks.map(({ limit }) => limit);
    const limit = Math.max(answer.lentLimit, ...limits, slot.lease > 0 ? slot.leaseLimit : 0);
    const isUnusedFixed = flight.checks.some((check, n) => {
      return check.isWithdrawn && !check.isSliding && answer.served[n] === SERVED.allowed;
    });
    slot.leaseIsSliding =
      flight.isSliding && !isUnusedFixed && (slot.lease === 0 || slot.leaseIsSliding);
    slot.leaseLimit =
      tokens.unused > 0 ? limit : Math.max(answer.lentLimit, slot.lease > 0 ? slot.leaseLimit : 0);
    slot.lease += held;
  }

  /** In a new epoch the counters must be reported. */
  #learnEpoch(machine: Machine, epoch: string): void {
    machine.epoch = epoch;
    // Nothing is to be reported.
    if (machine.slot === undefined) machine.reportedEpoch = epoch;
  }

  /** A call without messages, and what follows from it, which other events do not interrupt. */
  #contact(world: World, i: number): void {
    const machine = world.machines[i];
    const { redis } = world;
    const serverUs = this.#serverUs(world);
    const take = (call: (header: CallHeader) => CallAnswer) => {
      const { reportedEpoch, membersVersion, clockUs } = machine;
      const wasFenced = (redis.meta?.fenceUs ?? 0) > 0;
      const header = { member: memberOf(i), reportedEpoch, membersVersion, clockUs };
      const answer = call(header);
      this.#afterCall(world, wasFenced, header, answer);
      machine.clockUs = Math.max(machine.clockUs, answer.clockUs);
      machine.isJoining = answer.status === CALL_STATUS.joining;
      if (answer.membersVersion > machine.membersVersion) {
        machine.membersVersion = answer.membersVersion;
        machine.members = Object.keys(redis.meta!.members);
      }
      if (answer.status === CALL_STATUS.done) this.#learnEpoch(machine, answer.epoch);
      return answer.status;
    };
    const send = () => {
      return take((header) => exchange(redis, serverUs, header, [], this.#rules).answer);
    };
    if (send() === CALL_STATUS.needsMembers) {
      const knowsNothing = machine.reportedEpoch === '';
      // A member that knows no others waits for those that do.
      const isYoung = this.#keeps('waitsForOlderMembers');
      const own = knowsNothing ? [] : [memberOf(i)];
      const members = this.#keeps('presentsMembers')
        ? [...new Set([...machine.members, ...own])]
        : [];
      take((header) => {
        return presentMembers(redis, serverUs, header, members, this.#rules, isYoung);
      });
    }
    send();
  }

  /** Removes what no later event can show: old answers, and what nobody receives. */
  tidy(world: World): void {
    const { machines } = world;
    const ignores = this.#keeps('ignoresOtherAnswers');
    world.answers = world.answers.filter(({ machine, sequence }) => {
      const { isAlive, flight } = machines[machine];
      return isAlive && (flight?.sequence === sequence || !ignores);
    });
    world.news = world.news.filter(({ machine }) => machines[machine].isAlive);
    if (this.#isLastWindow(world)) {
      world.requests = world.requests.filter((request) => !this.#isStale(world, request));
    }
    if (this.#scenario.isPrompt !== true) world.unproven = 0;
  }

  /** Whether the counters of the present window stay what they are, whatever happens. */
  #isLastWindow({ nowMs, faults, redis, serverAheadMs }: World): boolean {
    const { durationMs, ticks, tickMs } = this.#scenario;
    const endMs = this.#startMs() + ticks * tickMs;
    const { failovers, deletions, clockSteps, forgets } = faults;
    return (
      failovers + deletions + clockSteps + forgets + Math.abs(serverAheadMs) === 0 &&
      Math.floor(Math.max(nowMs, endMs) / durationMs) === Math.floor(nowMs / durationMs) &&
      (redis.meta?.fenceUs ?? 1) === 0 &&
      this.#keeps('checksSequence')
    );
  }

  /** Whether Redis has had a later message, so that this one changes nothing. */
  #isStale({ nowMs, redis }: World, { machine, header, message }: Request): boolean {
    const known = redis.meta!.members[memberOf(machine)];
    const window = Math.floor(nowMs / this.#scenario.durationMs);
    const record = redis.counters[counterAt(this.#key, window)]?.members[memberOf(machine)];
    return (
      known?.hasJoined &&
      known.reported === redis.meta!.epochNumber &&
      header.membersVersion <= known.acknowledged &&
      record !== undefined &&
      message.sequence <= record.sequence
    );
  }

  /** @throws an error if a guarantee does not hold in this world */
  check(world: World): void {
    const { allowed, refunded, redis, machines, unproven } = world;
    if (this.#scenario.isPrompt === true && unproven > 0) throw new Error('a denial is unproven');
    for (const [window, byLimit] of Object.entries(allowed)) {
      for (const limit of Object.keys(byLimit).map(Number)) {
        const tokens = usageUpTo(byLimit, limit);
        if (tokens > limit + refunded + (world.extra[window] ?? 0)) {
          throw new Error(`${tokens} of ${limit} tokens are allowed in window ${window}`);
        }
      }
    }
    if (!isSettled(world)) return;
    for (const [at, { used, members }] of Object.entries(redis.counters)) {
      const sum = Object.values(members).reduce((total, { deducted }) => total + deducted, 0);
      if (sum > used) throw new Error(`members hold ${sum} of ${used} tokens`);
      const window = Number(at.split(':').at(-1));
      const leased = machines.map((machine) => this.#heldIn(world, machine, window));
      const held = leased.reduce((total, tokens) => total + tokens, 0);
      const spent = usageUpTo(allowed[window], Number.POSITIVE_INFINITY);
      if (used + refunded + (world.lost[window] ?? 0) < spent + held) {
        throw new Error(`${used} tokens are deducted, but ${spent} spent and ${held} held`);
      }
    }
  }

  #heldIn({ nowMs }: World, { isAlive, slot }: Machine, window: number): number {
    if (!isAlive || slot === undefined || slot.window !== window) return 0;
    return (nowMs < slot.deadlineMs ? slot.lease : 0) + slot.reserved;
  }

  /** The last reports of all live machines. Then nothing is lent, and all usage is counted once. */
  checkEnd(world: World): void {
    const { machines, redis, nowMs, refunded } = world;
    if (!isSettled(world)) return;
    let window = Math.floor(nowMs / this.#scenario.durationMs);
    for (const [i, machine] of machines.entries()) {
      if (!machine.isAlive || machine.slot === undefined) continue;
      if (machine.isJoining) return;
      machine.isPaused = false;
      if (machine.reportedEpoch !== epochOf(redis)) return;
      machine.slot.lease += machine.slot.reserved;
      machine.slot.reserved = 0;
      this.#endFlight(machine);
      this.#send(world, i, { keepsLease: false });
      this.#execute(world, world.requests.at(-1)!);
      const { status, counters } = world.answers.at(-1)!.call;
      // It has to join again.
      if (status !== CALL_STATUS.done || !isSettled(world)) return;
      if (counters[0].window >= 0) window = counters[0].window;
    }
    const counter = redis.counters[counterAt(this.#key, window)];
    if (counter === undefined || machines.some(({ isAlive }) => !isAlive)) return;
    const lent = counter.used - counter.known;
    const total = world.total[window] ?? 0;
    const isUnsure = refunded > 0 || isVague(world);
    if (lent !== 0 && !isUnsure) throw new Error(`${lent} tokens stay lent`);
    if (!isUnsure && world.allowed[window] !== undefined && counter.used > total) {
      throw new Error(`${counter.used} tokens are counted, but ${total} were allowed`);
    }
  }
}

function epochOf({ meta }: RedisState): string {
  return meta === undefined ? '' : `${meta.runId}.${meta.epochNumber}`;
}

/** Whether known use may contain more than was allowed: as of holders that do not answer. */
function isVague({ isKnownVague, redis }: World): boolean {
  return (
    isKnownVague ||
    Object.values(redis.counters).some(({ members, restored }) => {
      // What was restored of a window before is counted twice if its member reports it later.
      return restored > 0 || Object.values(members).some(({ isWrittenOff }) => isWrittenOff);
    })
  );
}

/** Whether Redis knows all usage, as far as nothing is lost for good. */
function isSettled({ redis, isDeleted }: World): boolean {
  const { meta } = redis;
  const isKnown = Object.values(redis.counters).every(({ members }) => {
    return !Object.values(members).some(({ mustReport }) => mustReport);
  });
  return (
    isKnown && meta !== undefined && meta.fenceUs === 0 && meta.runId === redis.runId && !isDeleted
  );
}

const newSlot = (firstSequence: number): Slot => ({
  ...{ window: NO_WINDOW, isStored: false, spent: 0, previousSpent: 0, previousReserved: 0 },
  previousKnown: 0,
  ...{ lease: 0, leaseLimit: 0, leaseIsSliding: false, reserved: 0, deadlineMs: 0, others: 0 },
  ...{ boundMs: 0, lastLimit: 0, firstSequence, isDirty: false },
});

function addTokens(byWindow: Record<string, number>, window: number, tokens: number): void {
  byWindow[window] = (byWindow[window] ?? 0) + tokens;
}

function addUsage(usage: Usage, window: number, limit: number, cost: number): void {
  usage[window] ??= {};
  usage[window][limit] = (usage[window][limit] ?? 0) + cost;
}

function usageUpTo(byLimit: Record<string, number> | undefined, limit: number): number {
  const entries = Object.entries(byLimit ?? {}).filter(([each]) => Number(each) <= limit);
  return entries.reduce((sum, [, tokens]) => sum + tokens, 0);
}
