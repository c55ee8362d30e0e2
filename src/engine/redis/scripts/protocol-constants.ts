/**
 * The times, sizes and shares of the lease protocol, each with its unit and the reason for its
 * value. The machines use them, and the scripts in Redis get them as locals of Lua. Two versions of
 * weir may share a Redis while it is updated, so a new value must also be right beside the old one.
 * A contradiction between two values stops the process when it loads this file.
 */

import {
  CHECK_DEADLINE_MS,
  DURATION_MIN_MS,
  REDIS_BACKOFF_MS,
  REDIS_CALL_DEADLINE_MS,
  REDIS_CONNECT_DEADLINE_MS,
} from '../../../core/constants.ts';

// Calls

/** Counters of one script call: Redis runs nothing else meanwhile, some 0.2 ms for so many. */
export const MESSAGES_PER_CALL = 16;
/** Checks of one counter in a message, for the same reason. Further ones wait for its answer. */
export const CHECKS_PER_MESSAGE = 64;

// Clocks

/** Clocks of two computers differ in their rate by at most this: NTP slews by up to 500 ppm. */
export const CLOCK_DRIFT = 0.0005;
/** The rate of a bucket's clock that is ahead of TIME, until TIME has caught up. */
export const CLOCK_SLEW_RATE = 0.9;
/** Wall and monotonic clock disagree by so much when a machine was suspended, ms. */
export const SUSPENDED_MS = 100;
/**
 * How often a call stores the clock of its bucket, µs. The run id is read with it, because INFO
 * takes as long as the rest of a call. No server restarts and is connected again, nor does another
 * take over with less data, in so short a time.
 */
export const ANCHOR_US = 10_000;

// Leases

/** Limits below this get no lease: LEASE_LIMIT_SHARE of them is less than a token. */
export const LEASED_LIMIT_MIN = 20;
/** The largest lease, as a share of the limit: what a dead machine keeps from the others. */
export const LEASE_LIMIT_SHARE = 0.05;
/** A lease is at least a fair share of the free tokens, divided by this. */
export const LEASE_FIRST_PARTS = 4;
/**
 * The time over which the rate of a counter is averaged, and for which a lease shall suffice, ms:
 * this share of the duration, within bounds. So a busy counter needs about 4 leases in a window of
 * up to 60 s, and 1 in 15 s in longer ones.
 */
export const LEASE_SPAN_SHARE = 1 / 4;
export const LEASE_SPAN_MIN_MS = 100;
export const LEASE_SPAN_MAX_MS = 15_000;
/**
 * No lease is granted when less of its window is left than a thousandth of it, within bounds, µs:
 * it would end before it could be used.
 */
export const LEASE_LEFT_SHARE = 1 / 1_000;
export const LEASE_LEFT_MIN_US = 5_000;
export const LEASE_LEFT_MAX_US = 50_000;
/** More tokens are wanted when the lease suffices for this time, ms: a few round trips. */
export const PREFETCH_MS = 2.5;
/** Tokens per second from which that is done. Slower counters can wait for an answer. */
export const PREFETCH_RATE_MIN = 100;

// Recalls

/**
 * A check waits so long for tokens that other machines hold, ms. It is tried again after the
 * second time, and whenever the script says that tokens have come back.
 */
export const PARK_MS = 10;
export const RETRY_MS = 4;
/** A recall of the same lease is published again after this time, µs: with each try of a check. */
export const RECALL_AGAIN_US = 4_000;
/** A lease whose machine has not answered a recall is written off after this time, µs. */
export const WRITE_OFF_US = 10_000;
/** After a recall no lease of the counter is granted, µs: the tokens are for parked checks. */
export const QUIET_US = 12_000;
/** Tokens that a batch kept at a recall are returned after this time, ms: most batches are over. */
export const RETURN_KEPT_MS = 25;
/** A refund, reset or inspection can wait longer for a lease, µs, and is then exact. */
export const CORRECTION_WRITE_OFF_US = 250_000;
/** How long such a correction waits for leases of other machines, and how often it looks, ms. */
export const SETTLE_MS = 300;
export const SETTLE_RETRY_MS = 3;
/** How long a message of a correction is repeated that Redis does not answer, ms. */
export const CORRECTION_REPEAT_MS = 1_000;
/** How long the return of all leases may take when a machine stops, ms. */
export const DRAIN_MAX_MS = 2_000;

// Sliding windows that are used up, and whose tokens come free one by one

