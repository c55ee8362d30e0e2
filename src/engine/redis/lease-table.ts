/**
 * One shard's leases in shared memory, and the decisions on them that need no Redis: the hot path
 * of the Redis engine. Acceptors decide, the shard worker inserts counters and brings tokens.
 *
 * Each call holds the lock of one group, except that `acquire` leaves it to the caller. An acceptor
 * that dies ends the process. When a shard worker dies, the supervisor calls `breakLocks`: then no
 * slot has a larger lease than before, or less usage than was answered.
 *
 * Times are monotonic ms, as `Clock.monotonicMs` gives them. A thread with an old time decides in
 * the newest window that the slot knows.
 */

import { type CheckParameters, OUTCOME, type TableDecision } from '../../core/decision.ts';
import type { Identity, MutableIdentity } from '../../core/hash.ts';
import { carriesOver, hasWindows } from '../../core/window-rules.ts';
import { advanceTime, type Location, locate, newLocation } from '../table/group.ts';
import {
  atomicWords,
  type Doubles,
  GROUP_SLOTS,
  groupAt,
  keyAt,
  type Lock,
  latestMsAt,
  lockAt,
  NO_SLOT,
  nextMarkedSlot,
  type Slot,
  slotAt,
  tagAt,
  type Words,
} from '../table/layout.ts';
import { acquire, breakLock, release } from '../table/lock.ts';
import { find, findAll, readIdentity } from '../table/slot.ts';
import { counterKey, judgeInWindow } from '../windows/registry.ts';
import { carriedOver } from '../windows/sliding.ts';
import { windowEndMs, windowOf } from '../windows/window.ts';
import type { LeaseState } from './counter/lease-state.ts';
import { pauseLeftMs } from './counter/pause.ts';
import { DirtySlots } from './dirty-slots.ts';
import type { EngineState } from './engine-state.ts';
import { findInsertion } from './lease-insert.ts';
import {
  boundUntilAt,
  type Details,
  type DetailWords,
  deadlineAt,
  heldAt,
  LEASE_FLAG,
  lastLimitAt,
  leaseAt,
  leaseFlagsAt,
  leaseNamespaceAt,
  lentLimitAt,
  othersAt,
  PREVIOUS_USE_MAX,
  pauseOf,
  prefetchBelowOf,
  previousKnownUsageAt,
  previousUsageAt,
  previousUseOf,
  removedSequenceAt,
  reportedAt,
  reservedAt,
  SUMMARY_COVERS_SLIDING,
  SUMMARY_OTHER_LIMIT,
  sequenceAt,
  summaryAt,
  totalAt,
  windowNumberAt,
  withoutPrefetch,
} from './lease-layout.ts';
import { attachLeaseTable, type LeaseMemory } from './lease-memory.ts';
import {
  addReserved,
  addUnreported,
  clearSlot,
  moveSlotToWindow,
  noteLimit,
  readBucket,
  readLeaseState,
  readSpent,
  readTotal,
  readWindow,
  repairSlot,
  writeBucket,
  writeLeaseState,
} from './lease-slot.ts';
import { LocalDecisions } from './local-decisions.ts';
import type { GcraState } from './scripts/protocol.ts';
import { REPORT_SHARE } from './scripts/protocol-constants.ts';

/**
 * The result of a decision in memory. `needsTokens`: Redis must decide. `decidedPrefetch`: decided,
 * and the lease has become small: one check of each lease gets this. `full`: decided, but no slot
 * was free and nothing was counted. `decidedReport`: decided, and the usage is to be reported at
 * once: one check for each message gets this.
 */
export const VERDICT = {
  decided: 0,
  needsTokens: 1,
  decidedPrefetch: 2,
  full: 3,
  decidedReport: 4,
} as const;

