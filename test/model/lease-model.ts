/**
 * The script `exchange` in TypeScript, as plain data and functions that change the state they are
 * given. The explorer runs it with small numbers in every order of events; a property test runs
 * it beside the real script. Each rule that guards a guarantee has a switch: a test without the rule
 * must fail.
 */

import {
  CALL_STATUS,
  type CallAnswer,
  type CallHeader,
  type CounterAnswer,
  type CounterMessage,
  MESSAGE_STATUS,
  type MemberMessage,
  NO_WINDOW,
  SERVED,
  type TokenCheck,
} from '../../src/engine/redis/scripts/protocol.ts';
import {
  ANCHOR_US,
  AWAIT_US,
  CLOCK_SLEW_RATE,
  CONTACT_US,
  CORRECTION_WRITE_OFF_US,
  FENCE_AHEAD_US,
  KEPT_US,
  LEASE_FIRST_PARTS,
  LEASE_LEFT_MAX_US,
  LEASE_LEFT_MIN_US,
  LEASE_LEFT_SHARE,
  LEASE_LIMIT_SHARE,
  LEASE_SPAN_MAX_MS,
  LEASE_SPAN_MIN_MS,
  LEASE_SPAN_SHARE,
  LEASED_LIMIT_MIN,
  LIVE_US,
  PAUSE_MAX_MS,
  PAUSE_TOKENS,
  PAUSE_TOKENS_SHARE,
  QUIET_US,
  RECALL_AGAIN_US,
  REPORT_AGAIN_US,
  SCAN_US,
  SHARED_RECALL_US,
  WRITE_OFF_US,
} from '../../src/engine/redis/scripts/protocol-constants.ts';
import { CLEARED_BASE } from '../../src/engine/redis/scripts/records.ts';
import { share } from '../../src/engine/windows/sliding.ts';

/** What a member is known to have of one counter and window. Tokens are integers. */
export interface MemberRecord {
  /** Tokens deducted for it. Negative after a refund of tokens that others have used. */
  deducted: number;
  /** The part of them that it has reported as used. */
  spent: number;
  /** Usage before the last reset, which its reports contain. */
  base: number;
  sequence: number;
  isWrittenOff: boolean;
  /** Whether it must report, which it was first asked to at `firstRecallUs`; it did not in time. */
  mustReport: boolean;
  isMissed: boolean;
  /** Whether it must report only because the counter may have existed. */
  isGuess: boolean;
  /** Whether it may deny checks by the known use, and is told when that falls. */
  denies: boolean;
  rate: number;
  /** The times of the first and the last recall that it has not answered; 0 if there is none. */
  firstRecallUs: number;
  lastRecallUs: number;
}

export interface CounterRecord {
  /** Tokens that are gone, and those of them that are known to be used. */
  used: number;
  known: number;
  /** Of the last allowed check. */
  limit: number;
  recall: number;
  recallUs: number;
  waiters: string[];
  /** Whether a member denies. */
  hasDenials: boolean;
  /** How many members must report. */
  unknown: number;
  /** Whether they report only for the sake of the window before. */
  isOnlyBefore: boolean;
  /** Whether the counter of the window before existed when this one was made. */
  hasPrevious: boolean;
  /** The epoch in which it was verified. */
  verified: number;
  /** The most use that a member knew of all, in reports; undefined if there is nothing to restore. */
  reported?: number;
  /** Use that was restored, of members that have not reported. */
  restored: number;
  /** Whether usage may be missing, and whether tokens were written off. */
  isMissing: boolean;
  wasWrittenOff: boolean;
  members: Record<string, MemberRecord>;
}

export interface KnownMember {
  /** The version of the list that first contained it, and the newest one it acknowledged. */
  since: number;
  acknowledged: number;
  contactUs: number;
  hasJoined: boolean;
  /** The numbers of the epochs for which it has presented its list, and reported its usage. */
  presented: number;
  reported: number;
}

/** The hash of the bucket. */
export interface BucketMeta {
  /** The run id of the server that wrote it. */
  runId: string;
  epochNumber: number;
  /** Above 0 in a recovery: windows that began before are fenced. */
  fenceUs: number;
  version: number;
  /** The clock when it was stored, and the time of the server then. */
  clockUs: number;
  clockTimeUs: number;
  scannedUs: number;
  members: Record<string, KnownMember>;
  /** When members were removed: they are not added again because another presents them. */
  forgotten: Record<string, number>;
  /** The last fence that was removed without all reports. */
  openedUs: number;
  /** When keys were last found to be lost. */
  lostUs: number;
}

export interface RedisState {
  runId: string;
  /** Undefined in an empty Redis. */
  meta?: BucketMeta;
  /** By key and window. */
  counters: Record<string, CounterRecord>;
  /** By key, the newest window that has existed. */
  index: Record<string, number>;
}

export interface Publication {
  to: string;
  kind: MemberMessage['kind'];
  key: string;
  /** The number of a request for a report. */
  report?: number;
}

export interface LeaseDemand {
  limit: number;
  remaining: number;
  rate: number;
  /** Of all members of the counter. */
  rates: number;
  machines: number;
  durationMs: number;
  kept: number;
}

/** Rules that guard a guarantee: without one of them, an exploration must find what breaks. */
export type GuardRule =
  // Of messages, leases and recalls.
  | 'checksSequence'
  | 'foldsOlderSlots'
  | 'keepsWrittenOffTokens'
  | 'isQuietAfterRecall'
  | 'settlesPreviousWithKept'
  | 'subtractsBase'
  | 'subtractsCarriedFromLeases'
  | 'provesDenials'
  | 'endsDenials'
  // Of recoveries and clocks.
  | 'detectsLostRecords'
  | 'looksIntoIndex'
  /** A window before that is lost, or was not verified in time, is verified now. */
  | 'verifiesPrevious'
  | 'waitsForReports'
  /** Old copies of messages are no reports. */
  | 'numbersReports'
  | 'waitsForPresentations'
  | 'waitsForAcknowledgements'
  | 'countsPresentedMembers'
  /** The record of a member that has left stays, so that others present it to an empty Redis. */
  | 'keepsLeftMembers'
  /** A member that has seen a later clock than a new server has may have used later windows. */
  | 'fencesSeenWindows'
  | 'clockNeverRunsBack'
  | 'followsSeenClock'
  // Of machines.
  /** A message without `kept` takes the lease out of the slot. */
  | 'takesLease'
  /** One message in flight: answers to others are ignored. */
  | 'ignoresOtherAnswers'
  | 'deadlineFromSending'
  | 'keepsReserved'
  | 'checksLeaseLimit'
  | 'checksSlidingLease'
  | 'clearsDenialsWhenWoken'
  | 'keepsUnanswered'
  | 'presentsMembers'
  | 'waitsForOlderMembers';

