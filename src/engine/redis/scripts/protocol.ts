/**
 * The meaning of the messages between members and scripts; `records.ts` has their layout. Messages
 * carry cumulative numbers and a sequence number: lost, repeated and reordered messages then allow
 * nothing extra, and the next message returns lost tokens. Only a refund is an amount. Until its
 * answer has come, `spent` contains the refunded tokens, so the next message takes them back.
 *
 * A machine is a process of weir. A member is one shard worker of a machine. Each counter of a
 * machine belongs to one member, so the lease of a machine is that of this member.
 */

import type { Identity } from '../../../core/hash.ts';

/** The window of a slot that has never had an answer. */
export const NO_WINDOW = -1;

/** A check by a rule that has windows; GCRA has a script of its own. */
export interface TokenCheck {
  cost: number;
  limit: number;
  isSliding: boolean;
  /** Whether the cost is counted also if the check is denied. */
  countsDenied: boolean;
}

/** What a member reports of a counter, and requests. At most MESSAGES_PER_CALL are in a call. */
export interface CounterMessage {
  identity: Identity;
  durationMs: number;
  /** The window that the member knows; NO_WINDOW if it knows none. */
  window: number;
  /** Tokens that the member has allowed in that window, less refunds. */
  spent: number;
  /** The same for the window before, with tokens that are still reserved there. */
  previousSpent: number;
  /** Whether `previousSpent` must be stored, where neither a check nor the lease is sliding. */
  hasPrevious: boolean;
  /** Greater than in each earlier message of this member about this counter. */
  sequence: number;
  /** Tokens that the member still holds after this message: of its lease, and reserved ones. */
  kept: number;
  /** Tokens per second that the member has allowed lately. */
  rate: number;
  /** The limit of the last check that the member has allowed; 0 if it has allowed none. */
  lastLimit: number;
  /** Whether the member wants a new lease. */
  wantsLease: boolean;
  /** Whether that lease shall serve checks of the sliding window, as its checks need. */
  isSliding: boolean;
  /**
   * The sequence number of the first message of this slot. A record with an older one is of an
   * earlier slot, whose usage the member has forgotten: its tokens stay counted.
   */
  firstSequence: number;
  /** Whether Redis has answered that it stores a record of this member in `window`. */
  isStored: boolean;
  /** Usage of all other members in `window`, as far as this one knows; negative after a reset. */
  others: number;
  /** Usage of all members in the window before, as far as this one knows. */
  previousKnown: number;
  /** The number of the request for a report that the message answers; 0 for none. */
  report: number;
  /**
   * The number of a worker of the process before this one, plus 1, if `spent` goes on from what it
   * has reported: the record of its member becomes that of this one. 0: it does not.
   */
  inherits: number;
  /** Whether leases of other members are recalled, also if no check needs them. */
  recalls: boolean;
  /** Tokens to refund; 0 for none. */
  refund: number;
  /** The window in which they were used; NO_WINDOW without a refund. */
  refundWindow: number;
  checks: readonly TokenCheck[];
}

/**
 * How the script has decided a check of a message. `unproven`: denied for now, as other machines
 * may hold unspent tokens, which are recalled. `shared`: denied, although other machines may hold
 * a few unspent tokens of this sliding window.
 */
export const SERVED = { denied: 0, allowed: 1, unproven: 2, shared: 3 } as const;

export const MESSAGE_STATUS = {
  done: 0,
  /** Its sequence number is not above the stored one: nothing was changed. */
  stale: 1,
  /** The clock of Redis is behind; of GCRA, it has lost memory: nothing was changed. */
  recovering: 2,
  /** The refund needs tokens that other members hold; they are recalled. */
  retryRefund: 3,
  /** Redis is at `maxmemory`, and the counter does not exist: nothing was changed. */
  full: 4,
} as const;