export class LeaseTable implements LeaseMemory {
  readonly shard: number;
  readonly groups: number;
  readonly firstSlot: Slot;
  readonly words: Words;
  readonly doubles: Doubles;
  readonly detailWords: DetailWords;
  readonly details: Details;
  readonly #state: EngineState;
  readonly #owner: number;
  readonly #onWait: () => void;
  readonly #dirty: DirtySlots;
  readonly #local: LocalDecisions;
  /** Scratch of one call. */
  readonly #location: Location = newLocation();

  /**
   * @param owner of the locks that the calling thread takes: see `table/lock.ts`
   * @param onWait called now and then while the thread waits for a lock
   * @throws as `attachLeaseTable` does
   */
  constructor(
    buffer: SharedArrayBuffer,
    shard: number,
    state: EngineState,
    owner: number,
    onWait: () => void,
  ) {
    if (!(owner >= 1)) throw new Error(`shard ${shard}: ${owner} cannot own a lock`);
    const memory = attachLeaseTable(buffer, shard);
    this.shard = shard;
    this.words = memory.words;
    this.doubles = memory.doubles;
    this.detailWords = memory.detailWords;
    this.details = memory.details;
    this.groups = memory.groups;
    this.firstSlot = memory.firstSlot;
    this.#state = state;
    this.#owner = owner;
    this.#onWait = onWait;
    this.#dirty = new DirtySlots(this);
    this.#local = new LocalDecisions(this, state);
  }

  /**
   * Decides a check from the lease of its counter, or denies it by the usage that is known, or
   * answers a cost of 0 by it.
   * @returns VERDICT.decided, decidedPrefetch, or needsTokens: then `decision` means nothing
   */
  decide(id: Identity, nowMs: number, check: CheckParameters, decision: TableDecision): number {
    if (!hasWindows(check.rule)) return VERDICT.needsTokens;
    // As `#lockGroup` does: with a call of it, decisions on 1,000,000 leases took 2 to 5 % longer.
    const location = this.#location;
    locate(this, id, location);
    const { lock } = location;
    this.acquire(lock);
    try {
      const slot = find(this, location, id, check.durationMs);
      if (slot === NO_SLOT) return VERDICT.needsTokens;
      return this.#decideSlot(slot, nowMs, check, decision, false);
    } finally {
      this.release(lock);
    }
  }

