/**
 * Copies of worlds, and texts that are the same for worlds of which no later event shows a
 * difference. Such worlds differ only
 *
 *   - in the order of messages under way, which are delivered in any order
 *   - in sequence numbers whose order is the same
 *   - in which machine is which, where all of them are to do the same
 *   - in times that only matter for as long as they are recent, and in numbers that nobody reads
 */

import { pauseLeftMs } from '../../src/engine/redis/counter/pause.ts';
import type { CounterMessage } from '../../src/engine/redis/scripts/protocol.ts';
import {
  LIVE_US,
  PARK_MS,
  QUIET_US,
  RECALL_AGAIN_US,
  RETRY_MS,
} from '../../src/engine/redis/scripts/protocol-constants.ts';
import type { MemberRecord, RedisState } from './lease-model.ts';
import type { StoredSlot } from './lease-slot-memory.ts';
import {
  type Answer,
  type LeaseScenario,
  type Machine,
  RECOVERY_PARK_MS,
  type Request,
  type World,
  type WorldCheck,
} from './lease-world.ts';

/** What the script compares ages with, us: a greater age is like this one. */
const OLD_RECALL_US = 1_000_000;
/** Scenarios that are shorter have members that are live until they leave. */
const CONTACT_MS = 400;

/** Messages, answers and checks to come are never changed, and shared. */
export function copyWorld(world: World): World {
  const { redis, snapshot, machines, faults, allowed, total, lost, extra } = world;
  const allowedCopy: World['allowed'] = {};
  for (const window in allowed) allowedCopy[window] = { ...allowed[window] };
  return {
    ...world,
    redis: copyRedis(redis),
    // It is replaced, and never changed.
    snapshot,
    machines: machines.map(copyMachine),
    arrived: [...world.arrived],
    requests: [...world.requests],
    answers: [...world.answers],
    news: [...world.news],
    faults: { ...faults },
    allowed: allowedCopy,
    total: { ...total },
    lost: { ...lost },
    extra: { ...extra },
    forgotten: [...world.forgotten],
    givenUp: [...world.givenUp],
  };
}

function copyRedis({ runId, meta, counters, index }: RedisState): RedisState {
  const copy: RedisState = { runId, counters: {}, index: { ...index } };
  for (const at in counters) {
    const counter = counters[at];
    const members: Record<string, MemberRecord> = {};
    for (const name in counter.members) members[name] = { ...counter.members[name] };
    copy.counters[at] = { ...counter, waiters: [...counter.waiters], members };
  }
  if (meta === undefined) return copy;
  const members: typeof meta.members = {};
  for (const name in meta.members) members[name] = { ...meta.members[name] };
  copy.meta = { ...meta, members, forgotten: { ...meta.forgotten } };
  return copy;
}

function copyMachine(machine: Machine): Machine {
  const { slot, counter, reservations } = machine;
  const { waiting, corrections, sent } = counter;
  const copyChecks = (checks: readonly WorldCheck[]) => checks.map((check) => ({ ...check }));
  return {
    ...machine,
    slot: slot && { ...slot, state: { ...slot.state } },
    reservations: [...reservations],
    counter: {
      ...counter,
      waiting: copyChecks(waiting),
      corrections: [...corrections],
      sent: sent && { ...sent, checks: copyChecks(sent.checks) },
    },
  };
}

export class WorldNames {
  readonly #scenario: LeaseScenario;
  /** Whether all machines are to do the same. */
  readonly #isSymmetric: boolean;
  readonly #hasAges: boolean;
  readonly #texts = new WeakMap<object, string>();

  constructor(scenario: LeaseScenario) {
    this.#scenario = scenario;
    const { checks, newMachines, ticks, tickMs, faults } = scenario;
    const plans = new Set(checks.map((each) => JSON.stringify(each)));
    this.#isSymmetric = plans.size === 1 && newMachines === undefined && !faults?.forgets;
    this.#hasAges = ticks * tickMs >= CONTACT_MS || (faults?.clockSteps ?? 0) > 0;
  }