/**
 * Machines that share such a window take so many tokens at a time, or the second part of the limit
 * if that is more, and pause in between.
 */
export const PAUSE_TOKENS = 3;
export const PAUSE_TOKENS_SHARE = 1 / 200;
/** The longest pause, ms: so long may free tokens stay unused in windows of minutes and more. */
export const PAUSE_MAX_MS = 250;
/** The machine returns such tokens after this time, ms. */
export const SHARED_LEASE_MS = 1_000;
/** They are recalled after the same time, µs: an idle or dead machine keeps none of them. */
export const SHARED_RECALL_US = SHARED_LEASE_MS * 1_000;

// Usage in memory

/** Denials in memory rely on the known usage for this part of the duration, within bounds, ms. */
export const BOUND_SHARE = 1 / 12;
export const BOUND_MIN_MS = 1_000;
export const BOUND_MAX_MS = 5_000;
/** Unreported usage of this part of what is left is reported at once. */
export const REPORT_SHARE = 1 / 8;
/** Counters that are to be reported at once within this time share calls, ms. */
export const REPORT_DELAY_MS = 2;

// Members of a bucket

/** How long after a report of all counters of which Redis did not get all the next begins, ms. */
export const REPORT_PAUSE_MS = 100;
/** Members that have called within this time are live, µs. */
export const LIVE_US = 3_000_000;
/** A member that has not called for this time is removed, µs: a day, to repair its machine. */
export const KEPT_US = 86_400_000_000;
/** How often a call stores that its member has called, µs. */
export const CONTACT_US = 500_000;
/** How often a call counts the machines, µs. */
export const SCAN_US = 1_000_000;
/** Each bucket is called at least this often, ms. */
export const HEARTBEAT_MS = 1_000;

// Recovery

/**
 * How long after its start an empty Redis waits for members that know others, ms. Only a member
 * that knows none waits. It covers the reconnection of machines after Redis has restarted empty.
 */
export const OPEN_GRACE_MS = { exact: 4_000, available: 1_000 } as const;
/** Windows that begin so soon after a loss count as begun, µs: another clock was ahead. */
export const FENCE_AHEAD_US = 1_000_000;
/** How long checks wait for the report of a member if a recovery need not be exact, µs. */
export const AWAIT_US = 1_000_000;
/**
 * A request for a report is repeated with each try of a check, and after AWAIT_US so often, µs. A
 * check that has waited for so long is then tried as often, ms.
 */
export const REPORT_AGAIN_US = 50_000;
export const UNKNOWN_RETRY_MS = 50;
/** The part of the time that an acceptor waits for a check, so that its denial is not late. */
export const RECOVERY_PARK_SHARE = 0.8;
/** For so long after an answer that waits for reports, usage counts as missing, ms. */
export const UNKNOWN_MS = 1_000;

// GCRA

/** A bucket is kept for so long after the time at which a member may believe it full, ms. */
export const BUCKET_KEPT_MS = 1_000;
/** The index is ahead of the expiry by up to this part of the duration: it is rarely written. */
export const BUCKET_INDEX_SHARE = 1 / 8;
/** How long a bucket is held that Redis has lost, ms: members report it within a few. */
export const BUCKET_HOLD_MS = 10;

// Holds

/**
 * Holds that a call ends: of those that have expired in the bucket, of those of its identity, and
 * of the leases of an identity. Redis runs nothing else meanwhile, some 0.3 ms for so many.
 */
export const ENDED_PER_CALL = 16;
/** How long after an answer a worker ends more holds that have expired, at least, ms. */
export const EXPIRE_PAUSE_MS = 4;
/** Each machine looks for holds of others that have expired this often, ms. */
export const EXPIRE_POLL_MS = 1_000;
/** How long Redis keeps a hold that has expired and that no machine has ended, ms. */
export const KEPT_HOLD_MS = 86_400_000;
/** The longest time between the check of a reservation and its record, ms. */
export const UNRECORDED_MS = 3 * CHECK_DEADLINE_MS;
/** Holds that a shard worker knows, to report them to a Redis that has lost its memory. */
export const KNOWN_HOLDS_MAX = 65_536;

// Repeated requests

/** A claim ends after this time, ms: its acceptor has answered, or is dead. */
export const CLAIM_MS = 4 * CHECK_DEADLINE_MS;
/** How often a request is tried again that is being decided elsewhere, ms. */
export const CLAIM_RETRY_MS = 10;