export interface CounterAnswer {
  sequence: number;
  /** One of MESSAGE_STATUS. In all but `done` and `retryRefund` the rest means nothing. */
  status: number;
  window: number;
  /** Until the window ends, µs, rounded down. */
  leftUs: number;
  /** Whether a record of the member is stored. Not, if it has only sent checks with cost 0. */
  isStored: boolean;
  /** Whether `others` may deny checks: the member gets a notice when the known usage falls. */
  mayDeny: boolean;
  /**
   * For how long the member requests no more tokens of a sliding window that machines share and
   * that is used up, ms; 0: it may request some at once.
   */
  pauseMs: number;
  /**
   * The known usage of this window, less `spent` of the message. Negative after a reset,
   * because `spent` goes on.
   */
  others: number;
  /** The same with the tokens that other members hold, or have used and not reported. */
  othersDeducted: number;
  /**
   * Usage of the window before, of all members: with tokens in leases, and without. 0, unless the
   * message or one of its checks is sliding, or the message is about the window before.
   */
  previousUsage: number;
  previousKnownUsage: number;
  /** Tokens of the new lease. */
  lent: number;
  /** The smallest limit of the checks, else `lastLimit`. The lease serves no check below it. */
  lentLimit: number;
  refunded: number;
  /** Leases of other members that were written off for this message. */
  writtenOff: number;
  /** Whether Redis has lost usage, and waits for reports: it allows nothing. */
  isUnknown: boolean;
  /** Whether usage may be missing that Redis has lost: tokens may be allowed again. */
  isMissing: boolean;
  /** Whether leases of the window were written off: their unused tokens count as used. */
  wasWrittenOff: boolean;
  /** The number of the request for a report of this member; 0 for none. */
  report: number;
  /** By check, one of SERVED. An unproven denial is not counted, also if `countsDenied`. */
  served: readonly number[];
}

export const CALL_STATUS = {
  done: 0,
  /** The recovery is exact, and not all live members know this one yet. Nothing was done. */
  joining: 1,
  /** Redis is empty: the member must present the members that it knows. Nothing was done. */
  needsMembers: 2,
} as const;

/** What begins each call of a member. */
export interface CallHeader {
  /** 16 hexadecimal digits of the process, a dot, the number of the shard worker. */
  member: string;
  /** The epoch in which the member has reported all of its counters; '' for none. */
  reportedEpoch: string;
  /** The newest version of the list of members that this member knows. */
  membersVersion: number;
  /** The greatest clock of the bucket in an answer; 0 for none. The clock never goes behind it. */
  clockUs: number;
}

export interface CallAnswer {
  /** One of CALL_STATUS. */
  status: number;
  /** The bucket's clock at the call: Unix time, µs. */
  clockUs: number;
  /** Changes when Redis has restarted, or another server has taken over. */
  epoch: string;
  /** Whether members must report their counters. */
  isRecovering: boolean;
  membersVersion: number;
  /** Machines of which a member has called in the last 3 s. */
  machineCount: number;
  /**
   * Windows that began before were opened by a recovery to which members were missing, so that
   * tokens may be allowed in them again: Unix time, µs. 0: there was none.
   */
  openedUs: number;
  /** How far the clock of the bucket is ahead of that of its server, µs. */
  aheadUs: number;
  counters: readonly CounterAnswer[];
}

/** What a script publishes to a member. */
export type MemberMessage =
  | { kind: 'recall' | 'wake' | 'reset'; identity: Identity; durationMs: number }
  | { kind: 'report'; identity: Identity; durationMs: number; report: number }
  /** Of a GCRA bucket. */
  | { kind: 'bucket'; identity: Identity; durationMs: number }
  | { kind: 'epoch'; epoch: string };

/** A GCRA check, or a refund. Unlike a `CounterMessage` it must not be sent twice. */
export interface GcraMessage {
  /** The bucket as the member has last seen it, in case that Redis has lost it. */
  known?: GcraState | undefined;
  identity: Identity;
  durationMs: number;
  /** A refund ignores limit and burst. */
  limit: number;
  burst: number;
  /** Tokens; negative: a refund. */
  cost: number;
  countsDenied: boolean;
}

/** The bucket as the last answer showed it, for the recovery of a Redis that has lost it. */
export interface GcraReport extends GcraState {
  identity: Identity;
  durationMs: number;
}

/** The bucket is full at newest - current / limit: Unix time, ms. */
export interface GcraState {
  newest: number;
  current: number;
  limit: number;
}

export interface GcraAnswer {
  /** One of MESSAGE_STATUS: `done`, `recovering` or `full`. Only `done` means all of the rest. */
  status: number;
  isAllowed: boolean;
  remaining: number;
  /** Unix time, ms; of `recovering` when that ends. */
  reset: number;
  /** The time of the decision, Unix time in ms. */
  window: number;
  refunded: number;
  /** Whether usage may be missing that Redis has lost: tokens may be allowed again. */
  isMissing: boolean;
  /** The bucket after the decision. */
  state: GcraState;
}

/** One counter, as the inspection script returns it. */
export interface StoredCounter {
  isGcra: boolean;
  durationMs: number;
  limit: number;
  /** The newest window with usage; of GCRA the ms at which the bucket is full, rounded up. */
  newest: number;
  /** Tokens used in that window and in the one before; of GCRA as `gcra.ts` stores them. */
  current: number;
  previous: number;
  /** Tokens in leases of other members that are not known to be used. */
  lent: number;
}