/** Numbers that explorations choose smaller, and the rule that they leave out. */
export interface Rules {
  lease: (demand: LeaseDemand) => number;
  smallestLeasedLimit: number;
  /** How many tokens of a used-up sliding window machines take at a time. */
  pauseTokens: (limit: number) => number;
  /** How many tokens of a used-up sliding window each of the machines that share it may hold. */
  sharedTokens: (limit: number) => number;
  fenceSlackUs: number;
  /** A recovery does not wait for members that are gone. */
  isAvailable: boolean;
  without?: GuardRule;
}

export function leaseTokens(demand: LeaseDemand): number {
  const { limit, remaining, rate, rates, machines, durationMs, kept } = demand;
  const ms = Math.min(
    Math.max(durationMs * LEASE_SPAN_SHARE, LEASE_SPAN_MIN_MS),
    LEASE_SPAN_MAX_MS,
  );
  const fair = rates > 0 ? (remaining * rate) / rates : 0;
  const wanted = Math.max(
    Math.min((rate * ms) / 1_000, fair),
    remaining / (LEASE_FIRST_PARTS * machines),
  );
  const tokens = Math.floor(Math.min(LEASE_LIMIT_SHARE * limit, wanted) - kept);
  return Math.max(0, Math.min(tokens, remaining));
}

/** How many tokens of a used-up sliding window a machine takes at a time. */
const pauseTokens = (limit: number) => Math.max(PAUSE_TOKENS, limit * PAUSE_TOKENS_SHARE);

/** Those of the script. */
export const RULES: Rules = {
  lease: leaseTokens,
  smallestLeasedLimit: LEASED_LIMIT_MIN,
  pauseTokens,
  sharedTokens: (limit) => Math.floor(Math.min(pauseTokens(limit) + 1, LEASE_LIMIT_SHARE * limit)),
  fenceSlackUs: FENCE_AHEAD_US,
  isAvailable: false,
};

const keeps = ({ without }: Rules, rule: GuardRule) => without !== rule;

export const newRedis = (runId: string): RedisState => ({ runId, counters: {}, index: {} });

export const counterAt = (key: string, window: number) => `${key}:${window}`;

export function keyOfMessage({
  identity,
  durationMs,
}: Pick<CounterMessage, 'identity' | 'durationMs'>): string {
  const words = [identity.h0, identity.h1, identity.h2, identity.h3];
  return `${words.map((word) => (word >>> 0).toString(16).padStart(8, '0')).join('')}:${durationMs}`;
}

const newCounter = (): CounterRecord => ({
  ...{ used: 0, known: 0, limit: 0, recall: 0, recallUs: 0, waiters: [] },
  ...{ hasDenials: false, members: {}, unknown: 0, hasPrevious: false, verified: 0, restored: 0 },
  isOnlyBefore: true,
  ...{ isMissing: false, wasWrittenOff: false },
});

const newRecord = (sequence: number): MemberRecord => ({
  ...{ deducted: 0, spent: 0, base: 0, sequence, isWrittenOff: false, denies: false },
  ...{ mustReport: false, isMissed: false, isGuess: false },
  ...{ rate: 0, firstRecallUs: 0, lastRecallUs: 0 },
});

/** What begins each call: the clock of the bucket, and its members. */
class Entry {
  readonly meta: BucketMeta;
  readonly clockUs: number;
  readonly published: Publication[] = [];
  /** The member is not known to all others. */
  isJoining = false;
  #hasBegun = false;
  readonly #redis: RedisState;
  readonly #header: CallHeader;
  readonly #rules: Rules;
  readonly #serverUs: number;
  readonly #isAnchorOld: boolean;
  /** The clock as it was stored. */
  readonly #anchorUs: number;

  constructor(
    redis: RedisState,
    meta: BucketMeta,
    serverUs: number,
    header: CallHeader,
    rules: Rules,
  ) {
    const { clockUs: anchorUs, clockTimeUs: timeUs } = meta;
    const seenUs = keeps(rules, 'followsSeenClock') ? header.clockUs : 0;
    const slowUs = anchorUs + Math.floor((serverUs - timeUs) * CLOCK_SLEW_RATE);
    const goesOnUs = serverUs >= timeUs ? Math.max(serverUs, slowUs) : anchorUs + ANCHOR_US;
    const ownUs = keeps(rules, 'clockNeverRunsBack') ? goesOnUs : serverUs;
    this.clockUs = Math.max(ownUs, seenUs);
    this.#isAnchorOld = ownUs - anchorUs >= ANCHOR_US || serverUs < timeUs || ownUs < seenUs;
    this.#anchorUs = anchorUs;
    this.#redis = redis;
    this.meta = meta;
    this.#serverUs = serverUs;
    this.#header = header;
    this.#rules = rules;
  }

  get epoch(): string {
    return `${this.meta.runId}.${this.meta.epochNumber}`;
  }