  of(world: World): string {
    const { machines, faults, isKnownVague, allowed, total, lost, extra, unproven, refunded } =
      world;
    const shared = [
      ...[world.nowMs, world.serverAheadMs, isKnownVague, world.isDeleted, unproven, refunded],
      this.#hasAges ? world.clockUs - this.#serverUs(world) : 0,
      ...[faults, allowed, total, lost, extra, world.forgotten, world.givenUp],
      this.#sharedRedis(world, world.redis),
      faults.failovers > 0 ? this.#sharedRedis(world, world.snapshot) : '',
    ];
    const own = machines.map((_, i) => this.#machineText(world, i));
    if (this.#isSymmetric) own.sort();
    return `${JSON.stringify(shared)}\n${own.join('\n')}`;
  }

  #serverUs({ nowMs, serverAheadMs }: World): number {
    return (nowMs + serverAheadMs) * 1_000;
  }

  #sharedRedis(world: World, { runId, meta, counters, index }: RedisState): unknown[] {
    const nowUs = Math.max(this.#serverUs(world), meta?.clockUs ?? 0);
    const parts: unknown[] = [runId, index];
    if (meta !== undefined) {
      const { epochNumber, fenceUs, version, clockUs, clockTimeUs, scannedUs } = meta;
      parts.push(meta.runId, epochNumber, fenceUs, version, meta.openedUs, meta.lostUs);
      if (this.#hasAges) parts.push(clockUs, clockTimeUs, scannedUs);
    }
    for (const at of Object.keys(counters).sort()) {
      const { members, waiters, recallUs, recall, ...rest } = counters[at];
      const quiet = recallUs === 0 ? 0 : Math.max(0, QUIET_US - (nowUs - recallUs));
      parts.push(at, rest, quiet);
    }
    return parts;
  }

  #machineText(world: World, i: number): string {
    const { nowMs, redis, snapshot, faults } = world;
    const machine = world.machines[i];
    const name = `${i}.0`;
    const hasSnapshot = faults.failovers > 0;
    const requests = world.requests.filter((request) => request.machine === i);
    const answers = world.answers.filter((answer) => answer.machine === i);
    const rank = this.#ranks(machine, name, requests, answers, redis, hasSnapshot && snapshot);
    const { slot, counter, clock, reporting } = machine;
    const { waiting, sent, corrections, prefetch, retryMs, report } = counter;
    const parts: unknown[] = [
      ...[machine.isAlive, machine.isPaused, machine.isJoining, machine.returnsLater],
      ...[machine.epoch, machine.reportedEpoch, machine.membersVersion, world.arrived[i]],
      ...[machine.reservations, clock?.offsetMs, clock?.aboveMs],
      ...[machine.leaseEndMs, Math.max(0, machine.wokenMs + RETRY_MS - nowMs)],
      ...[counter.mustSync, counter.mustReturn, counter.isRecalled, counter.isWoken],
      counter.hasCorrected,
      ...[corrections, prefetch, report, Math.max(0, retryMs - nowMs)],
      this.#hasAges ? machine.clockUs - this.#serverUs(world) : 0,
      this.#isSymmetric ? machine.members.length : machine.members,
      ...[rank(machine.removedSequence), rank(machine.lastSequence)],
      this.#checks(waiting, nowMs),
    ];
    if (slot !== undefined) parts.push(slotParts(slot, nowMs, rank));
    if (sent !== undefined) {
      const { isReturn, correction, message, checks } = sent;
      parts.push(isReturn, correction, rank(message.sequence), this.#checks(checks, nowMs));
      parts.push(nowMs - machine.sentMs, messageParts(message));
    }
    if (reporting !== undefined) parts.push(reporting.epoch, rank(reporting.sequence));
    for (const state of hasSnapshot ? [redis, snapshot] : [redis]) {
      const known = state.meta?.members[name];
      if (known !== undefined) {
        const { contactUs, ...rest } = known;
        const hasLeft = state.meta!.clockUs - contactUs > LIVE_US;
        parts.push(Object.values(rest), this.#hasAges || hasLeft ? contactUs : 0);
      }
      if (state.meta?.forgotten[name] !== undefined) parts.push('forgotten');
      const nowUs = Math.max(this.#serverUs(world), state.meta?.clockUs ?? 0);
      const age = (us: number, most: number) => (us === 0 ? most : Math.min(nowUs - us, most));
      for (const at of Object.keys(state.counters).sort()) {
        const { members, waiters } = state.counters[at];
        const record = members[name];
        parts.push(at, waiters.includes(name));
        if (record === undefined) continue;
        const { sequence, firstRecallUs, lastRecallUs, ...rest } = record;
        const first = firstRecallUs === 0 ? -1 : age(firstRecallUs, OLD_RECALL_US);
        parts.push(Object.values(rest), rank(sequence), first, age(lastRecallUs, RECALL_AGAIN_US));
      }
    }
    const news = world.news.filter((each) => each.machine === i);
    const texts = [
      ...requests.map((request) => this.#requestText(world, request, rank)),
      ...answers.map((answer) => this.#answerText(world, answer)),
      ...news.map(({ kind, report }) => `${kind} ${report}`),
    ];
    return `${JSON.stringify(parts)}${texts.sort().join('|')}`;
  }

  #checks(checks: readonly WorldCheck[], nowMs: number): unknown[] {
    return checks.map(({ check, kind, wasSent, queuedMs, parkedMs, tries, isWithdrawn }) => [
      ...[check, kind, wasSent, isWithdrawn],
      Math.min(nowMs - queuedMs, RECOVERY_PARK_MS),
      parkedMs === 0 ? -1 : Math.min(nowMs - parkedMs, PARK_MS),
      this.#scenario.mostTries === undefined ? 0 : tries,
    ]);
  }

  /** The rank of a sequence number among all that concern a machine. */
  #ranks(
    { removedSequence, lastSequence, slot, counter, reporting }: Machine,
    name: string,
    requests: readonly Request[],
    answers: readonly Answer[],
    redis: RedisState,
    snapshot: RedisState | false,
  ): (sequence: number) => number {
    const numbers = new Set([0, removedSequence, lastSequence]);
    if (slot !== undefined) numbers.add(slot.state.sequence).add(slot.state.firstSequence);
    if (counter.sent !== undefined) numbers.add(counter.sent.message.sequence);
    if (reporting !== undefined) numbers.add(reporting.sequence);
    for (const { message } of requests) numbers.add(message.sequence).add(message.firstSequence);
    for (const { sequence } of answers) numbers.add(sequence);
    for (const { counters } of snapshot === false ? [redis] : [redis, snapshot]) {
      for (const at in counters) {
        const record = counters[at].members[name];
        if (record !== undefined) numbers.add(record.sequence);
      }
    }
    const sorted = [...numbers].sort((a, b) => a - b);
    return (of) => sorted.indexOf(of);
  }

  #requestText(
    world: World,
    { header, message }: Request,
    rank: (sequence: number) => number,
  ): string {
    let text = this.#texts.get(message);
    if (text === undefined) {
      const { reportedEpoch, membersVersion } = header;
      text = JSON.stringify([reportedEpoch, membersVersion, messageParts(message)]);
      this.#texts.set(message, text);
    }
    const seen = this.#hasAges ? header.clockUs - this.#serverUs(world) : 0;
    return `${rank(message.sequence)} ${rank(message.firstSequence)} ${seen} ${text}`;
  }

  #answerText(world: World, { call, isVague }: Answer): string {
    let text = this.#texts.get(call);
    if (text === undefined) {
      const { status, epoch, membersVersion, counters } = call;
      const [counter] = counters;
      const { sequence, ...rest } = counter ?? {};
      text = JSON.stringify([status, epoch, membersVersion, Object.values(rest)]);
      this.#texts.set(call, text);
    }
    const seen = this.#hasAges ? call.clockUs - this.#serverUs(world) : 0;
    return `${isVague} ${seen} ${text}`;
  }
}

/** A message but its sequence numbers. */
function messageParts(message: CounterMessage): unknown[] {
  const { identity, durationMs, sequence, firstSequence, ...rest } = message;
  return Object.values(rest);
}

/** @param rank of a sequence number */
function slotParts(
  { state, isDirty }: StoredSlot,
  nowMs: number,
  rank: (sequence: number) => number,
): unknown[] {
  const { deadlineMs, boundUntilMs, pause, sequence, firstSequence, ...others } = state;
  const { rate, rateFromMs, rateSpent, ...rest } = others;
  return [
    ...[isDirty, ...Object.values(rest), rank(sequence), rank(firstSequence)],
    ...[Math.max(0, deadlineMs - nowMs), Math.max(0, boundUntilMs - nowMs)],
    pauseLeftMs(pause, nowMs),
  ];
}
