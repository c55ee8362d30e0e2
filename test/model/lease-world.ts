/**
 * Machines, one Redis and the network between them, as plain data, and every event that may come
 * next. A machine runs the code of the product: its counter (`engine/redis/counter`), its slot in
 * a lease table, and what connects both. All its threads are one here, because the lock of the slot
 * orders them. Redis is the model in `lease-model.ts`, which other tests compare with the scripts.
 *
 * The time advances in ticks. Machines measure the same time as Redis, but learn of a window's end
 * only from answers. Messages, answers and publications are delivered in any order; a scenario says
 * how many may be lost or repeated, and how many other faults may happen. The timer for checks that
 * got no answer may fire at any time.
 */

import {
  type CheckParameters,
  newDecision,
  OUTCOME,
  type TableDecision,
} from '../../src/core/decision.ts';
import { NO_BURST, RULE } from '../../src/core/window-rules.ts';
import { endDenials } from '../../src/engine/redis/counter/answer.ts';
import {
  type Counter,
  decideInOrder,
  isReady,
  newCounter,
  recall,
  type WaitingCheck,
  wake,
} from '../../src/engine/redis/counter/counter.ts';
import { dropLease, forgetUsage, mustReport } from '../../src/engine/redis/counter/lease-state.ts';
import {
  changeState,
  composeFromSlot,
  takeAnswerIntoSlot,
} from '../../src/engine/redis/lease-exchange.ts';
import { type LeaseTable, VERDICT } from '../../src/engine/redis/lease-table.ts';
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
  AWAIT_US,
  LEASED_LIMIT_MIN,
  RETRY_MS,
} from '../../src/engine/redis/scripts/protocol-constants.ts';
import { NO_SLOT } from '../../src/engine/table/layout.ts';
import { counterKey } from '../../src/engine/windows/registry.ts';
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
import { IDENTITY, SlotMemory, type SlotOwner } from './lease-slot-memory.ts';

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

/** A check of a machine that waits for Redis. */
export interface WorldCheck extends WaitingCheck {
  readonly kind: CheckKind;
  /** How many messages have carried it. */
  tries: number;
  /** Whether it was decided without Redis while its message was under way. */
  isWithdrawn?: true;
}

/** A check of a pending batch. */
interface Reservation {
  window: number;
  cost: number;
  limit: number;
}

export interface Machine extends SlotOwner {
  isAlive: boolean;
  isPaused: boolean;
  counter: Counter<WorldCheck>;
  reservations: Reservation[];
  /** When the message under way was sent. */
  sentMs: number;
  /** The sequence number of the last message, and how many there were. */
  lastSequence: number;
  messages: number;
  /** Whether pending batches kept tokens of a returned lease, which are to be returned later. */
  returnsLater: boolean;
  /** When its lease for sliding windows is to be returned; 0: there is none. */
  leaseEndMs: number;
  /** When it learned that the known usage has fallen. */
  wokenMs: number;
  /** Of the last answer, and the one in which all counters were reported; '' for none. */
  epoch: string;
  reportedEpoch: string;
  /** The epoch for which it reports, by the message of that number; 0: it is not composed. */
  reporting?: { epoch: string; sequence: number } | undefined;
  membersVersion: number;
  members: string[];
  isJoining: boolean;
  clockUs: number;
}

export interface Request {
  machine: number;
  /** Its number among the messages of its machine. */
  number: number;
  header: CallHeader;
  message: CounterMessage;
}

export interface Answer {
  machine: number;
  number: number;
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
  news: { machine: number; kind: Publication['kind']; report: number }[];
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

const FIRST_WINDOW = 1_000;
/** How long checks wait for reports after a loss. */
export const RECOVERY_PARK_MS = 20;
/** How many tokens a refund gives back. */
const REFUND = LEASED_LIMIT_MIN;
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
  readonly #tableKey: number;
  readonly #memory: SlotMemory;
  readonly #decision = newDecision();