const INVARIANTS: readonly [boolean, string][] = [
  [LEASED_LIMIT_MIN * LEASE_LIMIT_SHARE >= 1, 'the smallest limit with leases has one of a token'],
  [PAUSE_TOKENS_SHARE < LEASE_LIMIT_SHARE, 'tokens for a pause are fewer than those of a lease'],
  [
    LEASE_SPAN_MIN_MS < LEASE_SPAN_MAX_MS && LEASE_SPAN_MIN_MS < DURATION_MIN_MS,
    'a lease is for a part of the shortest window',
  ],
  [
    LEASE_LEFT_MIN_US < LEASE_LEFT_MAX_US && LEASE_LEFT_MAX_US < DURATION_MIN_MS * 1_000,
    'a lease is granted at the beginning of the shortest window',
  ],
  [PREFETCH_MS < LEASE_SPAN_MIN_MS, 'a new lease does not need the next one at once'],
  [BOUND_MIN_MS < BOUND_MAX_MS, 'the known usage is relied on for a time between the bounds'],
  [
    RECALL_AGAIN_US <= RETRY_MS * 1_000 && RECALL_AGAIN_US < WRITE_OFF_US,
    'each try of a check repeats the recall, and a lease is not written off for one lost message',
  ],
  [
    WRITE_OFF_US <= PARK_MS * 1_000,
    'the last try of a parked check finds the leases of silent machines written off',
  ],
  [QUIET_US > PARK_MS * 1_000, 'a lease takes no tokens that were recalled for a parked check'],
  [
    CORRECTION_WRITE_OFF_US > WRITE_OFF_US && CORRECTION_WRITE_OFF_US > RETURN_KEPT_MS * 1_000,
    'a correction waits for tokens that a batch has kept',
  ],
  [
    SETTLE_MS * 1_000 > CORRECTION_WRITE_OFF_US + SETTLE_RETRY_MS * 1_000,
    'a correction waits until the leases of silent machines are written off',
  ],
  [
    CORRECTION_REPEAT_MS > REDIS_CALL_DEADLINE_MS && DRAIN_MAX_MS > CORRECTION_REPEAT_MS,
    'a message of a correction, or of the end, is repeated once at least',
  ],
  [
    PAUSE_MAX_MS < SHARED_LEASE_MS,
    'a machine requests tokens of a shared window again before it returns what it has',
  ],
  [
    SHARED_RECALL_US > QUIET_US && SHARED_RECALL_US > WRITE_OFF_US,
    'a recall of a shared window is over before the next',
  ],
  [ANCHOR_US < CONTACT_US && ANCHOR_US < SCAN_US, 'a call that stores a contact stores the clock'],
  [
    // The answer to a heartbeat comes after its tick, so that the next tick may send none.
    LIVE_US > 2 * HEARTBEAT_MS * 1_000 + CONTACT_US && LIVE_US > SCAN_US + CONTACT_US,
    'an idle member is live',
  ],
  [KEPT_US > LIVE_US && KEPT_US > AWAIT_US, 'a member is removed after it is no longer awaited'],
  [FENCE_AHEAD_US > ANCHOR_US, 'the fence covers what the clock of a bucket may be ahead'],
  [
    CLOCK_DRIFT < 1 - CLOCK_SLEW_RATE,
    'the clock of a bucket that is ahead falls back faster than clocks drift',
  ],
  [
    OPEN_GRACE_MS.exact > REDIS_CONNECT_DEADLINE_MS + REDIS_BACKOFF_MS.max &&
      OPEN_GRACE_MS.available > REDIS_BACKOFF_MS.max,
    'an empty Redis waits for machines that connect again',
  ],
  [
    REPORT_AGAIN_US <= UNKNOWN_RETRY_MS * 1_000 && REPORT_AGAIN_US > RECALL_AGAIN_US,
    'each slow try of a check repeats the request for reports',
  ],
  [
    AWAIT_US > REPORT_AGAIN_US && UNKNOWN_MS > UNKNOWN_RETRY_MS,
    'a slow report is requested again before it is given up, and usage is missing meanwhile',
  ],
  [RECOVERY_PARK_SHARE < 1, 'a check in a recovery is denied before its acceptor decides it'],
  [BUCKET_HOLD_MS <= PARK_MS, 'a check can wait until its bucket is held no longer'],
];
for (const [isTrue, invariant] of INVARIANTS) {
  if (!isTrue) throw new Error(`protocol-constants.ts violates the invariant: ${invariant}`);
}
