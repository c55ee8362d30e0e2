/**
 * The operations of an engine on holds. A reservation is a check whose cost is known later. A lease
 * limits how much runs at once. A client ends its hold, or the hold ends at its expiry.
 *
 * Calls that name a hold take its parsed id (`hold-id.ts`). They return undefined if there is no
 * such hold: its id was never given out, or it ended too long ago. An engine that has to ask
 * another machine answers in a later turn. Its promises reject with an ApiError (503) if there is
 * no answer. Only an answer in the turn of the call is overwritten by the next call.
 */

import type { Check } from '../core/check.ts';
import type { Decision, FullTablePolicy } from '../core/decision.ts';
import type { Eventual } from '../core/eventual.ts';
import type { Identity, NamespaceState } from '../core/hash.ts';
import type { RuleNumber } from '../core/window-rules.ts';
import type { HoldId, HoldKind } from './hold-id.ts';

/** Whether the tokens of a reservation that nobody has ended return to their window. */
export const EXPIRED_HOLD_POLICIES = ['release', 'charge'] as const;
export type ExpiredHoldPolicy = (typeof EXPIRED_HOLD_POLICIES)[number];

export interface HoldPolicies {
  /** Decides a hold for which there is no record. */
  whenFull: FullTablePolicy;
  onExpiry: ExpiredHoldPolicy;
}

/** What an acquire does after a crash while leases may be live that the engine does not know. */
export const LOST_LEASE_POLICIES = ['continue', 'wait'] as const;

export interface Reservation {
  /** Whether every check was allowed. */
  allowed: boolean;
  /** By the number of the check; there may be more of them than checks. */
  decisions: readonly Decision[];
  /** Undefined if it was denied, or is not recorded because there is no room. */
  id: HoldId | undefined;
  /** Unix time, ms. */
  expiresAt: number;
}

export type NamespaceFingerprint = readonly [number, number];

export interface Commit {
  /** The tokens that count for the reservation now, of all of its checks. */
  charged: number;
  /** The tokens that this commit has returned. */
  released: number;
  /** Whether it came after the expiry. */
  isLate: boolean;
}

export interface LeaseRequest {
  namespace: { hashState: NamespaceState };
  identity: Identity;
  limit: number;
  cost: number;
  ttlMs: number;
}

/** The answer to `acquire` and `renew`. */
export interface Lease {
  granted: boolean;
  /** Undefined if it was denied, or is not recorded because there is no room. */
  id: HoldId | undefined;
  /** The sum of the live leases of the identity, with this one. */
  inUse: number;
  /** The limit of the acquire. */
  limit: number;
  /** Unix time, ms. */
  expiresAt: number;
}

/** A live hold, as others than its owner may see it. */
export interface LiveHold {
  kind: HoldKind;
  /** Names it to operators. It does not contain the id. */
  handle: string;
  /** Tokens reserved, or in use. */
  tokens: number;
  limit: number;
  /** Of a reservation: the duration and the rule of its check. */
  durationMs: number;
  rule: RuleNumber;
  /** Unix time, ms. */
  expiresAt: number;
}

/** A hold that an operator has ended. */
export interface EndedHold {
  kind: HoldKind;
  /** Of a reservation: the tokens that returned to their window. Of a lease: those in use. */
  released: number;
}

/** What the live holds of an identity use. */
export interface LiveHolds {
  reservedTokens: number;
  /** The sum of the live leases. */
  inUse: number;
  /** How many there are, and the first LISTED_HOLDS_MAX to expire. */
  count: number;
  listed: LiveHold[];
}

export interface HoldEngine {
  /**
   * Decides up to MULTI_LIMIT_MAX checks as one, counts their costs, and records how to reverse
   * that, in one step, also if a check is asynchronous.
   * @param checks read in the turn of the call only
   */
  reserve(checks: readonly Check[], startedMs: number, ttlMs: number): Eventual<Reservation>;
  /**
   * The namespaces of a hold: of each check of a reservation, in their order. Each is the first two
   * words of its hash state.
   */
  namespacesOf(id: HoldId): Eventual<readonly NamespaceFingerprint[] | undefined>;
  /**
   * Applies the actual costs. A repetition changes nothing, and gets the same answer.
   * @param costs one for each check of the reservation
   */
  commit(id: HoldId, costs: readonly number[]): Eventual<Commit | undefined>;
  /** Ends a reservation without a cost. @returns the tokens that were returned */
  cancel(id: HoldId): Eventual<number | undefined>;
  /** @param request read in the turn of the call only */
  acquire(request: LeaseRequest): Eventual<Lease>;
  /** Sets a new expiry. Not granted if the lease has ended. */
  renew(id: HoldId, ttlMs: number): Eventual<Lease>;
  /** @returns the tokens that were in use; 0 if the lease had ended before */
  release(id: HoldId): Eventual<number | undefined>;
  /** Shows the live holds of an identity, and changes none. */
  liveHolds(identity: Identity): Eventual<LiveHolds>;
  /** Ends all live leases of an identity. @returns how many */
  endLeases(identity: Identity): Eventual<number>;
  /**
   * Ends a live hold of an identity: cancels a reservation, releases a lease. Of a reservation of
   * several checks it cancels only the check of this identity. The others stay live.
   * @param handle of `liveHolds`
   * @returns undefined if the identity has no live hold with this handle
   */
  endHold(identity: Identity, handle: string): Eventual<EndedHold | undefined>;
}