  constructor(scenario: LeaseScenario) {
    this.#scenario = scenario;
    this.#tableKey = counterKey(RULE.fixed, scenario.durationMs);
    this.#memory = new SlotMemory(this.#tableKey);
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
          ...{ isAlive: true, isPaused: false, removedSequence: 0, reservations: [] },
          counter: newCounter(IDENTITY, this.#scenario.durationMs),
          ...{
            sentMs: 0,
            lastSequence: 0,
            messages: 0,
            returnsLater: false,
            leaseEndMs: 0,
            wokenMs: Number.NEGATIVE_INFINITY,
          },
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
    const isUsedByAll = world.machines.every(({ slot }) => slot?.state.isStored);
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
    const isReported = world.machines.every(({ slot, counter }) => {
      return !slot?.isDirty && counter.sent === undefined;
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
    const { slot, counter } = machine;
    const { sent } = counter;
    if (world.arrived[i] < this.#scenario.checks[i].length) {
      add(`arrive ${i}`, (w) => this.#arrive(w, i));
    }
    if (this.#needsContact(world, machine)) add(`contact ${i}`, (w) => this.#contact(w, i));
    if (sent === undefined) {
      if (isReady(counter, world.nowMs) && !machine.isJoining) {
        add(`send ${i}`, (w) => this.#send(w, i));
      }
      if (slot !== undefined && slot.state.lastLimit > 0) {
        const prefetch = (w: World) => {
          const { lastLimit: limit, coversSliding: isSliding } = w.machines[i].slot!.state;
          w.machines[i].counter.prefetch = { limit, isSliding };
        };
        add(`prefetch ${i}`, prefetch, 'prefetches');
      }
      if (slot !== undefined && slot.state.spent > 0) {
        const refund = (w: World) => {
          w.refunded += REFUND;
          const { window } = w.machines[i].slot!.state;
          const correction = { refund: REFUND, refundWindow: window, recalls: false };
          w.machines[i].counter.corrections.push(correction);
        };
        add(`refund ${i}`, refund, 'refunds');
      }
      if (slot !== undefined) {
        add(`evict ${i}`, (w) => this.#memory.evict(w.machines[i], w.nowMs), 'evictions');
      }
    } else add(`time out ${i}`, (w) => this.#takeAnswer(w, i, undefined), 'timeouts');
    if (sent?.checks.some(({ isWithdrawn }) => isWithdrawn === undefined)) {
      const withdraw = ({ machines }: World) => {
        const { checks } = machines[i].counter.sent!;
        checks.find(({ isWithdrawn }) => isWithdrawn === undefined)!.isWithdrawn = true;
      };
      add(`withdraw ${i}`, withdraw, 'withdrawals');
    }
    if (machine.reservations.length > 0) {
      add(`commit ${i}`, (w) => this.#endBatches(w, i, true));
      add(`abort ${i}`, (w) => this.#endBatches(w, i, false));
    }
    if (machine.returnsLater) {
      add(`return ${i}`, ({ machines }) => {
        machines[i].returnsLater = false;
        machines[i].counter.mustReturn = true;
      });
    }
    if (machine.leaseEndMs > 0 && world.nowMs >= machine.leaseEndMs) {
      add(`end the lease of ${i}`, (w) => this.#endLease(w, i));
    }
    const setMachine = (changes: Partial<Machine>) => {
      return ({ machines }: World) => void Object.assign(machines[i], changes);
    };
    add(`kill ${i}`, setMachine({ isAlive: false }), 'kills');
    if (world.faults.stops > 0 && sent === undefined && counter.waiting.length === 0) {
      const { isDirty = false, state } = slot ?? {};
      const isReported = !isDirty && (state === undefined || state.lease + state.reserved === 0);
      if (isReported && !machine.isJoining) add(`stop ${i}`, (w) => this.#stop(w, i), 'stops');
      else if (!isReported && !counter.mustReturn) {
        add(`drain ${i}`, ({ machines }) => {
          machines[i].counter.mustReturn = true;
        });
      }
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
    const { window } = slot?.state ?? { window: NO_WINDOW };
    const endMs = window === NO_WINDOW ? 0 : (window + 2) * this.#scenario.durationMs;
    leaveMember(world.redis, this.#serverUs(world), header, endMs * 1_000, this.#rules);
  }

  /** Tokens that a machine has used or holds may be allowed once more. */
  #lose(world: World, i: number): void {
    const { slot, counter } = world.machines[i];
    if (slot === undefined) return;
    const { spent, lease, reserved } = slot.state;
    const present = Math.floor(world.nowMs / this.#scenario.durationMs);
    const window = slot.state.window === NO_WINDOW ? present : slot.state.window;
    const asked = counter.sent?.checks.reduce((sum, { check }) => sum + check.cost, 0) ?? 0;
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

  #networkEvents(world: World, add: AddEvent): void {
    for (const [n, request] of world.requests.entries()) {
      const name = `request ${request.machine}/${request.number}`;
      add(`deliver ${name}`, (w) => {
        w.requests.splice(n, 1);
        this.#execute(w, request);
      });
      add(`lose ${name}`, (w) => void w.requests.splice(n, 1), 'losses');
      add(`repeat ${name}`, (w) => this.#execute(w, request), 'repeats');
    }
    for (const [n, answer] of world.answers.entries()) {
      const { isAlive, isPaused } = world.machines[answer.machine];
      const name = `answer ${answer.machine}/${answer.number}`;
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
          if (isAlive) this.#inform(w, machine, news);
        });
      }
      add(`lose ${kind} ${machine}`, (w) => void w.news.splice(n, 1), 'losses');
    }
  }

  /** Runs code of the product on the slot of a machine. */
  #run<T>(world: World, i: number, action: (table: LeaseTable) => T): T {
    return this.#memory.run(world.machines[i], world.nowMs, action);
  }

  /** The next check of a machine: decided at once, or waiting for tokens. */
  #arrive(world: World, i: number): void {
    const { cost, limit, kind, isSliding, countsDenied } =
      this.#scenario.checks[i][world.arrived[i]++];
    const { durationMs } = this.#scenario;
    const rule = isSliding ? RULE.sliding : RULE.fixed;
    const parameters: CheckParameters = { cost, limit, durationMs, rule, burst: NO_BURST };
    if (kind === 'async') {
      this.#decideAsync(world, i, parameters);
      return;
    }
    const check: WorldCheck = {
      ...{ parameters, check: { cost, limit, isSliding, countsDenied }, kind },
      ...{ isReserve: kind === 'reserve', wasSent: false, queuedMs: world.nowMs, parkedMs: 0 },
      tries: 0,
    };
    if (!this.#tryInMemory(world, i, check)) world.machines[i].counter.waiting.push(check);
  }

  /** @returns whether the check is over */
  #tryInMemory(world: World, i: number, { parameters, kind }: WorldCheck): boolean {
    const { nowMs } = world;
    const decision = this.#decision;
    const { slot } = world.machines[i];
    const { lentLimit = 0, coversSliding = false } = slot?.state ?? {};
    if (slot !== undefined && !this.#keeps('checksLeaseLimit')) slot.state.lentLimit = 0;
    if (slot !== undefined && !this.#keeps('checksSlidingLease')) slot.state.coversSliding = true;
    const verdict = this.#run(world, i, (table) => {
      return kind === 'reserve'
        ? table.reserve(IDENTITY, nowMs, parameters, decision)
        : table.decide(IDENTITY, nowMs, parameters, decision);
    });
    if (slot !== undefined)
      Object.assign(world.machines[i].slot!.state, { lentLimit, coversSliding });
    if (verdict !== VERDICT.decided && verdict !== VERDICT.decidedPrefetch) return false;
    const { cost, limit, durationMs, rule } = parameters;
    const machine = world.machines[i];
    if (verdict === VERDICT.decidedPrefetch) {
      machine.counter.prefetch = { limit, isSliding: rule === RULE.sliding };
    }
    const { window } = decision;
    if (!decision.allowed) this.#checkLocalDenial(world, i, parameters, decision);
    else {
      const isOver = Math.floor(nowMs / durationMs) !== window;
      if (isOver && this.#scenario.clockStepsMs === undefined) {
        throw new Error('a lease is used after its window');
      }
      if (kind === 'reserve') machine.reservations.push({ window, cost, limit });
      else this.#allow(world, window, parameters);
    }
    return true;
  }

  /** An asynchronous check is decided at once, in a new slot if it has none. */
  #decideAsync(world: World, i: number, parameters: CheckParameters): void {
    const decision = this.#decision;
    const verdict = this.#run(world, i, (table) => {
      const lock = table.lockFor(IDENTITY);
      table.acquire(lock);
      if (table.find(IDENTITY, this.#tableKey) === NO_SLOT) {
        table.insert(IDENTITY, 1, this.#tableKey, world.nowMs);
      }
      table.release(lock);
      return table.decideAsync(IDENTITY, world.nowMs, parameters, decision);
    });
    if (verdict === VERDICT.decidedReport) world.machines[i].counter.mustSync = true;
    if (decision.allowed) addTokens(world.total, decision.window, parameters.cost);
  }

  #allow(world: World, window: number, { cost, limit, rule }: CheckParameters): void {
    addUsage(world.allowed, window, limit, cost);
    addTokens(world.total, window, cost);
    if (rule !== RULE.sliding) return;
    const carried = this.#carriedAt(world, window);
    const sum = usageUpTo(world.allowed[window], limit) + carried;
    if (sum > limit) throw new Error(`${sum} of ${limit} tokens are allowed in a sliding window`);
  }

  /** Commits all pending batches of a machine, or aborts them. */
  #endBatches(world: World, i: number, isCommitted: boolean): void {
    const machine = world.machines[i];
    this.#run(world, i, (table) => {
      for (const { window, cost, limit } of machine.reservations) {
        if (!isCommitted) table.abort(IDENTITY, this.#tableKey, window, cost);
        else {
          table.commit(IDENTITY, this.#tableKey, window, cost);
          addUsage(world.allowed, window, limit, cost);
          addTokens(world.total, window, cost);
        }
      }
    });
    machine.reservations = [];
  }

  /** Takes a lease away whose time is over, and reports it. */
  #endLease(world: World, i: number): void {
    const machine = world.machines[i];
    machine.leaseEndMs = 0;
    this.#run(world, i, (table) => changeState(table, IDENTITY, this.#tableKey, dropLease));
    machine.counter.mustSync = true;
  }

  #windowOfRedis(world: World): number {
    const us = Math.max(this.#serverUs(world), world.redis.meta?.clockUs ?? 0);
    return Math.floor(us / 1_000 / this.#scenario.durationMs);
  }

  /** A denial by the known usage must be true, unless that is vague. */
  #checkLocalDenial(
    world: World,
    i: number,
    { cost, limit, rule }: CheckParameters,
    { window, outcome }: TableDecision,
  ): void {
    // Of a machine that pauses: tokens come free, and it takes them later.
    if (outcome === OUTCOME.shared || isVague(world)) return;
    // It may be false until the machine is told of refunds and resets, and for RETRY_MS longer.
    if (world.news.some(({ machine, kind }) => machine === i && kind !== 'recall')) return;
    if (world.nowMs < world.machines[i].wokenMs + RETRY_MS) return;
    // Redis tells members what falls in the window that it is in. Its clock was set.
    if (this.#windowOfRedis(world) > window) return;
    const carried = rule === RULE.sliding ? this.#carriedAt(world, window) : 0;
    const used = (world.total[window] ?? 0) + carried;
    if (cost + used > limit) return;
    throw new Error(`a denial of ${cost} of ${limit} is false; used: ${used}`);
  }

  /** Decides in memory what it can, and sends the next message if there is one. */
  #send(world: World, i: number): void {
    const { counter } = world.machines[i];
    counter.waiting = counter.waiting.filter(({ isWithdrawn }) => isWithdrawn === undefined);
    decideInOrder(counter, (check) => this.#tryInMemory(world, i, check));
    if (isReady(counter, world.nowMs)) this.#compose(world, i);
  }

  #compose(world: World, i: number): void {
    const machine = world.machines[i];
    const { counter, reporting } = machine;
    const isReport = reporting?.sequence === 0 && counter.mustSync;
    const leaseBefore = machine.slot?.state.lease ?? 0;
    const active = { counter, key: this.#tableKey, namespaceTag: 1 };
    const { message } = this.#run(world, i, (table) => {
      // Two messages are never sent in the same microsecond.
      const nowMs = Math.max(world.nowMs, (machine.lastSequence + 2) / 1_000);
      const context = { nowMs, usesLeases: true, inheritsFrom: 0 };
      return composeFromSlot(table, active, context);
    });
    const state = machine.slot?.state;
    if (!this.#keeps('takesLease') && state !== undefined) state.lease = leaseBefore;
    if (!this.#keeps('keepsReserved')) message.kept -= state?.reserved ?? 0;
    if (isReport) reporting.sequence = message.sequence;
    machine.sentMs = world.nowMs;
    machine.lastSequence = message.sequence;
    machine.messages++;
    for (const check of counter.sent!.checks) check.tries++;
    const { reportedEpoch, membersVersion, clockUs } = machine;
    const header = { member: memberOf(i), reportedEpoch, membersVersion, clockUs };
    world.requests.push({ machine: i, number: machine.messages, header, message });
  }

  #execute(world: World, { machine, number, header, message }: Request): void {
    const { redis } = world;
    const wasFenced = (redis.meta?.fenceUs ?? 0) > 0;
    const serverUs = this.#serverUs(world);
    const { answer, published } = exchange(redis, serverUs, header, [message], this.#rules);
    const { sequence } = message;
    world.answers.push({ machine, number, sequence, call: answer, isVague: isVague(world) });
    this.#publish(world, published);
    this.#afterCall(world, wasFenced, header, answer);
    const [counter] = answer.counters;
    // A counter that exists again was verified.
    if (redis.counters[counterAt(this.#key, counter?.window ?? NO_WINDOW)]) world.isDeleted = false;
    // A message that was repeated in a later window may take tokens that nobody uses.
    const isLate = message.sequence < world.machines[machine].lastSequence;
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
    for (const { to, kind, report = 0 } of published) {
      if (kind === 'epoch') continue;
      world.news.push({ machine: Number(to.split('.')[0]), kind, report });
    }
  }

  #inform(world: World, i: number, { kind, report }: World['news'][number]): void {
    const machine = world.machines[i];
    const { counter } = machine;
    const change = (by: Parameters<typeof changeState>[3]) => {
      if (!this.#keeps('clearsDenialsWhenWoken')) return;
      this.#run(world, i, (table) => changeState(table, IDENTITY, this.#tableKey, by));
    };
    switch (kind) {
      case 'recall':
        recall(counter);
        break;
      case 'report':
        counter.report = report;
        break;
      case 'reset':
        change(forgetUsage);
        counter.mustSync = true;
        break;
      case 'wake':
        change((state) => endDenials(state, world.nowMs));
        machine.wokenMs = world.nowMs;
        wake(counter);
        if (!this.#keeps('clearsDenialsWhenWoken')) counter.isWoken = false;
    }
  }

  #answer(world: World, { machine: i, call, sequence }: Answer): void {
    const machine = world.machines[i];
    const { sent } = machine.counter;
    machine.clockUs = Math.max(machine.clockUs, call.clockUs);
    if (sent === undefined) return;
    const isOther = sent.message.sequence !== sequence;
    if (isOther && this.#keeps('ignoresOtherAnswers')) return;
    learnClock(machine, call.clockUs / 1_000, machine.sentMs, world.nowMs);
    const isDone = call.status === CALL_STATUS.done;
    machine.isJoining = call.status === CALL_STATUS.joining;
    const [counter] = isDone ? call.counters : [];
    this.#takeAnswer(
      world,
      i,
      isOther && counter ? { ...counter, sequence: sent.message.sequence } : counter,
    );
    if (isDone) this.#learnEpoch(world, i, call.epoch);
  }

  /** @param answer undefined: there is none */
  #takeAnswer(world: World, i: number, answer: CounterAnswer | undefined): void {
    const machine = world.machines[i];
    const { counter, sentMs, reporting } = machine;
    const { nowMs } = world;
    const { durationMs, mostTries, checks } = this.#scenario;
    const { message } = counter.sent!;
    if (counter.isWoken) machine.wokenMs = nowMs;
    const isOpen = ({ isWithdrawn }: WorldCheck) => isWithdrawn === undefined;
    const result = this.#run(world, i, (table) => {
      const active = { counter, key: this.#tableKey, namespaceTag: 1 };
      const { offsetMs } = machine.clock ?? { offsetMs: 0 };
      return takeAnswerIntoSlot(table, active, answer, {
        sentMs: this.#keeps('deadlineFromSending') ? sentMs : nowMs,
        ...{ nowMs, redisMs: nowMs + offsetMs, usesLeases: true, claim: isOpen, isOpen },
        recoveryParkMs: RECOVERY_PARK_MS,
      });
    });
    if (!this.#keeps('keepsUnanswered') && machine.slot !== undefined) machine.slot.isDirty = false;
    if (result.isDone && answer !== undefined) {
      addTokens(world.total, answer.window, -answer.refunded);
    }
    for (const [{ parameters, kind }, decision] of result.decisions) {
      if (!decision.allowed) continue;
      const window = decision.reset / durationMs - 1;
      const { cost, limit } = parameters;
      if (kind === 'reserve') machine.reservations.push({ window, cost, limit });
      else this.#allow(world, window, parameters);
    }
    world.unproven += result.unprovenDenials;
    machine.returnsLater ||= result.returnsLater;
    if (result.slidingLeaseEndMs > 0) machine.leaseEndMs = result.slidingLeaseEndMs;
    if (reporting !== undefined && reporting.sequence === message.sequence) {
      if (result.isDone) machine.reportedEpoch = reporting.epoch;
      machine.reporting = undefined;
    }
    if (!result.isDone) counter.retryMs = nowMs;
    const isAlone = checks[i].length === 1 && mostTries !== undefined;
    if (isAlone && counter.waiting.some(({ tries }) => tries > mostTries)) {
      throw new Error('a check waits again');
    }
  }

  /** In a new epoch the counters must be reported. */
  #learnEpoch(world: World, i: number, epoch: string): void {
    const machine = world.machines[i];
    const { slot, reporting } = machine;
    machine.epoch = epoch;
    if (epoch === machine.reportedEpoch || reporting !== undefined) return;
    const { durationMs } = this.#scenario;
    const redisMs = world.nowMs + (machine.clock?.offsetMs ?? 0);
    if (slot === undefined || !mustReport(slot.state, durationMs, redisMs)) {
      machine.reportedEpoch = epoch;
      return;
    }
    machine.counter.mustSync = true;
    machine.reporting = { epoch, sequence: 0 };
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
      learnClock(machine, answer.clockUs / 1_000, world.nowMs, world.nowMs);
      if (answer.status === CALL_STATUS.done) this.#learnEpoch(world, i, answer.epoch);
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
      const { isAlive, counter } = machines[machine];
      return isAlive && (counter.sent?.message.sequence === sequence || !ignores);
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
    if (!isAlive || slot?.state.window !== window) return 0;
    const { lease, reserved, deadlineMs } = slot.state;
    return (nowMs < deadlineMs ? lease : 0) + reserved;
  }

  /** The last reports of all live machines. Then nothing is lent, and all usage is counted once. */
  checkEnd(world: World): void {
    const { machines, redis, nowMs, refunded } = world;
    if (!isSettled(world)) return;
    let window = Math.floor(nowMs / this.#scenario.durationMs);
    for (const [i, machine] of machines.entries()) {
      // Redis recalls what it has lent to a machine, also if the slot was evicted.
      const isRecorded = Object.values(redis.counters).some(
        ({ members }) => memberOf(i) in members,
      );
      if (!machine.isAlive || (machine.slot === undefined && !isRecorded)) continue;
      if (machine.isJoining) return;
      machine.isPaused = false;
      if (machine.reportedEpoch !== epochOf(redis)) return;
      this.#endBatches(world, i, false);
      if (machine.counter.sent !== undefined) this.#takeAnswer(world, i, undefined);
      Object.assign(machine.counter, { waiting: [], corrections: [], prefetch: undefined });
      machine.counter.mustReturn = true;
      this.#compose(world, i);
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

/** Learns the difference between the clock of Redis and that of a machine, as calls do. */
function learnClock(machine: Machine, clockMs: number, sentMs: number, nowMs: number): void {
  const offsetMs = clockMs - nowMs;
  const aboveMs = clockMs - sentMs;
  const { clock } = machine;
  const low = Math.max(offsetMs, clock?.offsetMs ?? offsetMs);
  const high = Math.min(aboveMs, clock?.aboveMs ?? aboveMs);
  machine.clock = low <= high ? { offsetMs: low, aboveMs: high } : { offsetMs, aboveMs };
}

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