  get #nowMs(): number {
    return Math.floor(this.clockUs / 1_000);
  }

  /** @returns a CALL_STATUS */
  enter(): number {
    const { meta, clockUs } = this;
    const { member, membersVersion } = this.#header;
    const known = meta.members[member];
    const isRegistered =
      known?.hasJoined &&
      meta.runId === this.#redis.runId &&
      meta.fenceUs === 0 &&
      clockUs - meta.scannedUs < SCAN_US &&
      known.acknowledged >= membersVersion &&
      clockUs - known.contactUs < CONTACT_US;
    if (!isRegistered) return this.register(undefined);
    if (this.#isAnchorOld) this.store();
    return CALL_STATUS.done;
  }

  store(): void {
    this.meta.clockUs = this.clockUs;
    this.meta.clockTimeUs = this.#serverUs;
  }

  #nextVersion(): number {
    this.meta.version = Math.max(this.meta.version + 1, this.#nowMs);
    return this.meta.version;
  }

  newEpoch(): void {
    const { meta } = this;
    this.#hasBegun = true;
    meta.epochNumber = Math.max(meta.epochNumber + 1, this.#nowMs);
    meta.fenceUs = this.clockUs + this.#rules.fenceSlackUs;
    for (const to of Object.keys(meta.members)) {
      this.published.push({ to, kind: 'epoch', key: '' });
    }
  }

  /** @param presented the members that this one knows @returns a CALL_STATUS */
  register(presented: readonly string[] | undefined): number {
    const { meta, clockUs } = this;
    const rules = this.#rules;
    const { member: name, reportedEpoch, membersVersion, clockUs: seenClockUs } = this.#header;
    const { members, forgotten } = meta;
    if (meta.runId !== this.#redis.runId) {
      meta.runId = this.#redis.runId;
      this.newEpoch();
      for (const known of Object.values(members)) {
        if (this.#anchorUs - known.contactUs <= LIVE_US) continue;
        known.presented = meta.epochNumber;
        known.reported = meta.epochNumber;
      }
    }
    const isFromOtherEpoch = reportedEpoch !== '' && reportedEpoch !== this.epoch;
    const isUnknown = members[name] === undefined;
    if (presented !== undefined && isFromOtherEpoch && meta.fenceUs === 0 && isUnknown) {
      this.newEpoch();
    }
    if (meta.fenceUs > 0 && isFromOtherEpoch && keeps(rules, 'fencesSeenWindows')) {
      meta.fenceUs = Math.max(meta.fenceUs, seenClockUs + rules.fenceSlackUs);
    }
    if (presented !== undefined && meta.fenceUs > 0) this.#addPresented(presented);
    if (isUnknown) {
      if (isFromOtherEpoch && presented === undefined) {
        this.store();
        return CALL_STATUS.needsMembers;
      }
      const reported = isFromOtherEpoch ? 0 : meta.epochNumber;
      members[name] = {
        ...{ contactUs: clockUs, since: this.#nextVersion(), acknowledged: 0 },
        ...{ hasJoined: isFromOtherEpoch, presented: meta.epochNumber, reported },
      };
      delete forgotten[name];
    }
    const mine = members[name];
    if (!isUnknown && isFromOtherEpoch && mine.reported < meta.epochNumber) mine.hasJoined = true;
    mine.contactUs = clockUs;
    mine.acknowledged = Math.max(mine.acknowledged, membersVersion);
    if (presented !== undefined) mine.presented = meta.epochNumber;
    if (reportedEpoch === this.epoch) {
      mine.presented = meta.epochNumber;
      mine.reported = meta.epochNumber;
    }
    let status: number = CALL_STATUS.done;
    const hasPresented =
      mine.presented >= meta.epochNumber || !keeps(rules, 'waitsForPresentations');
    if (meta.fenceUs > 0 && !hasPresented) status = CALL_STATUS.needsMembers;
    for (const [other, { contactUs }] of Object.entries(members)) {
      if (clockUs - contactUs <= KEPT_US) continue;
      delete members[other];
      this.#nextVersion();
    }
    const everyone = Object.entries(members);
    const isKnown = everyone.every(([other, { contactUs, acknowledged }]) => {
      return other === name || clockUs - contactUs > LIVE_US || acknowledged >= mine.since;
    });
    const missing = everyone.filter(([, { hasJoined, reported }]) => {
      return (hasJoined || rules.isAvailable) && reported < meta.epochNumber;
    });
    if (isKnown || !keeps(rules, 'waitsForAcknowledgements')) mine.hasJoined = true;
    this.isJoining = !mine.hasJoined;
    if (status === CALL_STATUS.done && this.isJoining && !rules.isAvailable) {
      status = CALL_STATUS.joining;
    }
    // A member reports after it has presented.
    const beganUs = meta.fenceUs - rules.fenceSlackUs;
    const isForgotten = Object.values(forgotten).some((us) => us >= beganUs);
    if (meta.fenceUs > 0 && !missing.some(([, { contactUs }]) => this.isAwaited(contactUs))) {
      if (missing.length > 0 || isForgotten) meta.openedUs = meta.fenceUs;
      meta.fenceUs = 0;
      if (mine.hasJoined) status = CALL_STATUS.done;
    }
    meta.scannedUs = clockUs;
    this.store();
    return status;
  }

  /** Whether a recovery waits for a member that has last called then. */
  isAwaited(contactUs: number): boolean {
    const { meta, clockUs } = this;
    if (!this.#rules.isAvailable) return true;
    const beganUs = meta.epochNumber * 1_000;
    const isEarly = clockUs < beganUs + AWAIT_US;
    return clockUs - contactUs <= LIVE_US && (contactUs >= beganUs || isEarly);
  }

  #addPresented(presented: readonly string[]): void {
    const { meta } = this;
    let isNew = false;
    for (const name of presented) {
      const known = meta.members[name];
      if (name === this.#header.member) continue;
      if (known === undefined && meta.forgotten[name] === undefined) {
        meta.members[name] = {
          ...{ contactUs: meta.epochNumber * 1_000 - 1, since: this.#nextVersion() },
          ...{ acknowledged: 0, hasJoined: true, presented: 0, reported: 0 },
        };
        isNew = true;
      } else if (known !== undefined && !known.hasJoined && known.presented < meta.epochNumber) {
        // It may have joined, and got tokens, after what this server remembers.
        if (keeps(this.#rules, 'countsPresentedMembers')) known.hasJoined = true;
        isNew = true;
      }
    }
    // Counters that were verified did not wait for it.
    if (isNew && !this.#hasBegun) this.newEpoch();
  }

  answer(status: number): Mutable<CallAnswer> {
    const { clockUs, epoch, meta } = this;
    return {
      ...{ status, clockUs, epoch, isRecovering: meta.fenceUs > 0 },
      ...{ membersVersion: meta.version, counters: [] },
      ...{ openedUs: meta.openedUs, aheadUs: 0 },
      machineCount: machineCount(meta.members, clockUs),
    };
  }
}

/** One call of a member at a time of the server. */
export function exchange(
  redis: RedisState,
  serverUs: number,
  header: CallHeader,
  messages: readonly CounterMessage[],
  rules: Rules = RULES,
): { answer: CallAnswer; published: Publication[] } {
  const { meta } = redis;
  if (meta === undefined) {
    return { answer: emptyAnswer(CALL_STATUS.needsMembers, serverUs), published: [] };
  }
  const entry = new Entry(redis, meta, serverUs, header, rules);
  const { published, clockUs: nowUs } = entry;
  const status = entry.enter();
  let counters: CounterAnswer[] = [];
  if (status === CALL_STATUS.done) {
    const { member, reportedEpoch } = header;
    const run = { redis, nowUs, rules, published, member, reportedEpoch, entry };
    counters = messages.map((message) => new Exchange(run, message).run());
  }
  // A message may have begun a recovery.
  return { answer: { ...entry.answer(status), counters }, published };
}

/** Machines of which a member has called lately. */
function machineCount(members: Record<string, KnownMember>, nowUs: number): number {
  const live = Object.entries(members).filter(([, { contactUs }]) => nowUs - contactUs <= LIVE_US);
  return new Set(live.map(([member]) => member.split('.')[0])).size;
}

type Mutable<T> = { -readonly [K in keyof T]: T[K] };

const emptyAnswer = (status: number, clockUs: number): CallAnswer => ({
  ...{ status, clockUs, epoch: '', isRecovering: false, membersVersion: 0, machineCount: 0 },
  ...{ openedUs: 0, aheadUs: 0, counters: [] },
});

/**
 * A member presents the members that it knows: to an empty Redis, or in a new epoch.
 * @param isYoung whether Redis has started so lately that others may still present members
 */
export function presentMembers(
  redis: RedisState,
  serverUs: number,
  header: CallHeader,
  presented: readonly string[],
  rules: Rules = RULES,
  isYoung = false,
): CallAnswer {
  const isNew = redis.meta === undefined;
  const hasTokens = header.reportedEpoch !== '' || presented.length > 0;
  if (isNew && !hasTokens && isYoung) return emptyAnswer(CALL_STATUS.joining, serverUs);
  const nowMs = Math.floor(Math.max(serverUs, header.clockUs) / 1_000);
  redis.meta ??= {
    ...{ runId: redis.runId, epochNumber: nowMs, fenceUs: 0, version: nowMs },
    ...{ clockUs: 0, clockTimeUs: 0, scannedUs: 0, members: {}, forgotten: {} },
    ...{ openedUs: 0, lostUs: 0 },
  };
  const entry = new Entry(redis, redis.meta, serverUs, header, rules);
  if (isNew && hasTokens) entry.newEpoch();
  return entry.answer(entry.register(presented));
}

/** Removes a member. Recoveries wait for it no longer, and its leases stay deducted. */
export function forgetMember(redis: RedisState, serverUs: number, name: string): void {
  const { meta } = redis;
  if (meta?.members[name] === undefined) return;
  const header = { member: '', reportedEpoch: '', membersVersion: 0, clockUs: 0 };
  const entry = new Entry(redis, meta, serverUs, header, RULES);
  delete meta.members[name];
  meta.forgotten[name] = entry.clockUs;
  meta.version = Math.max(meta.version + 1, Math.floor(entry.clockUs / 1_000));
  meta.scannedUs = 0;
  entry.store();
}

/**
 * The last call of a member that has reported everything.
 * @param usageEndUs when its usage no longer counts
 * @returns false: it would still be waited for
 */
export function leaveMember(
  redis: RedisState,
  serverUs: number,
  header: CallHeader,
  usageEndUs: number,
  rules: Rules = RULES,
): boolean {
  const { meta } = redis;
  const known = meta?.members[header.member];
  if (meta === undefined || known === undefined) return false;
  const entry = new Entry(redis, meta, serverUs, header, rules);
  const isCurrent = meta.runId === redis.runId && header.reportedEpoch === entry.epoch;
  if (!isCurrent || meta.fenceUs > 0) return false;
  if (!keeps(rules, 'keepsLeftMembers')) {
    forgetMember(redis, serverUs, header.member);
    return true;
  }
  known.contactUs = Math.min(entry.clockUs - LIVE_US - 1, usageEndUs - KEPT_US);
  meta.scannedUs = 0;
  entry.store();
  return true;
}

/** A bucket that members have joined, in an epoch that they have reported. */
export function joinedRedis(runId: string, serverUs: number, names: readonly string[]): RedisState {
  const nowMs = Math.floor(serverUs / 1_000);
  const member = (): KnownMember => ({
    ...{ contactUs: serverUs, since: nowMs, acknowledged: nowMs, hasJoined: true },
    ...{ presented: nowMs, reported: nowMs },
  });
  return {
    ...newRedis(runId),
    meta: {
      ...{ runId, epochNumber: nowMs, fenceUs: 0, version: nowMs, forgotten: {} },
      ...{ clockUs: serverUs, clockTimeUs: serverUs, scannedUs: serverUs },
      ...{ openedUs: 0, lostUs: 0 },
      members: Object.fromEntries(names.map((name) => [name, member()])),
    },
  };
}

interface Call {
  redis: RedisState;
  nowUs: number;
  rules: Rules;
  published: Publication[];
  member: string;
  reportedEpoch: string;
  entry: Entry;
}

/** The handling of one message. */
class Exchange {
  readonly #call: Call;
  readonly #message: CounterMessage;
  readonly #key: string;
  readonly #window: number;
  readonly #carries: boolean;
  readonly #readsPrevious: boolean;

  constructor(call: Call, message: CounterMessage) {
    this.#call = call;
    this.#message = message;
    this.#key = keyOfMessage(message);
    this.#window = Math.floor(call.nowUs / 1_000 / message.durationMs);
    this.#carries = message.isSliding || message.checks.some(({ isSliding }) => isSliding);
    this.#readsPrevious =
      this.#carries || message.hasPrevious || message.window === this.#window - 1;
  }

  run(): CounterAnswer {
    const { redis, rules, member } = this.#call;
    const message = this.#message;
    const at = counterAt(this.#key, this.#window);
    const before = counterAt(this.#key, this.#window - 1);
    const stored = redis.counters[at]?.members[member];
    const storedBefore = this.#readsPrevious ? redis.counters[before]?.members[member] : undefined;
    if (message.window > this.#window) return this.#refuse(MESSAGE_STATUS.recovering);
    const newest = Math.max(stored?.sequence ?? 0, storedBefore?.sequence ?? 0);
    if (keeps(rules, 'checksSequence') && message.sequence <= newest) {
      return this.#refuse(MESSAGE_STATUS.stale);
    }
    const isNewCounter = redis.counters[at] === undefined;
    const counter = redis.counters[at] ?? newCounter();
    const wasLent = counter.used - counter.known;
    const was = { used: counter.used, known: counter.known, limit: counter.limit };
    const wasUnknown = counter.unknown;
    const isOfWindow = message.window === this.#window;
    const isMissed = stored?.isMissed || (message.isStored && stored === undefined && isOfWindow);
    const isReport = this.#takeReport(counter, stored);
    const isMarked = this.#verify(counter, isNewCounter, stored, storedBefore);
    const isTelling = isReport || isMarked || this.#isBehind;
    const { unknown } = counter;
    const hadPrevious = redis.counters[before] !== undefined;
    const previous = this.#settlePrevious(counter, isTelling);
    const isPreviousNew = !hadPrevious && redis.counters[before] !== undefined;
    if (isNewCounter && isPreviousNew) redis.index[this.#key] = this.#window - 1;
    const spentBefore = foldedSpent(counter.members[member], message.firstSequence);
    const record = this.#settle(
      counter,
      isOfWindow ? message.spent : 0,
      isOfWindow ? message.kept : 0,
      isOfWindow,
    );
    if (isMissed) forgetRestored(counter, record.spent - spentBefore);
    record.isMissed = false;
    const known = isOfWindow && message.others > 0 ? message.others + message.spent : 0;
    this.#restore(counter, known, unknown > 0 || !this.#isVerified(counter), isTelling);
    if (counter.unknown === 0) counter.isOnlyBefore = true;
    record.rate = message.rate;
    if (message.lastLimit > 0) counter.limit = message.lastLimit;
    const answer = this.#decide(counter, record, isMarked, (status) => {
      // Before leases are recalled for this message.
      const hasFallen =
        counter.used < was.used ||
        counter.known < was.known ||
        counter.used - counter.known < wasLent ||
        unknown < wasUnknown;
      const isWoken = this.#wake(counter, hasFallen || previous.hasFallen);
      const isUseLower = counter.known < was.known || previous.isUseLower;
      const isTold = this.#endDenials(counter, isUseLower);
      return isWoken || isTold || status;
    });
    if (counter.unknown === 0) counter.isOnlyBefore = true;
    answer.isStored ||= isMarked || counter.reported !== undefined;
    answer.isStored ||= counter.used !== was.used || counter.known !== was.known;
    if (stored !== undefined || record.deducted !== 0 || record.spent !== 0 || answer.isStored) {
      answer.isStored = true;
      redis.counters[at] = counter;
      if (isNewCounter) {
        redis.index[this.#key] = this.#window;
        counter.hasPrevious = this.#readsPrevious && redis.counters[before] !== undefined;
      }
    } else {
      delete counter.members[member];
      counter.limit = was.limit;
    }
    return answer;
  }

  /** @returns whether the message is the report that Redis waits for */
  #takeReport(counter: CounterRecord, stored: MemberRecord | undefined): boolean {
    const { report } = this.#message;
    if (!stored?.mustReport) return false;
    const isReport = report === stored.firstRecallUs;
    if (!isReport && keeps(this.#call.rules, 'numbersReports')) return false;
    const nothing = { isGuess: false, firstRecallUs: 0, lastRecallUs: 0 };
    Object.assign(stored, { mustReport: false, ...nothing });
    counter.unknown--;
    return true;
  }

  /** Whether the member has not reported all of its counters in a recovery. */
  get #isBehind(): boolean {
    const { entry, reportedEpoch } = this.#call;
    return entry.meta.fenceUs > 0 && reportedEpoch !== entry.epoch;
  }

  /** Marks the members that must report before the counter is served. @returns whether it did */
  #verify(
    counter: CounterRecord,
    isNewCounter: boolean,
    stored: MemberRecord | undefined,
    storedBefore: MemberRecord | undefined,
  ): boolean {
    const { redis, rules, reportedEpoch, entry } = this.#call;
    const { meta, clockUs } = entry;
    const message = this.#message;
    const startUs = this.#window * message.durationMs * 1_000;
    let [isLost, isLostBefore] = [false, false];
    let [isGuess, isIndexed] = [false, false];
    if (reportedEpoch === entry.epoch && keeps(rules, 'detectsLostRecords')) {
      isLost = this.#knowsLost(isNewCounter, stored);
      isLostBefore = this.#knowsLostBefore(storedBefore);
    }
    if (isNewCounter || isLost) {
      isIndexed = redis.index[this.#key] === this.#window && keeps(rules, 'looksIntoIndex');
      isGuess = isNewCounter && startUs < meta.lostUs;
    }
    if ((isLost || isLostBefore) && !isIndexed) {
      meta.lostUs = clockUs;
      entry.store();
    }
    isLost ||= isIndexed;
    if (this.#carries && keeps(rules, 'verifiesPrevious')) {
      const before = redis.counters[counterAt(this.#key, this.#window - 1)];
      if (before !== undefined && before.unknown > 0 && !before.isOnlyBefore) {
        Object.assign(before, { unknown: 0, isOnlyBefore: true });
        isLostBefore = true;
      }
      const isNamed = isNewCounter && redis.index[this.#key] === this.#window - 1;
      if (before === undefined && (counter.hasPrevious || isNamed)) isLostBefore = true;
    }
    const { checks, wantsLease, recalls, refund } = message;
    const isUse = checks.length > 0 || wantsLease || recalls || refund > 0;
    const isOwn = isLost || isGuess || (isUse && !this.#isVerified(counter, false));
    if (!isOwn && !isLostBefore && (!isUse || this.#isVerified(counter))) return false;
    if (isOwn) counter.isOnlyBefore = false;
    this.#mark(counter, isLost || isLostBefore, isGuess);
    if (meta.fenceUs > 0) counter.verified = meta.epochNumber;
    if (!isNewCounter) counter.hasPrevious = false;
    return true;
  }

  /** Whether the member has had an answer of what is missing. */
  #knowsLost(isNewCounter: boolean, stored: MemberRecord | undefined): boolean {
    const { window, isStored, others } = this.#message;
    if (window !== this.#window) return false;
    return (isStored && stored === undefined) || (others > 0 && isNewCounter);
  }

  /** The same in the window before. */
  #knowsLostBefore(stored: MemberRecord | undefined): boolean {
    const { window, isStored, others, previousKnown, previousSpent } = this.#message;
    const { counters } = this.#call.redis;
    const isMissing = counters[counterAt(this.#key, this.#window - 1)] === undefined;
    if (window === this.#window) {
      return this.#carries && previousKnown > previousSpent && isMissing;
    }
    if (window !== this.#window - 1) return false;
    return (isStored && stored === undefined) || (others > 0 && isMissing);
  }

  #mark(counter: CounterRecord, isLost: boolean, isGuess: boolean): void {
    const { rules, entry } = this.#call;
    const { meta, clockUs } = entry;
    const beganUs = meta.epochNumber * 1_000;
    for (const [name, known] of Object.entries(meta.members)) {
      const isBehind = known.reported < meta.epochNumber && (known.hasJoined || rules.isAvailable);
      if (!isLost && !isGuess && !isBehind) continue;
      const isSilent = clockUs - known.contactUs > LIVE_US;
      const isAway = isBehind && known.contactUs < beganUs && clockUs >= beganUs + AWAIT_US;
      const isPossible = !isLost && !isBehind;
      if ((rules.isAvailable || isPossible) && (isSilent || isAway)) {
        counter.isMissing = true;
        continue;
      }
      counter.members[name] ??= newRecord(0);
      const record = counter.members[name];
      if (record.mustReport) continue;
      const first = { firstRecallUs: clockUs, lastRecallUs: 0 };
      Object.assign(record, { mustReport: true, isMissed: false, isGuess: isPossible, ...first });
      counter.unknown++;
    }
  }

  /**
   * Whether nothing is missing that a recovery may bring.
   * @param carries whether the window before counts
   */
  #isVerified(counter: CounterRecord, carries = this.#carries): boolean {
    const { entry, rules } = this.#call;
    const { fenceUs, epochNumber } = entry.meta;
    if (!keeps(rules, 'waitsForReports') || fenceUs === 0) return true;
    const { durationMs } = this.#message;
    const isFenced = (this.#window - Number(carries)) * durationMs * 1_000 < fenceUs;
    return !isFenced || counter.verified === epochNumber;
  }

  /** Remembers what a member knows of all, and restores it when nobody else will report. */
  #restore(counter: CounterRecord, known: number, mustWait: boolean, isTelling: boolean): void {
    if (isTelling && known > Math.max(0, counter.known)) {
      counter.reported = Math.max(known, counter.reported ?? 0);
    }
    if (counter.reported === undefined || mustWait) return;
    const more = counter.reported - counter.known;
    delete counter.reported;
    if (more <= 0) return;
    counter.restored += more;
    counter.used += more;
    counter.known += more;
  }

  #refuse(status: number): CounterAnswer {
    return { ...NOTHING, sequence: this.#message.sequence, status };
  }

  /** Brings the record of the member up to date. */
  #settle(
    counter: CounterRecord,
    rawSpent: number,
    kept: number,
    knowsBase: boolean,
  ): MemberRecord {
    const { member, rules } = this.#call;
    const { sequence, firstSequence } = this.#message;
    let record = counter.members[member];
    if (
      record === undefined ||
      (record.sequence < firstSequence && keeps(rules, 'foldsOlderSlots'))
    ) {
      // The tokens of an earlier slot stay counted.
      if (record !== undefined && !record.isWrittenOff) {
        counter.known += record.deducted - record.spent;
      }
      const { mustReport = false, isGuess, firstRecallUs = 0, lastRecallUs = 0 } = record ?? {};
      record = newRecord(sequence);
      if (mustReport) Object.assign(record, { mustReport, isGuess, firstRecallUs, lastRecallUs });
      counter.members[member] = record;
    }
    if (!knowsBase) record.base = 0;
    const spent = rawSpent - record.base;
    const deducted = spent + kept;
    counter.used += deducted - record.deducted;
    counter.known += spent - (record.isWrittenOff ? record.deducted : record.spent);
    record.deducted = deducted;
    record.spent = spent;
    record.sequence = sequence;
    record.isWrittenOff = false;
    if (kept === 0 && !record.mustReport) {
      record.firstRecallUs = 0;
      record.lastRecallUs = 0;
    }
    return record;
  }

  /** @returns whether tokens came back, or fewer are lent; and whether the known use is lower */
  #settlePrevious(
    current: CounterRecord,
    isTelling: boolean,
  ): { hasFallen: boolean; isUseLower: boolean } {
    if (!this.#readsPrevious) return { hasFallen: false, isUseLower: false };
    const { counters } = this.#call.redis;
    const { window, others, spent, previousKnown } = this.#message;
    const at = counterAt(this.#key, this.#window - 1);
    const { used: usedBefore, known: knownBefore } = counters[at] ?? newCounter();
    this.#settleUsageBefore();
    const counter = counters[at] ?? newCounter();
    const known = window === this.#window ? previousKnown : others + spent;
    const mustWait = current.unknown > 0 || !this.#isVerified(current, true);
    this.#restore(counter, window < this.#window - 1 ? 0 : known, mustWait, isTelling);
    if (counter.reported !== undefined || counter.restored > 0) counters[at] = counter;
    const isUseLower = counter.known < knownBefore;
    const isLessLent = counter.used - counter.known < usedBefore - knownBefore;
    return { hasFallen: counter.used < usedBefore || isUseLower || isLessLent, isUseLower };
  }

  #settleUsageBefore(): void {
    const { redis, member, rules } = this.#call;
    const { window, spent, kept, previousSpent, sequence, firstSequence } = this.#message;
    const at = counterAt(this.#key, this.#window - 1);
    const counter = redis.counters[at] ?? newCounter();
    const stored = counter.members[member];
    const isOfOlderSlot = stored !== undefined && stored.sequence < firstSequence;
    const base = isOfOlderSlot ? 0 : (stored?.base ?? 0);
    // A member that knows nothing of the window has used nothing since its base.
    let [used, held] = [base, 0];
    if (window === this.#window - 1) held = keeps(rules, 'settlesPreviousWithKept') ? kept : 0;
    if (base < CLEARED_BASE) {
      if (window === this.#window) used = previousSpent;
      else if (window === this.#window - 1) used = spent;
    }
    const isUnchanged =
      used - base + held === (stored?.deducted ?? 0) &&
      used - base === (stored?.spent ?? 0) &&
      (stored?.isWrittenOff !== true || stored.deducted === stored.spent);
    if (isUnchanged && !isOfOlderSlot) return;
    const record = this.#settle(counter, used, held, true);
    record.sequence = sequence;
    record.firstRecallUs = 0;
    record.lastRecallUs = 0;
    record.denies = false;
    if (stored?.mustReport && counter.unknown > 0) counter.unknown--;
    if (counter.unknown === 0) counter.isOnlyBefore = true;
    Object.assign(record, { mustReport: false, isMissed: false, isGuess: false });
    redis.counters[at] = counter;
  }

  #previous(): CounterRecord {
    const { counters } = this.#call.redis;
    const at = counterAt(this.#key, this.#window - 1);
    return (this.#readsPrevious ? counters[at] : undefined) ?? newCounter();
  }

  #carried(used: number): number {
    if (!this.#carries) return 0;
    const { durationMs } = this.#message;
    const nowMs = Math.floor(this.#call.nowUs / 1_000);
    return share(Math.max(0, used), (this.#window + 1) * durationMs - nowMs, durationMs);
  }

  #decide(
    counter: CounterRecord,
    record: MemberRecord,
    isMarked: boolean,
    wake: (isRecorded: boolean) => boolean,
  ): Mutable<CounterAnswer> {
    const message = this.#message;
    const { rules, nowUs, member } = this.#call;
    const { sequence, durationMs, refund, checks } = message;
    const answer: Mutable<CounterAnswer> = {
      ...{ ...NOTHING, sequence, window: this.#window },
      leftUs: (this.#window + 1) * durationMs * 1_000 - nowUs,
    };
    let needsRecall = message.recalls;
    if (refund > 0 && message.refundWindow === this.#window) {
      const isLent = lentToOthers(counter, record) > 0 || counter.unknown > 0;
      if (refund > counter.known && isLent) {
        answer.status = MESSAGE_STATUS.retryRefund;
        needsRecall = true;
      } else answer.refunded = refundTokens(counter, record, refund);
    }
    const carried = this.#carried(this.#previous().used);
    const isProven = ({ cost, limit, isSliding }: TokenCheck) => {
      const known = keeps(rules, 'provesDenials')
        ? counter.known - record.spent + record.deducted
        : counter.used;
      return cost > limit - known - (isSliding ? this.#carried(this.#previous().known) : 0);
    };
    const machines = machineCount(this.#call.entry.meta.members, nowUs);
    const previous = this.#previous();
    const mine = previous.members[member];
    const isCurrent = (of: CounterRecord, own: MemberRecord | undefined) => {
      return lentToOthers(of, own) <= 0 || nowUs - of.recallUs < SHARED_RECALL_US;
    };
    const mayShare =
      this.#carries &&
      message.wantsLease &&
      carried > 0 &&
      machines > 1 &&
      counter.unknown === 0 &&
      (counter.used > record.deducted || previous.used > (mine?.deducted ?? 0)) &&
      isCurrent(counter, record) &&
      isCurrent(previous, mine) &&
      keeps(rules, 'provesDenials');
    const isShared = (limit: number) => {
      if (!mayShare || limit < rules.smallestLeasedLimit) return false;
      const held = lentToOthers(counter, record) + carried - this.#carried(this.#previous().known);
      return held <= (machines - 1) * rules.sharedTokens(limit);
    };
    const take = (cost: number) => {
      record.deducted += cost;
      counter.used += cost;
    };
    const served = checks.map((check): number => {
      const { cost, limit, isSliding, countsDenied } = check;
      if (cost === 0) return SERVED.allowed;
      const isKnown = counter.unknown === 0;
      if (isKnown && cost <= limit - counter.used - (isSliding ? carried : 0)) {
        take(cost);
        counter.limit = limit;
        return SERVED.allowed;
      }
      const isDenied = isProven(check);
      const isSmall = isSliding && cost <= rules.pauseTokens(limit);
      if (!isDenied && !(isSmall && isShared(limit))) return SERVED.unproven;
      if (countsDenied) take(cost);
      return isDenied ? SERVED.denied : SERVED.shared;
    });
    needsRecall ||= served.includes(SERVED.unproven);
    const limits = checks.map(({ limit }) => limit);
    answer.lentLimit = checks.length > 0 ? Math.min(...limits) : message.lastLimit;
    const isServed = served.every((each) => each === SERVED.allowed);
    const isCostly = checks.length === 0 || checks.some(({ cost }) => cost > 0);
    if (isServed && isCostly && !needsRecall) {
      answer.lent = this.#lease(counter, answer.lentLimit, carried, mayShare);
      take(answer.lent);
      if (answer.lent > 0) Object.assign(record, { firstRecallUs: 0, lastRecallUs: 0 });
    }
    const limit = answer.lentLimit;
    const isUsedUp = limit - counter.used - carried < rules.pauseTokens(limit);
    if (!needsRecall && isUsedUp && isShared(limit)) {
      const free = (limit * 1_000) / durationMs;
      const part = Math.max(message.rate / Math.max(ratesOf(counter), free), 1 / machines);
      const perSecond = free * part;
      const ms = Math.min(PAUSE_MAX_MS, (1_000 * rules.pauseTokens(limit)) / perSecond);
      answer.pauseMs = Math.ceil(ms);
    }
    answer.isStored = wake(needsRecall);
    if (needsRecall || (isMarked && counter.unknown > 0)) {
      const previous = this.#previous();
      const mine = previous.members[member];
      answer.writtenOff = this.#recall(counter, record, this.#window);
      if (this.#readsPrevious) {
        answer.writtenOff += this.#recall(previous, mine, this.#window - 1);
      }
      if (answer.writtenOff > 0) counter.wasWrittenOff = true;
      const isLent =
        counter.unknown > 0 ||
        lentToOthers(counter, record) > 0 ||
        lentToOthers(previous, mine) > 0;
      if (isLent && !counter.waiters.includes(member)) counter.waiters.push(member);
      // Tokens that were written off may prove denials.
      for (const [n, check] of checks.entries()) {
        if (served[n] !== SERVED.unproven || !isProven(check)) continue;
        served[n] = SERVED.denied;
        if (check.countsDenied) take(check.cost);
      }
    }
    const { used: previousUsage, known: previousKnownUsage } = this.#previous();
    const canFall = counter.known > 0 || previousKnownUsage > 0;
    const isAllServed = served.every((each) => each === SERVED.allowed);
    const mustAsk = answer.pauseMs === 0 && isAllServed && isCostly;
    if (canFall && checks.length > 0 && !mustAsk && !record.denies) {
      record.denies = true;
      counter.hasDenials = true;
      answer.isStored = true;
    }
    answer.mayDeny = record.denies || !canFall;
    answer.isUnknown = counter.unknown > 0;
    const { openedUs } = this.#call.entry.meta;
    const startUs = (this.#window - Number(this.#carries)) * durationMs * 1_000;
    answer.isMissing = counter.isMissing || startUs < openedUs;
    answer.wasWrittenOff = counter.wasWrittenOff;
    answer.report = record.mustReport ? record.firstRecallUs : 0;
    const others = counter.known - record.spent - (keeps(rules, 'subtractsBase') ? record.base : 0);
    const othersDeducted =
      counter.used - record.deducted - (keeps(rules, 'subtractsBase') ? record.base : 0);
    return Object.assign(answer, {
      ...{ others, othersDeducted, previousUsage, previousKnownUsage, served },
    });
  }

  #lease(counter: CounterRecord, limit: number, carried: number, mayShare: boolean): number {
    const { rules, nowUs, entry } = this.#call;
    const { wantsLease, durationMs, rate, kept } = this.#message;
    if (!wantsLease || limit < rules.smallestLeasedLimit) return 0;
    if (counter.unknown > 0 || entry.isJoining) return 0;
    const isQuiet = counter.recallUs > 0 && nowUs - counter.recallUs < QUIET_US;
    if (isQuiet && keeps(rules, 'isQuietAfterRecall')) return 0;
    const endUs = (this.#window + 1) * durationMs * 1_000;
    const leastUs = durationMs * 1_000 * LEASE_LEFT_SHARE;
    const leftUs = Math.max(LEASE_LEFT_MIN_US, Math.min(leastUs, LEASE_LEFT_MAX_US));
    if (endUs - nowUs <= leftUs) return 0;
    const rates = ratesOf(counter);
    const carriedNow = keeps(rules, 'subtractsCarriedFromLeases') ? carried : 0;
    const remaining = limit - counter.used - carriedNow;
    const machines = machineCount(entry.meta.members, nowUs);
    const demand = { limit, remaining, rate, rates, machines, durationMs, kept };
    const tokens = Math.max(rules.lease(demand), mayShare ? rules.sharedTokens(limit) - kept : 0);
    return Math.max(0, Math.min(tokens, remaining));
  }

  /**
   * Recalls the leases of all others, and writes off holders that have not answered.
   * @returns how many it wrote off
   */
  #recall(counter: CounterRecord, mine: MemberRecord | undefined, window: number): number {
    const { nowUs, published, rules } = this.#call;
    let isSent = false;
    let writtenOff = 0;
    for (const [to, record] of Object.entries(counter.members)) {
      const lent = record.deducted - record.spent;
      if (record === mine) continue;
      if (record.mustReport && window === this.#window) {
        this.#requestReport(counter, to, record);
        continue;
      }
      if (lent <= 0 || record.isWrittenOff) continue;
      const isCorrection = this.#message.checks.length === 0;
      const writeOffUs = isCorrection ? CORRECTION_WRITE_OFF_US : WRITE_OFF_US;
      const isOverdue = record.firstRecallUs > 0 && nowUs - record.firstRecallUs >= writeOffUs;
      if (!isOverdue && nowUs - record.lastRecallUs >= RECALL_AGAIN_US) {
        record.firstRecallUs ||= nowUs;
        record.lastRecallUs = nowUs;
        isSent = true;
        published.push({ to, kind: 'recall', key: this.#key });
      }
      if (!isOverdue) continue;
      record.isWrittenOff = true;
      writtenOff++;
      counter.known += lent;
      if (keeps(rules, 'keepsWrittenOffTokens')) continue;
      record.deducted -= lent;
      counter.used -= lent;
      counter.known -= lent;
    }
    if (isSent) {
      counter.recall++;
      counter.recallUs = nowUs;
    }
    return writtenOff;
  }

  /** Requests a report, or gives a member up that does not answer. */
  #requestReport(counter: CounterRecord, to: string, record: MemberRecord): void {
    const { nowUs, published, rules, entry } = this.#call;
    const isOverdue = nowUs - record.firstRecallUs >= AWAIT_US;
    const isForgotten = entry.meta.members[to] === undefined;
    const isGivenUp = rules.isAvailable || record.isGuess || isForgotten;
    if (record.lastRecallUs > 0 && isOverdue && isGivenUp) {
      counter.isMissing = true;
      counter.unknown--;
      const nothing = { isGuess: false, denies: record.denies, firstRecallUs: 0, lastRecallUs: 0 };
      Object.assign(record, { mustReport: false, isMissed: true, ...nothing });
      return;
    }
    const againUs = isOverdue ? REPORT_AGAIN_US : RECALL_AGAIN_US;
    if (nowUs - record.lastRecallUs < againUs) return;
    if (record.lastRecallUs === 0) record.firstRecallUs = nowUs;
    record.lastRecallUs = nowUs;
    const report = record.firstRecallUs;
    published.push({ to, kind: 'report', key: this.#key, report });
  }

  /** @returns whether members were woken */
  #wake(counter: CounterRecord, hasFallen: boolean): boolean {
    const { waiters } = counter;
    if (!hasFallen || waiters.length === 0) return false;
    const { member, published } = this.#call;
    for (const to of waiters) {
      if (to === member) continue;
      published.push({ to, kind: 'wake', key: this.#key });
    }
    counter.waiters = [];
    return true;
  }

  /** @returns whether there was somebody to tell */
  #endDenials(counter: CounterRecord, isUseLower: boolean): boolean {
    if (!counter.hasDenials || !isUseLower || !keeps(this.#call.rules, 'endsDenials')) return false;
    const { member, published } = this.#call;
    for (const [to, record] of Object.entries(counter.members)) {
      if (to === member || !record.denies) continue;
      record.denies = false;
      published.push({ to, kind: 'wake', key: this.#key });
    }
    counter.hasDenials = counter.members[member].denies;
    return true;
  }
}

const ratesOf = ({ members }: CounterRecord) =>
  Object.values(members).reduce((sum, { rate }) => sum + rate, 0);

const NOTHING: CounterAnswer = {
  ...{ sequence: 0, status: MESSAGE_STATUS.done, window: NO_WINDOW, leftUs: 0, isStored: false },
  ...{ mayDeny: false, pauseMs: 0 },
  ...{
    others: 0,
    othersDeducted: 0,
    previousUsage: 0,
    previousKnownUsage: 0,
    lent: 0,
    lentLimit: 0,
  },
  ...{ refunded: 0, served: [], writtenOff: 0 },
  ...{ isUnknown: false, isMissing: false, wasWrittenOff: false, report: 0 },
};

/** What a record counts of its member's use, unless that is of an earlier slot. */
function foldedSpent(record: MemberRecord | undefined, firstSequence: number): number {
  return record === undefined || record.sequence < firstSequence ? 0 : record.spent;
}

/** What was restored contains the usage of a member that reports now. */
function forgetRestored(counter: CounterRecord, tokens: number): void {
  const told = Math.max(0, Math.min(counter.restored, tokens));
  counter.restored -= told;
  counter.used -= told;
  counter.known -= told;
}

function refundTokens(counter: CounterRecord, record: MemberRecord, wanted: number): number {
  const tokens = Math.max(0, Math.min(wanted, counter.known));
  record.deducted -= tokens;
  record.spent -= tokens;
  counter.used -= tokens;
  counter.known -= tokens;
  return tokens;
}

/** Tokens of other members that are not known to be used. */
function lentToOthers(counter: CounterRecord, mine: MemberRecord | undefined): number {
  const own = mine === undefined ? 0 : mine.deducted - mine.spent;
  return counter.used - counter.known - own;
}

/**
 * Removes the usage of one window that is known. Tokens in leases stay deducted.
 * @param isOver whether the window had ended: then all that it was used for was before the reset
 */
export function resetCounter(
  redis: RedisState,
  key: string,
  window: number,
  isOver = false,
): Publication[] {
  const counter = redis.counters[counterAt(key, window)];
  if (counter === undefined) return [];
  const { waiters, members } = counter;
  Object.assign(counter, { used: 0, known: 0, limit: 0, hasDenials: false, waiters: [] });
  Object.assign(counter, { restored: 0, isMissing: false, wasWrittenOff: false });
  delete counter.reported;
  for (const record of Object.values(members)) {
    const deducted = isOver ? 0 : record.deducted - record.spent;
    const base = isOver ? CLEARED_BASE : record.base + record.spent;
    Object.assign(record, { base, deducted, spent: 0, denies: false });
    record.isMissed = false;
    if (!record.mustReport) Object.assign(record, { firstRecallUs: 0, lastRecallUs: 0 });
    counter.used += deducted;
    if (record.isWrittenOff) counter.known += deducted;
  }
  const told = Object.keys(members).map((to) => ({ to, kind: 'reset' as const, key }));
  return [...told, ...waiters.map((to) => ({ to, kind: 'wake' as const, key }))];
}