  /**
   * Like `decide`, for a check of a batch. Tokens that it uses are reserved: `commit` or `abort`
   * must follow an allowed decision with a cost.
   */
  reserve(id: Identity, nowMs: number, check: CheckParameters, decision: TableDecision): number {
    if (!hasWindows(check.rule)) return VERDICT.needsTokens;
    const lock = this.#lockGroup(id);
    try {
      const slot = find(this, this.#location, id, check.durationMs);
      if (slot === NO_SLOT) return VERDICT.needsTokens;
      return this.#decideSlot(slot, nowMs, check, decision, true);
    } finally {
      this.release(lock);
    }
  }

  /**
   * Counts tokens that were reserved. Redis has counted those of a check that had no slot then, and
   * in a window that has ended since reserved tokens count as spent already.
   * @param window that of the decision
   */
  commit(id: Identity, key: number, window: number, cost: number): void {
    const lock = this.#lockGroup(id);
    try {
      const slot = find(this, this.#location, id, key);
      if (slot === NO_SLOT || window !== readWindow(this.words, slot)) return;
      const { details } = this;
      details[reservedAt(slot)] -= Math.min(cost, details[reservedAt(slot)]);
    } finally {
      this.release(lock);
    }
  }

  /** Returns tokens that were reserved to the lease. @param window that of the decision */
  abort(id: Identity, key: number, window: number, cost: number): void {
    const lock = this.#lockGroup(id);
    try {
      const slot = find(this, this.#location, id, key);
      if (slot === NO_SLOT) return;
      const { doubles, details } = this;
      const newest = readWindow(this.words, slot);
      if (window === newest - 1) {
        this.#dirty.add(lock, slot);
        details[totalAt(slot, window & 1)] -= cost;
      }
      if (window !== newest) return;
      const reserved = Math.min(cost, details[reservedAt(slot)]);
      details[reservedAt(slot)] -= reserved;
      doubles[leaseAt(slot)] += reserved;
    } finally {
      this.release(lock);
    }
  }

  /**
   * Decides an asynchronous check at once: from the lease, else by the usage that is known, whose
   * total is reported later.
   * @returns VERDICT.decided, decidedPrefetch, decidedReport, or needsTokens: the counter has no
   *   slot, or is GCRA
   */
  decideAsync(
    id: Identity,
    nowMs: number,
    check: CheckParameters,
    decision: TableDecision,
  ): number {
    if (!hasWindows(check.rule)) return VERDICT.needsTokens;
    const lock = this.#lockGroup(id);
    try {
      const slot = find(this, this.#location, id, check.durationMs);
      if (slot === NO_SLOT) return VERDICT.needsTokens;
      this.#enterPresent(slot, nowMs, check.durationMs);
      const verdict = this.#spendLease(slot, nowMs, check, decision, false);
      if (verdict !== VERDICT.needsTokens) return verdict;
      const { cost, limit } = check;
      const total = readTotal(this, slot);
      const used = total - this.doubles[leaseAt(slot)] + this.details[othersAt(slot)];
      const carried = this.#carried(slot, nowMs, check);
      this.#judge(slot, used, carried, check, decision);
      if (decision.allowed && cost !== 0) {
        this.#dirty.add(lock, slot);
        addUnreported(this, slot, cost);
        noteLimit(this, slot, limit);
        if (this.#requestReport(slot, limit - used - carried - cost)) return VERDICT.decidedReport;
      }
      return VERDICT.decided;
    } finally {
      this.release(lock);
    }
  }

  /**
   * Decides a check while Redis is down: by what this machine has allowed itself.
   * @param namespaceTag the first word of its namespace's hash state; eviction goes by it
   * @param machines the limit is divided by so many; 1: the whole limit
   * @returns VERDICT.decided; full: no slot was free, and an allowed check was not counted
   */
  decideLocally(
    id: Identity,
    namespaceTag: number,
    nowMs: number,
    check: CheckParameters,
    machines: number,
    decision: TableDecision,
  ): number {
    const lock = this.#lockGroup(id);
    try {
      const now = advanceTime(this.doubles, lock, nowMs);
      const key = counterKey(check.rule, check.durationMs);
      const found = find(this, this.#location, id, key);
      const counts = this.#local.decide(found, id.h3, now, check, machines, decision);
      decision.outcome = OUTCOME.decided;
      if (!counts) return VERDICT.decided;
      let slot = found;
      if (slot === NO_SLOT) {
        slot = this.#insert(id, namespaceTag, key, now, decision);
        if (slot === NO_SLOT) return VERDICT.full;
      }
      this.#dirty.add(lock, slot);
      this.#local.count(slot, now, check, machines, decision);
      return VERDICT.decided;
    } finally {
      this.release(lock);
    }
  }

  /**
   * Takes back a check that `decideLocally` has allowed: another one of its batch was denied.
   * @param machines by how many the limit is divided. If it was another number in the decision, a
   *   token of a GCRA bucket is worth slightly more or less.
   */
  refundLocally(
    id: Identity,
    check: CheckParameters,
    machines: number,
    decision: Pick<TableDecision, 'window'>,
  ): void {
    const lock = this.#lockGroup(id);
    try {
      const key = counterKey(check.rule, check.durationMs);
      const slot = find(this, this.#location, id, key);
      if (slot === NO_SLOT) return;
      this.#dirty.add(lock, slot);
      this.#local.refund(slot, this.doubles[latestMsAt(lock)], check, machines, decision);
    } finally {
      this.release(lock);
    }
  }

  /**
   * Adds the cost of a denied check to its counter.
   * @returns false: the counter has no slot, or is GCRA; nothing was counted
   */
  countDenied(id: Identity, nowMs: number, check: CheckParameters): boolean {
    if (!hasWindows(check.rule)) return false;
    const lock = this.#lockGroup(id);
    try {
      const slot = find(this, this.#location, id, check.durationMs);
      if (slot === NO_SLOT) return false;
      this.#enterPresent(slot, nowMs, check.durationMs);
      this.#dirty.add(lock, slot);
      addUnreported(this, slot, check.cost);
      noteLimit(this, slot, check.limit);
      return true;
    } finally {
      this.release(lock);
    }
  }

  /** The lock of an identity's group. */
  lockFor(id: Identity): Lock {
    locate(this, id, this.#location);
    return this.#location.lock;
  }

  acquire(lock: Lock): void {
    acquire(this.words, lock, this.#owner, this.#onWait);
  }

  release(lock: Lock): void {
    release(this.words, lock);
  }

  /** Acts under the lock of an identity's group. Its closure is too slow for a check. */
  withLock<T>(id: Identity, act: (lock: Lock) => T): T {
    const lock = this.lockFor(id);
    this.acquire(lock);
    try {
      return act(lock);
    } finally {
      this.release(lock);
    }
  }

  /** The same for the slot of a counter, if it has one. */
  withSlot(id: Identity, key: number, act: (slot: Slot, lock: Lock) => void): void {
    this.withLock(id, (lock) => {
      const slot = this.find(id, key);
      if (slot !== NO_SLOT) act(slot, lock);
    });
  }

  /** @returns NO_SLOT when there is none. The caller holds the lock, here and below. */
  find(id: Identity, key: number): Slot {
    locate(this, id, this.#location);
    return find(this, this.#location, id, key);
  }

  /** The slots of all counters of an identity. */
  findAll(id: Identity): Slot[] {
    locate(this, id, this.#location);
    return findAll(this, this.#location, id);
  }

  /**
   * Finds a slot for a new counter, by eviction if necessary. Its sequence
   * is above those of earlier slots of the counter in this process.
   * @returns NO_SLOT: the table is full for it
   */
  insert(id: Identity, namespaceTag: number, key: number, nowMs: number): Slot {
    locate(this, id, this.#location);
    const now = advanceTime(this.doubles, this.#location.lock, nowMs);
    return this.#insert(id, namespaceTag, key, now, undefined);
  }

  remove(lock: Lock, slot: Slot): void {
    const { words, doubles, details } = this;
    const removed = doubles[removedSequenceAt(lock)];
    doubles[removedSequenceAt(lock)] = Math.max(removed, details[sequenceAt(slot)]);
    this.#dirty.remove(lock, slot);
    words[tagAt(slot)] = 0;
  }

  read(slot: Slot, into: LeaseState): void {
    readLeaseState(this, slot, into);
  }

  /** When the lease of a slot ends, if it serves sliding windows; else infinite. Monotonic ms. */
  readSlidingLeaseEnd(slot: Slot): number {
    const { words, doubles } = this;
    const isSliding = (words[summaryAt(slot)] & SUMMARY_COVERS_SLIDING) !== 0;
    const hasLease = doubles[leaseAt(slot)] > 0;
    return isSliding && hasLease ? doubles[deadlineAt(slot)] : Number.POSITIVE_INFINITY;
  }

  /** Writes the state of a counter that is not GCRA, all but `reserved`. */
  write(slot: Slot, from: LeaseState): void {
    writeLeaseState(this, slot, from);
  }

  /** Reserves tokens of an answer for checks of batches. After `write`. */
  addReserved(slot: Slot, tokens: number): void {
    addReserved(this, slot, tokens);
  }

  readIdentity(slot: Slot, into: MutableIdentity): Identity {
    return readIdentity(this, slot, into);
  }

  /** The tag of its namespace. */
  readNamespace(slot: Slot): number {
    return this.detailWords[leaseNamespaceAt(slot)];
  }

  readKey(slot: Slot): number {
    return this.doubles[keyAt(slot)];
  }

  /** Whether a slot has usage that no message has reported. */
  isDirty(lock: Lock, slot: Slot): boolean {
    return this.#dirty.has(lock, slot);
  }

  /** Before a message that reports the usage is sent; again after it was lost. */
  setDirty(lock: Lock, slot: Slot, isDirty: boolean): void {
    if (isDirty) this.#dirty.add(lock, slot);
    else this.#dirty.remove(lock, slot);
  }

  readLastLimit(slot: Slot): number {
    return this.details[lastLimitAt(slot)];
  }

  /** GCRA tokens that were allowed locally, and that Redis does not know. */
  readUnreported(slot: Slot): number {
    return this.details[reservedAt(slot)];
  }

  setUnreported(slot: Slot, tokens: number): void {
    this.details[reservedAt(slot)] = tokens;
  }

  readGcra(slot: Slot): GcraState {
    return readBucket(this, slot);
  }

  writeGcra(slot: Slot, state: GcraState): void {
    writeBucket(this, slot, state);
  }

  /** Whether a group has never had a counter: its memory is untouched. */
  isUnused(group: number): boolean {
    return this.doubles[latestMsAt(lockAt(group))] === 0;
  }

  /** Visits the used slots of a group, under its lock. @param visit must not wait */
  forEachSlotOf(group: number, visit: (slot: Slot, lock: Lock) => void): void {
    if (this.isUnused(group)) return;
    const lock = lockAt(group);
    this.acquire(lock);
    try {
      for (let index = 0; index < GROUP_SLOTS; index++) {
        const slot = slotAt(groupAt(this.firstSlot, group), index);
        if (this.words[tagAt(slot)] !== 0) visit(slot, lock);
      }
    } finally {
      this.release(lock);
    }
  }

  /** Whether slots of a group have usage that Redis does not know. */
  hasDirtySlots(group: number): boolean {
    return nextMarkedSlot(this.words, lockAt(group), 0) !== GROUP_SLOTS;
  }

  /** Visits those slots, under the lock of the group. @param visit must not wait */
  forEachDirtySlotOf(group: number, visit: (slot: Slot, lock: Lock) => void): void {
    if (!this.hasDirtySlots(group)) return;
    const lock = lockAt(group);
    this.acquire(lock);
    try {
      let index = nextMarkedSlot(this.words, lock, 0);
      while (index < GROUP_SLOTS) {
        const slot = slotAt(groupAt(this.firstSlot, group), index);
        if (this.words[tagAt(slot)] !== 0) visit(slot, lock);
        else this.#dirty.remove(lock, slot);
        index = nextMarkedSlot(this.words, lock, index + 1);
      }
    } finally {
      this.release(lock);
    }
  }

  /** Visits the slots with usage that Redis does not know, in all groups. */
  forEachDirtySlot(visit: (slot: Slot, lock: Lock) => void): void {
    for (let group = 0; group < this.groups; group++) this.forEachDirtySlotOf(group, visit);
  }

  /**
   * Frees the locks of a thread that has ended, after it has made right what the thread may have
   * left half written. @returns how many
   */
  breakLocks(owner: number): number {
    let broken = 0;
    for (let group = 0; group < this.groups; group++) {
      const lock = lockAt(group);
      // The owner has ended, so no other thread gets the lock before it is broken.
      if (Atomics.load(atomicWords(this.words), lock) !== owner) continue;
      for (let index = 0; index < GROUP_SLOTS; index++) {
        const slot = slotAt(groupAt(this.firstSlot, group), index);
        if (this.words[tagAt(slot)] !== 0) repairSlot(this, slot);
      }
      if (breakLock(this.words, lock, owner)) broken++;
    }
    return broken;
  }

  /** Whether usage is to be reported now: other machines might use what is left. */
  #requestReport(slot: Slot, left: number): boolean {
    const { details } = this;
    const unreported = readSpent(this, slot) - details[reportedAt(slot)];
    if (unreported < left * REPORT_SHARE) return false;
    details[reportedAt(slot)] = Number.POSITIVE_INFINITY;
    return true;
  }

  #insert(
    id: Identity,
    namespaceTag: number,
    key: number,
    nowMs: number,
    decision: TableDecision | undefined,
  ): Slot {
    const location = this.#location;
    const found = findInsertion(this, location, nowMs, this.#state, this.#dirty);
    if (decision !== undefined) {
      const isFull = found.slot === NO_SLOT;
      decision.outcome = isFull ? OUTCOME.full : found.evicts ? OUTCOME.evicted : OUTCOME.decided;
    }
    if (found.slot === NO_SLOT) return NO_SLOT;
    const { lock } = location;
    this.remove(lock, found.slot);
    const sequence = Math.max(Math.floor(nowMs * 1_000), this.doubles[removedSequenceAt(lock)] + 1);
    clearSlot(this, found.slot, id, namespaceTag, key, sequence);
    return found.slot;
  }

  /** Takes the lock of an identity's group, which `#location` then describes. */
  #lockGroup(id: Identity): Lock {
    const location = this.#location;
    locate(this, id, location);
    this.acquire(location.lock);
    return location.lock;
  }

  #decideSlot(
    slot: Slot,
    nowMs: number,
    check: CheckParameters,
    decision: TableDecision,
    reserves: boolean,
  ): number {
    const verdict = this.#spendLease(slot, nowMs, check, decision, reserves);
    return verdict !== VERDICT.needsTokens
      ? verdict
      : this.#decideByUsage(slot, nowMs, check, decision);
  }

  #spendLease(
    slot: Slot,
    nowMs: number,
    check: CheckParameters,
    decision: TableDecision,
    reserves: boolean,
  ): number {
    const { words, doubles, details } = this;
    const { cost, limit, durationMs } = check;
    const lease = doubles[leaseAt(slot)];
    const lentLimit = doubles[lentLimitAt(slot)];
    if (cost > lease || limit < lentLimit || nowMs >= doubles[deadlineAt(slot)] || cost === 0) {
      return VERDICT.needsTokens;
    }
    const left = lease - cost;
    let used = doubles[heldAt(slot)] - left;
    const summary = words[summaryAt(slot)];
    const previousUsage = previousUseOf(summary);
    if (previousUsage !== 0 && carriesOver(check.rule)) {
      if ((summary & SUMMARY_COVERS_SLIDING) === 0) return VERDICT.needsTokens;
      used += this.#carried(slot, nowMs, check, previousUsage);
    }
    doubles[leaseAt(slot)] = left;
    if (reserves) details[reservedAt(slot)] += cost;
    const window = words[windowNumberAt(slot)] >>> 0;
    const remaining = limit - used;
    decision.allowed = true;
    decision.remaining = remaining > 0 ? remaining : 0;
    decision.reset = windowEndMs(window, durationMs);
    decision.passesAt = 0;
    decision.window = window;
    decision.outcome = OUTCOME.decided;
    if (limit !== lentLimit || (summary & SUMMARY_OTHER_LIMIT) !== 0) noteLimit(this, slot, limit);
    if (prefetchBelowOf(summary) <= left) return VERDICT.decided;
    words[summaryAt(slot)] = withoutPrefetch(words[summaryAt(slot)]);
    return VERDICT.decidedPrefetch;
  }

  /**
   * Decides without tokens: a denial that is proven by the usage that is known, or of a machine
   * that pauses; or a cost of 0.
   */
  #decideByUsage(
    slot: Slot,
    nowMs: number,
    check: CheckParameters,
    decision: TableDecision,
  ): number {
    const { doubles, details } = this;
    if (nowMs >= details[boundUntilAt(slot)]) return VERDICT.needsTokens;
    const { cost, limit, rule } = check;
    const flags = this.detailWords[leaseFlagsAt(slot)];
    let pauseMs = 0;
    if (cost !== 0) {
      const carried = this.#carriedAtLeast(slot, nowMs, check);
      const known = readSpent(this, slot) + details[othersAt(slot)] + carried;
      if (cost <= limit - known) {
        if (!carriesOver(rule) || limit > doubles[lentLimitAt(slot)]) return VERDICT.needsTokens;
        pauseMs = pauseLeftMs(pauseOf(flags), nowMs);
        if (pauseMs === 0) return VERDICT.needsTokens;
      }
    }
    const used = doubles[heldAt(slot)] - doubles[leaseAt(slot)];
    this.#judge(slot, used, this.#carried(slot, nowMs, check), check, decision);
    if (pauseMs > 0) this.#denyPaused(slot, nowMs + pauseMs, decision);
    else if (cost !== 0 && decision.allowed) return VERDICT.needsTokens;
    const isDoubted = (flags & LEASE_FLAG.doubted) !== 0;
    if (isDoubted && !decision.allowed) decision.outcome = OUTCOME.doubted;
    return VERDICT.decided;
  }

  /** @param decision by the tokens that are deducted; some of them may come back */
  #denyPaused(slot: Slot, untilMs: number, decision: TableDecision): void {
    const endMs = Math.ceil(this.#state.redisMs(this.words[tagAt(slot)], untilMs));
    decision.passesAt = decision.allowed ? endMs : Math.min(decision.passesAt, endMs);
    decision.allowed = false;
    decision.remaining = 0;
    decision.outcome = OUTCOME.shared;
  }

  /**
   * Decides as the rules of the memory engine do.
   * @param used tokens used in the window of the slot
   * @param carried tokens of the window before that count too
   */
  #judge(
    slot: Slot,
    used: number,
    carried: number,
    check: CheckParameters,
    decision: TableDecision,
  ): void {
    const window = this.words[windowNumberAt(slot)] >>> 0;
    judgeInWindow(window, used, this.details[previousUsageAt(slot)], carried, check, decision);
    decision.outcome = OUTCOME.decided;
  }

  /**
   * The tokens of the window before that count in a sliding window, at most.
   * @param previousUsage that of the slot; or PREVIOUS_USE_MAX, where it is to be looked up
   */
  #carried(
    slot: Slot,
    nowMs: number,
    { rule, durationMs }: CheckParameters,
    previousUsage = PREVIOUS_USE_MAX,
  ): number {
    if (!carriesOver(rule)) return 0;
    const redisMs = this.#state.redisMs(this.words[tagAt(slot)], nowMs);
    const amount =
      previousUsage === PREVIOUS_USE_MAX ? this.details[previousUsageAt(slot)] : previousUsage;
    return this.#shareOf(amount, slot, redisMs, durationMs);
  }

  /** The same at least: by the usage that is known, and the latest time that Redis may have. */
  #carriedAtLeast(slot: Slot, nowMs: number, { rule, durationMs }: CheckParameters): number {
    if (!carriesOver(rule)) return 0;
    const redisMs = this.#state.redisMsAtMost(this.words[tagAt(slot)], nowMs);
    return this.#shareOf(this.details[previousKnownUsageAt(slot)], slot, redisMs, durationMs);
  }

  #shareOf(amount: number, slot: Slot, redisMs: number, durationMs: number): number {
    const endMs = windowEndMs(this.words[windowNumberAt(slot)] >>> 0, durationMs);
    return carriedOver(amount, endMs - redisMs, durationMs);
  }

  /** Moves a slot to the window of Redis' time, where that is later. */
  #enterPresent(slot: Slot, nowMs: number, durationMs: number): void {
    const redisMs = this.#state.redisMs(this.words[tagAt(slot)], nowMs);
    const window = windowOf(redisMs, durationMs);
    if (window > readWindow(this.words, slot)) moveSlotToWindow(this, slot, window);
  }
}
